"""Intervals against scipy, against hand-worked numbers, and by simulation."""

import numpy as np
import pytest
from scipy import stats

from dssr.errors import StatsError
from dssr.stats.bootstrap import (
    KEPT,
    Interval,
    Resampler,
    Unit,
    align,
    blocks,
    draw,
    mean_interval,
    mean_intervals,
    t_bounds,
    t_intervals,
    wilson,
    written,
)
from dssr.stats.contrasts import difference, ratio, slope

SMALL = Resampler(resamples=500, seed=7)


def _scipy(data: tuple[np.ndarray, ...], statistic: object, sampler: Resampler) -> tuple[float, float]:
    found = stats.bootstrap(
        data,
        statistic,
        n_resamples=sampler.resamples,
        paired=True,
        vectorized=True,
        axis=-1,
        method="percentile",
        confidence_level=sampler.level,
        rng=np.random.default_rng(sampler.seed),
    )
    return float(found.confidence_interval.low), float(found.confidence_interval.high)


@pytest.mark.parametrize("number", range(100))
def test_equal_to_scipy(number: int) -> None:
    """On 100 random data sets of every kind we use, mean, paired difference and ratio give scipy's own bounds.

    Both draw the same games from the same generator, so only rounding may differ: any other draw, pairing or
    percentile rule fails at once.
    """
    rng = np.random.default_rng(number)
    games = int(rng.integers(2, 60))
    makers = (rng.standard_normal, rng.standard_exponential, lambda n: np.floor(rng.random(n) + 0.3))
    first, second = makers[number % 3](games), 1 + rng.standard_exponential(games)
    mean, paired, share = mean_interval(first, SMALL), difference(first, second, SMALL), ratio(first, second, SMALL)
    expected = _scipy((first,), lambda x, axis: x.mean(axis), SMALL)
    assert (mean.low, mean.high) == pytest.approx(expected, abs=1e-12)
    expected = _scipy((first, second), lambda x, y, axis: x.mean(axis) - y.mean(axis), SMALL)
    assert (paired.low, paired.high) == pytest.approx(expected, abs=1e-12)
    expected = _scipy((first, second), lambda x, y, axis: x.mean(axis) / y.mean(axis), SMALL)
    assert (share.low, share.high) == pytest.approx(expected, abs=1e-12)


def test_grid_equals_cells_one_by_one() -> None:
    """A grid computed as one product must not differ from its cells computed alone (shared draws, no mixing)."""
    grid = np.random.default_rng(1).normal(size=(12, 45))
    together, alone = mean_intervals(grid, SMALL), [mean_interval(row, SMALL) for row in grid]
    for one, other in zip(together, alone, strict=True):
        assert (one.estimate, one.low, one.high) == pytest.approx((other.estimate, other.low, other.high), abs=1e-13)


def test_two_games_by_hand() -> None:
    """With values 0 and 1 a resample mean is 0, 1/2 or 1 with odds 1:2:1, so a 40 % interval is exactly [1/2, 1/2]
    and a 95 % interval exactly [0, 1]. Catches weights that do not sum to the number of games."""
    values = np.array([0.0, 1.0])
    assert mean_interval(values, Resampler(level=0.4)) == mean_interval(values, Resampler(level=0.4, seed=1))
    narrow, wide = mean_interval(values, Resampler(level=0.4)), mean_interval(values, Resampler())
    assert (narrow.estimate, narrow.low, narrow.high) == (0.5, 0.5, 0.5)
    assert (wide.low, wide.high) == (0.0, 1.0)


def test_draws_are_games_with_replacement() -> None:
    """Every resample holds as many games as there are, every game is equally likely, and the seed decides."""
    weights = draw(10, 4000, np.random.default_rng(3))
    assert (weights.sum(1) == 10).all()
    assert weights.mean(0) == pytest.approx(np.ones(10), abs=0.1)
    assert (weights == draw(10, 4000, np.random.default_rng(3))).all()
    assert (weights != draw(10, 4000, np.random.default_rng(4))).any()


