"""What a training came to: how each round did on validation games, which round is kept, and what the signal rewarded.

A round's success and regret stand beside those of the untrained writer on the same games. The round that is kept has
the highest validation success, averaged over the fillers. The signal is right when the best-scored candidate of a write
point holds more of the task than the worst-scored one.
"""

from collections.abc import Iterable, Mapping, Sequence
from statistics import mean
from typing import Any

from msgspec import field

from dssr.errors import ModelError, StatsError
from dssr.measure.candidates import Candidate, WritePoint
from dssr.measure.comparisons import ContrastRow, contrast_rows
from dssr.measure.rows import CellRow, cell_rows
from dssr.measure.study import Study
from dssr.record.run import Run
from dssr.stats.bootstrap import Interval
from dssr.stats.contrasts import bin_of, labels
from dssr.training.round import best, gap_report
from dssr.types import Record

# ---------------------------------------------------------------- rounds

UNTRAINED = "untrained"
BEFORE = -1
"""The round of the untrained writer."""

ALL = "all"
"""The group of every point."""


class RoundResult(Record, frozen=True):
    """How a trained writer did in one cell after one round; log `rounds` of a training run."""

    writer: str
    """Name of the variant: `dssr`, `K=1`, `K=4`, `no-hint`, `outcome`, `A4` …"""
    round: int
    """-1 for the untrained writer, whose name is `untrained`."""
    seed: int
    budget: int
    filler: int
    games: int
    success: float
    kappa: float | None
    """None when the round was not audited."""
    gain: float | None = None
    """Success minus that of the untrained writer on the same games, with its paired interval; None for itself."""
    gain_low: float | None = None
    gain_high: float | None = None
    kappa_change: float | None = None
    """The same for kappa: below zero is better."""
    kappa_change_low: float | None = None
    kappa_change_high: float | None = None

    @property
    def gain_interval(self) -> Interval | None:
        """Change of success, paired by game."""
        return _interval(self.gain, self.gain_low, self.gain_high)

    @property
    def kappa_interval(self) -> Interval | None:
        """Change of kappa, paired by game."""
        return _interval(self.kappa_change, self.kappa_change_low, self.kappa_change_high)


def _interval(estimate: float | None, low: float | None, high: float | None) -> Interval | None:
    return None if estimate is None else Interval.stored(estimate, low, high)


def untrained_results(run: Run, seed: int) -> list[RoundResult]:
    """The writer that training starts from, one result per filler."""
    return [_result(cell, UNTRAINED, BEFORE, seed, []) for cell in cell_rows(Study.load([run]))]


def round_results(run: Run, contrasts: Sequence[ContrastRow], writer: str, number: int, seed: int) -> list[RoundResult]:
    """One per filler. `contrasts` is what `against_untrained` gave."""
    return [_result(cell, writer, number, seed, contrasts) for cell in cell_rows(Study.load([run]))]


def against_untrained(run: Run, untrained: Run) -> list[ContrastRow]:
    """Success and kappa minus the untrained writer's, paired by game: at each filler, and over the long ones."""
    return contrast_rows(Study.load([untrained, run]), run.config.writer.memory)


def _result(cell: CellRow, writer: str, number: int, seed: int, contrasts: Sequence[ContrastRow]) -> RoundResult:
    if cell.success is None:
        raise ModelError(f"Every validation game of {writer} at filler {cell.filler} failed; see its episodes.jsonl.")
    assert cell.budget is not None, "a writer that is trained has a budget"
    changes = {row.quantity: row.difference for row in contrasts if row.filler == str(cell.filler)}
    gain, change = changes.get("success"), changes.get("kappa")
    return RoundResult(
        writer=writer,
        round=number,
        seed=seed,
        budget=cell.budget,
        filler=cell.filler,
        games=cell.games,
        success=cell.success.estimate,
        kappa=cell.kappa.estimate if cell.kappa else None,
        gain=gain.estimate if gain else None,
        gain_low=gain.ends[0] if gain else None,
        gain_high=gain.ends[1] if gain else None,
        kappa_change=change.estimate if change else None,
        kappa_change_low=change.ends[0] if change else None,
        kappa_change_high=change.ends[1] if change else None,
    )


def shown(results: Sequence[RoundResult]) -> dict[str, Any]:
    """The results of one round as one row: each filler, and the means over them."""
    row: dict[str, Any] = {"success": mean(one.success for one in results)}
    regrets = [one.kappa for one in results if one.kappa is not None]
    row["kappa"] = mean(regrets) if len(regrets) == len(results) else None
    for one in results:
        row |= {f"success F'={one.filler}": one.success, f"kappa F'={one.filler}": one.kappa}
    return row


