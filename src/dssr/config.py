"""Settings: typed sections with their bounds on the fields, and how a TOML file becomes one.

A file states what differs from the defaults, which are the paper's numbers, or from the configuration it names as its
`base`. Every number that decides what is played, measured, trained or tested is here. Two kinds are not: how much work
is done at once and how often it is saved, which changes no result; and from which size on a report calls a loss small,
or the larger of two, which changes words and no number. Those are named constants beside the code that uses them.
"""

import re
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import msgspec.toml
from msgspec import Meta, Struct, field

from dssr.errors import ConfigError
from dssr.seeds import digest_of
from dssr.settings import (
    Count,
    Counts,
    Names,
    NonNegative,
    Positive,
    Share,
    Size,
    Sizes,
    Text,
    find,
    read_layers,
    shown,
    typed,
    without_none,
)
from dssr.types import Protocol

Edges = Sizes
"""Lower edges of bins, which rise; the last bin has no end."""
LATER = {"agent": ("recalls", "recall_entropy", "recall_tries"), "continuation": ("tries",)}
"""Settings younger than stored runs. At their defaults they are no part of what a run computes, so that the digest of a
run of before does not change because they exist."""
PROMPTED = ("summary", "belief", "slots", "guide", "verbatim")
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
    """Intra-op threads; 0 leaves the library's choice, which on a CPU is one for each worker."""
    context_length: Count = 16384
    url: Text | None = None
    """Base address of a server."""
    urls: tuple[Text, ...] = ()
    """Server only: further addresses that serve the same model; requests are spread over all."""
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
    gpu_memory: Annotated[float, Meta(gt=0, le=1)] = 0.9
    """vLLM only: share of the GPU's memory that this engine takes; two engines may share a card."""
    batch_invariant: bool | None = None
    """Same bits alone and in a batch: `true` refuses a model that fails the test, unset takes it where there is one."""
    pinned: bool = False
    """Whether a hub model must name its revision, a commit hash."""
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
    budget_tokenizer: Text | None = None
    """The model whose tokenizer counts budgets, the reader's if unset; readers are compared on the same states."""
    temperature: NonNegative = 0.0
    """Of the writer in evaluation."""
    epsilon: Share = 0.0
    """Exploration of the reader in evaluation."""
    write_seconds: Positive = 600.0
    """Most that one write of a memory of your own may take; the time it waits for the model is not counted."""
    recalls: Count = 4
    """Requests per game of a reader that may look back: memories `…+recall` and `…+unsure`."""
    recall_entropy: NonNegative = 0.5
    """Nats of doubt above which `…+unsure` asks."""
    recall_tries: Count = 16
    """Chunks that it tries before it keeps one, at most."""


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
    lag_points: Count = 900
    """Decision points sampled for the pooled table of the relevance lag, at most."""
    tie_steps: Count = 500
    """Steps sampled for the rate of ties, at most."""
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
    power: Annotated[float, Meta(gt=0, lt=1)] = 0.8
    """Chance with which the minimum detectable effect would be found."""
    extreme: Share = 0.1
    """Success this near to 0 or 1 gets a Wilson interval beside the bootstrap's, which has no width at 0 and 1."""


class GatesConfig(Section, frozen=True):
    """Thresholds of the pre-registered gates; shares and differences of success are fractions, not points."""

    budget: Count = 128
    """One of `agent.budgets`."""
    formats: Names = ("summary", "belief", "slots")
    """The write-time formats: prompted, and without knowledge of the task."""
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
    accept_games: Count = 10
    """Least number of games that it is judged on."""
    trained: bool = False
    """Whether the reader is an adapter that `dssr reader train` makes: then nothing is measured with the bare model."""


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
    chain_points: Count = 400
    """Write points from which whole chains of rewrites are sampled."""
    chain_candidates: Annotated[int, Meta(ge=2)] = 6
    """Chains from a point, the greedy one among them."""
    chain_temperature: NonNegative = 0.8
    chain_targets: Count = 8
    """Decisions at which a chain is judged: the first ones after its point."""
    chain_horizon: Count = 60
    """Steps within which these decisions may lie."""
    chain_fillers: Annotated[tuple[Sizes, ...], Meta(min_length=1)] = ((0, 5), (0, 10), (0, 20), (0, 40))
    """Fillers of each round's episodes, the last ones from then on; without 0 a writer loses where there is no walk."""
    chain_learning_rate: Positive = 1e-4
    chain_imitated: Count = 2
    """Rounds in which `chains-pairs` imitates the best chain; after them it prefers it to the worst."""
    enforced_points: Count = 400
    enforced_targets: Count = 4
    """Decisions still ahead at which `enforced` compares the samples of a rewrite."""
    enforced_samples: Sizes = (4, 2, 1, 0)
    """In each round, samples of a later rewrite beside the greedy one; `enforced` rolls on from the best of them."""
    hindsight_points: Count = 400
    hindsight_targets: Count = 2
    """Decisions after a point, the next one among them, for which `hindsight` looks for the chunk that matters."""
    seeds: Count = 3
    selection_budget: Count = 128
    validation_games: Count | None = None
    """Games per level on which rounds are compared; all when unset."""


