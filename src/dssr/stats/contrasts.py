"""Comparisons of conditions measured on the same games, overall and in bins of a distance, and rank correlations: over
the cells of a grid, and within write points.

All of them resample games, never points. A distance is the rewrites since the reveal, or the relevance lag.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

import numpy as np

from dssr.errors import StatsError
from dssr.stats.bootstrap import (
    Array,
    Interval,
    Resampler,
    align,
    checked,
    mean_interval,
    point_mean,
    t_intervals,
)
from dssr.types import Record

FIRM = 0.25
"""A base for relative changes is firm when its whole interval keeps this share of its mean."""

# ---------------------------------------------------------------- pairs of conditions


def difference(first: Array, second: Array, sampler: Resampler) -> Interval:
    """Mean over games of `first - second`, paired by game."""
    return mean_interval(_paired(first, second), sampler)


def ratio(top: Array, bottom: Array, sampler: Resampler) -> Interval:
    """Mean of `top` over mean of `bottom`, both recomputed in each resample."""
    _paired(top, bottom)
    games = np.shape(bottom)[-1]
    lower = sampler.means(checked(bottom))
    if np.mean(bottom) == 0 or (lower == 0).any():
        raise StatsError("A ratio to a mean of zero has no value; give the difference instead.")
    return sampler.interval(np.mean(top) / np.mean(bottom), sampler.means(checked(top)) / lower, games)


def relative_change(first: Array, second: Array, sampler: Resampler) -> Interval:
    """`mean(first) / mean(second) - 1`: by what share `first` differs from `second`."""
    found = ratio(first, second, sampler)
    return Interval(found.estimate - 1, found.low - 1, found.high - 1)


def change_if_any(first: Array, second: Array, sampler: Resampler) -> Interval | None:
    """The relative change for tables: None where the mean of `second` is nearly nothing (its t interval reaches below
    `FIRM` of it) or the change is a fall by more than all there was. Then the difference stands alone."""
    (base,) = t_intervals(np.atleast_2d(second), sampler)
    if min(base.low / base.estimate, base.high / base.estimate) < FIRM if base.estimate else True:
        return None
    try:
        found = relative_change(first, second, sampler)
    except StatsError:  # a resample with a mean of zero
        return None
    return found if found.estimate >= -1 else None


def _paired(first: Array, second: Array) -> Array:
    first, second = checked(first), checked(second)
    if first.shape != second.shape:
        raise StatsError(f"Paired values must be of the same games, not of {first.shape[-1]} and {second.shape[-1]}.")
    return first - second


def point_slope(x: Array, y: Array, games: Sequence[str], sampler: Resampler) -> Interval:
    """Least-squares slope of `y` against `x` over points; games are resampled with all their points.

    Sums per game suffice for it, so a resample is a weighting of games.
    """
    x, y = checked(x), checked(y)
    names, place = np.unique(np.asarray(games), return_inverse=True)
    sums = np.stack([np.bincount(place, weights=values) for values in (np.ones_like(x), x, y, x * x, x * y)])
    totals = np.column_stack([sums.sum(1), sampler.sums(sums.astype(np.float64))])
    n, a, b, aa, ab = totals
    with np.errstate(divide="ignore", invalid="ignore"):
        slopes = (n * ab - a * b) / (n * aa - a * a)
    if not np.isfinite(slopes[0]):
        raise StatsError("A slope needs points at two or more different places.")
    # A resample whose points all lie at one place has no slope.
    return sampler.interval(slopes[0], slopes[1:][np.isfinite(slopes[1:])], len(names))


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
    """Per bin the mean over its points; games are resampled with all their points."""
    rows = []
    for label, games in zip(labels(edges), by_game(points, edges), strict=True):
        values = np.array([value for mine in games.values() for value in mine])
        names = [game for game, mine in games.items() for _ in mine]
        found = point_mean(values, names, sampler) if games else None
        rows.append(Binned(label, len(values), len(games), found))
    return rows


def binned_contrast(
    first: Sequence[Iterable[tuple[str, float, float]]],
    second: Sequence[Iterable[tuple[str, float, float]]],
    edges: Sequence[int],
    sampler: Resampler,
) -> list[Binned]:
    """Per bin the paired difference over the games that have values in it under both conditions.

    Each condition is given as the points of its seeds, one list per seed, a single one where there are no seeds. A
    game's value in a bin is the mean over seeds of its mean there; a seed that never came into the bin says nothing.
    """
    rows = []
    for label, one, other in zip(labels(edges), _by_seed(first, edges), _by_seed(second, edges), strict=True):
        a, b = _means(one), _means(other)
        games = sorted(a.keys() & b.keys())
        x, y = np.array([a[game] for game in games]), np.array([b[game] for game in games])
        rows.append(
            Binned(
                label,
                sum(len(seed.get(game, ())) for seed in (*one, *other) for game in games),
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


def _by_seed(
    seeds: Sequence[Iterable[tuple[str, float, float]]], edges: Sequence[int]
) -> list[tuple[dict[str, list[float]], ...]]:
    """Per bin, one dictionary of games per seed."""
    return list(zip(*(by_game(points, edges) for points in seeds), strict=True))


def _means(seeds: Sequence[Mapping[str, Sequence[float]]]) -> dict[str, float]:
    """Per game the mean over seeds of its mean under each."""
    games = dict.fromkeys(game for seed in seeds for game in seed)
    return {game: float(np.mean([np.mean(seed[game]) for seed in seeds if game in seed])) for game in games}


# ---------------------------------------------------------------- ranks


def ranks(values: Array) -> Array:
    """Ranks along the last axis from 1 on; equal values have the mean of theirs. scipy has this too, in a module that
    takes more memory and time to import than a small study."""
    order = np.argsort(values, axis=-1, kind="stable")
    ordered = np.take_along_axis(values, order, -1)
    place = np.broadcast_to(np.arange(values.shape[-1]), values.shape)
    new = np.ones(values.shape, bool)
    new[..., 1:] = ordered[..., 1:] != ordered[..., :-1]
    last = np.roll(new, -1, -1)
    first = np.maximum.accumulate(np.where(new, place, 0), -1)
    until = np.minimum.accumulate(np.where(last, place, values.shape[-1])[..., ::-1], -1)[..., ::-1]
    found = np.empty(values.shape)
    np.put_along_axis(found, order, (first + until) / 2 + 1, -1)
    return found


def spearman(x: Array, y: Array) -> Array:
    """Spearman's rho along the last axis, ties ranked by their mean; NaN where either side does not vary."""
    a, b = ranks(x), ranks(y)
    a, b = a - a.mean(-1, keepdims=True), b - b.mean(-1, keepdims=True)
    scale = np.sqrt((a * a).sum(-1) * (b * b).sum(-1))
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.where(scale > 0, (a * b).sum(-1) / scale, np.nan))


