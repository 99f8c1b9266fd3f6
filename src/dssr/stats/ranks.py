"""Rank correlations: over the cells of a grid, and within write points clustered by game."""

from collections.abc import Sequence

import numpy as np

from dssr.errors import StatsError
from dssr.stats.bootstrap import Array, Interval, Resampler, checked, point_mean, resampled_means
from dssr.types import Record


def spearman(x: Array, y: Array) -> Array:
    """Spearman's rho along the last axis, ties ranked by their mean; NaN where either side does not vary."""
    from scipy.stats import rankdata  # costs as much to import as a small study takes

    a, b = rankdata(x, axis=-1), rankdata(y, axis=-1)
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
    weights = sampler.weights(x.shape[1])
    estimate = float(spearman(_exact(x.mean(1)), _exact(y.mean(1))))
    resampled = spearman(_exact(resampled_means(x, weights).T), _exact(resampled_means(y, weights).T))
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
