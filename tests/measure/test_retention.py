"""What rewrites do to the facts of the task, on states written by hand."""

from math import log
from pathlib import Path

import pytest
from tests.measure.made import Result, cells, make_run

from dssr.config import Config
from dssr.measure.audit import half_life, retention_rows
from dssr.measure.study import Study
from dssr.worlds.cooking.recipe import Directive

KEPT, ALTERED, GONE = "slice the carrot", "dice the carrot", "a carrot lies in the fridge"


def test_every_loss_is_counted_once_and_by_its_kind(tmp_path: Path) -> None:
    """Two games: one keeps its directive through one rewrite, the other loses it twice in four, by a wrong verb and by
    silence, and has it back in between. Three of the five rewrites met a fact in the first game less the one that
    brought it back, one in the second: 2 of 4 kept. Catches losses counted per step instead of per rewrite, facts that
    return counted as kept, a wrong copy counted as left out, and steps after the first decision."""
    (cell,) = cells("summary", [3])
    found = {
        "valid-6-000": Result(True, walk=("a", "b", "c"), states=(KEPT, KEPT, ALTERED, KEPT, GONE)),
        "valid-6-001": Result(True, states=(KEPT, KEPT)),
    }
    run = make_run(tmp_path / "run", Config(name="made"), {cell: found})
    (row,) = retention_rows(Study.load([run.path]))
    assert row.kept is not None
    assert row.held is not None
    assert (row.games, row.rewrites, row.dropped, row.altered, row.regained) == (2, 4, 1, 1, 1)
    assert row.kept.estimate == row.held.estimate == row.whole == row.gone == row.filled == 0.5
    assert row.half_life == pytest.approx(1.0)
    assert row.kept.low == pytest.approx(1 / 3)
    assert row.kept.high == 1.0


def test_half_life_is_the_number_of_rewrites_that_halve() -> None:
    """Catches a formula that is off: a share to the power of its half-life is a half; what is never lost has none."""
    for kept in (0.2, 0.87, 0.993):
        found = half_life(kept)
        assert found is not None
        assert found * log(kept) == pytest.approx(log(0.5))
    assert half_life(1.0) is None
    assert half_life(0.0) == 0.0


def test_another_directive_of_the_same_food_is_no_wrong_copy() -> None:
    """A recipe may ask for two things of one food: catches the one that is left being taken for an error."""
    slice_it, fry_it = Directive("slice", "carrot"), Directive("fry", "carrot")
    assert not slice_it.altered_in("fry the carrot", (slice_it, fry_it))
    assert slice_it.altered_in("fry the carrot", (slice_it,))
    assert slice_it.altered_in("chop the carrot", (slice_it, fry_it))
    assert not slice_it.altered_in("the carrot is in the fridge", (slice_it,))
