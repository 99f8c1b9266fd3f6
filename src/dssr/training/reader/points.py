"""The decision points a reader learns from: what they are, in which shares of contexts, in which order."""

from collections import defaultdict
from collections.abc import Iterable, Sequence

from dssr.agent.episode import context_at
from dssr.config import ReaderConfig
from dssr.seeds import rng_of
from dssr.types import Episode, Options, Record, Step


class ContextVariant(Record, frozen=True):
    """One kind of context and its share of the training points."""

    memory: str
    budget: int | None
    share: float


class ReaderPoint(Record, frozen=True):
    """One decision to be cloned."""

    game: str
    episode: str
    step: int
    memory: str
    budget: int | None
    goal: str
    context: str
    observation: str
    options: Options

    @property
    def key(self) -> str:
        """Episode and step; sorts by step within an episode."""
        return f"{self.episode}:{self.step:04d}"


# ---------------------------------------------------------------- shares


def context_variants(config: ReaderConfig) -> list[ContextVariant]:
    """`full` with its own share; every written or rendered format at every budget shares the rest evenly."""
    others = [(memory, budget) for memory in config.memories for budget in config.budgets]
    share = (1 - config.full_share) / len(others)
    kinds = [
        ContextVariant("full", None, config.full_share),
        *(ContextVariant(memory, budget, share) for memory, budget in others),
    ]
    return [kind for kind in kinds if kind.share > 0]


def apportion(total: int, shares: Sequence[float]) -> list[int]:
    """Whole numbers that add up to `total` and follow the shares: largest remainders, earlier first among equals."""
    whole = sum(shares)
    exact = [total * share / whole for share in shares]
    counts = [int(value) for value in exact]
    order = sorted(range(len(shares)), key=lambda place: (-(exact[place] - counts[place]), place))
    for place in order[: total - sum(counts)]:
        counts[place] += 1
    return counts


# ---------------------------------------------------------------- samples


def reader_points(episode: Episode, steps: Sequence[Step], goal: str) -> list[ReaderPoint]:
    """Every decision of an episode, labelled with the reference action of the state that was reached."""
    if episode.error is not None:
        return []
    cell = episode.job.cell
    return [
        ReaderPoint(
            game=episode.job.game,
            episode=episode.key,
            step=step.index,
            memory=cell.memory,
            budget=cell.budget,
            goal=goal,
            context=context_at(cell.memory, steps, step.index),
            observation=step.observation,
            options=step.decision.options,
        )
        for step in steps
        if step.decision is not None
    ]


def stratified(points: Iterable[ReaderPoint], config: ReaderConfig, *seed: object) -> list[ReaderPoint]:
    """At most `config.points` points in exactly the variants' shares; a scarce variant shrinks all of them alike."""
    supply: dict[tuple[str, int | None], list[ReaderPoint]] = defaultdict(list)
    for point in sorted(points, key=lambda point: point.key):
        supply[point.memory, point.budget].append(point)
    kinds = context_variants(config)
    total = min([config.points, *(int(len(supply[kind.memory, kind.budget]) / kind.share) for kind in kinds)])
    chosen: list[ReaderPoint] = []
    for kind, count in zip(kinds, apportion(total, [kind.share for kind in kinds]), strict=True):
        mine = supply[kind.memory, kind.budget]
        rng_of(*seed, kind.memory, kind.budget).shuffle(mine)
        chosen += mine[:count]
    return sorted(chosen, key=lambda point: point.key)


def nested(points: Iterable[ReaderPoint], config: ReaderConfig, *seed: object) -> list[ReaderPoint]:
    """The points in an order whose every beginning follows the variants' shares, so that smaller samples are parts of
    larger ones. `apportion` cannot give this: with one point more in all, a variant may get one less."""
    supply: dict[tuple[str, int | None], list[ReaderPoint]] = defaultdict(list)
    for point in sorted(points, key=lambda point: point.key):
        supply[point.memory, point.budget].append(point)
    for variant, mine in supply.items():
        rng_of(*seed, *variant).shuffle(mine)
    shares = {(kind.memory, kind.budget): kind.share for kind in context_variants(config)}
    used = dict.fromkeys(supply, 0)
    order: list[ReaderPoint] = []
    for number in range(1, sum(map(len, supply.values())) + 1):
        left = [variant for variant in supply if used[variant] < len(supply[variant])]
        # The variant that is furthest behind; of equals the first by name and budget.
        behind = min(left, key=lambda it: (used[it] - shares.get(it, 0.0) * number, it[0], it[1] or 0))
        order.append(supply[behind][used[behind]])
        used[behind] += 1
    return order


def batches(points: Sequence[ReaderPoint], size: int, *seed: object) -> list[list[ReaderPoint]]:
    """Batches in seeded order in which the points of one episode stay together, so that their prompts share a trunk."""
    groups: dict[str, list[ReaderPoint]] = defaultdict(list)
    for point in points:
        groups[point.episode].append(point)
    order = sorted(groups)
    rng_of(*seed).shuffle(order)
    line = [point for episode in order for point in sorted(groups[episode], key=lambda point: point.step)]
    made = [line[first : first + size] for first in range(0, len(line), size)]
    rng_of(*seed, "batches").shuffle(made)
    return made
