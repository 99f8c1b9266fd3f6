"""Write points, targets, pairs: the pure part of round data."""

from collections import Counter

import pytest

from dssr.measure.candidates import Candidate, WritePoint, sample_points
from dssr.measure.score import mean_scores, needed, spread
from dssr.training.round import best, gap_report, pairs_of


def point(number: int, phase: str, filler: int, budget: int) -> WritePoint:
    assert phase in ("A", "B")
    return WritePoint(
        episode=f"e{number:03d}", step=number % 50, filler=filler, budget=budget,
        phase="A" if phase == "A" else "B", since_reveal=0, targets=(60,),
    )  # fmt: skip


def candidate(index: int, score: float, state: str | None = None) -> Candidate:
    return Candidate(
        point="p", index=index, state=state or f"state {index}", coverage=0.0, hint=False, scores={"S12": score}
    )


def test_half_from_phase_a_and_even_over_cells() -> None:
    """Catches a sample that follows the supply (Phase B at F'=0 is the most plentiful) instead of the cells."""
    supply = [
        point(number, phase, filler, budget)
        for phase in "AB"
        for filler, share in ((0, 90), (40, 30))
        for budget in (64, 128)
        for number in range(share)
    ]
    chosen = sample_points(supply, 80, 0.5, "round", 1)
    assert Counter((one.phase, one.filler, one.budget) for one in chosen) == {
        (phase, filler, budget): 10 for phase in "AB" for filler in (0, 40) for budget in (64, 128)
    }
    assert chosen == sample_points(list(reversed(supply)), 80, 0.5, "round", 1)
    assert chosen != sample_points(supply, 80, 0.5, "round", 2)


def test_a_scarce_cell_gives_all_it_has() -> None:
    """Catches an endless loop or a short sample when one cell runs dry."""
    supply = [point(n, "B", 0, 64) for n in range(3)] + [point(n, "B", 40, 64) for n in range(50)]
    assert Counter(one.filler for one in sample_points(supply, 20, 0.0)) == {0: 3, 40: 17}


@pytest.mark.parametrize(
    ("count", "most", "chosen"),
    [
        (5, 12, (0, 1, 2, 3, 4)),
        (10, 1, (0,)),
        (10, 4, (0, 3, 6, 9)),
        (40, 12, (0, 4, 7, 11, 14, 18, 21, 25, 28, 32, 35, 39)),
    ],
)
def test_targets_are_spread_evenly_and_begin_with_the_next_decision(
    count: int, most: int, chosen: tuple[int, ...]
) -> None:
    """Catches a window of the first K, or a K = 1 that is not the next decision. Worked by hand."""
    assert spread(range(count), most) == chosen


def test_all_sizes_come_from_one_set_of_values() -> None:
    """Catches a mean over the wrong targets."""
    targets = tuple(range(10))
    values = {target: float(-target) for target in targets}
    assert needed(targets, (1, 4)) == (0, 3, 6, 9)
    assert mean_scores({t: values[t] for t in needed(targets, (1, 4))}, targets, (1, 4)) == {1: 0.0, 4: -4.5}


def test_pairs_are_best_against_worst_with_a_wide_gap() -> None:
    """Catches pairs below the gap, more than two a point, and pairs of equal texts."""
    group = [candidate(i, s) for i, s in enumerate((-1.0, -0.1, -2.0, -0.9, -0.5, -1.1))]
    pairs = pairs_of(group, "S12", 0.3, 2)
    assert [(one.chosen, one.rejected) for one in pairs] == [("state 1", "state 2"), ("state 4", "state 5")]
    assert pairs[0].gap == pytest.approx(1.9)
    assert pairs_of([candidate(0, -1.0), candidate(1, -1.2)], "S12", 0.3, 2) == []
    assert pairs_of([candidate(0, -1.0, "same"), candidate(1, -2.0, "same")], "S12", 0.3, 2) == []
    assert len(pairs_of([candidate(i, -float(i)) for i in range(9)], "S12", 0.3, 2)) == 2


def test_the_middle_candidate_is_never_paired_with_itself() -> None:
    """Catches an off-by-one for an odd number of candidates."""
    pairs = pairs_of([candidate(i, -float(i)) for i in range(3)], "S12", 0.3, 2)
    assert [(one.chosen, one.rejected) for one in pairs] == [("state 0", "state 2")]


def test_best_prefers_the_earliest_of_equals() -> None:
    """Catches an order that depends on how candidates were gathered."""
    assert best([candidate(2, -1.0), candidate(0, -1.0), candidate(1, -3.0)], "S12").index == 0


def test_gap_report_says_why_there_are_no_pairs() -> None:
    """Catches a report that counts only the points that qualify."""
    report = gap_report(
        [[candidate(0, 0.0), candidate(1, -0.1)], [candidate(0, 0.0), candidate(1, -0.5)]], "S12", 0.3, 2
    )
    assert (report.points, report.qualifying, report.pairs) == (2, 1, 1)
    assert report.lower == pytest.approx(0.2)
    assert report.upper == pytest.approx(0.4)
    assert report.median == pytest.approx(0.3)
    assert report.largest == pytest.approx(0.5)
