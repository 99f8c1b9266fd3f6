"""The pre-registered gates, as pure functions from per-game arrays to verdicts.

A statement is fixed before the data exist; a verdict puts the measured numbers beside it. Success is a fraction.
"""

from collections.abc import Sequence

import numpy as np

from dssr.config import GatesConfig
from dssr.stats.bootstrap import Array, Interval, Resampler
from dssr.stats.contrasts import difference, ratio, relative_change, slope_difference
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


class Verdict(Record, frozen=True):
    gate: str
    statement: str
    checks: tuple[Check, ...]
    passed: bool | None
    """True when every check passed."""


def statements(gates: GatesConfig, lags: Sequence[int]) -> dict[str, str]:
    """What each gate claims, in words, to be written down before any data exist."""
    lag = "/".join(map(str, lags))
    gain, loss, cut = (f"{100 * share:g}" for share in (gates.gain, gates.loss_allowed, gates.regret_cut))
    kept, clean = (f"{100 * share:g}" for share in (gates.transfer_kept, gates.no_hint_kept))
    return {
        "G1a": f"Regret grows with lag: kappa at filler {gates.far} exceeds kappa at filler {gates.near}, and kappa at "
        f"measured lags of {gates.lag_split} or more exceeds kappa at shorter ones; both intervals exclude 0.",
        "G1b": "The gap predicts failure: over all cells, success falls in rank as mean delta rises; "
        "the interval excludes 0.",
        "G1c": "The training score is informative: the mean within-point rank correlation of the longest-horizon "
        f"score with the return is at least {gates.signal:g} and above that of the one-target score.",
        "G2a": f"At budget {gates.budget} and filler {lag}, DSSR exceeds the best prompted memory and the outcome "
        f"variant by at least {gain} points of success, intervals above 0; at filler {gates.near} it is at most "
        f"{loss} points below the best prompted memory.",
        "G2b": f"At filler {lag}, DSSR lowers kappa by at least {cut} %, interval below 0, and lowers the slope of "
        "kappa against filler.",
        "G2c": f"The horizon matters: at filler {lag}, training on the longest horizon beats training on one target; "
        "the interval excludes 0.",
        "G2d": f"The gain at filler {lag} transfers: under the second reader at least {kept} % of it is kept.",
        "G2e": f"The gain at filler {lag} is not smuggled commands: without them at least {clean} % is kept.",
        "plain": f"Reported without a threshold: DSSR against guide and against the full history at filler {lag}.",
    }


def regret_grows_with_lag(far: Array, near: Array, long: Array, short: Array, sampler: Resampler) -> tuple[Check, ...]:
    """G1a: per-game kappa at the far and near filler, and at long and short measured lags."""
    return (
        _above("kappa(far) - kappa(near)", difference(far, near, sampler), 0.0),
        _above("kappa(long lag) - kappa(short lag)", difference(long, short, sampler), 0.0),
    )


def gap_predicts_failure(delta: Array, success: Array, sampler: Resampler) -> tuple[Check, ...]:
    """G1b: delta and success, `[cells, games]`."""
    found = spearman_over_cells(delta, success, sampler)
    return (_check("Spearman(delta, success) over cells", found, 0.0, found.estimate < 0 and found.high < 0),)


def score_is_informative(
    long: Array, one: Array, returns: Array, games: Sequence[str], gates: GatesConfig, sampler: Resampler
) -> tuple[Check, ...]:
    """G1c: scores over the longest horizon and over one target against returns, `[points, candidates]`."""
    rho = within_point(long, returns, games, sampler).interval
    gain = within_point_difference(long, one, returns, games, sampler).interval
    return (
        _check("rho(S_long, return)", rho, gates.signal, rho.estimate >= gates.signal),
        _check("rho(S_long) - rho(S_1)", gain, 0.0, gain.estimate > 0),
    )


def success_gain(
    dssr: Array,
    prompted: Array,
    outcome: Array,
    dssr_near: Array,
    prompted_near: Array,
    gates: GatesConfig,
    sampler: Resampler,
) -> tuple[Check, ...]:
    """G2a: per-game success over the lag fillers, and at the filler without lag."""
    near = difference(dssr_near, prompted_near, sampler)
    return (
        _gain("success(dssr) - success(best prompted)", difference(dssr, prompted, sampler), gates.gain),
        _gain("success(dssr) - success(outcome)", difference(dssr, outcome, sampler), gates.gain),
        _check(
            "success(dssr) - success(best prompted), no lag",
            near,
            -gates.loss_allowed,
            near.estimate >= -gates.loss_allowed,
        ),
    )


def regret_falls(
    dssr: Array,
    untrained: Array,
    dssr_by_lag: Array,
    untrained_by_lag: Array,
    lags: Array,
    gates: GatesConfig,
    sampler: Resampler,
) -> tuple[Check, ...]:
    """G2b: per-game kappa over the lag fillers, and `[lags, games]` at every filler for the slopes."""
    cut = relative_change(dssr, untrained, sampler)
    flatter = slope_difference(dssr_by_lag, untrained_by_lag, lags, sampler)
    return (
        _check("relative change of kappa", cut, -gates.regret_cut, cut.estimate <= -gates.regret_cut and cut.high < 0),
        _check("slope(dssr) - slope(untrained)", flatter, 0.0, flatter.estimate < 0),
    )


def horizon_matters(long: Array, one: Array, sampler: Resampler) -> tuple[Check, ...]:
    """G2c: per-game success over the lag fillers of the two training horizons."""
    return (_above("success(K long) - success(K = 1)", difference(long, one, sampler), 0.0),)


def gain_kept(what: str, kept: Array, gain: Array, least: float, sampler: Resampler) -> tuple[Check, ...]:
    """G2d, G2e: per-game success gains over the lag fillers, under the changed condition and the original one.

    A gain that is not positive cannot be kept: the check then fails on the difference itself.
    """
    if np.mean(gain) <= 0:
        return (
            _check(f"{what}: there was no gain to keep", difference(gain, np.zeros_like(gain), sampler), 0.0, False),
        )
    share = float(np.mean(kept) / np.mean(gain))
    if ((sampler.weights(len(gain)) @ gain) <= 0).any():
        # With few games some resample has no gain at all, and a share of nothing has no bounds.
        return (Check(what, share, None, None, least, share >= least),)
    return (_check(what, ratio(kept, gain, sampler), least, share >= least),)


def plain(dssr: Array, guide: Array, full: Array, sampler: Resampler) -> tuple[Check, ...]:
    """Per-game success over the lag fillers; reported, not judged."""
    return (
        _check("success(dssr) - success(guide)", difference(dssr, guide, sampler), None, None),
        _check("success(dssr) - success(full)", difference(dssr, full, sampler), None, None),
    )


def verdict(gate: str, statement: str, checks: Sequence[Check]) -> Verdict:
    """The gate passes when all its checks do; a gate of reported comparisons is neither passed nor failed."""
    judged = [check.passed for check in checks if check.passed is not None]
    return Verdict(gate, statement, tuple(checks), all(judged) if judged else None)


def _above(what: str, found: Interval, threshold: float) -> Check:
    return _check(what, found, threshold, found.estimate > threshold and found.low > threshold)


def _gain(what: str, found: Interval, least: float) -> Check:
    return _check(what, found, least, found.estimate >= least and found.low > 0)


def _check(what: str, found: Interval, threshold: float | None, passed: bool | None) -> Check:
    return Check(what, found.estimate, found.low, found.high, threshold, passed)
