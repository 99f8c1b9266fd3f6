"""Intervals over games: the percentile bootstrap of the method's tables, and t intervals for verdicts.

Games are drawn once, as a matrix of counts shared by every quantity measured on those games, so that all
resampled means of a whole grid are one matrix product and every comparison is paired. Percentile intervals of few games
are too narrow; t intervals hold their level better (`benchmarks/intervals.py` measures both).
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from statistics import NormalDist
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from dssr.errors import StatsError
from dssr.types import Record

Array = NDArray[np.float64]
Unit = Literal["percent", "points", "nats", "change", "number"]
"""How a number is written: `percent` is a fraction times 100, `points` is that already, `change` a signed fraction, and
`number` has four decimals."""


def written(value: float, unit: Unit = "nats") -> str:
    """A number as people read it. The terminal, tables and pages all take their digits from here."""
    if unit == "change":
        return f"{100 * value:+.0f} %"
    if unit == "percent":
        return written(100 * value, "points")
    text = f"{value:.{ {'points': 1, 'number': 4}.get(unit, 2) }f}"
    if unit == "points" and text in ("100.0", "0.0", "-0.0"):
        return text.removesuffix(".0").lstrip("-")
    return text.lstrip("-") if float(text) == 0 else text


class Interval(Record, frozen=True):
    """A plug-in estimate with its interval. One game says nothing about others: its bounds are infinite."""

    estimate: float
    low: float
    high: float

    @classmethod
    def stored(cls, estimate: float, low: float | None, high: float | None) -> "Interval":
        """From columns of a file, which have None for an end without bound."""
        return cls(estimate, -np.inf if low is None else low, np.inf if high is None else high)

    @property
    def ends(self) -> tuple[float | None, float | None]:
        """For columns of a file: None for an end without bound."""
        low, high = (value if np.isfinite(value) else None for value in (self.low, self.high))
        return low, high

    @property
    def bounded(self) -> bool:
        """Whether there is an interval at all."""
        return None not in self.ends

    def text(self, unit: Unit = "nats") -> str:
        """`0.53 [0.40, 0.67]`; the estimate alone where the bounds say nothing more."""
        text, *ends = (written(one, unit) for one in (self.estimate, self.low, self.high))
        return text if ends == [text, text] or not self.bounded else f"{text} [{', '.join(ends)}]"

    def times(self, factor: float) -> "Interval":
        """In another unit: points instead of a share, for example."""
        return Interval(factor * self.estimate, factor * self.low, factor * self.high)


def draw(games: int, resamples: int, rng: np.random.Generator) -> Array:
    """How often each game occurs in each resample: `[resamples, games]`, every row summing to `games`."""
    if games < 1:
        raise StatsError("There is no game to resample; a statistic needs at least one game with a value.")
    picks = rng.integers(0, games, (resamples, games))
    picks += np.arange(resamples)[:, None] * games
    counts = np.bincount(picks.ravel(), minlength=resamples * games)
    return counts.reshape(resamples, games).astype(np.float64)


KEPT, BLOCK = 1 << 19, 1 << 16
"""Counts up to which draws are kept whole, those of 50 games; and how many are drawn at once of more games."""
PARTS = 1 << 15
"""Resampled means that are held at once, where nothing but a number is made of each resample."""
ROWS = 64
"""Resamples of a block are a multiple of this, so that a sum has the same bits whatever the block."""


@lru_cache(maxsize=8)
def shared_draws(games: int, resamples: int, seed: int) -> Array:
    """The draws of one seed, kept: a whole report uses the same few."""
    weights, first = np.empty((resamples, games)), 0
    for part in _drawn(games, resamples, seed):
        weights[first : first + len(part)] = part
        first += len(part)
    weights.flags.writeable = False
    return weights


def blocks(games: int, resamples: int, seed: int) -> Iterator[Array]:
    """The draws of one seed, one part of the resamples after the other; few enough are kept, others drawn again."""
    if resamples * games <= KEPT:
        yield shared_draws(games, resamples, seed)
    else:
        yield from _drawn(games, resamples, seed)


def _drawn(games: int, resamples: int, seed: int) -> Iterator[Array]:
    rows, rng = max(ROWS, BLOCK // games // ROWS * ROWS), np.random.default_rng(seed)
    for first in range(0, resamples, rows):
        yield draw(games, min(rows, resamples - first), rng)


class Resampler(Record, frozen=True):
    """The settings of one analysis. Equal numbers of games get equal draws, which makes comparisons paired."""

    resamples: int = 10_000
    seed: int = 0
    level: float = 0.95
    power: float = 0.8
    """Of the minimum detectable effect."""

    def sums(self, values: Array) -> Array:
        """Sums over games in every resample: `[..., games]` to `[..., resamples]`. The draws depend on the number of
        games alone, in the order in which they are listed."""
        parts = [values @ weights.T for weights in blocks(values.shape[-1], self.resamples, self.seed)]
        return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=-1)

    def means(self, values: Array) -> Array:
        """Means over games in every resample: `[..., games]` to `[..., resamples]`."""
        return self.sums(values / values.shape[-1])

    def mean_parts(self, values: Array) -> Iterator[Array]:
        """As `means` of `[cells, games]`, a part of the resamples after the other, so that many cells need no room."""
        few = max(ROWS, PARTS // max(len(values), 1) // ROWS * ROWS)
        for weights in blocks(values.shape[-1], self.resamples, self.seed):
            for first in range(0, len(weights), few):
                yield values / values.shape[-1] @ weights[first : first + few].T

    def bounds(self, resampled: Array) -> tuple[Array, Array]:
        """Lower and upper percentile over the last axis, linear between order statistics (numpy's default rule)."""
        tail = (1 - self.level) / 2
        ordered = np.sort(resampled, axis=-1)  # numpy sorts several times faster than it finds two quantiles
        low, high = (_quantile(ordered, share) for share in (tail, 1 - tail))
        return low, high

    def interval(self, estimate: float, resampled: Array, games: int) -> Interval:
        """The estimate with the percentiles of its resampled values; without bounds if there is but one game."""
        if games < 2:
            return Interval(float(estimate), -np.inf, np.inf)
        low, high = self.bounds(resampled)
        return Interval(float(estimate), float(low), float(high))

    @property
    def reach(self) -> float:
        """Standard errors from zero to a bound of an interval: 1.96 at 95 %."""
        return NormalDist().inv_cdf(1 - (1 - self.level) / 2)

    def detectable(self, error: float) -> float:
        """Minimum detectable effect: `(z(1 - alpha/2) + z(power)) * SE`, the true effect whose interval would exclude
        zero with this power; 2.80 standard errors at 95 % and 80 %."""
        return (self.reach + NormalDist().inv_cdf(self.power)) * error


def _quantile(ordered: Array, share: float) -> Array:
    place = share * (ordered.shape[-1] - 1)
    below = int(place)
    above = min(below + 1, ordered.shape[-1] - 1)
    return np.asarray(ordered[..., below] + (place - below) * (ordered[..., above] - ordered[..., below]))


def checked(values: Array) -> Array:
    """The values as floats, refusing what is missing: a missing value is not zero."""
    values = np.asarray(values, dtype=np.float64)
    if values.shape[-1] == 0:
        raise StatsError("There is no game to resample; a statistic needs at least one game with a value.")
    if not np.isfinite(values).all():
        count = int((~np.isfinite(values)).sum())
        raise StatsError(f"{count} of {values.size} per-game values are missing; leave those games out by name.")
    return values


def mean_interval(values: Array, sampler: Resampler) -> Interval:
    """Mean over games of one quantity, `[games]`."""
    values = checked(values)
    games = values.shape[-1]
    return sampler.interval(values.mean(), sampler.means(values), games)


def point_mean(values: Array, games: Sequence[str], sampler: Resampler) -> Interval:
    """Mean over points, `[points]`: a game counts by how many it has. Games are resampled with all their points, so
    each resampled mean is a ratio of two sums over games."""
    values = checked(values)
    names, place = np.unique(np.asarray(games), return_inverse=True)
    sums, counts = (np.bincount(place, weights=one).astype(np.float64) for one in (values, None))
    return sampler.interval(values.mean(), sampler.sums(sums) / sampler.sums(counts), len(names))


def standard_error(values: Array) -> float | None:
    """Of the mean over games: `sd / sqrt(n)`, with n - 1 in the variance; None of a single game."""
    values = checked(values)
    return float(values.std(ddof=1) / np.sqrt(values.size)) if values.size > 1 else None


def wilson(successes: int, games: int, sampler: Resampler) -> Interval:
    """Wilson's score interval of a rate: it has a width at 0 and 1 too, where resampled games are all alike."""
    if games < 1:
        raise StatsError("There is no game to resample; a statistic needs at least one game with a value.")
    rate, square = successes / games, sampler.reach**2
    centre = (rate + square / (2 * games)) / (1 + square / games)
    half = sampler.reach / (1 + square / games) * np.sqrt(rate * (1 - rate) / games + square / (4 * games**2))
    return Interval(rate, max(0.0, float(centre - half)), min(1.0, float(centre + half)))


def t_intervals(values: Array, sampler: Resampler) -> list[Interval]:
    """Means over games of many quantities, `[quantities, games]`, with intervals for few games."""
    values = checked(values)
    low, high = t_bounds(values, sampler)
    return [Interval(float(e), float(a), float(b)) for e, a, b in zip(values.mean(-1), low, high, strict=True)]


def t_bounds(values: Array, sampler: Resampler) -> tuple[Array, Array]:
    """Bounds of the mean over the last axis: bootstrap-t, and at neither end nearer than Student's t.

    Student's t is exact for normal values and blind to skew; bootstrap-t takes the skew from the games themselves, and
    of three games it knows too little to give any bound.
    """
    games, tail = values.shape[-1], (1 - sampler.level) / 2
    mean = values.mean(-1)
    if games < 2:
        return np.full_like(mean, -np.inf), np.full_like(mean, np.inf)
    centred = values - mean[..., None]
    error = np.sqrt((centred**2).sum(-1) / (games - 1) / games)
    shift = sampler.means(centred)
    spread = np.sqrt(np.maximum(sampler.means(centred**2) - shift**2, 0) / (games - 1))
    with np.errstate(divide="ignore", invalid="ignore"):
        # A resample of equal games is infinitely many of its own standard errors away. Its variance, a difference of
        # squares, comes out as some 1e-16 of their size instead of zero, and its root as 1e-8.
        ratios = np.where(spread > 1e-6 * error[..., None], shift / spread, np.sign(shift) * np.inf)
    ratios[np.isnan(ratios)] = 0.0
    place = int(tail * (ratios.shape[-1] + 1)) - 1
    ratios.partition((place, ratios.shape[-1] - 1 - place), axis=-1)
    student = float(stdtrit(games - 1, 1 - tail))
    below = np.maximum(ratios[..., -1 - place], student)
    above = np.maximum(-ratios[..., place], student)
    certain = error == 0  # all games alike: nothing to scale, and infinity times zero is no number
    reach = np.where(certain, 0.0, below) * error, np.where(certain, 0.0, above) * error
    return mean - reach[0], mean + reach[1]


def mean_intervals(values: Array, sampler: Resampler) -> list[Interval]:
    """Means over games of many quantities on the same games, `[quantities, games]`, from one set of draws."""
    values = checked(values)
    if values.shape[-1] < 2:
        return [Interval(float(estimate), -np.inf, np.inf) for estimate in values.mean(-1)]
    low, high = sampler.bounds(sampler.means(values))
    return [Interval(float(e), float(a), float(b)) for e, a, b in zip(values.mean(-1), low, high, strict=True)]


def align(columns: Mapping[str, Mapping[str, float]]) -> tuple[tuple[str, ...], Array]:
    """Games in order and values `[columns, games]`; columns of different games are refused, naming the games."""
    names = list(columns)
    if not names:
        raise StatsError("There is nothing to compare: no condition was given.")
    expected = set(columns[names[0]])
    for name in names[1:]:
        only_first, only_other = sorted(expected - set(columns[name])), sorted(set(columns[name]) - expected)
        if only_first or only_other:
            raise StatsError(
                f"The conditions {names[0]} and {name} were not measured on the same games: "
                + "; ".join(_only(n, g) for n, g in ((names[0], only_first), (name, only_other)) if g)
                + "."
            )
    games = tuple(sorted(expected))
    return games, np.array([[columns[name][game] for game in games] for name in names], dtype=np.float64)


def _only(name: str, games: Sequence[str]) -> str:
    shown = ", ".join(games[:5])
    more = f" and {len(games) - 5} more" if len(games) > 5 else ""
    return f"only {name} has {shown}{more}"
