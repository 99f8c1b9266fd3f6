"""Slopes, relative change, lag means, bins and rank correlations."""

import numpy as np
import pytest
from scipy import stats

from dssr.errors import StatsError
from dssr.stats.bootstrap import Resampler
from dssr.stats.contrasts import (
    bin_of,
    binned_contrast,
    binned_means,
    change_if_any,
    difference,
    labels,
    over_fillers,
    point_slope,
    ratio,
    relative_change,
    slope,
    slope_difference,
    spearman,
    spearman_over_cells,
    within_point,
    within_point_difference,
)

SAMPLER = Resampler(resamples=400)
LAGS = np.array([0.0, 10.0, 20.0, 40.0])
REWRITES = (0, 1, 3, 6, 10, 15, 20, 30, 40, 60)


def test_slope_is_the_pooled_regression() -> None:
    """The mean of per-game slopes equals least squares over all (game, lag) points, estimate and every resample."""
    values = np.random.default_rng(0).normal(size=(4, 9))
    found = slope(values, LAGS, SAMPLER)
    assert found.estimate == pytest.approx(np.polyfit(np.repeat(LAGS, 9), values.ravel(), 1)[0])
    rng = np.random.default_rng(SAMPLER.seed)
    slopes = [np.polyfit(np.repeat(LAGS, 9), values[:, picks].ravel(), 1)[0] for picks in rng.integers(0, 9, (400, 9))]
    assert (found.low, found.high) == pytest.approx(tuple(np.quantile(slopes, (0.025, 0.975))), abs=1e-12)


def test_slope_difference_is_paired() -> None:
    """Two conditions whose slopes differ by a constant have a difference without any spread, however noisy each is."""
    values = np.random.default_rng(0).normal(size=(4, 20))
    found = slope_difference(values + 0.5 * LAGS[:, None], values, LAGS, SAMPLER)
    assert (found.estimate, found.low, found.high) == pytest.approx((0.5, 0.5, 0.5))
    assert slope(values, LAGS, SAMPLER).high > slope(values, LAGS, SAMPLER).low


def test_relative_change_is_a_ratio_of_means() -> None:
    """Games 1 and 3 against 4 and 4: means 2 and 4, a change of -50 %; the mean of ratios would be -50 % only by
    accident, so a second example has them differ."""
    assert relative_change(np.array([1.0, 3.0]), np.array([4.0, 4.0]), SAMPLER).estimate == -0.5
    assert relative_change(np.array([1.0, 3.0]), np.array([1.0, 7.0]), SAMPLER).estimate == -0.5
    scaled = relative_change(np.array([0.5, 3.5]), np.array([1.0, 7.0]), SAMPLER)
    assert (scaled.low, scaled.high) == (-0.5, -0.5)


def test_ratio_to_zero_is_refused() -> None:
    """A share of nothing has no value; it must not come out as infinity in a table."""
    with pytest.raises(StatsError, match="mean of zero"):
        ratio(np.ones(3), np.zeros(3), SAMPLER)


def test_over_fillers_weighs_fillers_equally_and_needs_every_game() -> None:
    """A game's value is the mean of its per-filler means; a game that lacks one filler is an error that names it."""
    assert over_fillers({20: {"g": 1.0}, 40: {"g": 3.0}}) == {"g": 2.0}
    with pytest.raises(StatsError, match="only filler 20 has h"):
        over_fillers({20: {"g": 1.0, "h": 1.0}, 40: {"g": 3.0}})


def test_unequal_numbers_are_refused() -> None:
    """Pairing needs equally many games on both sides."""
    with pytest.raises(StatsError, match="not of 3 and 2"):
        difference(np.zeros(3), np.zeros(2), SAMPLER)


def test_bins_of_the_paper() -> None:
    """Every whole number falls into the bin whose label contains it."""
    names = labels(REWRITES)
    assert names == ["0", "1-2", "3-5", "6-9", "10-14", "15-19", "20-29", "30-39", "40-59", "60+"]
    for value in range(100):
        place = bin_of(value, REWRITES)
        assert place is not None
        low, _, high = names[place].rstrip("+").partition("-")
        top = 10**9 if names[place].endswith("+") else int(high or low)
        assert int(low) <= value <= top
    assert bin_of(0, (1, 5, 10)) is None


