"""Values in bins of a distance: rewrites since the reveal, or relevance lag."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

import numpy as np

from dssr.errors import StatsError
from dssr.stats.bootstrap import Interval, Resampler, mean_interval
from dssr.stats.contrasts import change_if_any, difference
from dssr.types import Record


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


def labels(edges: Sequence[int]) -> list[str]:
    """Names of the bins that start at these edges: `0`, `1-2`, …, `60+`."""
    if list(edges) != sorted(set(edges)):
        raise StatsError(f"bin edges must rise: {list(edges)}")
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


def _means(games: Mapping[str, Sequence[float]]) -> dict[str, float]:
    return {game: float(np.mean(values)) for game, values in games.items()}
