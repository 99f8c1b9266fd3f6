"""What training will take, counted on a few of a line's own games before it starts.

As in `measure.plan`, Phase B is counted twice: as long as the optimal plan, and as long as it may last. Candidates that
lead to one state share what follows, so scoring is counted rather too high than too low.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from dssr.agent.episode import Agent
from dssr.measure.plan import SIZES, Count, Load, Rates, Walk, frame_of, load_of, plan_grid, totals, walk_of
from dssr.measure.score import needed
from dssr.training.line import Line, valid_name
from dssr.training.round import adapter_folder, round_jobs
from dssr.training.variants import Variant
from dssr.types import Grid, Record

T = TypeVar("T")

SAMPLE = 6
"""Games that stand for all of a split."""
TRAINING = 4.0
"""Read tokens that one trained token costs: forward, backward, and the reference's forward."""
TRAINING_WORK = ("collection", "candidates", "scoring", "training")


class Forecast(Record, frozen=True):
    """What the rounds still owed will take."""

    loads: tuple[Load, ...]
    hours: float
    most_hours: float


@dataclass(frozen=True)
class EpisodeSize:
    """A collected episode of so many actions, in sizes."""

    walk: Walk
    budget: int
    actions: int
    reveal: int = 0
    """The step that tells the task."""

    @property
    def request(self) -> int:
        """Tokens of a writer's request besides the frame."""
        return self.budget + self.walk.shown // self.walk.steps

    @property
    def begin(self) -> int:
        """Number of the first decision step."""
        return self.walk.steps - 1


def forecast(line: Line, rounds: range, agent: Agent, rates: tuple[float, float]) -> Forecast:
    """Everything that is still owed of these rounds."""
    owed = [number for number in rounds if not adapter_folder(line.directory, number).exists()]
    validations = [valid_name(None), *map(valid_name, rounds)]
    return _forecast(line, [(number, True) for number in owed], validations, agent, rates)


def seeds_forecast(line: Line, number: int, extras: range, agent: Agent, rates: tuple[float, float]) -> Forecast:
    """What is owed of training a round again with more seeds: the training and the validation of each."""
    owed = [extra for extra in extras if not adapter_folder(line.directory, number, extra).exists()]
    validations = [valid_name(number, extra) for extra in extras]
    return _forecast(line, [(number, False) for _ in owed], validations, agent, rates)


def _forecast(
    line: Line, rounds: Sequence[tuple[int, bool]], validations: Sequence[str], agent: Agent, rates: tuple[float, float]
) -> Forecast:
    """Of rounds, each with whether its data are made too, and of validations as far as they are not there."""
    low, high = ({work: Count() for work in TRAINING_WORK} for _ in range(2))
    for number, data in rounds:
        for counts, longest in ((low, False), (high, True)):
            _round(line, number, data, agent, longest, counts)
    loads = [load_of(work, low[work], high[work]) for work in TRAINING_WORK if high[work].calls]
    reading, trained = Rates(*rates), [load for load in loads if load.work == "training"]
    loads += _validation(line, validations, agent)
    total, extra = totals([load for load in loads if load not in trained], reading), totals(trained, reading)
    return Forecast(
        loads=tuple(loads),
        hours=(total["hours"] or 0.0) + TRAINING * (extra["hours"] or 0.0),
        most_hours=(total["most_hours"] or 0.0) + TRAINING * (extra["most_hours"] or 0.0),
    )


def sample_grid(line: Line) -> Grid:
    """The validation grid of a line, on a few games."""
    grid = line.grid(line.config.writer.memory)
    return msgspec.structs.replace(grid, games=tuple(_few(grid.games)))


def _validation(line: Line, names: Sequence[str], agent: Agent) -> list[Load]:
    owed = sum(not (line.directory / name / "summary.json").exists() for name in names)
    few = sample_grid(line)
    scale = owed * len(line.grid(line.config.writer.memory).games) / len(few.games)
    total = totals(plan_grid(few, line.config, agent), Rates())
    sizes = {name: round(scale * (total[name] or 0.0)) for name in SIZES}
    return [Load("validation", **sizes)] if owed else []


def _round(line: Line, number: int, data: bool, agent: Agent, longest: bool, counts: dict[str, Count]) -> None:
    config, variant = line.config, line.variant
    fillers = variant.walks(number)
    jobs = round_jobs(line.archive.games("train"), config, config.writer.memory, number, line.seed, fillers)
    few = _few(jobs)
    trips = []
    for job in few:
        walk = walk_of(job.game, config, job.cell.filler, agent)
        actions = config.protocol.max_actions if longest else walk.plan
        later = job.cell.filler if job.cell.protocol.startswith("post") else 0
        trips.append(EpisodeSize(walk, job.cell.budget or 0, actions, walk.steps - 1 - later))
    frame = frame_of(agent, config.writer.selection_budget)
    scale = len(jobs) / len(few)
    if data and variant.collects(number):
        _collection(trips, frame, scale, counts["collection"])
    if data and variant.makes_data:
        _scoring(trips, frame, line, number, longest, counts)
    _training(trips, frame, line, number, longest, counts["training"])