def test_means_in_bins_are_over_points() -> None:
    """Two games with five points of 0 and one point of 1 in a bin: the mean is 1/6, not the mean of game means, 1/2.
    A resample of two games holds g twice (0), both (1/6) or h twice (1), so the bounds are 0 and 1."""
    points = [*(("g", 1.0, 0.0) for _ in range(5)), ("h", 2.0, 1.0)]
    row = binned_means(points, REWRITES, SAMPLER)[1]
    assert (row.label, row.points, row.games) == ("1-2", 6, 2)
    assert row.interval is not None
    assert row.interval.estimate == pytest.approx(1 / 6)
    assert (row.interval.low, row.interval.high) == (0.0, 1.0)
    assert binned_means(points, REWRITES, SAMPLER)[0].interval is None


def test_contrasts_in_bins_average_per_game_first() -> None:
    """The same two games against zeros: (0 + 1) / 2 = 0.5, since a contrast weighs games alike."""
    points = [*(("g", 1.0, 0.0) for _ in range(5)), ("h", 2.0, 1.0)]
    zeros = [("g", 1.0, 0.0), ("h", 1.0, 0.0)]
    row = binned_contrast([points], [zeros], REWRITES, SAMPLER)[1]
    assert row.interval is not None
    assert (row.interval.estimate, row.points) == (0.5, 8)


def test_seeds_in_bins_are_pooled_per_game() -> None:
    """Seed 0 has g at 0, 0, 3 (mean 1), seed 1 has g at 3: (1 + 3) / 2 = 2. All points as one list would give 1.5."""
    seeds = [[("g", 0.0, 0.0), ("g", 0.0, 0.0), ("g", 0.0, 3.0)], [("g", 0.0, 3.0), ("h", 0.0, 1.0)]]
    row = binned_contrast(seeds, [[("g", 0.0, 0.0), ("h", 0.0, 0.0)]], REWRITES, SAMPLER)[0]
    assert row.interval is not None
    assert (row.interval.estimate, row.games) == ((2 + 1) / 2, 2)


def test_slope_over_points_is_the_regression() -> None:
    """Against numpy's least squares over the same points, estimate and bounds; one place alone has no slope."""
    rng = np.random.default_rng(4)
    x, y = rng.choice([0.0, 10.0, 40.0], 30), rng.normal(size=30)
    games = [f"g{i // 5}" for i in range(30)]
    found = point_slope(x, y, games, SAMPLER)
    assert found.estimate == pytest.approx(np.polyfit(x, y, 1)[0])
    draws = np.random.default_rng(SAMPLER.seed).integers(0, 6, (400, 6))
    places = [np.concatenate([np.arange(5 * g, 5 * g + 5) for g in draw]) for draw in draws]
    slopes = [np.polyfit(x[p], y[p], 1)[0] for p in places]
    assert (found.low, found.high) == pytest.approx(tuple(np.quantile(slopes, (0.025, 0.975))))
    with pytest.raises(StatsError, match="two or more different places"):
        point_slope(np.ones(3), np.ones(3), ["g", "g", "h"], SAMPLER)


def test_binned_contrast_uses_common_games_and_names_the_rest() -> None:
    """Only games with values in the bin on both sides count, and the others are listed, not dropped in silence."""
    first = [("g", 0.0, 3.0), ("h", 0.0, 9.0), ("k", 1.0, 1.0)]
    second = [("g", 0.0, 1.0), ("g", 0.0, 2.0), ("k", 4.0, 1.0)]
    row = binned_contrast([first], [second], REWRITES, SAMPLER)[0]
    assert (row.games, row.points, row.left_out) == (1, 3, ("h",))
    assert row.interval is not None
    assert (row.interval.estimate, row.relative) == (1.5, None)  # one game is no firm base for a relative change


