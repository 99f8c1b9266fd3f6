"""The acceptance gate: an average over room counts, and no verdict on failed games."""

import pytest

from dssr.errors import StatsError
from dssr.training.reader import acceptance
from dssr.types import Cell, Episode, Job, Outcome


def episode(rooms: int, outcome: Outcome) -> Episode:
    job = Job("valid-6-000", Cell("full", None, 0, "post"), 0, 0.0, 0.0, "reader")
    error = "out of memory" if outcome == "error" else None
    return Episode("k", job, "valid", rooms, outcome, 11, 11, 20, 9, 9, 0, error)


def test_success_is_averaged_over_room_counts() -> None:
    """Catches a plain mean over games, which would weigh the room count with more games higher."""
    verdict = acceptance(
        [episode(6, "won")] * 9 + [episode(6, "lost")] + [episode(12, "won"), episode(12, "limit")], 0.8
    )
    assert verdict["levels"] == {"6": 0.9, "12": 0.5}
    assert verdict["success"] == pytest.approx(0.7)
    assert verdict["games"] == 12
    assert verdict["accepted"] is False


def test_exactly_the_threshold_is_accepted() -> None:
    """Catches a strict comparison: at least 80 % is asked."""
    assert acceptance([episode(6, "won")] * 4 + [episode(6, "lost")], 0.8)["accepted"] is True


def test_a_failed_game_gives_no_verdict() -> None:
    """Catches an error counted as a loss, or left out of the denominator."""
    with pytest.raises(StatsError, match="out of memory"):
        acceptance([episode(6, "won"), episode(6, "error")], 0.8)
    with pytest.raises(StatsError, match="No episode"):
        acceptance([], 0.8)
