"""Train the writer: one line of rounds for a variant and a seed, or the selected variant again with more seeds; and
what that will take.

The forecast is counted on a few of a line's own games before it starts. As in `measure.plan`, Phase B is counted twice:
as long as the optimal plan, and as long as it may last. Candidates that lead to one state share what follows, so
scoring is counted rather too high than too low.
"""

import itertools
import logging
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from dssr.agent.episode import Agent
from dssr.agent.memory import with_adapter
from dssr.config import Config, resolved
from dssr.errors import RecordError, UsageError
from dssr.measure.plan import (
    SIZES,
    Count,
    Load,
    Rates,
    Walk,
    duration,
    frame_of,
    load_of,
    measured_rates,
    plan_grid,
    totals,
    walk_of,
)
from dssr.measure.score import needed
from dssr.record.log import write_whole
from dssr.record.run import Run
from dssr.session import configured, silent, verb
from dssr.training.line import Line, Row, line_folder, valid_name
from dssr.training.reader import require_accepted, with_reader
from dssr.training.results import RoundResult, ValidatedRound, selected
from dssr.training.round import adapter_folder, round_jobs
from dssr.training.variants import MAIN, Variant, names, variant_of
from dssr.types import Grid, Progress, Record, Workers

# ---------------------------------------------------------------- the forecast

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


# ---------------------------------------------------------------- training

log = logging.getLogger("dssr")


class LineResult(Record, frozen=True):
    """What training one line came to."""

    line: str
    """Its directory, which is a run."""
    forced: bool
    """Trained on a reader that had not been accepted."""
    expected: dict[str, Any]
    """What it was expected to take, counted before it started."""
    finished: bool
    rounds: list[Row]


class SeedsResult(Record, frozen=True):
    """The selected round of a variant, trained with several seeds."""

    selected: ValidatedRound
    seeds: list[RoundResult]
    """Per seed and filler."""
    lines: list[str]
    """What to report: the line, then a run for every further seed."""
    expected: dict[str, Any]
    """What it was expected to take, counted before it started; empty when nothing was left to do."""
    memories: list[str]
    """The memory of every seed, such as `dssr@a4/s0`."""
    config: str
    """The configuration with these adapters, to measure the memories with: `--config` of any command."""


@verb
async def train(
    config: Config | str = "nano",
    variant: str = MAIN,
    *,
    rounds: str | None = None,
    seed: int = 0,
    adapter: str | Path | None = None,
    out: str | Path | None = None,
    force: bool = False,
    resume: bool = False,
    workers: Workers | int | None = None,
    progress: Progress = silent,
) -> LineResult:
    """Train the writer: collect, try candidates, score them by the reader's later loss, fine-tune, validate.

    `rounds` is one round or a range such as `0-3`; `adapter` is the reader's. `out` is the folder of the study: every
    variant and seed is a line inside it.
    """
    lines = Lines(_settings(config, adapter), out, force, resume, progress, workers)
    first = variant_of(variant, lines.config.writer).first
    return await lines.train(variant, seed, span_of(rounds, lines.config, first))


@verb
async def train_seeds(
    config: Config | str = "nano",
    variant: str | None = None,
    *,
    seed: int = 0,
    seeds: int = 3,
    adapter: str | Path | None = None,
    out: str | Path | None = None,
    force: bool = False,
    resume: bool = False,
    workers: Workers | int | None = None,
    progress: Progress = silent,
) -> SeedsResult:
    """Train the selected round again from the same adapter and the same pairs, so that it has so many seeds in all.

    Nothing is collected anew. `variant` restricts the choice to its rounds.
    """
    lines = Lines(_settings(config, adapter), out, force, resume, progress, workers)
    return await lines.retrain(variant, seed, seeds)


def _settings(config: Config | str, adapter: str | Path | None) -> Config:
    settings = configured(config)
    if settings.writer_model.backend == "server":
        raise UsageError(
            "A served model's weights are out of reach; train with a configuration of hf, vllm or scripted."
        )
    return settings if adapter is None else with_reader(settings, Path(adapter))


def span_of(text: str | None, config: Config, start: int = 0) -> range:
    """The rounds asked for; all of them from `start` on if none are."""
    last = config.writer.rounds
    if text is None:
        return range(start, last + 1)
    found = re.fullmatch(r"(\d+)(?:-(\d+))?", text.strip())
    if found is None:
        raise UsageError(f"The rounds are {text!r}; give one round or a range such as 0-{last}.")
    first, end = int(found[1]), int(found[2] or found[1])
    if not first <= end <= last:
        raise UsageError(f"The rounds are {text}; rounds rise from 0 to {last} in this configuration.")
    return range(first, end + 1)


