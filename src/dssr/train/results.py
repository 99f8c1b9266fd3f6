"""Which round of which variant is kept: validation success, averaged over the fillers. Pure functions.

What a round's validation says: success and regret per filler, beside the untrained writer on the same games.

What the training signal rewards: does the best-scored candidate hold more of the task? Pure functions.
"""

from collections.abc import Iterable, Mapping, Sequence
from statistics import mean
from typing import Any

from dssr.errors import ModelError, StatsError
from dssr.measure.rows import cell_rows, contrast_rows
from dssr.measure.study import Study
from dssr.record.run import Run
from dssr.stats.contrasts import bin_of, labels
from dssr.train.round import best, gap_report
from dssr.types import Candidate, CoverageRow, CreditRow, PairRow, Record, RoundResult, WritePoint

UNTRAINED = "untrained"
BEFORE = -1
"""The round of the untrained writer."""


class Standing(Record, frozen=True):
    """One writer after one round."""

    writer: str
    seed: int
    round: int
    success: float
    """Averaged over the fillers."""


def standings(rows: Iterable[RoundResult]) -> list[Standing]:
    """Every trained round, in the order of the rows; all must have been validated at the same fillers."""
    found: dict[tuple[str, int, int], dict[int, float]] = {}
    for row in rows:
        if row.writer != UNTRAINED:
            found.setdefault((row.writer, row.seed, row.round), {})[row.filler] = row.success
    fillers = {tuple(sorted(cells)) for cells in found.values()}
    if len(fillers) > 1:
        raise StatsError(f"Rounds validated at different fillers, {sorted(fillers)}, cannot be ranked; compare alike.")
    return [Standing(*key, mean(cells.values())) for key, cells in found.items()]


def best_rounds(rows: Iterable[RoundResult]) -> dict[str, Standing]:
    """The best round of each writer, judged on its first seed; of equals the earlier round, which is cheaper."""
    first: dict[str, int] = {}
    best: dict[str, Standing] = {}
    for one in sorted(standings(rows), key=lambda one: (one.seed, one.round)):
        if one.seed == first.setdefault(one.writer, one.seed) and (
            one.writer not in best or one.success > best[one.writer].success
        ):
            best[one.writer] = one
    return best


def selected(rows: Sequence[RoundResult]) -> Standing:
    """The best of the best rounds; of equals the writer whose rows came first."""
    best = best_rounds(rows)
    if not best:
        raise StatsError("No trained round has been validated, so there is nothing to select; run `dssr train` first.")
    order = list(dict.fromkeys(row.writer for row in rows))
    return max(best.values(), key=lambda one: (one.success, -order.index(one.writer)))


BASE = "summary"
"""The prompt that the trained writers share with the untrained one."""
CHANGES = {"success": "gain", "kappa": "kappa_change"}


def untrained_results(run: Run, seed: int) -> list[RoundResult]:
    return [_result(cell, UNTRAINED, BEFORE, seed, []) for cell in cell_rows(Study.load([run]))]


def round_results(
    run: Run, contrasts: Sequence[dict[str, Any]], writer: str, number: int, seed: int
) -> list[RoundResult]:
    """One per filler. `contrasts` is what `against_untrained` gave."""
    return [_result(cell, writer, number, seed, contrasts) for cell in cell_rows(Study.load([run]))]


def against_untrained(run: Run, untrained: Run) -> list[dict[str, Any]]:
    """Success and kappa minus the untrained writer's, paired by game: at each filler, and over the long ones."""
    return contrast_rows(Study.load([untrained, run]), BASE)


def _result(
    cell: dict[str, Any], writer: str, number: int, seed: int, contrasts: Sequence[dict[str, Any]]
) -> RoundResult:
    if cell["success"] is None:
        raise ModelError(
            f"Every validation game of {writer} at filler {cell['filler']} failed; see its episodes.jsonl."
        )
    changes: dict[str, float | None] = {}
    for row in contrasts:
        if row["filler"] == str(cell["filler"]):
            name = CHANGES[row["quantity"]]
            changes |= {name + end: row["difference" + end] for end in ("", "_low", "_high")}
    return RoundResult(
        writer=writer,
        round=number,
        seed=seed,
        budget=cell["budget"],
        filler=cell["filler"],
        games=cell["games"],
        success=cell["success"],
        kappa=cell["kappa"],
        **changes,
    )


def shown(results: Sequence[RoundResult]) -> dict[str, Any]:
    """The results of one round as one row: each filler, and the means over them."""
    row: dict[str, Any] = {"success": mean(one.success for one in results)}
    regrets = [one.kappa for one in results if one.kappa is not None]
    row["kappa"] = mean(regrets) if len(regrets) == len(results) else None
    for one in results:
        row |= {f"success F'={one.filler}": one.success, f"kappa F'={one.filler}": one.kappa}
    return row


STRETCHES = (1, 5, 15, 30)
"""First steps, since the reveal, of the stretches that the credit table tells apart."""

Groups = Mapping[str, Sequence[Candidate]]
"""Candidates by the key of their point."""


def credit_rows(name: str, points: Iterable[WritePoint], groups: Groups, score: str) -> list[CreditRow]:
    """One row for all points after the reveal, for each filler, and for each stretch of steps since the reveal.

    Before the reveal no state can hold a fact of the task, and a task without any has nothing to cover.
    """
    known = [point for point in points if point.since_reveal >= 1 and _covered(groups.get(point.key, ()))]
    parts: dict[str, list[WritePoint]] = {"all": known}
    for filler in sorted({point.filler for point in known}):
        parts[f"F'={filler}"] = [point for point in known if point.filler == filler]
    for place, label in enumerate(labels(STRETCHES)):
        inside = [point for point in known if bin_of(point.since_reveal, STRETCHES) == place]
        parts[f"{label} steps after reveal"] = inside
    return [
        _row(name, part, [groups[point.key] for point in inside], score) for part, inside in parts.items() if inside
    ]


def _row(name: str, part: str, groups: Sequence[Sequence[Candidate]], score: str) -> CreditRow:
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


def coverage_rows(name: str, points: Iterable[WritePoint], groups: Groups, edges: Sequence[int]) -> list[CoverageRow]:
    """Mean coverage of the candidates against steps since the reveal."""
    found: dict[int, list[float]] = {}
    for point in points:
        group, place = groups.get(point.key, ()), bin_of(point.since_reveal, edges)
        if place is not None and _covered(group):
            found.setdefault(place, []).append(mean(_coverage(one) for one in group))
    named = labels(edges)
    return [CoverageRow(name, named[place], len(found[place]), mean(found[place])) for place in sorted(found)]


def pair_row(name: str, groups: Groups, score: str, gap: float, most: int) -> PairRow:
    """Gaps, pairs, and how often candidates spell out a command."""
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
        commands=_rate(one.hint for group in filled for one in group),
        commands_best=_rate(best(group, score).hint for group in filled),
    )


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
