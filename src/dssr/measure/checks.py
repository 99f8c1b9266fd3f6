"""The pre-registered gates as words and as checks: pure functions from per-game arrays. Success is a fraction.

A statement is fixed before the data exist; a verdict puts the measured numbers beside it, and beside each number the
smallest effect that these games could have shown.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from dssr.config import GatesConfig
from dssr.errors import StatsError
from dssr.stats.bootstrap import Array, Interval, Resampler, mean_interval, standard_error
from dssr.stats.contrasts import difference, game_slopes, ratio, relative_change, slope_difference
from dssr.stats.ranks import spearman_over_cells, within_point, within_point_difference
from dssr.types import Record


class Check(Record, frozen=True):
    """One inequality of a gate."""

    what: str
    estimate: float
    low: float | None
    """None when the interval is unbounded."""
    high: float | None
    threshold: float | None
    """What the estimate had to reach; None for a comparison that is only reported."""
    passed: bool | None
    """None for a comparison that is only reported."""
    detectable: float | None = None
    """Minimum detectable effect, `(z(1 - alpha/2) + z(power)) * SE`: the true effect that the games at hand would tell
    from zero with the power of the settings. SE is that of the paired differences, `sd / sqrt(games)`; of other
    statistics, half the interval over `z(1 - alpha/2)`. None where there is no SE."""

    @property
    def interval(self) -> Interval | None:
        """The estimate with its bounds; None when these are unbounded."""
        if self.low is None or self.high is None:
            return None
        return Interval(self.estimate, self.low, self.high)


class Verdict(Record, frozen=True):
    """What the data say about one gate."""

    gate: str
    statement: str
    """The gate's words, with its amendments, as they stood when it was judged."""
    checks: tuple[Check, ...]
    passed: bool | None
    """True when every check passed; None for a vacuous gate and for one that is only reported."""
    vacuous: bool = False
    """There was no gain to keep, so the gate says nothing."""
    notes: tuple[str, ...] = ()
    """What else must be known to read the verdict."""


class Found(Record, frozen=True):
    """The checks of a gate, and what is to be said with them."""

    checks: tuple[Check, ...]
    vacuous: bool = False
    notes: tuple[str, ...] = ()


def statements(gates: GatesConfig, fillers: Sequence[int]) -> dict[str, str]:
    """What each gate claims, in words, to be written down before any data exist. `fillers` are the long ones."""
    long, formats = "/".join(map(str, fillers)), ", ".join(gates.formats)
    gain, loss, cut = (f"{100 * share:g}" for share in (gates.gain, gates.loss_allowed, gates.regret_cut))
    kept, clean = (f"{100 * share:g}" for share in (gates.transfer_kept, gates.no_hint_kept))
    at = f"At budget {gates.budget} and filler {long}"
    return {
        "G0": f"Filler is lag: over {formats} at budget {gates.budget} the measured relevance lag rises with the "
        "filler; the interval of the slope lies above 0. Reported beside it: the share of filler steps that tell a "
        "fact again.",
        "G1a": f"Regret grows with lag: at budget {gates.budget}, kappa at filler {gates.far} exceeds kappa at filler "
        f"{gates.near} for each of {formats}, and over them together kappa at measured lags of {gates.lag_split} or "
        "more exceeds kappa at shorter ones; all intervals exclude 0.",
        "G1b": "The gap predicts failure: over all cells, full with delta 0 included, success falls in rank as mean "
        "delta rises; the interval excludes 0.",
        "G1c": "The training score is informative: at write points of Phase A the mean within-point rank correlation "
        f"of the longest-horizon score with the return is at least {gates.signal:g} and above that of the one-target "
        "score.",
        "G2a": f"{at}, DSSR, its seeds pooled, exceeds the best of {formats} and the outcome variant by at least "
        f"{gain} points of success, intervals above 0; at filler {gates.near} it is at most {loss} points below "
        "summary.",
        "G2b": f"{at}, DSSR lowers the kappa of summary by at least {cut} %, interval below 0, and lowers the slope of "
        "kappa against filler.",
        "G2c": f"The horizon matters: {at[0].lower()}{at[1:]}, training on the longest horizon beats training on one "
        f"target, the interval excludes 0, and the gap is smaller at filler {gates.near}.",
        "G2d": f"The gain over summary at filler {long} transfers: under the second reader at least {kept} % of it is "
        "kept. Without a gain above 0 the gate is vacuous.",
        "G2e": f"The gain over summary at filler {long} is not smuggled actions: without them at least {clean} % is "
        "kept. Without a gain above 0 the gate is vacuous.",
        "plain": f"Reported without a threshold: DSSR against guide and against the full history at filler {long}.",
    }


