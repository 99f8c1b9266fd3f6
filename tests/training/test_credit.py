"""Credit assignment, worked by hand on a few points."""

import pytest

from dssr.config import MeasureConfig
from dssr.measure.candidates import Candidate, WritePoint
from dssr.training.results import coverage_rows, credit_rows, pair_row, pair_rows


def point(number: int, since: int, filler: int = 0) -> WritePoint:
    return WritePoint(
        episode=f"e{number}", step=since + 10, filler=filler, budget=64, phase="B", since_reveal=since, targets=(99,)
    )


def candidates(at: WritePoint, *pairs: tuple[float, float | None], hints: tuple[int, ...] = ()) -> list[Candidate]:
    """One candidate per (score, coverage)."""
    return [
        Candidate(at.key, index, f"{at.key} {index}", covered, index in hints, {"S12": score})
        for index, (score, covered) in enumerate(pairs)
    ]


BINS = MeasureConfig().credit_bins
POINTS = [point(1, -3), point(2, 2), point(3, 4, filler=40), point(4, 20, filler=40), point(5, 30), point(6, 6)]
GROUPS = {
    POINTS[0].key: candidates(POINTS[0], (-1.0, 0.0), (-2.0, 0.0)),
    POINTS[1].key: candidates(POINTS[1], (-1.0, 1.0), (-2.0, 0.5), (-3.0, 0.0), hints=(0, 2)),
    POINTS[2].key: candidates(POINTS[2], (-1.0, 0.0), (-1.5, 0.5), (-1.5, 0.5)),
    POINTS[3].key: candidates(POINTS[3], (-1.0, 0.0), (-1.1, 0.0)),
    POINTS[4].key: candidates(POINTS[4], (-1.0, 0.5), (-2.0, 1.0), (-3.0, 0.5)),
    POINTS[5].key: candidates(POINTS[5], (-1.0, None), (-2.0, None)),
}


def test_credit_is_counted_per_group() -> None:
    """Catches points before the reveal or without directives counted in, shares of the wrong denominator, and best and
    worst taken by coverage instead of score. Of five rows, four points count: two tell the best from the worst."""
    rows = {row.group: row for row in credit_rows("dssr, round 0", POINTS, GROUPS, "S12", BINS)}
    assert set(rows) == {
        "all", "F'=0", "F'=40", "1-4 steps after reveal", "15-29 steps after reveal", "30+ steps after reveal"
    }  # fmt: skip
    whole = rows["all"]
    assert whole.points == 4
    assert whole.coverage_all == pytest.approx((0.5 + 1 / 3 + 0.0 + 2 / 3) / 4)
    assert whole.coverage_best == pytest.approx((1.0 + 0.0 + 0.0 + 0.5) / 4)
    assert whole.coverage_worst == pytest.approx((0.0 + 0.5 + 0.0 + 0.5) / 4)
    assert whole.all_zero == 0.25
    assert whole.differ == 0.75
    assert whole.best_above == pytest.approx(1 / 3)
    assert whole.best_below == pytest.approx(1 / 3)
    assert rows["F'=40"].points == 2
    assert rows["1-4 steps after reveal"].points == 2
    alike = rows["15-29 steps after reveal"]
    assert (alike.differ, alike.best_above, alike.best_below) == (0.0, None, None)


def test_no_point_gives_no_row() -> None:
    """Catches a division by zero when a round has no point after the reveal."""
    assert credit_rows("a", POINTS[:1], GROUPS, "S12", BINS) == []
    assert coverage_rows("a", POINTS[:1], GROUPS, "S12", (0, 1, 3)) == []
    assert pair_row("a", {}, "S12", 0.3, 2).points == 0


def test_coverage_against_steps_since_the_reveal() -> None:
    """Catches a bin that is off by one: 2 steps are in 1-2, 3 would not be."""
    rows = {row.since: row for row in coverage_rows("a", POINTS, GROUPS, "S12", (0, 1, 3, 20))}
    assert {name: row.points for name, row in rows.items()} == {"1-2": 1, "3-19": 1, "20+": 2}
    assert rows["20+"].coverage == pytest.approx((0.0 + 2 / 3) / 2)
    assert rows["20+"].coverage_best == pytest.approx((0.0 + 0.5) / 2)
    assert rows["1-2"].coverage_worst == 0.0


def test_pair_statistics() -> None:
    """Catches gaps over qualifying points only, and command shares over points instead of candidates."""
    row = pair_row("a", {point.key: GROUPS[point.key] for point in POINTS[1:4]}, "S12", 0.3, 2)
    assert (row.points, row.pairs) == (3, 2)
    assert row.qualifying == pytest.approx(2 / 3)
    assert row.median == pytest.approx(0.5)
    assert row.largest == pytest.approx(2.0)
    assert row.actions == pytest.approx(2 / 8)
    assert row.actions_best == pytest.approx(1 / 3)


def test_gaps_by_phase_and_filler() -> None:
    """Catches one median for all points, where Phase A is wide and long walks are thin, and points without candidates
    counted in.

    By hand, best minus worst: A at F'=0: 0.8; B at F'=0: 0.4; B at F'=10: 0.2, 0.0 and one point without candidates.
    Medians: all (0.8, 0.4, 0.2, 0.0) 0.3; Phase B (0.4, 0.2, 0.0) 0.2; F'=0 0.6; F'=10 0.1. One of four points has one
    score for all its candidates.
    """
    sizes = [("A", 0, 0.8), ("B", 0, 0.4), ("B", 10, 0.2), ("B", 10, 0.0), ("B", 10, None)]
    points, groups = [], {}
    for number, (phase, filler, gap) in enumerate(sizes):
        at = WritePoint(f"e{number}", 5, filler, 64, "A" if phase == "A" else "B", 1, (9,))
        points.append(at)
        if gap is not None:
            groups[at.key] = candidates(at, (-1.0, 0.0), (-1.0 - gap, 0.0))
    rows = pair_rows("a", points, groups, "S12", 0.3, 2)
    assert [row.group for row in rows] == [
        "all", "phase A", "phase B", "F'=0", "F'=10", "phase A, F'=0", "phase B, F'=0", "phase B, F'=10"
    ]  # fmt: skip
    medians = {row.group: row.median for row in rows}
    assert medians == pytest.approx(
        {
            "all": 0.3, "phase A": 0.8, "phase B": 0.2, "F'=0": 0.6, "F'=10": 0.1,
            "phase A, F'=0": 0.8, "phase B, F'=0": 0.4, "phase B, F'=10": 0.1,
        }
    )  # fmt: skip
    assert [row.alike for row in rows] == pytest.approx([1 / 4, 0, 1 / 3, 0, 1 / 2, 0, 0, 1 / 2])
    assert rows[0] == pair_row("a", groups, "S12", 0.3, 2)
