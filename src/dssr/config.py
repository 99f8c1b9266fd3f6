"""Settings: typed sections with their bounds on the fields, and how a TOML file becomes one.

A file states what differs from the defaults, which are the paper's numbers, or from the configuration it names as its
`base`. Every number that decides what is played, measured, trained or tested is here. Two kinds are not: how much work
is done at once and how often it is saved, which changes no result; and from which size on a report calls a loss small,
or the larger of two, which changes words and no number. Those are named constants beside the code that uses them.
"""

import re
from importlib.metadata import entry_points
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import msgspec.toml
from msgspec import Meta, Struct, field

from dssr.bounds import Count, Counts, Names, NonNegative, Positive, Share, Size, Sizes, Text, shown, typed
from dssr.errors import ConfigError
from dssr.seeds import digest_of
from dssr.types import Protocol

Edges = Sizes
"""Lower edges of bins, which rise; the last bin has no end."""
PROMPTED = ("summary", "belief", "slots", "guide")
"""The memories that are a prompt to the writer's model, and so can be trained."""


class Section(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Base of all sections: frozen, and a key that does not exist is an error."""


class GamesConfig(Section, frozen=True):
    """Which games exist."""

    world: str = "cooking"
    """The kind of world they are of."""
    archive: str = "paper"
    """Name of the archive under the data directory."""
    levels: Counts = (6, 9, 12)
    """Difficulties within the world; of cooking games the numbers of rooms."""
    train: Size = 80
    """Games per level."""
    valid: Size = 15
    test: Size = 30
    options: dict[str, Any] = {}
    """Settings of the world's own, which it checks and whose defaults it knows."""


class ProtocolConfig(Section, frozen=True):
    """How an episode runs."""

    kind: Protocol = "post"
    fillers: Sizes = (0, 10, 20, 40)
    max_actions: Count = 50


class ModelConfig(Section, frozen=True):
    """One model and where its adapters lie."""

    backend: Literal["scripted", "hf", "vllm", "server"] = "vllm"
    path: Text = "Qwen/Qwen3-4B-Instruct-2507"
    """Weights: a folder, a hub name, or those of a tier (`nano/writer`, `nano/reader`, `smol`); for `server` the name
    there."""
    revision: Text | None = None
    dtype: Literal["float32", "bfloat16"] = "bfloat16"
    device: Text = "auto"
    threads: Size = 0
    """Intra-op threads; 0 leaves the library's choice."""
    context_length: Count = 16384
    url: Text | None = None
    """Base address of a server."""
    identity: Text | None = None
    """Server only: a name of your own for the served model, which then stands in its fingerprint for the address and
    the probe's answer; for those who move the same model to another address and want to keep its cached answers."""
    tokenizer: Text | None = None
    """Server only: folder or hub name of the served model's tokenizer, which counts budgets here."""
    key_variable: Text = "OPENAI_API_KEY"
    """Environment variable that holds a server's key."""
    concurrency: Count = 64
    """Requests under way at once on a server."""
    timeout: Positive = 120.0
    retries: Size = 5
    batch_tokens: Count = 8192
    """Most tokens in one forward pass of a batch engine."""
    retention: Share = 0.9
    """Scripted writer only: chance that a fact survives a rewrite."""
    adapters: dict[Text, Text] = {}
    """Name to folder."""


class AgentConfig(Section, frozen=True):
    """Writer and reader settings."""

    memories: Names = ("full", "oracle-b", "lastk", "summary", "slots", "belief", "guide")
    budgets: Counts = (64, 128, 256)
    prompts: Text | None = None
    """Folder whose files replace the shipped prompts of the same name."""
    reader_adapter: Text | None = None
    """Name of the adapter the reader uses."""
    temperature: NonNegative = 0.0
    """Of the writer in evaluation."""
    epsilon: Share = 0.0
    """Exploration of the reader in evaluation."""


class MeasureConfig(Section, frozen=True):
    """Audits, lag and the leak check."""

    points: Count = 6
    """Audited decision points per episode, at most."""
    oracle_samples: Count = 8
    oracle_temperature: NonNegative = 1.0
    block: Count = 5
    """Steps per Phase-B chunk."""
    lag_threshold: NonNegative = 0.5
    lag_robustness: tuple[NonNegative, ...] = (0.3, 1.0)
    lag_bins: Edges = (1, 5, 10, 20, 40)
    """Lower edges."""
    rewrite_bins: Edges = (0, 1, 3, 6, 10, 15, 20, 30, 40, 60)
    credit_bins: Edges = (1, 5, 15, 30)
    """Steps since the reveal that the credit table tells apart."""
    stored_prompts: Count = 200
    """Prompts of each role kept verbatim per run."""


class StatsConfig(Section, frozen=True):
    """Intervals: a bootstrap over games."""

    resamples: Count = 10_000
    seed: Size = 0
    level: Annotated[float, Meta(gt=0, lt=1)] = 0.95
    long_fillers: Sizes = (20, 40)
    """Walks that count as long wherever one value stands for them."""


class GatesConfig(Section, frozen=True):
    """Thresholds of the pre-registered gates; shares and differences of success are fractions, not points."""

    budget: Count = 128
    near: Size = 0
    """The filler without lag."""
    far: Size = 40
    lag_split: Size = 5
    """Measured lags from here on are long."""
    signal: Share = 0.3
    """Least mean rank correlation of the training score with the return."""
    gain: Share = 0.08
    loss_allowed: Share = 0.03
    regret_cut: NonNegative = 0.4
    transfer_kept: NonNegative = 0.5
    no_hint_kept: NonNegative = 0.7


class ReaderConfig(Section, frozen=True):
    """Training of the reader: behaviour cloning, then DAgger."""

    full_share: Share = 0.25
    memories: Names = ("lastk", "summary", "belief", "slots", "guide", "oracle-b")
    budgets: Counts = (64, 128, 256)
    points: Count = 6000
    """Sampled decision points per iteration."""
    episodes: Count | None = None
    """Most episodes collected per iteration; all games at all fillers when unset."""
    iterations: Count = 2
    epsilon: Share = 0.1
    rank: Count = 32
    alpha: Count = 64
    """LoRA scale; the update counts alpha / rank times."""
    learning_rate: Positive = 1e-4
    warmup: Share = 0.03
    epochs: Count = 2
    batch: Count = 16
    micro_tokens: Count = 16384
    """Most tokens per forward pass while training."""
    held_out: Annotated[float, Meta(ge=0, lt=1)] = 0.05
    """Share of training games kept for monitoring."""
    accept: Share = 0.8
    """Least online success with full history at filler 0."""


class WriterConfig(Section, frozen=True):
    """Training of the writer from the reader's loss."""

    memory: Text = "summary"
    """The prompted format that is trained; its untrained self is what rounds are compared with."""
    games: Count | None = None
    """Training games played per round, drawn anew for each; all when unset."""
    episodes_per_game: Count = 2
    temperature: NonNegative = 0.7
    epsilon: Share = 0.1
    points: Count = 3984
    phase_a_share: Share = 0.5
    candidates: Count = 6
    candidate_temperature: NonNegative = 1.0
    horizon: Count = 40
    targets: Counts = (1, 4, 12)
    """K of S_K; the last is the one trained on."""
    rounds: Size = 3
    """DPO rounds after round 0."""
    rank: Count = 32
    alpha: Count = 64
    warmup: Share = 0.03
    """Of the optimizer steps, in SFT and in DPO."""
    sft_learning_rate: Positive = 1e-4
    sft_epochs: Count = 1
    sft_batch: Count = 16
    dpo_learning_rate: Positive = 1e-5
    dpo_epochs: Count = 2
    dpo_batch: Count = 32
    dpo_beta: Positive = 0.1
    chosen_weight: NonNegative = 0.5
    gap: NonNegative = 0.3
    pairs_per_point: Count = 2
    outcome_points: Count = 1000
    outcome_phase_a_share: Share = 0.25
    outcome_gap: NonNegative = 0.2
    a4_candidates: Count = 12
    a4_temperature: NonNegative = 1.1
    seeds: Count = 3
    selection_budget: Count = 128
    validation_games: Count | None = None
    """Games per level on which rounds are compared; all when unset."""


class ContinuationConfig(Section, frozen=True):
    """Study of score against return."""

    points: Count = 200
    candidates: Annotated[int, Meta(ge=2)] = 8
    """At a point; fewer than two cannot be ranked."""
    memory: Text = "summary"
    budget: Count = 128


class Config(Section, frozen=True):
    """The whole study."""

    name: Text
    seed: Size = 0
    data: Text = "data"
    """Folder of game archives and caches."""
    runs: Text = "runs"
    """Folder in which run directories are made."""
    cache_gib: NonNegative = 20.0
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
PLUGGED = "dssr.configs"
"""Entry points of this group are folders of TOML files that other packages ship."""
NANO = ("nano", "nano-house")
"""Configurations of dssr-nano; known by name to say how to get them."""
GET_NANO = "install it with `pip install 'dssr[nano]'`"


BASE = "base"
"""Key of a file that states what differs from another configuration."""


def load(name: str) -> Config:
    """Read a shipped configuration by name, or any TOML file by path."""
    path = _find(name, Path())
    plain = _read(path)
    try:
        config = typed(plain, Config)
        _check_together(config)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
    return config


def check(config: Config) -> None:
    """Refuse a configuration made in Python that no file could have stated."""
    _check_together(typed(msgspec.to_builtins(config), Config))


def _find(name: str, beside: Path) -> Path:
    """The file of a shipped name, or of a path seen from a folder."""
    path = _shipped().get(name, beside / name)
    if not path.is_file():
        if name in NANO:
            raise ConfigError(
                f"The configuration {name} comes with dssr-nano, which is not installed: {GET_NANO}, "
                "or give `--config scripted`."
            )
        raise ConfigError(f"No configuration {name!r}: give a TOML file or one of {', '.join(names())}.")
    return path


def _read(path: Path) -> dict[str, Any]:
    """A file's settings laid over those of its base, if it names one, and so on down."""
    layers: list[dict[str, Any]] = []
    seen: set[Path] = set()
    next_one: Path | None = path
    while next_one is not None:
        path = next_one
        if path.resolve() in seen:
            raise ConfigError(f"{path}: {BASE} leads back to this file; name another configuration.")
        seen.add(path.resolve())
        layers.append(_decoded(path))
        next_one = _base_of(path, layers[-1].pop(BASE, None))
    joined: dict[str, Any] = {}
    for layer in reversed(layers):
        _lay_over(joined, layer)
    return joined


def _decoded(path: Path) -> dict[str, Any]:
    try:
        plain: dict[str, Any] = msgspec.toml.decode(path.read_bytes())
    except RecursionError:
        raise ConfigError(f"{path} nests deeper than any setting does; write it flatter.") from None
    except (msgspec.DecodeError, ValueError, OSError) as error:
        raise ConfigError(f"{path} cannot be read as TOML: {error}.") from error
    return plain


def _base_of(path: Path, base: object) -> Path | None:
    """The file that another one names as its base."""
    if base is None:
        return None
    if not isinstance(base, str):
        raise ConfigError(f"{path}: {BASE} must be the name or the path of a configuration, not {shown(base)}.")
    try:
        return _find(base, path.parent)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


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


def _lay_over(under: dict[str, Any], upper: dict[str, Any]) -> None:
    """Tables are joined key by key; any other value replaces the one below."""
    owed = [(under, upper)]
    while owed:
        below, above = owed.pop()
        for name, value in above.items():
            if isinstance(value, dict) and isinstance(below.get(name), dict):
                owed.append((below[name], value))
            else:
                below[name] = value


def names() -> list[str]:
    """The shipped configurations, those of installed plug-ins included."""
    return sorted(_shipped())


def _shipped() -> dict[str, Path]:
    """By name, the files of this package and of plug-ins; a plug-in cannot replace one of ours."""
    folders = [*(Path(plugged.load()) for plugged in entry_points(group=PLUGGED)), SHIPPED]
    return {path.stem: path for folder in folders for path in folder.glob("*.toml")}


def resolved(config: Config) -> str:
    """The whole configuration as TOML, defaults written out; `load` reads it back."""
    return msgspec.toml.encode(_without_none(msgspec.to_builtins(config))).decode()


def _check_together(config: Config) -> None:
    """Refuse what no run could mean and no single field's bound can say."""
    if re.search(r"[/\\\x00-\x1f]", config.name):
        raise ConfigError(f"name is {shown(config.name)}, but becomes part of folder names: leave out / and \\.")
    for key, edges in (
        ("lag_bins", config.measure.lag_bins),
        ("rewrite_bins", config.measure.rewrite_bins),
        ("credit_bins", config.measure.credit_bins),
    ):
        if any(low >= high for low, high in pairwise(edges)):
            raise ConfigError(f"measure.{key} is {list(edges)}, but the edges of bins must rise.")
    if config.writer.memory not in PROMPTED:
        raise ConfigError(
            f"writer.memory is {shown(config.writer.memory)}, but only a memory whose every write is one reply of the "
            f"model has replies to learn from: use one of {', '.join(PROMPTED)}."
        )
    model = config.reader_model or config.writer_model
    if config.agent.reader_adapter is not None and config.agent.reader_adapter not in model.adapters:
        raise ConfigError(
            f"agent.reader_adapter names {config.agent.reader_adapter!r}, which its model's adapters lack."
        )
    for key, one in (("writer_model", config.writer_model), ("reader_model", config.reader_model)):
        if one is not None and one.backend == "server" and not one.url:
            raise ConfigError(f"{key}.url is missing: a server backend needs the address to ask.")


def _without_none(plain: dict[str, Any]) -> dict[str, Any]:
    """TOML has no null; a missing key means the default, which is None wherever None is allowed."""
    return {
        name: _without_none(value) if isinstance(value, dict) else value
        for name, value in plain.items()
        if value is not None
    }
