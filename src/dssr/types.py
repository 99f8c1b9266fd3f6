"""The records of the system. Read this file first: the rest of the code moves these around.

All records are frozen. Each field is documented once, by the string under it.
`View` is all that a writer may ever see of a step; `Privileged` is what only the reference action
and `oracle-b` may see. They are different types on purpose.
"""

from collections.abc import Callable
from typing import Literal

from msgspec import Struct, field

Split = Literal["train", "valid", "test"]
Phase = Literal["A", "B"]
Kind = Literal["start", "explore", "reveal", "filler", "act"]
Protocol = Literal["post", "pre", "brief", "post-brief"]
"""Where the filler walk stands: `post` after the reveal (F'), `pre` before it (F), `brief` is `pre` without
what a place holds being printed again, `post-brief` is `post` without them."""
Outcome = Literal["won", "lost", "unwinnable", "limit", "error", "logged"]
"""How an episode ended; `logged` ones were not played but rolled over a log, and their score counts decisions."""
Driver = Literal["reader", "reference"]
"""Who picks the actions of Phase B: the reader, or the reference policy (used to collect training data)."""


class Record(Struct, frozen=True):
    """Base of all records."""


# ---------------------------------------------------------------- how long work says where it stands


class Counts(Record, frozen=True):
    """What models were asked so far, and what it took."""

    calls: int = 0
    hits: int = 0
    """Calls that the answer cache knew."""
    written: int = 0
    """Tokens generated."""
    computed: int = 0
    """Calls that a model answered; the rest were known, the same as one under way, or are not answered."""
    read: int = 0
    """Tokens of the prompts, and of the texts to be scored, in the computed calls."""
    cpu: float = 0.0
    """Seconds of processor time of whole processes; of a model alone it is not known."""

    def __add__(self, other: "Counts") -> "Counts":
        return self._with(other, 1)

    def __sub__(self, other: "Counts") -> "Counts":
        return self._with(other, -1)

    def _with(self, other: "Counts", sign: int) -> "Counts":
        return Counts(*(getattr(self, name) + sign * getattr(other, name) for name in self.__struct_fields__))


class WorkerStanding(Record, frozen=True):
    """One worker of a stage."""

    name: str
    done: int
    """Items that it has finished."""
    under_way: int
    counts: Counts = Counts()


class Standing(Record, frozen=True):
    """Where a stage of long work stands."""

    stage: str
    done: int
    of: int
    workers: tuple[WorkerStanding, ...] = ()
    """Who is at it; empty where that is nobody's concern."""


Progress = Callable[[Standing], None]
"""Told again and again while work goes on."""


class Workers(Record, frozen=True):
    """Who shares the work of a run."""

    count: int | None = None
    """Processes, or actors of a cluster; None takes as many as it is worth."""
    ray: str | None = None
    """Address of a Ray cluster, `auto` for the one this machine belongs to; None stays on this machine."""


# ---------------------------------------------------------------- games


class Game(Record, frozen=True):
    """One archived game."""

    id: str
    """Unique name, `{split}-{level}-{number}`, for example `valid-6-003`."""
    split: Split
    level: int = field(name="rooms")
    """Difficulty within its world; of cooking games the number of rooms."""
    seed: int
    file: str
    """Path of its file, or of the first of its files, relative to the archive."""
    md5: str
    """Of its files, one after the other."""
    command: tuple[str, ...]
    """The exact call that produced it."""
    engine: str = field(name="textworld")
    """Version of what produced it and plays it; stored under the name it had when there was one world."""


class Fact(Record, frozen=True):
    """One true proposition about the world, for example `in(pork chop, fridge)`."""

    name: str
    args: tuple[str, ...]


class Privileged(Record, frozen=True):
    """What only the reference action, `oracle-b`, the leak check and statistics may see."""

    facts: tuple[Fact, ...]
    policy: tuple[str, ...]
    """The reference plan: optimal actions from here to the end; empty when the game is over or cannot be won."""
    task: str
    """What is asked for in full, which the agent is told at the reveal; of cooking games the recipe."""
    walkthrough: tuple[str, ...]
    """The plan from the start."""
    entities: tuple[str, ...]
    """Names of everything there is."""