@pytest.mark.parametrize("games", [60, 90])
def test_coverage_of_a_mean(games: int) -> None:
    """A 95 % interval covers the true mean in 93-97 % of 4,000 normal data sets.

    The percentile bootstrap of n normal values covers about P(|t(n-1)| < 1.96 sqrt(1 - 1/n)): 0.943 at 60 games,
    0.946 at 90. The share over 4,000 sets has a standard deviation below 0.004 (0.0045 with the noise of 10,000
    draws), so a correct interval fails with odds below 1 in 500 on a random seed, and this seed is fixed. Bounds
    taken at 5 % and 95 % would cover 90 %, and a standard error without the root would cover far less.
    """
    assert 0.93 <= _coverage(np.random.default_rng(11).normal(0.7, 2.0, (4000, games)), 0.7) <= 0.97


def test_coverage_of_a_slope() -> None:
    """Slopes over four lags with a game effect of their own are covered in 93-97 % of 3,000 simulated grids of 90
    games. Resampling (game, lag) points instead of games would ignore the games' own slopes: their spread is four
    times the noise's here, and coverage would drop below 70 %. Odds of a false alarm as for the mean."""
    rng, lags = np.random.default_rng(5), np.array([0.0, 10.0, 20.0, 40.0])
    centred = lags - lags.mean()
    own = rng.normal(0.03, 0.04, (3000, 90))
    noise = rng.normal(0, 0.3, (3000, 4, 90))
    found = own + np.einsum("l,slg->sg", centred, noise) / (centred @ centred)
    one = slope(own[0] * lags[:, None] + noise[0], lags, SMALL)
    assert one.estimate == pytest.approx(found[0].mean())
    assert 0.93 <= _coverage(found, 0.03) <= 0.97


def _coverage(sets: np.ndarray, truth: float) -> float:
    sampler = Resampler()
    inside = 0
    for start in range(0, len(sets), 250):
        for found in mean_intervals(sets[start : start + 250], sampler):
            inside += found.low <= truth <= found.high
    return inside / len(sets)


@pytest.mark.parametrize(("games", "most"), [(4, 0.05), (10, 0.05), (30, 0.055)])
def test_t_intervals_hold_their_level(games: int, most: float) -> None:
    """At few games a 95 % t interval misses the mean of normal values in 5 % of sets or fewer, where the percentile
    one misses in 21, 9 and 6 %. 4,000 sets: standard deviation 0.0034, and the expected share is 0.03 to 0.045."""
    values = np.random.default_rng(2).normal(size=(4000, games))
    low, high = t_bounds(values, Resampler(resamples=999))
    assert ((low > 0) | (high < 0)).mean() <= most
    student = np.array([stats.t.interval(0.95, games - 1, v.mean(), stats.sem(v)) for v in values[:50]])
    assert (low[:50] <= student[:, 0] + 1e-12).all()
    assert (high[:50] >= student[:, 1] - 1e-12).all()


def test_t_intervals_at_the_edges() -> None:
    """One game has no interval and equal games have one without width; infinities must not become NaN."""
    (one,) = t_intervals(np.array([[2.0]]), SMALL)
    assert (one.estimate, one.low, one.high, one.bounded) == (2.0, -np.inf, np.inf, False)
    assert (one.text(), one.ends) == ("2.00", (None, None))
    (same,) = t_intervals(np.full((1, 8), 0.25), SMALL)
    assert (same.low, same.high) == (0.25, 0.25)
    (few,) = t_intervals(np.array([[0.0, 0.0, 1.0]]), SMALL)
    assert few.low < 0 < 1 < few.high
    assert Interval.stored(2.0, *one.ends) == one


def test_three_games_give_no_bound_of_rounding_errors() -> None:
    """Catches resamples of one game three times whose variance is not quite zero: a bound of 100 million nats. With
    three games there is none, and it says so."""
    values = np.random.default_rng(3).normal(11, 2, (2000, 3))
    for bound in t_bounds(values, Resampler(resamples=2000)):
        assert np.isinf(bound).all()


