"""Gates pass exactly when their statement holds."""

import numpy as np
import pytest

from dssr.config import GatesConfig
from dssr.errors import StatsError
from dssr.measure import verdicts
from dssr.stats.bootstrap import Interval, Resampler

SAMPLER = Resampler(resamples=400)
GATES = GatesConfig()
RNG = np.random.default_rng(0)
NOISE = RNG.normal(0, 0.1, 40)


def _passed(found: tuple[verdicts.Check, ...]) -> list[bool | None]:
    return [check.passed for check in found]


def test_every_gate_has_a_statement() -> None:
    """The gates of the plan are all stated, with the configured thresholds in words."""
    found = verdicts.statements(GATES, (20, 40))
    assert list(found) == ["G0", "G1a", "G1b", "G1c", "G2a", "G2b", "G2c", "G2d", "G2e", "plain"]
    assert "8 points" in found["G2a"]
    assert "20/40" in found["G2a"]
    assert "70 %" in found["G2e"]


def test_g1a_needs_both_intervals_above_zero() -> None:
    """A rise within the noise does not pass, and one format that rises does not speak for another that does not."""
    ones, zeros = np.ones(40), np.zeros(40)
    formats = {"summary": (ones + NOISE, zeros), "belief": (NOISE, zeros)}
    found = verdicts.regret_grows_with_lag(formats, zeros + NOISE, zeros, SAMPLER)
    assert _passed(found) == [True, False, False]
    assert "belief" in found[1].what


def test_g0_needs_a_rise_and_reports_what_is_told_again() -> None:
    """A slope whose interval reaches zero is no lag; the share of steps that tell the fact again is only reported."""
    again = Interval(0.5, 0.4, 0.6)
    assert _passed(verdicts.filler_is_lag(Interval(0.9, 0.5, 1.2), again, SAMPLER)) == [True, None]
    assert _passed(verdicts.filler_is_lag(Interval(0.9, -0.1, 1.2), None, SAMPLER)) == [False]


def test_g1b_needs_a_falling_relation() -> None:
    """More gap with more success is the opposite of the claim, however strong."""
    delta = np.outer(np.arange(8.0), np.ones(40)) + NOISE
    assert _passed(verdicts.gap_predicts_failure(delta, -delta, SAMPLER)) == [True]
    assert _passed(verdicts.gap_predicts_failure(delta, delta, SAMPLER)) == [False]


def test_g1c_needs_the_threshold_and_the_order() -> None:
    """A perfect long score passes; the same score on both sides fails the comparison."""
    returns = RNG.normal(size=(30, 8))
    games = [f"g{i % 10}" for i in range(30)]
    random = RNG.normal(size=(30, 8))
    assert _passed(verdicts.score_is_informative(returns, random, returns, games, GATES, SAMPLER)) == [True, True]
    assert _passed(verdicts.score_is_informative(random, returns, returns, games, GATES, SAMPLER)) == [False, False]


def test_g2a_thresholds() -> None:
    """7 of 100 points are not 8, and a loss of 4 points without lag is more than 3."""
    base = np.zeros(100)
    seven, ten = (np.arange(100) < 7).astype(float), (np.arange(100) < 10).astype(float)
    four = (np.arange(100) < 4).astype(float)
    enough, worse = np.stack([ten, base, base]), np.stack([base, four[::-1]])
    assert _passed(verdicts.success_gain(enough, worse, GATES, SAMPLER)) == [True, True, False]
    short, alike = np.stack([seven, base, base]), np.stack([base, base])
    assert _passed(verdicts.success_gain(short, alike, GATES, SAMPLER)) == [False, False, True]