class Moment(Record, frozen=True):
    """The world after one action."""

    observation: str
    """All that the agent is shown."""
    place: str
    """Where the agent is, by a name that only the record uses."""
    admissible: tuple[str, ...]
    score: int
    max_score: int
    won: bool
    lost: bool
    privileged: Privileged


class Options(Record, frozen=True):
    """The lettered choice put before the reader."""

    actions: tuple[str, ...] = field(name="commands")
    """In the order shown; labels are `LABELS[: len(actions)]`."""
    reference: str
    """The reference action `a*`; always one of `actions`."""
    appended: bool
    """The reference was not among the admissible actions and was added."""
    dropped: int
    """Commands left out because more than 52 remained."""


LABELS: tuple[str, ...] = tuple("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")


# ---------------------------------------------------------------- agent


class View(Record, frozen=True):
    """All that a memory sees of one step."""

    goal: str
    last_action: str | None
    """None at step 0."""
    observation: str


class Cell(Record, frozen=True):
    """One condition of the grid."""

    memory: str
    """A format name, or `package.module:Class`, or `dssr@adapter`."""
    budget: int | None
    """Tokens of the state; None for `full`."""
    filler: int
    """Length of the filler walk."""
    protocol: Protocol


class Job(Record, frozen=True):
    """Everything that decides an episode besides the models."""

    game: str
    cell: Cell
    seed: int
    """The run's seed; all others derive from it and from content."""
    temperature: float
    """Of the writer."""
    epsilon: float
    """Chance of a uniformly random action instead of the reader's argmax."""
    driver: Driver


class Write(Record, frozen=True):
    """What one call of the writer did."""

    state: str
    """z_t: at most the budget's tokens."""
    tokens: int
    """Of `state`, by the reader's tokenizer."""
    raw_tokens: int
    """Of the reply before the budget was enforced."""
    truncated: bool
    note: str | None
    """What was odd about the reply (empty, control characters removed, …); None when nothing was."""


class Chunk(Record, frozen=True):
    """A stretch of history: left out as one piece when the relevance lag is measured, or seen again by recall."""

    kind: str
    """The world's name for this kind of stretch."""
    first: int
    last: int


class Recalled(Record, frozen=True):
    """A chunk that the reader saw again at one decision, beside its state."""

    chunk: Chunk
    title: str
    """By which it was chosen."""
    tokens: int
    """Of the chunk, by the tokenizer that counts budgets: what the context had beyond its state."""
    tried: int
    """Chunks that were read before this one was kept, itself included."""
    left: int
    """Requests that remain in this game."""
    nll_without: float
    """-log p(reference) without the chunk."""
    argmax_without: str
    """The reader's most likely action without it."""


class Decision(Record, frozen=True, omit_defaults=True):
    """One choice of the reader in Phase B."""

    options: Options
    logprobs: tuple[float, ...]
    """Of every option, renormalised over the options shown; empty when nothing was asked of the reader."""
    action: str
    """The action played."""
    argmax: str
    """The reader's most likely action; equals `action` unless exploring or driven by the reference."""
    nll: float | None
    """-log p(reference)."""
    tie: bool | None
    """When argmax differs from the reference: does argmax shorten the optimal plan too? None otherwise."""
    recall: Recalled | None = None
    """What was seen again for it; not stored where nothing was."""


class Step(Record, frozen=True):
    """One step of an episode: how it was reached, what was seen, what was kept, what was done next."""

    index: int
    kind: Kind
    visit: int
    """Number of the stay this step belongs to; consecutive steps at one place share it."""
    place: str = field(name="room")
    action: str | None
    """The action that led here; None at step 0."""
    observation: str
    write: Write
    decision: Decision | None
    """Present in Phase B only."""