# ---------------------------------------------------------------- selection


class ValidatedRound(Record, frozen=True):
    """One writer after one round."""

    writer: str
    seed: int
    round: int
    success: float
    """Averaged over the fillers."""


def selected(rows: Sequence[RoundResult]) -> ValidatedRound:
    """The best of the best rounds; of equals the writer whose rows came first."""
    best = best_rounds(rows)
    if not best:
        raise StatsError("No trained round has been validated, so there is nothing to select; run `dssr train` first.")
    order = list(dict.fromkeys(row.writer for row in rows))
    return max(best.values(), key=lambda one: (one.success, -order.index(one.writer)))


def best_rounds(rows: Iterable[RoundResult]) -> dict[str, ValidatedRound]:
    """The best round of each writer, judged on its first seed; of equals the earlier round, which is cheaper."""
    first: dict[str, int] = {}
    best: dict[str, ValidatedRound] = {}
    for one in sorted(validated_rounds(rows), key=lambda one: (one.seed, one.round)):
        if one.seed == first.setdefault(one.writer, one.seed) and (
            one.writer not in best or one.success > best[one.writer].success
        ):
            best[one.writer] = one
    return best


def validated_rounds(rows: Iterable[RoundResult]) -> list[ValidatedRound]:
    """Every trained round, in the order of the rows; all must have been validated at the same fillers."""
    found: dict[tuple[str, int, int], dict[int, float]] = {}
    for row in rows:
        if row.writer == UNTRAINED:
            continue
        cells = found.setdefault((row.writer, row.seed, row.round), {})
        if cells.setdefault(row.filler, row.success) != row.success:
            raise StatsError(
                f"Round {row.round} of {row.writer} with seed {row.seed} is there twice, from a line of that seed and "
                "from a round trained again; compare one of them."
            )
    fillers = {tuple(sorted(cells)) for cells in found.values()}
    if len(fillers) > 1:
        raise StatsError(f"Rounds validated at different fillers, {sorted(fillers)}, cannot be ranked; compare alike.")
    return [ValidatedRound(*key, mean(cells.values())) for key, cells in found.items()]


# ---------------------------------------------------------------- what the signal rewards

Groups = Mapping[str, Sequence[Candidate]]
"""Candidates by the key of their point."""


class CreditRow(Record, frozen=True):
    """What the candidates of one group of write points held; log `credit` of a training run."""

    candidates: str
    """Which set: variant and round."""
    group: str
    """`all`, a filler, or a stretch of steps since the reveal."""
    points: int
    coverage_all: float
    coverage_best: float
    """Of the best-scored candidate of each point."""
    coverage_worst: float
    """Of the worst-scored one."""
    all_zero: float
    """Share of points where no candidate holds any fact worth following."""
    differ: float
    """Share of points whose candidates differ in coverage."""
    best_above: float | None
    """Of those that differ, share where the best-scored candidate covers more than the worst-scored one; None when
    no point differs."""
    best_below: float | None
    """The opposite: share where it covers less."""


class PairRow(Record, frozen=True):
    """How far apart the candidates of a round were, and how many spelt out an action; log `pairs`."""

    candidates: str
    """Which set: variant and round."""
    points: int
    """With candidates."""
    qualifying: float
    """Share of points with at least one pair."""
    pairs: int
    lower: float
    """Quartiles of best minus worst score over all points."""
    median: float
    upper: float
    largest: float
    actions: float = field(name="commands")
    """Share of candidates that hold an action the reader could be offered, word for word."""
    actions_best: float = field(name="commands_best")
    """The same among the best-scored candidates."""
    group: str = ALL
    """`all`, a phase, a filler, or both: the signal is wide in Phase A and thin after a long walk."""
    alike: float | None = None
    """Share of points whose candidates all have one score: for `outcome`, where nothing that is written changes how the
    game ends. None in lines stored before it was counted."""


class CoverageRow(Record, frozen=True):
    """What the candidates still held of the task so many steps after they could first know it; log `coverage`."""

    candidates: str
    since: str
    """Bin of steps since the reveal."""
    points: int
    coverage: float
    coverage_best: float | None = None
    """Of the best-scored candidate of each point; None in lines stored before it was kept."""
    coverage_worst: float | None = None


