"""From scored candidates to training examples. Pure functions."""

from collections.abc import Sequence

import numpy as np

from dssr.types import Candidate, Pair, Record


def best(candidates: Sequence[Candidate], score: str) -> Candidate:
    """The highest score; among equals the earliest sample."""
    return max(candidates, key=lambda one: (one.scores[score], -one.index))


def pairs_of(candidates: Sequence[Candidate], score: str, gap: float, most: int) -> list[Pair]:
    """Best against worst, then second best against second worst, and so on, while the gap is wide enough."""
    ranked = sorted(candidates, key=lambda one: (-one.scores[score], one.index))
    found: list[Pair] = []
    for high, low in zip(ranked[: len(ranked) // 2], reversed(ranked), strict=False):
        distance = high.scores[score] - low.scores[score]
        if len(found) == most or distance < gap:
            break
        if high.state != low.state:
            found.append(Pair(point=high.point, chosen=high.state, rejected=low.state, gap=distance))
    return found


class GapReport(Record, frozen=True):
    """How far apart candidates are: what is left to say when no pair qualifies."""

    points: int
    qualifying: int
    """Points with at least one pair."""
    pairs: int
    lower: float
    """Quartiles of best minus worst, over all points."""
    median: float
    upper: float
    largest: float


def gap_report(groups: Sequence[Sequence[Candidate]], score: str, gap: float, most: int) -> GapReport:
    """`most`: pairs a point may give."""
    ranges = [
        max(one.scores[score] for one in group) - min(one.scores[score] for one in group) for group in groups if group
    ]
    found = [len(pairs_of(group, score, gap, most)) for group in groups if group]
    lower, median, upper = np.quantile(ranges, (0.25, 0.5, 0.75)) if ranges else (0.0, 0.0, 0.0)
    return GapReport(
        points=len(ranges),
        qualifying=sum(map(bool, found)),
        pairs=sum(found),
        lower=float(lower),
        median=float(median),
        upper=float(upper),
        largest=max(ranges, default=0.0),
    )