# ---------------------------------------------------------------- checks


def filler_is_lag(slope: Interval, exposed: Interval | None, sampler: Resampler) -> tuple[Check, ...]:
    """G0: the measured lag against the filler, and the share of filler steps that tell a fact again."""
    rises = _above("measured lag per step of filler", slope, 0.0, _spread(slope, sampler), sampler)
    if exposed is None:
        return (rises,)
    return rises, _check("share of filler steps that tell a fact again", exposed, None, None)


def regret_grows_with_lag(
    formats: Mapping[str, tuple[Array, Array]], long: Array, short: Array, sampler: Resampler
) -> tuple[Check, ...]:
    """G1a: by format, per-game kappa at the far and the near filler; and, of all formats together, at long and short
    measured lags."""
    by_format = (_over(f"kappa(far) - kappa(near), {name}", *pair, sampler) for name, pair in formats.items())
    return (*by_format, _over("kappa(long lag) - kappa(short lag)", long, short, sampler))


def gap_predicts_failure(delta: Array, success: Array, sampler: Resampler) -> tuple[Check, ...]:
    """G1b: delta and success, `[cells, games]`."""
    found = spearman_over_cells(delta, success, sampler)
    what = f"Spearman(delta, success) over {len(delta)} cells"
    return (_check(what, found, 0.0, found.estimate < 0 and found.high < 0, _spread(found, sampler), sampler),)


def score_is_informative(
    long: Array, one: Array, returns: Array, games: Sequence[str], gates: GatesConfig, sampler: Resampler
) -> tuple[Check, ...]:
    """G1c: scores over the longest horizon and over one target against returns, `[points, candidates]`."""
    rho = within_point(long, returns, games, sampler).interval
    gain = within_point_difference(long, one, returns, games, sampler).interval
    return (
        _check("rho(S_long, return)", rho, gates.signal, rho.estimate >= gates.signal, _spread(rho, sampler), sampler),
        _check("rho(S_long) - rho(S_1)", gain, 0.0, gain.estimate > 0, _spread(gain, sampler), sampler),
    )


def success_gain(far: Array, near: Array, gates: GatesConfig, sampler: Resampler) -> tuple[Check, ...]:
    """G2a: per-game success of DSSR, the best prompted memory and the outcome variant over the long fillers,
    `[3, games]`, and of DSSR and `summary` at the near filler, `[2, games]`."""
    dssr, prompted, outcome = far
    close = difference(near[0], near[1], sampler)
    kept = close.estimate >= -gates.loss_allowed
    error = standard_error(near[0] - near[1])
    return (
        _gain("success(dssr) - success(best prompted)", dssr, prompted, gates.gain, sampler),
        _gain("success(dssr) - success(outcome)", dssr, outcome, gates.gain, sampler),
        _check("success(dssr) - success(summary), near filler", close, -gates.loss_allowed, kept, error, sampler),
    )


def regret_falls(
    far: Array, by_filler: Array, fillers: Array, gates: GatesConfig, sampler: Resampler
) -> tuple[Check, ...]:
    """G2b: per-game kappa of DSSR and of the untrained writer over the long fillers, `[2, games]`, and at every filler,
    `[2, fillers, games]`, for the slopes."""
    cut = relative_change(far[0], far[1], sampler)
    flatter = slope_difference(by_filler[0], by_filler[1], fillers, sampler)
    enough = cut.estimate <= -gates.regret_cut and cut.high < 0
    error = standard_error(game_slopes(by_filler[0], fillers) - game_slopes(by_filler[1], fillers))
    return (
        _check("relative change of kappa", cut, -gates.regret_cut, enough, _spread(cut, sampler), sampler),
        _check("slope(dssr) - slope(summary)", flatter, 0.0, flatter.estimate < 0, error, sampler),
    )


