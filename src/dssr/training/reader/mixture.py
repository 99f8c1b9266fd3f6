"""What the reader is trained on: which contexts, in which exact shares, from which episodes."""

from collections import defaultdict
from collections.abc import Iterable, Sequence

from dssr.agent.episode import context_at
from dssr.config import Config, ReaderConfig
from dssr.seeds import rng_of
from dssr.types import Cell, Driver, Episode, Game, Job, Options, Record, Step


class ContextVariant(Record, frozen=True):
    """One kind of context and its share of the training points."""

    memory: str
    budget: int | None
    share: float


class ReaderPoint(Record, frozen=True):
    """One decision to be cloned."""

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
        return f"{self.episode}:{self.step:04d}"


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


def held_out(games: Sequence[Game], share: float, seed: int) -> tuple[list[Game], list[Game]]:
    """(games to train on, games kept for monitoring); whole games, so that no map is seen in both."""
    shuffled = sorted(games, key=lambda game: game.id)
    rng_of("held out", seed).shuffle(shuffled)
    kept = max(1, round(len(shuffled) * share)) if len(shuffled) > 1 else 0
    return sorted(shuffled[kept:], key=lambda game: game.id), sorted(shuffled[:kept], key=lambda game: game.id)


def jobs_for(games: Sequence[Game], config: Config, driver: Driver, iteration: int) -> list[Job]:
    """One variant per episode: every game at every filler, or a sample; the variants dealt out by their shares."""
    places = [(game.id, filler) for game in games for filler in config.protocol.fillers]
    rng_of("deal", config.seed, iteration).shuffle(places)
    places = places[: config.reader.episodes]
    kinds = context_variants(config.reader)
    counts = apportion(len(places), [kind.share for kind in kinds])
    dealt = [kind for kind, count in zip(kinds, counts, strict=True) for _ in range(count)]
    jobs = [
        Job(
            game=game,
            cell=Cell(memory=kind.memory, budget=kind.budget, filler=filler, protocol=config.protocol.kind),
            seed=config.seed,
            temperature=0.0,
            epsilon=0.0 if driver == "reference" else config.reader.epsilon,
            driver=driver,
        )
        for (game, filler), kind in zip(places, dealt, strict=True)
    ]
    return sorted(jobs, key=lambda job: (job.game, job.cell.filler))


def reader_points(episode: Episode, steps: Sequence[Step], goal: str) -> list[ReaderPoint]:
    """Every decision of an episode, labelled with the reference action of the state that was reached."""
    if episode.error is not None:
        return []
    cell = episode.job.cell
    return [
        ReaderPoint(
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