def test_one_game_has_no_band() -> None:
    """The percentile interval of one game used to be the game itself: certainty out of nothing."""
    found = mean_interval(np.array([3.0]), SMALL)
    assert (found.estimate, found.bounded) == (3.0, False)
    assert mean_intervals(np.array([[3.0]]), SMALL) == [found]
    assert not ratio(np.array([3.0]), np.array([2.0]), SMALL).bounded


def test_different_games_are_refused_by_name() -> None:
    """Comparing conditions on different games must say which games, on which side."""
    with pytest.raises(StatsError, match=r"only summary has valid-6-001; only guide has valid-6-002"):
        align({"summary": {"valid-6-000": 1.0, "valid-6-001": 0.0}, "guide": {"valid-6-000": 1.0, "valid-6-002": 0.0}})


def test_align_orders_games() -> None:
    """Values line up by game, whatever the order in which they arrive."""
    games, values = align({"a": {"g2": 2.0, "g1": 1.0}, "b": {"g1": 10.0, "g2": 20.0}})
    assert games == ("g1", "g2")
    assert values.tolist() == [[1.0, 2.0], [10.0, 20.0]]


@pytest.mark.parametrize("values", [[], [1.0, float("nan")]])
def test_missing_is_not_zero(values: list[float]) -> None:
    """No games, or a game without a value, is an error and never silently a zero."""
    with pytest.raises(StatsError):
        mean_interval(np.array(values), SMALL)


def test_wilson_has_a_width_where_resamples_have_none() -> None:
    """0 of 45: the upper bound is z² / (n + z²) = 3.8415 / 48.8415 = 0.0787, where the bootstrap says [0, 0]. 10 of 100
    is the textbook's [0.0552, 0.1744]."""
    none = wilson(0, 45, Resampler())
    assert (none.estimate, none.low) == (0.0, 0.0)
    assert none.high == pytest.approx(0.0787, abs=1e-4)
    some = wilson(10, 100, Resampler())
    assert (some.low, some.high) == pytest.approx((0.0552, 0.1744), abs=1e-4)
    with pytest.raises(StatsError, match="at least one game"):
        wilson(0, 0, Resampler())


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.125, "nats", "0.12"),
        (-0.001, "nats", "0.00"),
        (-1.005, "nats", "-1.00"),
        (2 / 3, "percent", "66.7"),
        (0.0625, "percent", "6.2"),
        (1.0, "percent", "100"),
        (-0.0001, "percent", "0"),
        (0.9996, "percent", "100"),
        (-0.5, "change", "-50 %"),
        (0.00125, "number", "0.0013"),
        (12.5, "points", "12.5"),
        (-100.0, "points", "-100.0"),
    ],
)
def test_numbers_are_written_one_way(value: float, unit: Unit, text: str) -> None:
    """Catches a negative zero, needless decimals, and a rounding that differs from the one tables have had."""
    assert written(value, unit) == text
    assert Interval(value, value, value).text(unit) == text
    assert Interval(0.2, 0.1, 0.3).text() == "0.20 [0.10, 0.30]"


def test_sums_in_blocks_are_the_sums() -> None:
    """Catches draws of many games that differ from those taken at once, or are left out at the end of a block: the
    same resamples are drawn whole here."""
    sampler = Resampler(resamples=1_030, seed=5)
    games = KEPT // sampler.resamples + 300
    assert len(list(blocks(games, sampler.resamples, sampler.seed))) > 3
    weights = draw(games, sampler.resamples, np.random.default_rng(sampler.seed))
    values = np.random.default_rng(1).normal(size=(3, games))
    assert (np.concatenate(list(blocks(games, sampler.resamples, sampler.seed))) == weights).all()
    assert sampler.sums(values) == pytest.approx(values @ weights.T, rel=1e-12, abs=1e-12)
    assert sampler.means(values[0]) == pytest.approx(weights @ values[0] / games, rel=1e-12, abs=1e-12)