def spearman_over_cells(x: Array, y: Array, sampler: Resampler) -> Interval:
    """Rho of cell means of `x` against cell means of `y`, both `[cells, games]`; games are resampled."""
    x, y = checked(x), checked(y)
    if x.shape != y.shape or x.shape[0] < 3:
        raise StatsError(
            f"A rank correlation needs the same three or more cells on both sides, not {x.shape} against {y.shape}."
        )
    estimate = float(spearman(_exact(x.mean(1)), _exact(y.mean(1))))
    parts = zip(sampler.mean_parts(x), sampler.mean_parts(y), strict=True)
    resampled = np.concatenate([spearman(_exact(one.T), _exact(other.T)) for one, other in parts])
    if not np.isfinite(estimate):
        raise StatsError("There is no rank correlation: one of the two quantities is the same in every cell.")
    return sampler.interval(estimate, resampled[np.isfinite(resampled)], x.shape[1])


class WithinPoint(Record, frozen=True):
    """Mean over write points of the rank correlation within a point."""

    interval: Interval
    points: int
    """With a defined correlation."""
    without_variance: int
    """Points where all candidates had the same score or the same return: no correlation there."""
    games: int


def within_point(scores: Array, returns: Array, games: Sequence[str], sampler: Resampler) -> WithinPoint:
    """Mean rho of `[points, candidates]` scores and returns; whole games are resampled with all their points."""
    rho = spearman(checked(scores), checked(returns))
    return _clustered(rho, games, sampler)


def within_point_difference(
    first: Array, second: Array, returns: Array, games: Sequence[str], sampler: Resampler
) -> WithinPoint:
    """Mean of rho(first) - rho(second) over the points where both are defined, on the same resamples."""
    return _clustered(spearman(checked(first), returns) - spearman(checked(second), returns), games, sampler)


def _clustered(values: Array, games: Sequence[str], sampler: Resampler) -> WithinPoint:
    defined = np.isfinite(values)
    if not defined.any():
        raise StatsError("No write point has candidates that differ both in score and in return.")
    known = [game for game, there in zip(games, defined, strict=True) if there]
    interval = point_mean(values[defined], known, sampler)
    return WithinPoint(interval, int(defined.sum()), int((~defined).sum()), len(set(known)))


def _exact(means: Array) -> Array:
    # After a matrix product equal cells can differ in the last bit; as ranks that would be a difference.
    return np.round(means, 12)