def _collection(trips: Sequence[EpisodeSize], frame: int, scale: float, count: Count) -> None:
    for trip in trips:
        writes = trip.begin + trip.actions
        read = writes * (frame + trip.request) + trip.actions * (trip.walk.choice + trip.budget)
        begun = writes * frame + trip.actions * trip.walk.frame
        count.add(
            round(scale * (writes + trip.actions)),
            round(scale * read),
            round(scale * writes * trip.budget),
            computed=round(scale * (read - begun)),
        )


def _scoring(
    trips: Sequence[EpisodeSize], frame: int, line: Line, number: int, longest: bool, counts: dict[str, Count]
) -> None:
    """The mean point of each phase, times the points wanted of it.

    A variant that leaves out points after the reveal keeps none of those at least, and all of them at most.
    """
    for wanted, kept in _points(trips, line, number, longest):
        times = wanted * line.variant.candidates
        for trip, writes, reads in kept:
            if line.variant.samples:
                prompt = frame + trip.request
                counts["candidates"].add(
                    0, round(times * prompt), round(times * trip.budget), computed=round(wanted * prompt)
                )
            context = trip.walk.history if line.variant.tries == "hindsight" else trip.budget
            read = writes * (frame + trip.request) + reads * (trip.walk.choice + context)
            begun = writes * frame + reads * trip.walk.frame
            counts["scoring"].add(
                0, round(times * read), round(times * writes * trip.budget), computed=round(times * (read - begun))
            )
        if line.variant.samples:
            counts["candidates"].add(round(times * len(kept)), 0)
        counts["scoring"].add(round(times * sum(writes + reads for _, writes, reads in kept)), 0)


def _points(
    trips: Sequence[EpisodeSize], line: Line, number: int, longest: bool
) -> list[tuple[float, list[tuple[EpisodeSize, int, int]]]]:
    """By phase: how often each of these points is wanted, and the points with the writes and reads of a candidate."""
    variant, config = line.variant, line.config.writer
    sizes = config.targets, config.chain_targets, variant.sampling(number).enforced or 0, config.enforced_targets
    found = []
    for phase, share in (("A", variant.phase_a_share), ("B", 1 - variant.phase_a_share)):
        costs = [
            (trip, step, writes, reads)
            for trip in trips
            for step, writes, reads in ahead(trip, variant, *sizes)
            if (step < trip.begin) == (phase == "A")
        ]
        kept = [
            (trip, writes, reads)
            for trip, step, writes, reads in costs
            if longest or not variant.reachable or step <= trip.reveal
        ]
        if costs:
            found.append((variant.points * share / len(costs), kept))
    return found


def ahead(
    trip: EpisodeSize, variant: Variant, sizes: Sequence[int], first: int, samples: int = 0, judged: int = 1
) -> list[tuple[int, int, int]]:
    """Step, writes and reads of scoring one candidate, for every write point of an episode; chains are scored at the
    first so many decisions, and so many samples of a later rewrite are read at some of the decisions still ahead."""
    last = trip.begin + trip.actions - 1
    found = []
    for step in range(last):
        every = range(max(step + 1, trip.begin), min(step + variant.horizon, last) + 1)
        targets = tuple(every[:first]) if variant.tries == "chains" else needed(every, sizes)
        if targets and variant.by_return:
            found.append((step, last - step, trip.actions - max(0, step - trip.begin)))
        elif targets and variant.tries == "hindsight":
            found.append((step, 0, 1 + trip.walk.visits))
        elif targets and samples:
            rest = [sum(target >= later for target in targets) for later in range(step + 1, targets[-1] + 1)]
            found.append((step, (1 + samples) * len(rest), (1 + samples) * sum(min(judged, one) for one in rest)))
        elif targets:
            found.append((step, targets[-1] - step, len(targets)))
    return found


def _training(trips: Sequence[EpisodeSize], frame: int, line: Line, number: int, longest: bool, count: Count) -> None:
    """As if every point gave all the pairs it may."""
    config = line.config.writer
    length = sum(frame + trip.request + trip.budget for trip in trips) / len(trips)
    per_point = config.pairs_per_point * 2 * config.dpo_epochs
    per_point = config.sft_epochs if line.variant.imitates(number) else per_point
    points = _points(trips, line, number, longest)
    if line.variant.tries == "chains" and line.variant.imitates(number):  # every write of a chain is learnt
        texts = round(sum(wanted * (writes + 1) for wanted, kept in points for _, writes, _ in kept) * per_point)
    else:
        texts = round(sum(wanted * len(kept) for wanted, kept in points) * per_point)
    count.add(texts, round(texts * length))


def _few(all_of: Sequence[T]) -> Sequence[T]:
    """Some, evenly spaced."""
    return all_of[:: -(-len(all_of) // SAMPLE)]
