"""From scored candidates to training examples. Pure functions."""

import statistics
from collections.abc import Sequence

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
    median: float
    """Of best minus worst, over all points."""
    largest: float


def gap_report(groups: Sequence[Sequence[Candidate]], score: str, gap: float) -> GapReport:
    ranges = [
        max(one.scores[score] for one in group) - min(one.scores[score] for one in group) for group in groups if group
    ]
    return GapReport(
        points=len(ranges),
        qualifying=sum(bool(pairs_of(group, score, gap, 1)) for group in groups if group),
        median=statistics.median(ranges) if ranges else 0.0,
        largest=max(ranges, default=0.0),
    )