def horizon_matters(far: Array, near: Array, sampler: Resampler) -> tuple[Check, ...]:
    """G2c: per-game success of the two training horizons over the long fillers and at the near one, `[2, games]` each.

    That the gap shrinks is a claim about the estimate; its interval is reported.
    """
    gaps = far[0] - far[1], near[0] - near[1]
    shrinks = difference(*gaps, sampler)
    error = standard_error(gaps[0] - gaps[1])
    return (
        _over("success(K long) - success(K = 1)", far[0], far[1], sampler),
        _check("that gap - the gap at the near filler", shrinks, 0.0, shrinks.estimate > 0, error, sampler),
    )


def gain_kept(what: str, kept: Array, gain: Array, least: float, sampler: Resampler) -> Found:
    """G2d, G2e: per-game success gains over the long fillers, under the changed condition and the original one.

    A share of a gain that is not above zero, its interval included, means nothing: the gate is then vacuous.
    """
    whole = mean_interval(gain, sampler)
    original = _above("gain over summary", whole, 0.0, standard_error(gain), sampler)
    if not original.passed:
        reported = _check("gain over summary", whole, None, None, standard_error(gain), sampler)
        return Found(
            (reported,), True, (f"Vacuous: the gain over summary is {whole.text()}, not shown to be above 0.",)
        )
    share = float(np.mean(kept) / np.mean(gain))
    try:
        found = ratio(kept, gain, sampler)
    except StatsError:
        found = None
    if found is None or ((sampler.weights(len(gain)) @ gain) <= 0).any():
        # With few games some resample has no gain at all, and a share of nothing has no bounds.
        return Found((original, Check(what, share, None, None, least, share >= least)))
    return Found((original, _check(what, found, least, share >= least, _spread(found, sampler), sampler)))


def plain_checks(dssr: Array, guide: Array, full: Array, sampler: Resampler) -> tuple[Check, ...]:
    """Per-game success over the long fillers; reported, not judged."""
    return tuple(
        _check(what, difference(dssr, other, sampler), None, None, standard_error(dssr - other), sampler)
        for what, other in (("success(dssr) - success(guide)", guide), ("success(dssr) - success(full)", full))
    )


def verdict(gate: str, statement: str, found: Found) -> Verdict:
    """The gate passes when all its checks do; one that is vacuous, or has only reported comparisons, does neither."""
    judged = [check.passed for check in found.checks if check.passed is not None]
    passed = all(judged) if judged and not found.vacuous else None
    return Verdict(gate, statement, found.checks, passed, found.vacuous, found.notes)


# ---------------------------------------------------------------- one inequality


def _over(what: str, first: Array, second: Array, sampler: Resampler) -> Check:
    """First is larger, told from zero."""
    return _above(what, difference(first, second, sampler), 0.0, standard_error(first - second), sampler)


def _above(what: str, found: Interval, threshold: float, error: float | None, sampler: Resampler) -> Check:
    passed = found.estimate > threshold and found.low > threshold
    return _check(what, found, threshold, passed, error, sampler)


def _gain(what: str, first: Array, second: Array, least: float, sampler: Resampler) -> Check:
    found = difference(first, second, sampler)
    passed = found.estimate >= least and found.low > 0
    return _check(what, found, least, passed, standard_error(first - second), sampler)


def _spread(found: Interval, sampler: Resampler) -> float | None:
    """The standard error that an interval speaks of, for statistics that are no mean of differences."""
    if not found.bounded:
        return None
    return (found.high - found.low) / (2 * sampler.reach)


def _check(
    what: str,
    found: Interval,
    threshold: float | None,
    passed: bool | None,
    error: float | None = None,
    sampler: Resampler | None = None,
) -> Check:
    detectable = sampler.detectable(error) if sampler and error is not None else None
    return Check(what, found.estimate, *found.ends, threshold, passed, detectable)