def test_g2b_is_a_relative_cut_and_a_flatter_slope() -> None:
    """Half the regret at every lag is a 50 % cut and half the slope; equal regret is neither."""
    fillers = np.array([0.0, 20.0, 40.0])
    base = 1 + np.outer(fillers / 40, np.ones(40)) + NOISE
    both, alike = np.stack([base / 2, base]), np.stack([base, base])
    cut = verdicts.regret_falls(both[:, 1:].mean(1), both, fillers, GATES, SAMPLER)
    assert cut[0].estimate == pytest.approx(-0.5)
    assert _passed(cut) == [True, True]
    assert _passed(verdicts.regret_falls(alike[:, 1], alike, fillers, GATES, SAMPLER)) == [False, False]


def test_g2b_of_no_regret_is_refused() -> None:
    """Catches a writer that makes regret where there was less than none, and passes: 0.05 is "200 % below" -0.05."""
    worse, none = np.full(6, 0.05), np.full(6, -0.05)
    with pytest.raises(StatsError, match=r"kappa of summary at the long fillers is -0\.05"):
        verdicts.regret_falls(np.stack((worse, none)), np.ones((2, 2, 6)), np.array([0.0, 40]), GATES, SAMPLER)


def test_g2c_and_plain() -> None:
    """The horizon gate needs an interval above zero and a gap that is smaller without filler: a gain that is there at
    once is no matter of the horizon. Plain comparisons are reported and never judged."""
    ones, zeros = np.ones(40), np.zeros(40)
    gap, half, none = np.stack([ones, zeros]), np.stack([ones / 2, zeros]), np.stack([zeros, zeros])
    assert _passed(verdicts.horizon_matters(gap, half, SAMPLER)) == [True, True]
    assert _passed(verdicts.horizon_matters(gap, gap, SAMPLER)) == [True, False]
    assert _passed(verdicts.horizon_matters(np.stack([NOISE, zeros]), none, SAMPLER))[0] is False
    plain = verdicts.Found(verdicts.plain_checks(np.ones(4), np.zeros(4), np.ones(4), SAMPLER))
    assert verdicts.verdict("plain", "…", plain).passed is None


def test_kept_gain() -> None:
    """Six tenths of a gain pass at 50 % and fail at 70 %."""
    gain = np.ones(40)
    assert _passed(verdicts.gain_kept("kept", 0.6 * gain, gain, 0.5, SAMPLER).checks) == [True, True]
    assert _passed(verdicts.gain_kept("kept", 0.6 * gain, gain, 0.7, SAMPLER).checks) == [True, False]


def test_a_gain_that_is_none_makes_the_gate_vacuous() -> None:
    """Neither kept nor lost: a gain below zero, or one that no interval tells from zero (one game of 40), used to fail
    the gate or to pass it with an unbounded share."""
    one_game = np.where(np.arange(40) == 0, 1.0, 0.0)
    for gain in (-np.ones(40), one_game):
        found = verdicts.gain_kept("kept", gain, gain, 0.5, SAMPLER)
        said = verdicts.verdict("G2d", "…", found)
        assert (said.vacuous, said.passed) == (True, None)
        assert "Vacuous" in said.notes[0]


def test_minimum_detectable_effect_by_hand() -> None:
    """Four games with differences 1, 0, 1, 0: sd = sqrt(1/3) with n - 1, SE = sd / 2 = 0.2887, and
    (1.9600 + 0.8416) * 0.2887 = 0.8087. Catches a variance with n, and a power that is left out."""
    found = verdicts.success_gain(
        np.array([[1.0, 0, 1, 0], [0, 0, 0, 0], [0, 0, 0, 0]]), np.zeros((2, 4)), GATES, SAMPLER
    )
    assert found[0].detectable == pytest.approx(0.8087, abs=1e-4)
    assert found[2].detectable is None, "games that are all alike do not say what would be seen"


def test_verdict_needs_every_check() -> None:
    """One failed check fails the gate."""
    good = verdicts.Check("a", 1.0, 0.5, 1.5, 0.0, True)
    bad = verdicts.Check("b", 1.0, -0.5, 1.5, 0.0, False)
    assert verdicts.verdict("G1a", "…", verdicts.Found((good, good))).passed is True
    assert verdicts.verdict("G1a", "…", verdicts.Found((good, bad))).passed is False