def credit_rows(
    name: str, points: Iterable[WritePoint], groups: Groups, score: str, edges: Sequence[int]
) -> list[CreditRow]:
    """One row for all points after the reveal, for each filler, and for each bin of steps since the reveal.

    Before the reveal no state can hold a fact of the task, and a task without any has nothing to cover.
    """
    known = [point for point in points if point.since_reveal >= 1 and _covered(groups.get(point.key, ()))]
    parts: dict[str, list[WritePoint]] = {"all": known}
    for filler in sorted({point.filler for point in known}):
        parts[f"F'={filler}"] = [point for point in known if point.filler == filler]
    for place, label in enumerate(labels(edges)):
        inside = [point for point in known if bin_of(point.since_reveal, edges) == place]
        parts[f"{label} steps after reveal"] = inside
    return [
        _credit_row(name, part, [groups[point.key] for point in inside], score)
        for part, inside in parts.items()
        if inside
    ]


def _credit_row(name: str, part: str, groups: Sequence[Sequence[Candidate]], score: str) -> CreditRow:
    held = [[_coverage(one) for one in group] for group in groups]
    tops = [_coverage(best(group, score)) for group in groups]
    bottoms = [_coverage(worst(group, score)) for group in groups]
    differ = [max(values) > min(values) for values in held]
    signs = [top - bottom for top, bottom, apart in zip(tops, bottoms, differ, strict=True) if apart]
    return CreditRow(
        candidates=name,
        group=part,
        points=len(groups),
        coverage_all=mean(mean(values) for values in held),
        coverage_best=mean(tops),
        coverage_worst=mean(bottoms),
        all_zero=_rate(max(values) == 0 for values in held),
        differ=_rate(differ),
        best_above=_rate(sign > 0 for sign in signs) if signs else None,
        best_below=_rate(sign < 0 for sign in signs) if signs else None,
    )


def pair_rows(
    name: str, points: Iterable[WritePoint], groups: Groups, score: str, gap: float, most: int
) -> list[PairRow]:
    """Gaps of all points, and by phase, by filler and by both."""
    parts: dict[str, dict[str, Sequence[Candidate]]] = {}
    for point in points:
        if group := groups.get(point.key):
            phase, filler = f"phase {point.phase}", f"F'={point.filler}"
            for part in (phase, filler, f"{phase}, {filler}"):
                parts.setdefault(part, {})[point.key] = group
    # Phases first, then fillers by size, then both.
    order = sorted(parts, key=lambda part: (part.count("=") + part.count(","), int(part.partition("=")[2] or 0), part))
    return [pair_row(name, groups, score, gap, most)] + [
        pair_row(name, parts[part], score, gap, most, part) for part in order
    ]


def pair_row(name: str, groups: Groups, score: str, gap: float, most: int, part: str = ALL) -> PairRow:
    """Gaps, pairs, and how often candidates spell out an action."""
    filled = [group for group in groups.values() if group]
    report = gap_report(filled, score, gap, most)
    return PairRow(
        candidates=name,
        points=report.points,
        qualifying=report.qualifying / report.points if report.points else 0.0,
        pairs=report.pairs,
        lower=report.lower,
        median=report.median,
        upper=report.upper,
        largest=report.largest,
        actions=_rate(one.hint for group in filled for one in group),
        actions_best=_rate(best(group, score).hint for group in filled),
        group=part,
        alike=_rate(len({one.scores[score] for one in group}) == 1 for group in filled),
    )


def coverage_rows(
    name: str, points: Iterable[WritePoint], groups: Groups, score: str, edges: Sequence[int]
) -> list[CoverageRow]:
    """Mean coverage of all, of the best and of the worst candidates against steps since the reveal."""
    found: dict[int, list[tuple[float, float, float]]] = {}
    for point in points:
        group, place = groups.get(point.key, ()), bin_of(point.since_reveal, edges)
        if place is not None and _covered(group):
            ends = _coverage(best(group, score)), _coverage(worst(group, score))
            found.setdefault(place, []).append((mean(_coverage(one) for one in group), *ends))
    named = labels(edges)
    return [
        CoverageRow(name, named[place], len(kept), *(mean(values) for values in zip(*kept, strict=True)))
        for place, kept in sorted(found.items())
    ]


def worst(candidates: Sequence[Candidate], score: str) -> Candidate:
    """The lowest score; among equals the latest sample, as in `pairs_of`."""
    return min(candidates, key=lambda one: (one.scores[score], -one.index))


def _covered(group: Sequence[Candidate]) -> bool:
    return bool(group) and all(one.coverage is not None for one in group)


def _coverage(candidate: Candidate) -> float:
    assert candidate.coverage is not None, "points of games without such facts are left out"
    return candidate.coverage


def _rate(values: Iterable[bool]) -> float:
    """Share that is true; 0 of nothing."""
    found = list(values)
    return sum(found) / len(found) if found else 0.0
