"""What the training signal rewards: does the best-scored candidate hold more of the recipe? Pure functions."""

from collections.abc import Iterable, Mapping, Sequence
from statistics import mean

from dssr.learn.pairs import best, gap_report
from dssr.stats.bins import bin_of, labels
from dssr.types import Candidate, CoverageRow, CreditRow, PairRow, WritePoint

STRETCHES = (1, 5, 15, 30)
"""First steps, since the reveal, of the stretches that the credit table tells apart."""

Groups = Mapping[str, Sequence[Candidate]]
"""Candidates by the key of their point."""


def credit_rows(name: str, points: Iterable[WritePoint], groups: Groups, score: str) -> list[CreditRow]:
    """One row for all points after the reveal, for each filler, and for each stretch of steps since the reveal.

    Before the reveal no state can hold a directive, and a recipe without directives has nothing to cover.
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
    assert candidate.coverage is not None, "points of recipes without directives are left out"
    return candidate.coverage


def _rate(values: Iterable[bool]) -> float:
    """Share that is true; 0 of nothing."""
    found = list(values)
    return sum(found) / len(found) if found else 0.0
