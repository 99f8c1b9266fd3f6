"""The pre-registered gates: what each claims, how it is checked, and which columns of a study it looks at.

A statement is fixed before the data exist; a verdict puts the measured numbers beside it. Success is a fraction.
First the checks, pure functions from per-game arrays; then, gate by gate, where a study holds those arrays.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dssr.agent.prompts import RETENTION
from dssr.config import GatesConfig
from dssr.errors import StatsError, UsageError
from dssr.measure.continuation import Returns
from dssr.measure.distance import split_by_lag
from dssr.measure.rows import BASE, CellGroup, Quantity, game_values, groups, long_fillers
from dssr.measure.study import Study, name_of
from dssr.stats.bootstrap import Array, Interval, Resampler, align
from dssr.stats.contrasts import difference, over_fillers, ratio, relative_change, slope_difference
from dssr.stats.ranks import spearman_over_cells, within_point, within_point_difference
from dssr.types import Cell, Record


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
    """True when every check passed."""


def statements(gates: GatesConfig, fillers: Sequence[int]) -> dict[str, str]:
    """What each gate claims, in words, to be written down before any data exist. `fillers` are the long ones."""
    long = "/".join(map(str, fillers))
    gain, loss, cut = (f"{100 * share:g}" for share in (gates.gain, gates.loss_allowed, gates.regret_cut))
    kept, clean = (f"{100 * share:g}" for share in (gates.transfer_kept, gates.no_hint_kept))
    return {
        "G1a": f"Regret grows with lag: kappa at filler {gates.far} exceeds kappa at filler {gates.near}, and kappa at "
        f"measured lags of {gates.lag_split} or more exceeds kappa at shorter ones; both intervals exclude 0.",
        "G1b": "The gap predicts failure: over all cells, success falls in rank as mean delta rises; "
        "the interval excludes 0.",
        "G1c": "The training score is informative: the mean within-point rank correlation of the longest-horizon "
        f"score with the return is at least {gates.signal:g} and above that of the one-target score.",
        "G2a": f"At budget {gates.budget} and filler {long}, DSSR exceeds the best prompted memory and the outcome "
        f"variant by at least {gain} points of success, intervals above 0; at filler {gates.near} it is at most "
        f"{loss} points below the best prompted memory.",
        "G2b": f"At filler {long}, DSSR lowers kappa by at least {cut} %, interval below 0, and lowers the slope of "
        "kappa against filler.",
        "G2c": f"The horizon matters: at filler {long}, training on the longest horizon beats training on one target; "
        "the interval excludes 0.",
        "G2d": f"The gain at filler {long} transfers: under the second reader at least {kept} % of it is kept.",
        "G2e": f"The gain at filler {long} is not smuggled actions: without them at least {clean} % is kept.",
        "plain": f"Reported without a threshold: DSSR against guide and against the full history at filler {long}.",
    }


# ---------------------------------------------------------------- checks


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


def success_gain(far: Array, near: Array, gates: GatesConfig, sampler: Resampler) -> tuple[Check, ...]:
    """G2a: per-game success of DSSR, the best prompted memory and the outcome variant over the long fillers,
    `[3, games]`, and of the first two at the near filler, `[2, games]`."""
    dssr, prompted, outcome = far
    close = difference(near[0], near[1], sampler)
    return (
        _gain("success(dssr) - success(best prompted)", difference(dssr, prompted, sampler), gates.gain),
        _gain("success(dssr) - success(outcome)", difference(dssr, outcome, sampler), gates.gain),
        _check(
            "success(dssr) - success(best prompted), no lag",
            close,
            -gates.loss_allowed,
            close.estimate >= -gates.loss_allowed,
        ),
    )


def regret_falls(
    far: Array, by_filler: Array, fillers: Array, gates: GatesConfig, sampler: Resampler
) -> tuple[Check, ...]:
    """G2b: per-game kappa of DSSR and of the untrained writer over the long fillers, `[2, games]`, and at every filler,
    `[2, fillers, games]`, for the slopes."""
    cut = relative_change(far[0], far[1], sampler)
    flatter = slope_difference(by_filler[0], by_filler[1], fillers, sampler)
    return (
        _check("relative change of kappa", cut, -gates.regret_cut, cut.estimate <= -gates.regret_cut and cut.high < 0),
        _check("slope(dssr) - slope(untrained)", flatter, 0.0, flatter.estimate < 0),
    )


def horizon_matters(long: Array, one: Array, sampler: Resampler) -> tuple[Check, ...]:
    """G2c: per-game success over the long fillers of the two training horizons."""
    return (_above("success(K long) - success(K = 1)", difference(long, one, sampler), 0.0),)


def gain_kept(what: str, kept: Array, gain: Array, least: float, sampler: Resampler) -> tuple[Check, ...]:
    """G2d, G2e: per-game success gains over the long fillers, under the changed condition and the original one.

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


