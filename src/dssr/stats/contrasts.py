"""Comparisons of conditions measured on the same games, overall and in bins of a distance.

All of them resample games, never points. A distance is the rewrites since the reveal, or the relevance lag.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

import numpy as np

from dssr.errors import StatsError
from dssr.stats.bootstrap import Array, Interval, Resampler, align, checked, mean_interval, resampled_means
from dssr.types import Record

# ---------------------------------------------------------------- pairs of conditions


def difference(first: Array, second: Array, sampler: Resampler) -> Interval:
    """Mean over games of `first - second`, paired by game."""
    return mean_interval(_paired(first, second), sampler)


def ratio(top: Array, bottom: Array, sampler: Resampler) -> Interval:
    """Mean of `top` over mean of `bottom`, both recomputed in each resample."""
    _paired(top, bottom)
    weights = sampler.weights(np.shape(bottom)[-1])
    lower = resampled_means(checked(bottom), weights)
    if np.mean(bottom) == 0 or (lower == 0).any():
        raise StatsError("A ratio to a mean of zero has no value; give the difference instead.")
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


def _paired(first: Array, second: Array) -> Array:
    first, second = checked(first), checked(second)
    if first.shape != second.shape:
        raise StatsError(f"Paired values must be of the same games, not of {first.shape[-1]} and {second.shape[-1]}.")
    return first - second


def over_fillers(columns: Mapping[int, Mapping[str, float]]) -> dict[str, float]:
    """Per game the mean of its means at each filler; every game must be there at every filler."""
    games, values = align({f"filler {filler}": column for filler, column in sorted(columns.items())})
    return dict(zip(games, values.mean(0).tolist(), strict=True))


# ---------------------------------------------------------------- slopes against the filler


def slope(values: Array, fillers: Array, sampler: Resampler) -> Interval:
    """Slope of the regression pooled over (game, filler) cells; games are resampled."""
    return mean_interval(game_slopes(values, fillers), sampler)


def slope_difference(first: Array, second: Array, fillers: Array, sampler: Resampler) -> Interval:
    """Slope of `first` minus slope of `second` on the same resamples."""
    return difference(game_slopes(first, fillers), game_slopes(second, fillers), sampler)


def game_slopes(values: Array, fillers: Array) -> Array:
    """Least-squares slope against the filler for each game, `[fillers, games]` to `[games]`.

    As every game has the same fillers, the mean of these is the slope of the pooled regression.
    """
    values, fillers = checked(values), np.asarray(fillers, dtype=np.float64)
    centred = fillers - fillers.mean()
    if values.shape[0] != fillers.shape[0] or not centred.any():
        raise StatsError(f"A slope needs values at two or more different fillers, not at {fillers.tolist()}.")
    return np.asarray(centred @ values / (centred @ centred))


# ---------------------------------------------------------------- bins of a distance


class Binned(Record, frozen=True):
    """One bin of one condition, or of a comparison of two."""

    label: str
    points: int
    games: int
    interval: Interval | None
    """None when no game has a value in the bin."""
    relative: Interval | None = None
    """In a comparison: change relative to the second condition, where that is told from zero."""
    left_out: tuple[str, ...] = ()
    """In a comparison: games with values in the bin under one condition only."""


def binned_means(points: Iterable[tuple[str, float, float]], edges: Sequence[int], sampler: Resampler) -> list[Binned]:
    """Per bin the mean over games of each game's mean in the bin."""
    rows = []
    for label, games in zip(labels(edges), by_game(points, edges), strict=True):
        means = _means(games)
        values = np.array([means[game] for game in sorted(means)])
        found = mean_interval(values, sampler) if means else None
        rows.append(Binned(label, sum(map(len, games.values())), len(games), found))
    return rows


def binned_contrast(
    first: Iterable[tuple[str, float, float]],
    second: Iterable[tuple[str, float, float]],
    edges: Sequence[int],
    sampler: Resampler,
) -> list[Binned]:
    """Per bin the paired difference over the games that have values in it under both conditions."""
    rows = []
    for label, one, other in zip(labels(edges), by_game(first, edges), by_game(second, edges), strict=True):
        a, b = _means(one), _means(other)
        games = sorted(a.keys() & b.keys())
        x, y = np.array([a[game] for game in games]), np.array([b[game] for game in games])
        rows.append(
            Binned(
                label,
                sum(len(one[game]) + len(other[game]) for game in games),
                len(games),
                difference(x, y, sampler) if games else None,
                change_if_any(x, y, sampler) if games else None,
                tuple(sorted(a.keys() ^ b.keys())),
            )
        )
    return rows


def labels(edges: Sequence[int]) -> list[str]:
    """Names of the bins that start at these edges: `0`, `1-2`, …, `60+`."""
    if list(edges) != sorted(set(edges)):
        raise StatsError(f"The edges of bins must rise, and {list(edges)} do not.")
    ends = [f"{a}" if b - a == 1 else f"{a}-{b - 1}" for a, b in pairwise(edges)]
    return [*ends, f"{edges[-1]}+"]


def bin_of(value: float, edges: Sequence[int]) -> int | None:
    """Index of the bin that holds the value; None below the first edge."""
    place = int(np.searchsorted(np.asarray(edges), value, side="right")) - 1
    return place if place >= 0 else None


def by_game(points: Iterable[tuple[str, float, float]], edges: Sequence[int]) -> list[dict[str, list[float]]]:
    """(game, distance, value) points sorted into bins: per bin, each game's values."""
    bins: list[dict[str, list[float]]] = [{} for _ in edges]
    for game, distance, value in points:
        place = bin_of(distance, edges)
        if place is not None:
            bins[place].setdefault(game, []).append(value)
    return bins


def _means(games: Mapping[str, Sequence[float]]) -> dict[str, float]:
    return {game: float(np.mean(values)) for game, values in games.items()}
