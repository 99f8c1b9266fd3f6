"""The gates on stored runs: which columns of a study each of them looks at."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dssr.agent.memory import FULL
from dssr.errors import StatsError, UsageError
from dssr.measure.checks import (
    Found,
    filler_is_lag,
    gain_kept,
    gap_predicts_failure,
    horizon_matters,
    plain_checks,
    regret_falls,
    regret_grows_with_lag,
    score_is_informative,
    success_gain,
)
from dssr.measure.continuation import Returns
from dssr.measure.lag import split_by_lag
from dssr.measure.rows import BASE, CellGroup, Quantity, game_values, gap_and_success, groups, long_fillers
from dssr.measure.sampled import filler_check, format_cells, word_for_filler
from dssr.measure.study import Study, same_device
from dssr.stats.bootstrap import Array, align
from dssr.stats.contrasts import over_fillers
from dssr.types import Cell


@dataclass(frozen=True)
class Case:
    """The runs to judge, and the names under which the trained memories stand in them. The name of a writer with
    several seeds, `dssr@a4`, means all of them pooled; `dssr@a4/s0` means that one."""

    study: Study
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


ABOUT_LAG = ("G1a", "G2a", "G2b", "G2c", "G2d", "G2e", "plain")
"""Gates whose long fillers stand for lag."""


def checks_of(gate: str, case: Case) -> Found:
    """The checks of one gate on these runs, and what is to be said with them."""
    if gate not in _GATES:
        known = ", ".join(_GATES)
        raise UsageError(f"The gate {gate!r} is not judged on runs; there are {known}.")
    if case.second is not None:
        # Two studies compared by one gate count as one table.
        same_device((*case.study.runs, *case.second.runs))
    found = _GATES[gate](case)
    if gate in ABOUT_LAG:
        _, why = word_for_filler(case.study)
        found = Found(found.checks, found.vacuous, (*found.notes, why))
    return found


def _g0(case: Case) -> Found:
    found = filler_check(case.study)
    return Found(filler_is_lag(found.slope, found.exposed, case.study.sampler), notes=(found.sentence,))


def _g1a(case: Case) -> Found:
    study, settings = case.study, case.study.config.gates
    study.need_audits()
    study.need_lags()
    formats = {}
    for name in settings.formats:
        cells = _cells(study, name)
        far, near = _pair([(f"filler {f}", _kappa(study, _at(cells, f))) for f in (settings.far, settings.near)])
        formats[name] = (far, near)
    by_lag = split_by_lag(study, format_cells(study), settings.lag_split)
    long, short = _pair(list(zip(("long lags", "short lags"), by_lag, strict=True)))
    checks = regret_grows_with_lag(formats, long, short, study.sampler)
    rises = sum(check.passed is True for check in checks[: len(formats)])
    return Found(checks, notes=(f"Kappa rises with the filler in {rises} of {len(formats)} formats.",))


def _g1b(case: Case) -> Found:
    case.study.need_audits()
    return Found(gap_predicts_failure(*gap_and_success(case.study), case.study.sampler))


def _g1c(case: Case) -> Found:
    study = case.study
    if len(study.runs) != 1:
        raise UsageError(f"This gate is judged on one continuation run, not on {len(study.runs)}.")
    every, targets = Returns.read(study.runs[0]), study.config.writer.targets
    if targets[0] != 1 or len(targets) == 1:
        raise StatsError(f"{study.runs[0].path} has no one-target score to compare with: its targets are {targets}.")
    found = every.of_phase("A")
    if not found.games:
        raise StatsError(f"{study.runs[0].path} holds no write point of Phase A, which this gate is judged on.")
    long, one = found.scores[f"S{targets[-1]}"], found.scores[f"S{targets[0]}"]
    checks = score_is_informative(long, one, found.returns, found.games, study.config.gates, study.sampler)
    return Found(checks, notes=(f"Write points of Phase A: {len(found.games)} of {len(every.games)}.",))


def _g2a(case: Case) -> Found:
    study, filler = case.study, case.study.config.gates.near
    dssr, best, outcome = case.named("dssr"), best_prompted(study), case.named("outcome")
    far = _far(study, (dssr, best, outcome), "success")
    near = _near(study, (dssr, BASE), filler)
    return Found(
        success_gain(far, near, study.config.gates, study.sampler), notes=(f"The best prompted memory is {best}.",)
    )


def _g2b(case: Case) -> Found:
    study, dssr = case.study, case.named("dssr")
    study.need_audits()
    far = _far(study, (dssr, BASE), "kappa")
    fillers = sorted(_cells(study, dssr).keys() & _cells(study, BASE).keys())
    pairs = [(name, filler) for name in (dssr, BASE) for filler in fillers]
    values = _pair([(f"{n}, filler {f}", _kappa(study, _cells(study, n)[f])) for n, f in pairs])
    by_filler = values.reshape(2, len(fillers), -1)
    return Found(regret_falls(far, by_filler, np.array(fillers, dtype=float), study.config.gates, study.sampler))


def _g2c(case: Case) -> Found:
    study, names = case.study, (case.named("dssr"), case.named("one_target"))
    near = _near(study, names, study.config.gates.near)
    return Found(horizon_matters(_far(study, names, "success"), near, study.sampler))


def _g2d(case: Case) -> Found:
    if case.second is None:
        raise UsageError("This gate compares two readers; give the second one's run with --second.")
    columns = [
        (f"{name} under the {which} reader", over_long(study, name, "success"))
        for which, study in (("first", case.study), ("second", case.second))
        for name in (case.named("dssr"), BASE)
    ]
    first, base, second, other = _pair(columns)
    least = case.study.config.gates.transfer_kept
    return gain_kept("share kept under the second reader", second - other, first - base, least, case.study.sampler)


def _g2e(case: Case) -> Found:
    study = case.study
    dssr, clean, base = _far(study, (case.named("dssr"), case.named("no_hint"), BASE), "success")
    least = study.config.gates.no_hint_kept
    return gain_kept("share kept without action hints", clean - base, dssr - base, least, study.sampler)


def _plain(case: Case) -> Found:
    dssr, guide, full = _far(case.study, (case.named("dssr"), "guide", FULL), "success")
    return Found(plain_checks(dssr, guide, full, case.study.sampler))


def best_prompted(study: Study) -> str:
    """The write-time format with the highest success over the long fillers; the first among equals."""
    formats = study.config.gates.formats
    return max(formats, key=lambda name: float(np.mean(list(over_long(study, name, "success").values()))))


def over_long(study: Study, memory: str, quantity: Quantity) -> dict[str, float]:
    """Per game the mean over the long fillers, at the gates' budget."""
    cells = _cells(study, memory)
    return over_fillers({f: game_values(study, _at(cells, f), quantity) for f in long_fillers(study)})