def plain_checks(dssr: Array, guide: Array, full: Array, sampler: Resampler) -> tuple[Check, ...]:
    """Per-game success over the long fillers; reported, not judged."""
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


# ---------------------------------------------------------------- on stored runs


@dataclass(frozen=True)
class Case:
    """The runs to judge, and the names under which the trained memories stand in them."""

    study: Study
    memory: str = BASE
    """The memory that the gates on lag look at."""
    dssr: str | None = None
    outcome: str | None = None
    one_target: str | None = None
    no_hint: str | None = None
    second: Study | None = None
    """The same memories under the second reader."""

    def named(self, role: str) -> str:
        """The memory that plays a role, or a sentence that asks for it."""
        name: str | None = getattr(self, role)
        if name is None:
            raise UsageError(f"This gate compares the {role} memory; say which it is with --{role.replace('_', '-')}.")
        return name


def checks_of(gate: str, case: Case) -> tuple[Check, ...]:
    """The checks of one gate on these runs."""
    if gate not in _GATES:
        known = ", ".join(_GATES)
        raise UsageError(f"The gate {gate!r} is not judged on runs; there are {known}.")
    return _GATES[gate](case)


def _g1a(case: Case) -> tuple[Check, ...]:
    study, settings = case.study, case.study.config.gates
    study.need_audits()
    study.need_lags()
    cells = _cells(study, case.memory)
    fillers = (settings.far, settings.near)
    far, near = _pair([(f"filler {f}", game_values(study, _at(cells, f), "kappa")) for f in fillers])
    by_lag = split_by_lag(study, cells.values(), settings.lag_split)
    long, short = _pair(list(zip(("long lags", "short lags"), by_lag, strict=True)))
    return regret_grows_with_lag(far, near, long, short, study.sampler)


_RELATED: tuple[Quantity, Quantity] = ("delta", "success")


def _g1b(case: Case) -> tuple[Check, ...]:
    study = case.study
    study.need_audits()
    audited = [cell for cell in study.cells if study.audits[cell]]
    both = [(f"{q} of {name_of(c)}", game_values(study, c, q)) for q in _RELATED for c in audited]
    values = _pair(both)
    return gap_predicts_failure(values[: len(audited)], values[len(audited) :], study.sampler)


def _g1c(case: Case) -> tuple[Check, ...]:
    study = case.study
    if len(study.runs) != 1:
        raise UsageError(f"This gate is judged on one continuation run, not on {len(study.runs)}.")
    found, targets = Returns.read(study.runs[0]), study.config.writer.targets
    if targets[0] != 1 or len(targets) == 1:
        raise StatsError(f"{study.runs[0].path} has no one-target score to compare with: its targets are {targets}.")
    long, one = found.scores[f"S{targets[-1]}"], found.scores[f"S{targets[0]}"]
    return score_is_informative(long, one, found.returns, found.games, study.config.gates, study.sampler)


def _g2a(case: Case) -> tuple[Check, ...]:
    study, filler = case.study, case.study.config.gates.near
    dssr, best, outcome = case.named("dssr"), best_prompted(study), case.named("outcome")
    far = _far(study, (dssr, best, outcome), "success")
    near = _pair([(n, game_values(study, _at(_cells(study, n), filler), "success")) for n in (dssr, best)])
    return success_gain(far, near, study.config.gates, study.sampler)


