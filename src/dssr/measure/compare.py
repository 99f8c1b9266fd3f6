"""`dssr.compare`: is B worse than A? Two memories, or two runs, on the same games or logs, from stored records alone.

Every difference is B minus A, game by game, with the t interval of the answers (`measure.verdicts`), which holds its
level at few games. A claim is that an interval lies wholly beyond a tolerance; what is not claimed is "not shown", and
beside it stands the smallest difference that these games would have shown.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np

from dssr.agent.memory import FULL
from dssr.errors import StatsError, UsageError
from dssr.measure.comparisons import reader_name, same_archive, same_tokenizer
from dssr.measure.log_facts import episode_lives
from dssr.measure.rows import CellGroup, Quantity, game_values, groups
from dssr.measure.study import Study, same_device
from dssr.measure.verdicts import LEAST_EFFECT, LEAST_FOR_LITTLE, LEAST_GAMES
from dssr.record.run import Run
from dssr.session import verb
from dssr.stats.bootstrap import Interval, Resampler, Unit, align, standard_error, t_intervals, written
from dssr.stats.contrasts import over_fillers
from dssr.types import Cell, Record, StoredPrompt

Metric = Literal["success", "delta", "beta", "kappa", "facts"]
Finding = Literal["better", "worse", "alike", "unclear", "few"]


class MetricKind(Record, frozen=True):
    """How one metric is named, written and judged."""

    name: str
    unit: Unit
    good: int
    """1 where more is better, -1 where less is."""
    tolerance: float
    """A difference is claimed when it is surely larger."""


METRICS: dict[Metric, MetricKind] = {
    "success": MetricKind("success, points", "percent", 1, 0.0),
    "delta": MetricKind("δ, nats", "nats", -1, LEAST_EFFECT),
    "beta": MetricKind("β, nats", "nats", -1, LEAST_EFFECT),
    "kappa": MetricKind("κ, nats", "nats", -1, LEAST_EFFECT),
    "facts": MetricKind("values kept, points", "percent", 1, 0.0),
}
"""`facts`, of logs alone, asks no reader: of the values that later actions need, the share that the state still holds
at their last use."""
LOSS: Metric = "delta"
"""What is judged unless another metric is named: all that a state loses, whoever loses it."""


class ComparisonRow(Record, frozen=True):
    """One metric of one pair of memories at one budget, over all fillers, paired by game or log."""

    first: str
    """The memory of A."""
    second: str
    """The memory of B."""
    budget: int | None
    metric: Metric
    games: int | None
    """Games, or logs, with a value on both sides; None where there is none."""
    a: float | None
    """Mean of A."""
    b: float | None
    """Mean of B."""
    difference: Interval | None
    """B minus A."""
    detectable: float | None
    """The true difference whose interval would exclude zero with the power of the settings; None where all games differ
    by the same amount, which says nothing about their spread."""
    tolerance: float
    """A difference is claimed when its interval lies wholly beyond this."""
    finding: Finding | None
    """What is claimed of B; None where there is no value."""
    problem: str | None
    """Why there is no value."""

    @property
    def sentence(self) -> str:
        """The numbers, and what they show."""
        named = self.first if self.first == self.second else f"{self.first} → {self.second}"
        size = "" if self.budget is None else f" at {self.budget} tokens"
        head = f"{named}{size}: "
        if self.difference is None or self.finding is None:
            return f"{head}no {METRICS[self.metric].name.partition(',')[0]} to compare. {self.problem}"
        about = METRICS[self.metric]
        words = f"{about.name}: B − A = {self.difference.text(about.unit)} over {self.games} pairs: {self._words()}."
        return head + words

    def _words(self) -> str:
        unit = METRICS[self.metric].unit
        beyond = f" by more than {written(self.tolerance, unit)}" if self.tolerance else ""
        least = ""
        if self.detectable is not None:
            least = f"; a true difference of {written(self.detectable, unit)} would mostly have been shown"
        said: dict[Finding, str] = {
            "better": f"B is better{beyond}",
            "worse": f"B is worse{beyond}",
            "alike": f"they differ by less than {written(self.tolerance, unit)}",
            "unclear": f"a difference{beyond} is not shown, either way{least}",
            "few": f"too few pairs for a verdict, which takes {LEAST_GAMES}",
        }
        assert self.finding is not None
        return said[self.finding]


class Comparison(Record, frozen=True):
    """What two sides differ in."""

    a: str
    b: str
    rows: tuple[ComparisonRow, ...]
    judged: Metric
    """The metric that decides."""
    notes: tuple[str, ...] = ()
    """What else must be known to read the numbers."""

    @property
    def verdicts(self) -> tuple[ComparisonRow, ...]:
        """The rows of the metric that decides, one per pair of memories and budget."""
        return tuple(row for row in self.rows if row.metric == self.judged)

    @property
    def worse(self) -> bool:
        """Whether B is shown to be worse anywhere. Refuses to judge where nothing could ever be shown."""
        for row in self.verdicts:
            if row.finding is None:
                raise StatsError(f"B cannot be judged by {self.judged}. {row.problem}")
            if row.finding == "few":
                raise UsageError(
                    f"{row.games} pairs never show B to be worse, whatever it does; measure at least {LEAST_GAMES} "
                    "games or logs, or leave --fail-if-worse out."
                )
        return any(row.finding == "worse" for row in self.verdicts)


# ---------------------------------------------------------------- the verb


@verb
async def compare(
    a: str | Path | Run,
    b: str | Path | Run,
    *,
    within: Sequence[str | Path | Run] = (),
    memories: Sequence[str] = (),
    metric: Metric = LOSS,
    tolerance: float | None = None,
) -> Comparison:
    """What B wins or loses against A, paired by game or log, from finished runs of `diagnose` or `audit`.

    `a` and `b` are two runs, whose memories of the same name are compared (those of `memories`, where given), or two
    memories that stand in the runs of `within`. `metric` decides the verdict; `tolerance` is by how much B must surely
    be worse, in nats or as a fraction.
    """
    if metric not in METRICS:
        raise UsageError(f"There is no metric {metric!r}; there are {', '.join(METRICS)}.")
    if tolerance is not None and not 0 <= tolerance < np.inf:
        raise UsageError("A tolerance is a number from 0 on: nats of a loss, or a fraction of success.")
    if within:
        study = Study.load(within)
        _comparable(study.runs)
        pairs = [(study, study, str(a), str(b))]
        if a == b:
            raise UsageError(f"{a} and {b} are one memory; name another one to compare it with.")
    else:
        first, second = (Study.load([one]) for one in (a, b))
        if first.runs[0].path.resolve() == second.runs[0].path.resolve():
            raise UsageError(f"{a} and {b} are one run; two of its memories are compared with `--in {a}`.")
        _comparable((*first.runs, *second.runs))
        align({str(a): dict.fromkeys(first.games, 0.0), str(b): dict.fromkeys(second.games, 0.0)})
        pairs = [(first, second, one, other) for one, other in _named(first, second, memories)]
    if metric == "facts" and not pairs[0][0].is_of_logs:
        raise UsageError("Values kept are counted in audits of logs alone; judge games by another metric.")
    judged = tolerance if tolerance is not None else METRICS[metric].tolerance
    rows = tuple(row for pair in pairs for row in _rows(*pair, {metric: judged}))
    runs = tuple(dict.fromkeys(run for one, other, *_ in pairs for run in (*one.runs, *other.runs)))
    shown = (str(a), str(b)) if within else _told_apart(first.runs[0].path, second.runs[0].path)
    return Comparison(*shown, rows, metric, tuple(_notes(runs)))


def _told_apart(one: Path, other: Path) -> tuple[str, str]:
    """The names of two runs, with as much of their folders as it takes for them to differ."""
    first, second = (path.resolve().parts for path in (one, other))
    size = next((n for n in range(1, len(first)) if first[-n:] != second[-n:]), len(first))
    return "/".join(first[-size:]), "/".join(second[-size:])


# ---------------------------------------------------------------- what is refused


def _comparable(runs: Sequence[Run]) -> None:
    """Refuse runs whose difference would be another one's than the memories'."""
    same_device(runs)
    same_archive(runs)
    same_tokenizer(runs)
    first, *others = runs
    for run in others:
        both = f"{first.path} and {run.path}"
        if first.info.models.get("reader") != run.info.models.get("reader"):
            raise StatsError(
                f"{both} were read by different readers, {reader_name(first)} and {reader_name(run)}, or by two "
                "versions of one; compare memories under one reader."
            )
        if len({told for one in (first, run) if (told := _told(one)) is not None}) > 1:
            raise StatsError(f"The readers of {both} were instructed in different words; keep reader.txt alike.")
        for section in ("measure", "traces"):
            mine, other = (msgspec.to_builtins(getattr(one.config, section)) for one in (first, run))
            if name := next((key for key in mine if mine[key] != other[key]), None):
                raise StatsError(
                    f"{both} were not measured alike: {section}.{name} is {mine[name]} in one and {other[name]} in "
                    "the other."
                )
        traces, more = (one.info.arguments.get("traces", {}) for one in (first, run))
        changed = next((name for name in traces if name in more and traces[name] != more[name]), None)
        if changed is not None:
            raise StatsError(f"The log {changed} is not the same text in {both}; audit the same logs.")


def _told(run: Run) -> str | None:
    """The reader's instruction, from the prompts that the run kept; None where it kept none of the reader's."""
    found = (one for one in run.read("prompts", StoredPrompt) if one.role == "reader" and one.messages)
    return next((one.messages[0][1] for one in found), None)


def _named(first: Study, second: Study, memories: Sequence[str]) -> list[tuple[str, str]]:
    """Which memories of two runs are compared."""
    mine, other = (list(dict.fromkeys(group.memory for group in groups(one))) for one in (first, second))
    if memories:
        return [(name, name) for name in memories]
    common = [name for name in mine if name in other]
    if pairs := [name for name in common if name != FULL] or common:
        return [(name, name) for name in pairs]
    if len(mine) == len(other) == 1:
        return [(mine[0], other[0])]
    raise StatsError(
        f"The runs have no memory in common ({', '.join(mine)}; {', '.join(other)}); name two of them, and both runs "
        "with `--in`."
    )


# ---------------------------------------------------------------- rows


def _rows(
    first: Study, second: Study, one: str, other: str, tolerances: Mapping[Metric, float]
) -> Iterator[ComparisonRow]:
    """All metrics at every budget that both memories have."""
    for mine, against in _matched(first, second, one, other):
        cells, others = groups(first)[mine], groups(second)[against]
        if cells.keys() != others.keys():
            raise StatsError(
                f"{one} was played at the fillers {sorted(cells)} and {other} at {sorted(others)}; measure both at the "
                "same ones."
            )
        _same_decisions(first, second, cells, others)
        for metric, about in METRICS.items():
            if metric == "facts" and not first.is_of_logs:
                continue
            sides = [_values(first, cells, metric), _values(second, others, metric)]
            tolerance = tolerances.get(metric, about.tolerance)
            budget = mine.budget if mine.budget is not None else against.budget
            yield _row(one, other, budget, metric, sides, tolerance, first.sampler)


def _matched(first: Study, second: Study, one: str, other: str) -> list[tuple[CellGroup, CellGroup]]:
    """Groups of cells of the same budget and protocol; `full`, which has no budget, goes with any."""
    sides = []
    for study, name in ((first, one), (second, other)):
        found = [group for group in groups(study) if group.memory == name]
        if not found:
            known = ", ".join(dict.fromkeys(group.memory for group in groups(study)))
            raise StatsError(f"The memory {name} is not in {study.runs[0].path}; there are {known}.")
        sides.append(found)
    matched = [
        (mine, against)
        for mine in sides[0]
        for against in sides[1]
        if mine.protocol == against.protocol
        and (mine.budget == against.budget or None in (mine.budget, against.budget))
    ]
    if not matched:
        sizes = [", ".join(f"{group.budget} ({group.protocol})" for group in found) for found in sides]
        raise StatsError(
            f"{one} and {other} have no budget in common: {sizes[0]} against {sizes[1]}; measure both at one budget."
        )
    return matched


def _same_decisions(first: Study, second: Study, cells: Mapping[int, Cell], others: Mapping[int, Cell]) -> None:
    """Of a log, both sides must have been asked about the same decisions. In games each plays its own way."""
    if not first.is_of_logs:
        return
    for filler, cell in cells.items():
        mine, other = first.audits.get(cell, {}), second.audits.get(others[filler], {})
        for name in sorted(mine.keys() & other.keys()):
            if {one.step for one in mine[name]} != {one.step for one in other[name]}:
                raise StatsError(
                    f"Different decisions of the log {name} were audited on the two sides; audit both with the same "
                    "--every, --over and settings."
                )


def _values(study: Study, cells: Mapping[int, Cell], metric: Metric) -> Callable[[], dict[str, float]]:
    """Per game, the mean over all fillers."""
    if metric == "facts":
        return lambda: over_fillers({filler: _kept(study, cell) for filler, cell in cells.items()})
    quantity: Quantity = metric
    return lambda: over_fillers({filler: game_values(study, cell, quantity) for filler, cell in cells.items()})


def _kept(study: Study, cell: Cell) -> dict[str, float]:
    """Per log, the share of the values that went through a rewrite which the state of their last use holds."""
    found: dict[str, list[float]] = {}
    for single in study.single(cell):
        for name, episode in study.episodes[single].items():
            if episode.outcome == "error" or cell.memory == FULL:
                continue
            held = [life.marks[-1] != "-" for life in episode_lives(study, episode)[1] if life.marks]
            if held:
                found.setdefault(name, []).append(float(np.mean(held)))
    return {name: float(np.mean(shares)) for name, shares in found.items()}


def _row(
    one: str,
    other: str,
    budget: int | None,
    metric: Metric,
    sides: Sequence[Callable[[], dict[str, float]]],
    tolerance: float,
    sampler: Resampler,
) -> ComparisonRow:
    head = (one, other, budget, metric)
    try:
        first, second = (side() for side in sides)
        if not first and not second:
            raise StatsError(f"No game or log has a value of {metric} on either side.")
        games, (a, b) = align({f"A, {one}": first, f"B, {other}": second})
        (apart,) = t_intervals((b - a)[None], sampler)
        if METRICS[metric].unit == "percent" and len(games) > 1:  # of two shares, which differ by 1 at most
            apart = Interval(apart.estimate, max(-1.0, apart.low), min(1.0, apart.high))
    except StatsError as error:
        return ComparisonRow(*head, None, None, None, None, None, tolerance, None, str(error))
    spread = standard_error(b - a)
    detectable = sampler.detectable(spread) if spread else None
    finding = find(apart, len(games), METRICS[metric].good, tolerance)
    means = float(a.mean()), float(b.mean())
    return ComparisonRow(*head, len(games), *means, apart, detectable, tolerance, finding, None)


def find(difference: Interval, games: int, good: int, tolerance: float) -> Finding:
    """The rule: what the interval of B minus A lets one say of B."""
    if games < LEAST_GAMES:
        return "few"
    low, high = sorted((good * difference.low, good * difference.high))
    if low > tolerance:
        return "better"
    if high < -tolerance:
        return "worse"
    # A difference that strikes a few games in a hundred hides from fewer.
    return "alike" if -tolerance < low and high < tolerance and games >= LEAST_FOR_LITTLE else "unclear"


def _notes(runs: Sequence[Run]) -> Iterator[str]:
    """What else the two sides differ in, and what a reader of the table must know."""
    writers = {run.info.models.get("writer") for run in runs}
    prompts = {run.info.contents.get("prompts") for run in runs}
    if len(writers) > 1:
        yield "The two sides were written by different models."
    if len(writers) > 1 or len(prompts) > 1:
        yield (
            "Hindsight states are written by each side's own model under its own `summary` prompt, and these are, or "
            "may be, different here: β and κ then have different references, and δ alone compares like with like."
        )
    for run in runs:
        told = (run.summary or {}).get("sensitivity")
        if told and not told["sensitive"]:
            yield f"{run.path.name}: {told['sentence']}"
