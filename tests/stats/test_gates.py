"""Gates pass exactly when their statement holds."""

import numpy as np
import pytest

from dssr.config import GatesConfig
from dssr.measure import gates
from dssr.stats.bootstrap import Resampler

SAMPLER = Resampler(resamples=400)
GATES = GatesConfig()
RNG = np.random.default_rng(0)
NOISE = RNG.normal(0, 0.1, 40)


def _passed(checks: tuple[gates.Check, ...]) -> list[bool | None]:
    return [check.passed for check in checks]


def test_every_gate_has_a_statement() -> None:
    """The gates of the plan are all stated, with the configured thresholds in words."""
    found = gates.statements(GATES, (20, 40))
    assert list(found) == ["G1a", "G1b", "G1c", "G2a", "G2b", "G2c", "G2d", "G2e", "plain"]
    assert "8 points" in found["G2a"]
    assert "20/40" in found["G2a"]
    assert "70 %" in found["G2e"]


def test_g1a_needs_both_intervals_above_zero() -> None:
    """A rise within the noise does not pass."""
    ones, zeros = np.ones(40), np.zeros(40)
    assert _passed(gates.regret_grows_with_lag(ones + NOISE, zeros, zeros + NOISE, zeros, SAMPLER)) == [True, False]


def test_g1b_needs_a_falling_relation() -> None:
    """More gap with more success is the opposite of the claim, however strong."""
    delta = np.outer(np.arange(8.0), np.ones(40)) + NOISE
    assert _passed(gates.gap_predicts_failure(delta, -delta, SAMPLER)) == [True]
    assert _passed(gates.gap_predicts_failure(delta, delta, SAMPLER)) == [False]


def test_g1c_needs_the_threshold_and_the_order() -> None:
    """A perfect long score passes; the same score on both sides fails the comparison."""
    returns = RNG.normal(size=(30, 8))
    games = [f"g{i % 10}" for i in range(30)]
    random = RNG.normal(size=(30, 8))
    assert _passed(gates.score_is_informative(returns, random, returns, games, GATES, SAMPLER)) == [True, True]
    assert _passed(gates.score_is_informative(random, returns, returns, games, GATES, SAMPLER)) == [False, False]


def test_g2a_thresholds() -> None:
    """7 of 100 points are not 8, and a loss of 4 points without lag is more than 3."""
    base = np.zeros(100)
    seven, ten = (np.arange(100) < 7).astype(float), (np.arange(100) < 10).astype(float)
    four = (np.arange(100) < 4).astype(float)
    enough, worse = np.stack([ten, base, base]), np.stack([base, four[::-1]])
    assert _passed(gates.success_gain(enough, worse, GATES, SAMPLER)) == [True, True, False]
    short, alike = np.stack([seven, base, base]), np.stack([base, base])
    assert _passed(gates.success_gain(short, alike, GATES, SAMPLER)) == [False, False, True]


def test_g2b_is_a_relative_cut_and_a_flatter_slope() -> None:
    """Half the regret at every lag is a 50 % cut and half the slope; equal regret is neither."""
    fillers = np.array([0.0, 20.0, 40.0])
    base = 1 + np.outer(fillers / 40, np.ones(40)) + NOISE
    both, alike = np.stack([base / 2, base]), np.stack([base, base])
    checks = gates.regret_falls(both[:, 1:].mean(1), both, fillers, GATES, SAMPLER)
    assert checks[0].estimate == pytest.approx(-0.5)
    assert _passed(checks) == [True, True]
    assert _passed(gates.regret_falls(alike[:, 1], alike, fillers, GATES, SAMPLER)) == [False, False]


def test_g2c_and_plain() -> None:
    """The horizon gate needs an interval above zero; plain comparisons are reported and never judged."""
    assert _passed(gates.horizon_matters(np.ones(40), np.zeros(40), SAMPLER)) == [True]
    assert _passed(gates.horizon_matters(NOISE, np.zeros(40), SAMPLER)) == [False]
    assert gates.verdict("plain", "…", gates.plain_checks(np.ones(4), np.zeros(4), np.ones(4), SAMPLER)).passed is None


def test_kept_gain() -> None:
    """Six tenths of a gain pass at 50 % and fail at 70 %; without a gain there is nothing to keep."""
    gain = np.ones(40)
    assert _passed(gates.gain_kept("kept", 0.6 * gain, gain, 0.5, SAMPLER)) == [True]
    assert _passed(gates.gain_kept("kept", 0.6 * gain, gain, 0.7, SAMPLER)) == [False]
    assert _passed(gates.gain_kept("kept", gain, -gain, 0.5, SAMPLER)) == [False]
    unsure = gates.gain_kept("kept", NOISE, np.where(np.arange(40) == 0, 1.0, 0.0), 0.5, SAMPLER)[0]
    assert unsure.interval is None


def test_verdict_needs_every_check() -> None:
    """One failed check fails the gate."""
    good = gates.Check("a", 1.0, 0.5, 1.5, 0.0, True)
    bad = gates.Check("b", 1.0, -0.5, 1.5, 0.0, False)
    assert gates.verdict("G1a", "…", (good, good)).passed is True
    assert gates.verdict("G1a", "…", (good, bad)).passed is False