def _g2b(case: Case) -> tuple[Check, ...]:
    study, dssr = case.study, case.named("dssr")
    study.need_audits()
    far = _far(study, (dssr, BASE), "kappa")
    fillers = sorted(_cells(study, dssr).keys() & _cells(study, BASE).keys())
    pairs = [(name, filler) for name in (dssr, BASE) for filler in fillers]
    values = _pair([(f"{n}, filler {f}", game_values(study, _cells(study, n)[f], "kappa")) for n, f in pairs])
    by_filler = values.reshape(2, len(fillers), -1)
    return regret_falls(far, by_filler, np.array(fillers, dtype=float), study.config.gates, study.sampler)


def _g2c(case: Case) -> tuple[Check, ...]:
    names = (case.named("dssr"), case.named("one_target"))
    long, one = _far(case.study, names, "success")
    return horizon_matters(long, one, case.study.sampler)


def _g2d(case: Case) -> tuple[Check, ...]:
    if case.second is None:
        raise UsageError("This gate compares two readers; give the second one's run with --second.")
    dssr, best = case.named("dssr"), best_prompted(case.study)
    columns = [
        (f"{name} under the {which} reader", over_long(study, name, "success"))
        for which, study in (("first", case.study), ("second", case.second))
        for name in (dssr, best)
    ]
    first, base, second, other = _pair(columns)
    least = case.study.config.gates.transfer_kept
    return gain_kept("share kept under the second reader", second - other, first - base, least, case.study.sampler)


def _g2e(case: Case) -> tuple[Check, ...]:
    study, best = case.study, best_prompted(case.study)
    names = (case.named("dssr"), case.named("no_hint"), best)
    dssr, clean, base = _far(study, names, "success")
    least = study.config.gates.no_hint_kept
    return gain_kept("share kept without action hints", clean - base, dssr - base, least, study.sampler)


def _plain(case: Case) -> tuple[Check, ...]:
    names = (case.named("dssr"), "guide", "full")
    dssr, guide, full = _far(case.study, names, "success")
    return plain_checks(dssr, guide, full, case.study.sampler)


def best_prompted(study: Study) -> str:
    """The prompted memory with the highest success over the long fillers; the first among equals."""
    there = [name for name in RETENTION if any(cell.memory == name for cell in study.cells)]
    if not there:
        raise StatsError(f"No prompted memory ({', '.join(RETENTION)}) is in these runs to compare with.")
    return max(there, key=lambda name: float(np.mean(list(over_long(study, name, "success").values()))))


def over_long(study: Study, memory: str, quantity: Quantity) -> dict[str, float]:
    """Per game the mean over the long fillers, at the gates' budget."""
    cells = _cells(study, memory)
    return over_fillers({f: game_values(study, _at(cells, f), quantity) for f in long_fillers(study)})


def _cells(study: Study, memory: str) -> dict[int, Cell]:
    """By filler, at the gates' budget (`full` has none), under the main protocol of the runs."""
    budget = None if memory == "full" else study.config.gates.budget
    found = groups(study).get(CellGroup(memory, budget, study.config.protocol.kind))
    if found is None:
        size = "" if budget is None else f" at {budget} tokens"
        raise StatsError(f"The memory {memory}{size} is not in these runs; `dssr diagnose` measures it.")
    return found


def _at(cells: dict[int, Cell], filler: int) -> Cell:
    if filler not in cells:
        memory = next(iter(cells.values())).memory
        raise StatsError(
            f"The memory {memory} lacks filler {filler}; measure it with `dssr diagnose --filler {filler}`."
        )
    return cells[filler]


def _far(study: Study, memories: Sequence[str], quantity: Quantity) -> Array:
    return _pair([(name, over_long(study, name, quantity)) for name in memories])


def _pair(columns: Sequence[tuple[str, Mapping[str, float]]]) -> Array:
    """Columns as rows of one array. A memory may stand in two roles, so the order tells them apart, not the name."""
    return align({f"{name} ({place})": column for place, (name, column) in enumerate(columns, start=1)})[1]


_GATES: dict[str, Callable[[Case], tuple[Check, ...]]] = {
    "G1a": _g1a,
    "G1b": _g1b,
    "G1c": _g1c,
    "G2a": _g2a,
    "G2b": _g2b,
    "G2c": _g2c,
    "G2d": _g2d,
    "G2e": _g2e,
    "plain": _plain,
}