class Lines:
    """The lines of one study, trained one after the other."""

    def __init__(
        self,
        config: Config,
        out: str | Path | None,
        force: bool,
        resume: bool,
        progress: Progress = silent,
        workers: Workers | int | None = None,
    ) -> None:
        self.config, self.force, self.resume = config, force, resume
        self.progress, self.workers = progress, workers
        self.study = Path(out) if out else Path(config.runs) / f"train-{config.name}-{config.digest()[:8]}"

    async def train(self, variant: str, seed: int, span: range) -> LineResult:
        """Train one line, and say what it came to."""
        place = line_folder(self.study, variant, seed)
        line = self._line(variant, seed)
        if line.finished:
            raise RecordError(f"{place} is finished; read it with `dssr report {place}` or choose another --out.")
        if place.exists() and not self.resume:
            raise RecordError(f"{place} exists; continue it with --resume, or choose another --out.")
        line.check(span)
        expected = await self._prepare(line, lambda agent, speed: forecast(line, span, agent, speed))
        rows = await line.train(span)
        return LineResult(str(place), self.force, expected, line.finished, rows)

    def _line(self, variant: str, seed: int) -> Line:
        place = line_folder(self.study, variant, seed)
        return Line(self.config, variant, seed, place, self.progress, self.force, self.workers)

    async def _prepare(self, line: Line, count: Callable[[Agent, tuple[float, float]], Forecast]) -> dict[str, Any]:
        """Ask whether the reader may be trained on, and say what the work will take."""
        async with line.session(-1) as session:
            agent = session.agent()
            if not self.force:
                require_accepted(self.config, agent.reader.fingerprint())
            speed = await measured_rates(sample_grid(line), self.config, agent)
            expected = count(agent, speed)
        _say_expected(expected, speed, line.directory)
        return {**msgspec.to_builtins(expected), "read_rate": speed[0], "write_rate": speed[1]}

    async def retrain(self, variant: str | None, seed: int, count: int) -> SeedsResult:
        """The selected round (or the best one of a variant) with several seeds, the first of which is there already."""
        known = names(self.config.writer) if variant is None else (variant,)
        titles = {variant_of(name, self.config.writer).title: name for name in known}
        results = [row for name in titles.values() for row in self.results(name, seed)]
        if not results:
            raise UsageError(
                f"{self.study} holds no trained line of seed {seed}; run `dssr train` without --seeds first."
            )
        chosen = selected(results)
        name, number = titles[chosen.writer], chosen.round
        log.info("selected: %s, round %d, success %.3f", name, number, chosen.success)
        line = self._line(name, seed)
        line.check_again(number)
        again = range(1, count)
        expected: dict[str, Any] = {}
        if not all(line.retrained(number, extra) for extra in again):
            expected = await self._prepare(line, lambda agent, speed: seeds_forecast(line, number, again, agent, speed))
        found = [row for row in self.results(name, seed) if row.round == number]
        for extra in again:
            found += await line.retrain(number, extra)
        lines = [line.directory, *(line.again(number, extra) for extra in again)]
        made = next(extra for extra in itertools.count(count) if not line.retrained(number, extra))
        adapters = [f"{name}/s{extra}" for extra in range(made)]  # those of an earlier call keep their names
        return SeedsResult(
            selected=chosen,
            seeds=found,
            lines=[*map(str, lines)],
            expected=expected,
            memories=[with_adapter(self.config.writer.memory, adapter) for adapter in adapters[:count]],
            config=str(self._settings_file(line, number, adapters)),
        )

    def _settings_file(self, line: Line, number: int, names: Sequence[str]) -> Path:
        """The configuration in which each seed of a round is an adapter of this name, as a file beside its runs."""
        made = {name: str(adapter_folder(line.directory, number, extra)) for extra, name in enumerate(names)}
        file = line.directory / "seeds.toml"
        write_whole(file, resolved(line.with_adapters(made)).encode())
        return file

    def results(self, variant: str, seed: int) -> list[RoundResult]:
        """What a line's validation has stored so far."""
        place = line_folder(self.study, variant, seed)
        return list(Run.open(place).read("rounds", RoundResult)) if place.exists() else []


def _say_expected(expected: Forecast, speed: tuple[float, float], place: Path) -> None:
    for load in expected.loads:
        log.info(
            f"{load.work}: {load.calls:,} to {load.most_calls:,} calls, {load.tokens_in:,} to "
            f"{load.most_tokens_in:,} tokens to read, {load.tokens_out:,} to {load.most_tokens_out:,} to write"
        )
    log.info(
        f"about {duration(expected.hours)} to {duration(expected.most_hours)} at {speed[0]:,.0f} tokens read and "
        f"{speed[1]:,.0f} written a second, as a few calls just measured; a trained token is taken as {TRAINING:g} "
        f"read ones, repeated calls as new; into {place}"
    )
