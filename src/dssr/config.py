"""Typed configuration; `dssr.configs` reads it from TOML.

A file states what differs from the defaults, which are the paper's numbers, or from the configuration it names as its
`base`. Every number of the method is here and nowhere else.

The shipped configurations, and how a configuration is read, checked and written out.
"""

from pathlib import Path
from typing import Any, Literal

import msgspec
import msgspec.toml
from msgspec import Struct, field

from dssr.errors import ConfigError
from dssr.seeds import digest_of
from dssr.types import Protocol


class Section(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Base of all sections: frozen, and a key that does not exist is an error."""


class GamesConfig(Section, frozen=True):
    """Which games exist."""

    world: str = "cooking"
    """The kind of world they are of."""
    archive: str = "paper"
    """Name of the archive under the data directory."""
    levels: tuple[int, ...] = (6, 9, 12)
    """Difficulties within the world; of cooking games the numbers of rooms."""
    train: int = 80
    """Games per level."""
    valid: int = 15
    test: int = 30
    options: dict[str, Any] = {}
    """Settings of the world's own, which it checks and whose defaults it knows."""


class ProtocolConfig(Section, frozen=True):
    """How an episode runs."""

    kind: Protocol = "post"
    fillers: tuple[int, ...] = (0, 10, 20, 40)
    max_actions: int = 50


class ModelConfig(Section, frozen=True):
    """One model and where its adapters lie."""

    backend: Literal["scripted", "hf", "vllm", "server"] = "vllm"
    path: str = "Qwen/Qwen3-4B-Instruct-2507"
    """Weights: a folder, a hub name, or those of a tier (`nano/writer`, `nano/reader`, `smol`); for `server` the name
    there."""
    revision: str | None = None
    dtype: Literal["float32", "bfloat16"] = "bfloat16"
    device: str = "auto"
    threads: int = 0
    """Intra-op threads; 0 leaves the library's choice."""
    context_length: int = 16384
    url: str | None = None
    """Base address of a server."""
    tokenizer: str | None = None
    """Server only: folder or hub name of the served model's tokenizer, which counts budgets here."""
    key_variable: str = "OPENAI_API_KEY"
    """Environment variable that holds a server's key."""
    concurrency: int = 64
    """Requests under way at once on a server."""
    timeout: float = 120.0
    retries: int = 5
    batch_tokens: int = 8192
    """Most tokens in one forward pass of a batch engine."""
    retention: float = 0.9
    """Scripted writer only: chance that a fact survives a rewrite."""
    adapters: dict[str, str] = {}
    """Name to folder."""


class AgentConfig(Section, frozen=True):
    """Writer and reader settings."""

    memories: tuple[str, ...] = ("full", "oracle-b", "lastk", "summary", "slots", "belief", "guide")
    budgets: tuple[int, ...] = (64, 128, 256)
    prompts: str | None = None
    """Folder whose files replace the shipped prompts of the same name."""
    reader_adapter: str | None = None
    """Name of the adapter the reader uses."""
    temperature: float = 0.0
    """Of the writer in evaluation."""
    epsilon: float = 0.0
    """Exploration of the reader in evaluation."""


class MeasureConfig(Section, frozen=True):
    """Audits, lag and the leak check."""

    points: int = 6
    """Audited decision points per episode, at most."""
    oracle_samples: int = 8
    oracle_temperature: float = 1.0
    block: int = 5
    """Steps per Phase-B chunk."""
    lag_threshold: float = 0.5
    lag_robustness: tuple[float, ...] = (0.3, 1.0)
    lag_bins: tuple[int, ...] = (1, 5, 10, 20, 40)
    """Lower edges."""
    rewrite_bins: tuple[int, ...] = (0, 1, 3, 6, 10, 15, 20, 30, 40, 60)
    stored_prompts: int = 200
    """Prompts of each role kept verbatim per run."""


class StatsConfig(Section, frozen=True):
    resamples: int = 10_000
    seed: int = 0
    level: float = 0.95
    long_fillers: tuple[int, ...] = (20, 40)
    """Walks that count as long wherever one value stands for them."""


class GatesConfig(Section, frozen=True):
    """Thresholds of the pre-registered gates; shares and differences of success are fractions, not points."""

    budget: int = 128
    near: int = 0
    """The filler without lag."""
    far: int = 40
    lag_split: int = 5
    """Measured lags from here on are long."""
    signal: float = 0.3
    """Least mean rank correlation of the training score with the return."""
    gain: float = 0.08
    loss_allowed: float = 0.03
    regret_cut: float = 0.4
    transfer_kept: float = 0.5
    no_hint_kept: float = 0.7


class ReaderConfig(Section, frozen=True):
    """Training of the reader: behaviour cloning, then DAgger."""

    full_share: float = 0.25
    memories: tuple[str, ...] = ("lastk", "summary", "belief", "slots", "guide", "oracle-b")
    budgets: tuple[int, ...] = (64, 128, 256)
    points: int = 6000
    """Sampled decision points per iteration."""
    episodes: int | None = None
    """Most episodes collected per iteration; all games at all fillers when unset."""
    iterations: int = 2
    epsilon: float = 0.1
    rank: int = 32
    alpha: int = 64
    """LoRA scale; the update counts alpha / rank times."""
    learning_rate: float = 1e-4
    warmup: float = 0.03
    epochs: int = 2
    batch: int = 16
    micro_tokens: int = 16384
    """Most tokens per forward pass while training."""
    held_out: float = 0.05
    """Share of training games kept for monitoring."""
    accept: float = 0.8
    """Least online success with full history at filler 0."""


class WriterConfig(Section, frozen=True):
    """Training of the writer from the reader's loss."""

    games: int | None = None
    """Training games played per round, drawn anew for each; all when unset."""
    episodes_per_game: int = 2
    temperature: float = 0.7
    epsilon: float = 0.1
    points: int = 3984
    phase_a_share: float = 0.5
    candidates: int = 6
    candidate_temperature: float = 1.0
    horizon: int = 40
    targets: tuple[int, ...] = (1, 4, 12)
    """K of S_K; the last is the one trained on."""
    rounds: int = 3
    """DPO rounds after round 0."""
    rank: int = 32
    alpha: int = 64
    sft_learning_rate: float = 1e-4
    sft_epochs: int = 1
    sft_batch: int = 16
    dpo_learning_rate: float = 1e-5
    dpo_epochs: int = 2
    dpo_batch: int = 32
    dpo_beta: float = 0.1
    chosen_weight: float = 0.5
    gap: float = 0.3
    pairs_per_point: int = 2
    outcome_points: int = 1000
    outcome_phase_a_share: float = 0.25
    outcome_gap: float = 0.2
    a4_candidates: int = 12
    a4_temperature: float = 1.1
    seeds: int = 3
    selection_budget: int = 128
    validation_games: int | None = None
    """Games per level on which rounds are compared; all when unset."""


class ContinuationConfig(Section, frozen=True):
    """Study of score against return."""

    points: int = 200
    candidates: int = 8
    memory: str = "summary"
    budget: int = 128


class Config(Section, frozen=True):
    """The whole study."""

    name: str
    seed: int = 0
    data: str = "data"
    """Folder of game archives and caches."""
    runs: str = "runs"
    """Folder in which run directories are made."""
    cache_gib: float = 20.0
    """Size limit of the response cache; 0 switches it off."""
    games: GamesConfig = field(default_factory=GamesConfig)
    protocol: ProtocolConfig = field(default_factory=ProtocolConfig)
    writer_model: ModelConfig = field(default_factory=ModelConfig)
    reader_model: ModelConfig | None = None
    """None: the reader shares the writer's base model."""
    agent: AgentConfig = field(default_factory=AgentConfig)
    measure: MeasureConfig = field(default_factory=MeasureConfig)
    stats: StatsConfig = field(default_factory=StatsConfig)
    gates: GatesConfig = field(default_factory=GatesConfig)
    reader: ReaderConfig = field(default_factory=ReaderConfig)
    writer: WriterConfig = field(default_factory=WriterConfig)
    continuation: ContinuationConfig = field(default_factory=ContinuationConfig)

    def digest(self) -> str:
        """Identity of what the configuration computes; where files lie is no part of it."""
        plain = msgspec.to_builtins(self)
        for place in ("data", "runs", "cache_gib"):
            del plain[place]
        return digest_of(plain)


SHIPPED = Path(__file__).parent / "configs"


BASE = "base"
"""Key of a file that states what differs from another configuration."""


def load(name: str) -> Config:
    """Read a shipped configuration by name, or any TOML file by path."""
    path = _find(name, Path())
    plain = _read(path, ())
    try:
        config = msgspec.convert(plain, Config)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{path}: {_readable(str(error))}.") from error
    try:
        check(config)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
    return config


def _find(name: str, beside: Path) -> Path:
    """The file of a shipped name, or of a path seen from a folder."""
    shipped = SHIPPED / f"{name}.toml"
    path = shipped if shipped.exists() else beside / name
    if not path.is_file():
        raise ConfigError(f"No configuration {name!r}: give a TOML file or one of {', '.join(names())}.")
    return path


def _read(path: Path, above: tuple[Path, ...]) -> dict[str, Any]:
    """A file's settings laid over those of its base, if it names one."""
    if path.resolve() in above:
        raise ConfigError(f"{path}: {BASE} leads back to this file; name another configuration.")
    try:
        plain: dict[str, Any] = msgspec.toml.decode(path.read_bytes())
    except (msgspec.DecodeError, UnicodeDecodeError, OSError) as error:
        raise ConfigError(f"{path} cannot be read as TOML: {error}.") from error
    base = plain.pop(BASE, None)
    if base is None:
        return plain
    if not isinstance(base, str):
        raise ConfigError(f"{path}: {BASE} must be the name or the path of a configuration, not {base!r}.")
    try:
        found = _find(base, path.parent)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
    return _laid_over(_read(found, (*above, path.resolve())), plain)


def _laid_over(under: dict[str, Any], upper: dict[str, Any]) -> dict[str, Any]:
    """Sections are joined key by key; any other value replaces the one below."""
    joined = dict(under)
    for name, value in upper.items():
        below = under.get(name)
        both = isinstance(value, dict) and isinstance(below, dict)
        joined[name] = _laid_over(below, value) if both else value  # type: ignore[arg-type]
    return joined


OPTIONS = ("recipe", "take", "open", "cook", "cut")
"""Keys that `[games]` itself had when there was one world."""


def upgraded(plain: dict[str, Any]) -> dict[str, Any]:
    """A stored configuration, or the settings of a stored archive, in the shape of today; one of today stays as it is.

    Runs and archives are never rewritten, so what earlier versions stored is read through this.
    """
    plain = dict(plain)
    games = dict(plain.get("games", {}))
    if "rooms" in games:
        games["levels"] = games.pop("rooms")
        games["options"] = {name: games.pop(name) for name in OPTIONS if name in games}
        plain["games"] = games
    stats = dict(plain.get("stats", {}))
    if "lag_fillers" in stats:
        stats["long_fillers"] = stats.pop("lag_fillers")
        plain["stats"] = stats
    return plain


def names() -> list[str]:
    """The shipped configurations."""
    return sorted(path.stem for path in SHIPPED.glob("*.toml"))


def resolved(config: Config) -> str:
    """The whole configuration as TOML, defaults written out; `load` reads it back."""
    return msgspec.toml.encode(_without_none(msgspec.to_builtins(config))).decode()


def check(config: Config) -> None:
    """Refuse numbers and combinations that no run could mean."""
    for key, values in _numbers(msgspec.to_builtins(config)):
        for value in values:
            if value < 0:
                raise ConfigError(f"{key} is {value}, but must not be negative.")
    for key, share in _shares(config):
        if not 0 <= share <= 1:
            raise ConfigError(f"{key} is {share}, but is a share and must lie between 0 and 1.")
    if not config.protocol.fillers:
        raise ConfigError("protocol.fillers is empty; give at least one walk length, for example [0].")
    for key, counts in _at_least_one(config):
        if not counts or min(counts) < 1:
            raise ConfigError(f"{key} must be at least 1.")
    model = config.reader_model or config.writer_model
    if config.agent.reader_adapter is not None and config.agent.reader_adapter not in model.adapters:
        raise ConfigError(
            f"agent.reader_adapter names {config.agent.reader_adapter!r}, which its model's adapters lack."
        )
    for key, one in (("writer_model", config.writer_model), ("reader_model", config.reader_model)):
        if one is not None and one.backend == "server" and not one.url:
            raise ConfigError(f"{key}.url is missing: a server backend needs the address to ask.")


def _numbers(plain: dict[str, Any], prefix: str = "") -> list[tuple[str, list[float]]]:
    found: list[tuple[str, list[float]]] = []
    for name, value in plain.items():
        if isinstance(value, dict):
            found += _numbers(value, f"{prefix}{name}.")
        elif isinstance(value, (int, float)):
            found.append((prefix + name, [value]))
        elif isinstance(value, (list, tuple)):
            found.append((prefix + name, [one for one in value if isinstance(one, (int, float))]))
    return found


def _shares(config: Config) -> list[tuple[str, float]]:
    return [
        ("agent.epsilon", config.agent.epsilon),
        ("reader.full_share", config.reader.full_share),
        ("reader.epsilon", config.reader.epsilon),
        ("reader.held_out", config.reader.held_out),
        ("reader.accept", config.reader.accept),
        ("reader.warmup", config.reader.warmup),
        ("writer.epsilon", config.writer.epsilon),
        ("writer.phase_a_share", config.writer.phase_a_share),
        ("writer.outcome_phase_a_share", config.writer.outcome_phase_a_share),
        ("stats.level", config.stats.level),
        ("writer_model.retention", config.writer_model.retention),
    ]


def _at_least_one(config: Config) -> list[tuple[str, tuple[int, ...]]]:
    return [
        ("agent.budgets", config.agent.budgets),
        ("games.levels", config.games.levels),
        ("protocol.max_actions", (config.protocol.max_actions,)),
        ("measure.points", (config.measure.points,)),
        ("measure.oracle_samples", (config.measure.oracle_samples,)),
        ("measure.block", (config.measure.block,)),
        ("stats.resamples", (config.stats.resamples,)),
        ("writer.targets", config.writer.targets),
        ("writer.games", (1 if config.writer.games is None else config.writer.games,)),
    ]


def _readable(message: str) -> str:
    """msgspec writes `Object contains unknown field `x` - at `$.games``; say it as key names."""
    message = message.replace("Object contains unknown field", "unknown key")
    if " - at `$" in message:
        what, _, where = message.partition(" - at `$")
        where = where.strip("`.").replace("...", "")
        return f"{what} in [{where}]" if "unknown key" in what else f"{where}: {what}"
    return message


def _without_none(plain: dict[str, Any]) -> dict[str, Any]:
    """TOML has no null; a missing key means the default, which is None wherever None is allowed."""
    return {
        name: _without_none(value) if isinstance(value, dict) else value
        for name, value in plain.items()
        if value is not None
    }
