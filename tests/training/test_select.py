"""Selection: the best round by validation success averaged over fillers."""

import pytest

from dssr.errors import StatsError
from dssr.training.results import RoundResult, best_rounds, selected, validated_rounds


def result(writer: str, number: int, seed: int, filler: int, success: float) -> RoundResult:
    return RoundResult(writer, number, seed, 128, filler, 45, success, None)


def rounds(writer: str, seed: int, *pairs: tuple[float, float]) -> list[RoundResult]:
    """Rounds 0, 1, … with their success at fillers 0 and 40."""
    return [
        result(writer, number, seed, filler, success)
        for number, pair in enumerate(pairs)
        for filler, success in zip((0, 40), pair, strict=True)
    ]


def test_the_best_round_has_the_best_mean_over_fillers() -> None:
    """Catches a choice by one filler alone, by the last round, or by a later seed that happened to do well."""
    rows = rounds("dssr", 0, (0.1, 0.1), (0.2, 0.3), (0.4, 0.0)) + rounds("dssr", 1, (0.9, 0.9))
    best = best_rounds(rows)
    assert (best["dssr"].seed, best["dssr"].round) == (0, 1)
    assert best["dssr"].success == pytest.approx(0.25)
    assert best_rounds(list(reversed(rows))) == best


def test_of_equal_rounds_the_earlier_and_of_equal_writers_the_first() -> None:
    """Catches a tie broken by the order of a dictionary or in favour of more training."""
    rows = rounds("dssr", 0, (0.2, 0.2), (0.3, 0.1)) + rounds("K=1", 0, (0.1, 0.3))
    assert best_rounds(rows)["dssr"].round == 0
    assert selected(rows).writer == "dssr"
    assert selected([*rows[4:], *rows[:4]]).writer == "K=1"


def test_the_untrained_writer_is_never_selected() -> None:
    """Catches a baseline that wins the selection, or that is all there is."""
    before = [result("untrained", -1, 0, filler, 0.9) for filler in (0, 40)]
    assert selected(before + rounds("dssr", 0, (0.1, 0.1))).writer == "dssr"
    with pytest.raises(StatsError, match="dssr train"):
        selected(before)


def test_one_seed_from_two_trainings_is_refused() -> None:
    """Catches a line trained with `--seed 1` and a round trained again by `--seeds` taken for one writer, of which the
    last one read would count; the same line read twice is one."""
    rows = rounds("dssr", 1, (0.1, 0.1))
    assert len(validated_rounds([*rows, *rows])) == 1
    with pytest.raises(StatsError, match="seed 1 is there twice"):
        validated_rounds([*rows, *rounds("dssr", 1, (0.1, 0.2))])


def test_rounds_at_different_fillers_are_refused() -> None:
    """Catches means over different walks ranked against each other."""
    with pytest.raises(StatsError, match="different fillers"):
        validated_rounds([*rounds("dssr", 0, (0.1, 0.1)), result("K=1", 0, 0, 0, 0.5)])