class TracesConfig(Section, frozen=True):
    """Audits of logs."""

    distractors: Count = 3
    """Other actions put beside the logged one where a reader can only be asked to choose."""
    lapse: Annotated[float, Meta(gt=0, lt=1)] = 0.1
    """Of sampled choices: the chance of a blind one that the loss allows for, which keeps it finite."""
    repeats: Count = 4
    """Independent estimates of one sampled choice's loss, which are averaged."""
    sensitive: Positive = 2.0
    """Standard errors by which a reader must respond to what it is shown before its losses are believed."""
    controls: Count = 6
    """Decisions of a log on which the reader is tested, at most."""
    least: Annotated[int, Meta(ge=2)] = 3
    """Decisions that need an earlier value, below which a reader's response is not tested."""


class ContinuationConfig(Section, frozen=True):
    """Study of score against return."""

    points: Count = 200
    candidates: Annotated[int, Meta(ge=2)] = 8
    """At a point; fewer than two cannot be ranked."""
    tries: Literal["writes", "chains"] = "writes"
    """What is tried at a point: other writes, or whole chains of sampled rewrites, which are judged by their own score
    and by the recursive ones of their first write."""
    enforced: Size = 0
    """Samples of each later rewrite in the score of `enforced`, which is judged beside the others; 0 leaves it out."""
    memory: Text = "summary"
    budget: Count = 128


class StudyConfig(Section, frozen=True):
    """Sizes of the whole study, `dssr study`."""

    second: Text | None = None
    """Configuration of the second reader; without one, or with `none`, what needs it is left out."""
    variants: Names | None = None
    """Ways of training the writer that are compared; all when unset. The main one is trained in any case."""
    selected_from: Names = ("dssr", "a4")
    """Of these, the ones among which validation selects the writer that the gates judge; the others are what it is
    compared with."""
    wide_games: Count | None = None
    """Validation games per level for the grid of all prompted memories and for the walks' protocols; all when unset."""
    format_games: Count | None = None
    """Validation games per level for the write-time formats at the gates' budget, which gates judge; all when unset."""
    lag_games: Count | None = None
    """Of these, the ones on which the lag of every audited decision is measured; all when unset."""
    wide_test_games: Count | None = None
    """Test games per level for memories that no gate looks at, such as `lastk` and `oracle-b`; all when unset."""
    frontier_games: Count | None = None
    """Test games per level for the other budgets; all when unset."""
    walks: Sizes = (0, 2, 3, 5, 7, 9, 10, 15, 20, 30, 40)
    """Fillers of the finer grid."""
    walk_games: Count | None = None
    """Validation games per level for the finer grid; all when unset."""


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
    study: StudyConfig = field(default_factory=StudyConfig)
    traces: TracesConfig = field(default_factory=TracesConfig)

    @property
    def reads_with(self) -> ModelConfig:
        """The reader's model: its own, or the writer's."""
        return self.reader_model or self.writer_model

    @property
    def counts_with(self) -> str:
        """The model whose tokenizer counts budgets."""
        return self.agent.budget_tokenizer or self.reads_with.path

    def content(self) -> dict[str, Any]:
        """What one run computes, as plain values; where files lie and which runs a study has are no part of it."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        for place in ("data", "runs", "cache_gib", "study"):
            del plain[place]
        for section, names in LATER.items():
            defaults = msgspec.to_builtins(type(getattr(self, section))())
            for name in names:
                if plain[section][name] == defaults[name]:
                    del plain[section][name]
        return plain

    def digest(self) -> str:
        """Identity of what the configuration computes."""
        return digest_of(self.content())


def load(name: str) -> Config:
    """Read a shipped configuration by name, or any TOML file by path."""
    path = find(name, Path())
    plain = read_layers(path)
    try:
        config = typed(plain, Config)
        _check_together(config)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
    return config


def check(config: Config) -> None:
    """Refuse a configuration made in Python that no file could have stated."""
    _check_together(typed(msgspec.to_builtins(config), Config))


def resolved(config: Config) -> str:
    """The whole configuration as TOML, defaults written out; `load` reads it back."""
    return msgspec.toml.encode(without_none(msgspec.to_builtins(config))).decode()


def _check_together(config: Config) -> None:
    """Refuse what no run could mean and no single field's bound can say."""
    if re.search(r"[/\\\x00-\x1f]", config.name):
        raise ConfigError(f"name is {shown(config.name)}, but becomes part of folder names: leave out / and \\.")
    for key in ("lag_bins", "rewrite_bins", "credit_bins"):
        edges: Edges = getattr(config.measure, key)
        if any(low >= high for low, high in pairwise(edges)):
            raise ConfigError(f"measure.{key} is {list(edges)}, but the edges of bins must rise.")
    if config.writer.memory not in PROMPTED:
        raise ConfigError(
            f"writer.memory is {shown(config.writer.memory)}, but only a memory whose every write is one reply of the "
            f"model has replies to learn from: use one of {', '.join(PROMPTED)}."
        )
    model = config.reads_with
    if config.agent.reader_adapter is not None and config.agent.reader_adapter not in model.adapters:
        raise ConfigError(
            f"agent.reader_adapter names {config.agent.reader_adapter!r}, which its model's adapters lack."
        )
    for key, one in (("writer_model", config.writer_model), ("reader_model", config.reader_model)):
        if one is not None and one.backend == "server" and not one.url:
            raise ConfigError(f"{key}.url is missing: a server backend needs the address to ask.")