class Episode(Record, frozen=True):
    """How one episode went. Its steps are stored apart, under the same key."""

    key: str
    """Content digest of the job and the models."""
    job: Job
    split: Split
    level: int = field(name="rooms")
    """Of the game."""
    outcome: Outcome
    score: int
    max_score: int
    steps: int
    reveal: int
    """Step index whose observation tells the task in full."""
    begin: int
    """First step with a decision: the start of Phase B."""
    truncations: int
    error: str | None
    """Why the episode could not be finished; such an episode is never a loss."""


class StoredPrompt(Record, frozen=True):
    """A prompt kept verbatim for the leak check."""

    role: Literal["writer", "reader"]
    episode: str
    step: int
    messages: tuple[tuple[str, str], ...]
    """(role, content) pairs as sent."""


class Leak(Record, frozen=True):
    """One secret in one prompt, before any observation had shown it."""

    episode: str
    step: int
    role: str
    """Whose prompt: `writer` or `reader`."""
    kind: str
    """The world's word for it."""
    text: str


class Search(Record, frozen=True):
    """What the leak check found in the prompts of one piece of work. All but the last two are counts of prompts."""

    what: str
    """What sent them: `episode`, `audit`, `lag`, `candidates`, `continuation`, …"""
    writer_prompts: int = 0
    reader_prompts: int = 0
    composed: int = 0
    """Excused: a state tells a secret in words that had all been shown by then."""
    guessed: int = 0
    """Excused while they are rare: a state tells one secret, and one only, that nothing had shown."""
    leaked: int = 0
    leaks: tuple[Leak, ...] = ()
    """The first few."""

    @property
    def prompts(self) -> int:
        """All that were searched."""
        return self.writer_prompts + self.reader_prompts


class Played(Record, frozen=True):
    """An episode, its steps, and of its prompts those that are kept and what the leak check says of all."""

    episode: Episode
    steps: tuple[Step, ...]
    prompts: tuple[StoredPrompt, ...]
    search: Search | None = None
    """None for an episode read back from a run, which keeps searches in a log of their own."""


# ---------------------------------------------------------------- measure


class Grid(Record, frozen=True):
    """What one diagnosis was asked for beyond its configuration."""

    memories: tuple[str, ...]
    budgets: tuple[int, ...]
    fillers: tuple[int, ...]
    split: Split
    games: tuple[str, ...]
    lag: bool
    """Measure the relevance lag at audited points too."""


class Audit(Record, frozen=True):
    """Losses at one decision point, in nats. delta = beta + kappa by definition."""

    episode: str
    step: int
    rewrites: int
    """Writes since the reveal: step - reveal."""
    nll_state: float
    """Decision loss under the state that was written."""
    nll_full: float
    """Under the full history."""
    nll_oracle: float
    """Under the oracle's best state of the same budget."""
    oracle_state: str
    """The read-time oracle's best sample."""
    coverage: float | None
    """Share of the facts worth following that the state holds; None where there are none."""
    nll_first: float | None = None
    """Loss under the oracle's first sample, chosen without the answer in hand; None in runs of before."""
    nll_mean: float | None = None
    """Mean loss under all of the oracle's samples; None in runs of before."""

    @property
    def delta(self) -> float:
        """Sufficiency gap: what the state loses against the full history."""
        return self.nll_state - self.nll_full

    @property
    def beta(self) -> float:
        """Budget loss: what even the oracle's state of this size loses."""
        return self.nll_oracle - self.nll_full

    @property
    def kappa(self) -> float:
        """Write-time regret: what the state loses against the oracle's."""
        return self.nll_state - self.nll_oracle

    @property
    def kappa_first(self) -> float | None:
        """Regret against the first hindsight sample. The best of eight is chosen by the loss itself, and that choice is
        a part of kappa; this has none of it."""
        return None if self.nll_first is None else self.nll_state - self.nll_first

    @property
    def kappa_mean(self) -> float | None:
        """Regret against the mean over the hindsight samples."""
        return None if self.nll_mean is None else self.nll_state - self.nll_mean


class Lag(Record, frozen=True):
    """Leave-one-chunk-out at one decision point."""

    episode: str
    step: int
    nll_full: float
    chunks: tuple[Chunk, ...]
    rises: tuple[float, ...]
    """NLL without the chunk minus NLL with it, per chunk."""