def test_there_is_no_change_relative_to_what_may_be_zero() -> None:
    """Catches "-46 %" of a regret that no interval tells from zero; away from zero the change is the plain ratio."""
    noise = np.random.default_rng(0).normal(size=40)
    assert change_if_any(noise + 1.0, noise, SAMPLER) is None
    assert change_if_any(noise, np.zeros(40), SAMPLER) is None
    assert change_if_any(noise - 2.0, noise / 4 + 0.1, SAMPLER) is None  # "-507 %" of nearly nothing
    assert change_if_any(noise - 9.0, noise + 5.0, SAMPLER) is None  # more lost than there was
    assert change_if_any(noise + 1.0, noise + 5.0, SAMPLER) == relative_change(noise + 1.0, noise + 5.0, SAMPLER)
    assert change_if_any(noise - 1.0, noise - 5.0, SAMPLER) == relative_change(noise - 1.0, noise - 5.0, SAMPLER)


def test_spearman_equals_scipy() -> None:
    """Rank correlation with ties, along rows, against scipy; constant rows have none."""
    rng = np.random.default_rng(2)
    x, y = rng.integers(0, 4, (50, 8)).astype(float), rng.normal(size=(50, 8))
    for row, (a, b) in zip(spearman(x, y), zip(x, y, strict=True), strict=True):
        assert row == pytest.approx(stats.spearmanr(a, b).statistic)
    assert np.isnan(spearman(np.ones(5), np.arange(5.0)))


def test_spearman_over_cells_resamples_games() -> None:
    """Cells ordered the same way in every game have rho -1 in every resample."""
    success = np.outer(np.arange(6.0), np.ones(10))
    found = spearman_over_cells(-success + 0.01 * np.random.default_rng(0).random((6, 10)), success, SAMPLER)
    assert (found.estimate, found.low, found.high) == pytest.approx((-1, -1, -1))


def test_equal_cells_stay_tied_when_resampled() -> None:
    """Cells with equally many games won in a resample are a tie there. Recounted in whole numbers: a tie broken by
    the last bit of a product would change the ranks of hundreds of these 400 resamples and with them the bounds."""
    rng = np.random.default_rng(0)
    success, delta = (rng.random((12, 45)) < 0.4).astype(float), rng.normal(size=(12, 45))
    found = spearman_over_cells(delta, success, SAMPLER)
    draws = np.random.default_rng(SAMPLER.seed).integers(0, 45, (400, 45))
    rhos = [stats.spearmanr(delta[:, d].sum(1), success.astype(int)[:, d].sum(1)).statistic for d in draws]
    assert (found.low, found.high) == pytest.approx(tuple(np.quantile(rhos, (0.025, 0.975))), abs=1e-12)


def test_within_point_counts_points_without_variance() -> None:
    """Two points agree, one disagrees, one has equal returns: the mean is over three and the fourth is counted."""
    scores = np.array([[1.0, 2, 3], [1, 2, 3], [1, 2, 3], [1, 2, 3]])
    returns = np.array([[0.0, 1, 2], [0, 5, 9], [2, 1, 0], [1, 1, 1]])
    found = within_point(scores, returns, ["g", "g", "h", "h"], SAMPLER)
    assert found.interval.estimate == pytest.approx(1 / 3)
    assert (found.points, found.without_variance, found.games) == (3, 1, 2)
    assert (found.interval.low, found.interval.high) == (-1, 1)


def test_within_point_interval_is_clustered() -> None:
    """Copying every point of every game tenfold adds no information: the clustered interval must not shrink."""
    rng = np.random.default_rng(3)
    scores, returns = rng.normal(size=(20, 6)), rng.normal(size=(20, 6))
    games = [f"g{i // 2}" for i in range(20)]
    once = within_point(scores, returns, games, SAMPLER).interval
    copied = within_point(np.tile(scores, (10, 1)), np.tile(returns, (10, 1)), games * 10, SAMPLER).interval
    assert (copied.low, copied.high) == pytest.approx((once.low, once.high))


def test_within_point_difference() -> None:
    """A score compared with its own reverse differs by twice its rho at every point."""
    scores = np.array([[1.0, 2, 3], [3, 2, 1]])
    returns = np.array([[0.0, 1, 2], [2, 1, 0]])
    found = within_point_difference(scores, -scores, returns, ["g", "h"], SAMPLER).interval
    assert (found.estimate, found.low, found.high) == (2, 2, 2)
