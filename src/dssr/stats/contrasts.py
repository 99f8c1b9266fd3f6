"""Comparisons of conditions measured on the same games. All of them resample games, never points."""

from collections.abc import Mapping

import numpy as np

from dssr.errors import StatsError
from dssr.stats.bootstrap import Array, Interval, Resampler, align, checked, mean_interval, resampled_means


def difference(first: Array, second: Array, sampler: Resampler) -> Interval:
    """Mean over games of `first - second`, paired by game."""
    return mean_interval(_paired(first, second), sampler)


def ratio(top: Array, bottom: Array, sampler: Resampler) -> Interval:
    """Mean of `top` over mean of `bottom`, both recomputed in each resample."""
    _paired(top, bottom)
    weights = sampler.weights(np.shape(bottom)[-1])
    lower = resampled_means(checked(bottom), weights)
    if np.mean(bottom) == 0 or (lower == 0).any():
        raise StatsError("a ratio to a mean of zero has no value: give the difference instead")
    return sampler.interval(np.mean(top) / np.mean(bottom), resampled_means(checked(top), weights) / lower)


def relative_change(first: Array, second: Array, sampler: Resampler) -> Interval:
    """`mean(first) / mean(second) - 1`: by what share `first` differs from `second`."""
    found = ratio(first, second, sampler)
    return Interval(found.estimate - 1, found.low - 1, found.high - 1)


def change_if_any(first: Array, second: Array, sampler: Resampler) -> Interval | None:
    """The relative change for tables: None where the mean of `second` may as well be zero, since a share of that says
    nothing and the difference stands alone."""
    base = mean_interval(checked(second), sampler)
    if base.low <= 0 <= base.high:
        return None
    try:
        return relative_change(first, second, sampler)
    except StatsError:  # a resample with a mean of zero
        return None


def game_slopes(values: Array, lags: Array) -> Array:
    """Least-squares slope against the lag for each game, `[lags, games]` to `[games]`.

    As every game has the same lags, the mean of these is the slope of the pooled regression.
    """
    values, lags = checked(values), np.asarray(lags, dtype=np.float64)
    centred = lags - lags.mean()
    if values.shape[0] != lags.shape[0] or not centred.any():
        raise StatsError(f"a slope needs values at two or more different lags, not at {lags.tolist()}")
    return np.asarray(centred @ values / (centred @ centred))


def slope(values: Array, lags: Array, sampler: Resampler) -> Interval:
    """Slope of the regression pooled over (game, lag) cells; games are resampled."""
    return mean_interval(game_slopes(values, lags), sampler)


def slope_difference(first: Array, second: Array, lags: Array, sampler: Resampler) -> Interval:
    """Slope of `first` minus slope of `second` on the same resamples."""
    return difference(game_slopes(first, lags), game_slopes(second, lags), sampler)


def over_lags(columns: Mapping[int, Mapping[str, float]]) -> dict[str, float]:
    """Per game the mean of its per-lag means; every game must be there at every lag."""
    games, values = align({f"filler {lag}": column for lag, column in sorted(columns.items())})
    return dict(zip(games, values.mean(0).tolist(), strict=True))


def _paired(first: Array, second: Array) -> Array:
    first, second = checked(first), checked(second)
    if first.shape != second.shape:
        raise StatsError(f"paired values must be of the same games: {first.shape[-1]} against {second.shape[-1]}")
    return first - second
