"""Intervals of a whole grid: one product of shared draws against scipy called for each cell."""

import numpy as np
from scipy import stats

from benchmarks.common import Ratio, faster, seconds
from dssr.stats.bootstrap import Resampler, mean_intervals, shared_draws

CELLS, GAMES, GOAL = 76, 45, 20.0


def run() -> list[Ratio]:
    sampler = Resampler()
    grid = np.random.default_rng(0).normal(size=(CELLS, GAMES))
    ours, theirs = _ours(grid, sampler), [_scipy(row, sampler) for row in grid]
    if not np.allclose(ours, theirs, rtol=0, atol=1e-12):
        raise AssertionError("the two ways disagree, so their times cannot be compared")
    return [
        faster(
            f"bootstrap, {CELLS} cells x {GAMES} games x {sampler.resamples} resamples",
            seconds(lambda: _ours(grid, sampler), repeat=10),
            seconds(lambda: [_scipy(row, sampler) for row in grid]),
            "scipy.stats.bootstrap per cell",
            GOAL,
        )
    ]


def _ours(grid: np.ndarray, sampler: Resampler) -> list[tuple[float, float]]:
    shared_draws.cache_clear()
    return [(found.low, found.high) for found in mean_intervals(grid, sampler)]


def _scipy(row: np.ndarray, sampler: Resampler) -> tuple[float, float]:
    found = stats.bootstrap(
        (row,), np.mean, n_resamples=sampler.resamples, method="percentile", rng=np.random.default_rng(sampler.seed)
    ).confidence_interval
    return float(found.low), float(found.high)