def _cells(study: Study, memory: str) -> dict[int, Cell]:
    """By filler, at the gates' budget (`full` has none), under the main protocol of the runs."""
    budget, kind = (None if memory == FULL else study.config.gates.budget), study.config.protocol.kind
    found = groups(study).get(CellGroup(memory, budget, kind))
    lacking = {
        cell.filler: why
        for cell, why in study.lacking.items()
        if (cell.memory, cell.budget, cell.protocol) == (memory, budget, kind)
    }
    if lacking:
        raise StatsError(next(iter(lacking.values())))
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


def _kappa(study: Study, cell: Cell) -> dict[str, float]:
    return game_values(study, cell, "kappa")


def _far(study: Study, memories: Sequence[str], quantity: Quantity) -> Array:
    return _pair([(name, over_long(study, name, quantity)) for name in memories])


def _near(study: Study, memories: Sequence[str], filler: int) -> Array:
    return _pair([(name, game_values(study, _at(_cells(study, name), filler), "success")) for name in memories])


def _pair(columns: Sequence[tuple[str, Mapping[str, float]]]) -> Array:
    """Columns as rows of one array. A memory may stand in two roles, so the order tells them apart, not the name."""
    return align({f"{name} ({place})": column for place, (name, column) in enumerate(columns, start=1)})[1]


_GATES: dict[str, Callable[[Case], Found]] = {
    "G0": _g0,
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
