"""Typed configuration; `dssr.configs` reads it from TOML.

A file states what differs from the defaults, which are the paper's numbers, or from the configuration it names as its
`base`. Every number of the method is here and nowhere else.
"""

from typing import Literal

import msgspec
from msgspec import Struct, field

from dssr.seeds import digest_of
from dssr.types import Protocol


class Section(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Base of all sections: frozen, and a key that does not exist is an error."""


class GamesConfig(Section, frozen=True):
    """Which TextWorld cooking games exist."""

    archive: str = "paper"
    """Name of the archive under the data directory."""
    rooms: tuple[int, ...] = (6, 9, 12)
    train: int = 80
    """Games per room count."""
    valid: int = 15
    test: int = 30
    recipe: int = 3
    take: int = 3
    open: bool = True
    cook: bool = True
    cut: bool = True


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
    lag_fillers: tuple[int, ...] = (20, 40)
    """Walks that count as lag wherever one value stands for it."""


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
    """Games per room count on which rounds are compared; all when unset."""


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
