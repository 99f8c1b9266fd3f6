"""The decision points a reader learns from: which episodes they come from, what they are, in which shares of contexts,
in which order; and how well a reader answers at those of held-out games.

Loss and top-1 accuracy are means over decision points, per context variant. Their games are what is resampled, since
the points of one game resemble each other.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dssr.agent.episode import context_at
from dssr.config import Config, ReaderConfig
from dssr.seeds import rng_of
from dssr.stats.bootstrap import Interval, Resampler
from dssr.stats.contrasts import ratio
from dssr.types import Cell, Driver, Episode, Game, Job, Options, Record, Step

# ---------------------------------------------------------------- points


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


# ---------------------------------------------------------------- accuracy

Row = dict[str, Any]
"""Fields of a `ReaderAccuracy` that do not say which reader it was."""
ALL = "all"
"""Name of the row over all context variants."""


class ReaderAccuracy(Record, frozen=True):
    """One reader on the held-out points of one context variant; logs `reader_accuracy` and `reader_curve`."""

    iteration: int
    """Of DAgger."""
    trained: int
    """Points it was trained on, of all iterations so far; 0 for the bare base."""
    memory: str
    """`all` for the row over every variant."""
    budget: int | None
    points: int
    """Held out, on which it was asked."""
    games: int
    """They come from."""
    loss: float
    """Cross-entropy of the reference action's label over the full vocabulary: what training lowers."""
    accuracy: float
    """Share of points where the likeliest of the labels shown is that of the reference action."""
    accuracy_low: float | None
    """None where all points are of one game."""
    accuracy_high: float | None

    @property
    def key(self) -> str:
        """One per reader and context variant."""
        return f"{self.iteration}:{self.trained}:{self.memory}:{self.budget}"

    @property
    def interval(self) -> Interval:
        """Accuracy with its interval over games."""
        return Interval.stored(self.accuracy, self.accuracy_low, self.accuracy_high)


@dataclass(frozen=True)
class PointAnswer:
    """What a reader made of one point."""

    point: ReaderPoint
    loss: float
    right: bool
    """Whether its likeliest option is the reference action."""


@dataclass(frozen=True)
class HeldOut:
    """The points a reader is watched on, and how their games are resampled."""

    points: Sequence[ReaderPoint]
    sampler: Resampler


def variant_accuracies(answers: Sequence[PointAnswer], sampler: Resampler) -> list[Row]:
    """All points first, then each context variant in order of name and budget; nothing where there is no answer."""
    if not answers:
        return []
    variants: dict[tuple[str, int | None], list[PointAnswer]] = defaultdict(list)
    for answer in answers:
        variants[answer.point.memory, answer.point.budget].append(answer)
    rows = [_accuracy(ALL, None, answers, sampler)]
    for memory, budget in sorted(variants, key=lambda variant: (variant[0], variant[1] or 0)):
        rows.append(_accuracy(memory, budget, variants[memory, budget], sampler))
    return rows


def _accuracy(memory: str, budget: int | None, answers: Sequence[PointAnswer], sampler: Resampler) -> Row:
    by_game: dict[str, list[bool]] = defaultdict(list)
    for answer in answers:
        by_game[answer.point.game].append(answer.right)
    rights = [by_game[game] for game in sorted(by_game)]
    # A mean over points of resampled games: right answers over answers, both summed over the games drawn.
    top = np.array([sum(right) for right in rights], dtype=np.float64)
    found = ratio(top, np.array([len(right) for right in rights], dtype=np.float64), sampler)
    return {
        "memory": memory,
        "budget": budget,
        "points": len(answers),
        "games": len(rights),
        "loss": sum(answer.loss for answer in answers) / len(answers),
        "accuracy": found.estimate,
        **dict(zip(("accuracy_low", "accuracy_high"), found.ends, strict=True)),
    }


def card_accuracies(card: Mapping[str, Any], iteration: int) -> list[ReaderAccuracy]:
    """What the card of a trained reader says of the bare base and of the end of training.

    Empty when no game was held out, and for a card of before accuracy was measured.
    """
    curve = [row for row in card.get("curve", ()) if "held_out" in row]
    ends = [(0, row) for row in curve[:1] if row["step"] == 0]
    ends += [(card["points"], row) for row in curve[-1:] if row["step"] == row["of"]]
    return [ReaderAccuracy(iteration, trained, **one) for trained, row in ends for one in row["held_out"]]


# ---------------------------------------------------------------- which episodes are played


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
