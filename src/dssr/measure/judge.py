"""The gates on stored runs: which columns of a study each gate looks at."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dssr.agent.texts import RETENTION
from dssr.errors import StatsError, UsageError
from dssr.measure.binned import split_by_lag
from dssr.measure.returns import Returns
from dssr.measure.study import Study, name_of
from dssr.measure.tables import game_values, groups
from dssr.stats import gates
from dssr.stats.bootstrap import Array, align
from dssr.stats.contrasts import over_lags
from dssr.stats.gates import Check
from dssr.types import Cell

UNTRAINED = "summary"


@dataclass(frozen=True)
class Case:
    """The runs to judge, and the names under which the trained memories stand in them."""

    study: Study
    memory: str = UNTRAINED
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
        raise UsageError(f"{gate!r} is not judged on runs; there are {known}.")
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
    return gates.regret_grows_with_lag(far, near, long, short, study.sampler)


def _g1b(case: Case) -> tuple[Check, ...]:
    study = case.study
    study.need_audits()
    audited = [cell for cell in study.cells if study.audits[cell]]
    both = [(f"{q} of {name_of(c)}", game_values(study, c, q)) for q in ("delta", "success") for c in audited]
    values = _pair(both)
    return gates.gap_predicts_failure(values[: len(audited)], values[len(audited) :], study.sampler)


def _g1c(case: Case) -> tuple[Check, ...]:
    study = case.study
    if len(study.runs) != 1:
        raise UsageError(f"This gate is judged on one continuation run, not on {len(study.runs)}.")
    found, targets = Returns.read(study.runs[0]), study.config.writer.targets
    if targets[0] != 1 or len(targets) == 1:
        raise StatsError(f"{study.runs[0].path} has no one-target score to compare with: its targets are {targets}.")
    long, one = found.scores[f"S{targets[-1]}"], found.scores[f"S{targets[0]}"]
    return gates.score_is_informative(long, one, found.returns, found.games, study.config.gates, study.sampler)


def _g2a(case: Case) -> tuple[Check, ...]:
    study, near = case.study, case.study.config.gates.near
    dssr, best, outcome = case.named("dssr"), best_prompted(study), case.named("outcome")
    trained, prompted, rival = _lagged(study, (dssr, best, outcome), "success")
    close, by = _pair([(n, game_values(study, _at(_cells(study, n), near), "success")) for n in (dssr, best)])
    return gates.success_gain(trained, prompted, rival, close, by, study.config.gates, study.sampler)


def _g2b(case: Case) -> tuple[Check, ...]:
    study, dssr = case.study, case.named("dssr")
    study.need_audits()
    trained, untrained = _lagged(study, (dssr, UNTRAINED), "kappa")
    fillers = sorted(_cells(study, dssr).keys() & _cells(study, UNTRAINED).keys())
    pairs = [(name, filler) for name in (dssr, UNTRAINED) for filler in fillers]
    values = _pair([(f"{n}, filler {f}", game_values(study, _cells(study, n)[f], "kappa")) for n, f in pairs])
    half, lags = len(fillers), np.array(fillers, dtype=float)
    one, other = values[:half], values[half:]
    return gates.regret_falls(trained, untrained, one, other, lags, study.config.gates, study.sampler)


def _g2c(case: Case) -> tuple[Check, ...]:
    names = (case.named("dssr"), case.named("one_target"))
    long, one = _lagged(case.study, names, "success")
    return gates.horizon_matters(long, one, case.study.sampler)


def _g2d(case: Case) -> tuple[Check, ...]:
    if case.second is None:
        raise UsageError("This gate compares two readers; give the second one's run with --second.")
    dssr, best = case.named("dssr"), best_prompted(case.study)
    columns = [
        (f"{name} under the {which} reader", lagged(study, name, "success"))
        for which, study in (("first", case.study), ("second", case.second))
        for name in (dssr, best)
    ]
    first, base, second, other = _pair(columns)
    least = case.study.config.gates.transfer_kept
    return gates.gain_kept(
        "share kept under the second reader", second - other, first - base, least, case.study.sampler
    )


def _g2e(case: Case) -> tuple[Check, ...]:
    study, best = case.study, best_prompted(case.study)
    names = (case.named("dssr"), case.named("no_hint"), best)
    dssr, clean, base = _lagged(study, names, "success")
    least = study.config.gates.no_hint_kept
    return gates.gain_kept("share kept without command hints", clean - base, dssr - base, least, study.sampler)


def _plain(case: Case) -> tuple[Check, ...]:
    names = (case.named("dssr"), "guide", "full")
    dssr, guide, full = _lagged(case.study, names, "success")
    return gates.plain(dssr, guide, full, case.study.sampler)


def best_prompted(study: Study) -> str:
    """The prompted memory with the highest success over the lag fillers; the first among equals."""
    there = [name for name in RETENTION if any(cell.memory == name for cell in study.cells)]
    if not there:
        raise StatsError(f"no prompted memory ({', '.join(RETENTION)}) is in these runs to compare with.")
    return max(there, key=lambda name: float(np.mean(list(lagged(study, name, "success").values()))))


def lagged(study: Study, memory: str, quantity: str) -> dict[str, float]:
    """Per game the mean over the lag fillers, at the gates' budget."""
    cells = _cells(study, memory)
    return over_lags({lag: game_values(study, _at(cells, lag), quantity) for lag in study.config.stats.lag_fillers})


def _cells(study: Study, memory: str) -> dict[int, Cell]:
    """By filler, at the gates' budget (`full` has none), under the main protocol of the runs."""
    budget = None if memory == "full" else study.config.gates.budget
    found = groups(study).get((memory, budget, study.config.protocol.kind))
    if found is None:
        size = "" if budget is None else f" at {budget} tokens"
        raise StatsError(f"{memory}{size} is not in these runs; `dssr diagnose` measures it.")
    return found


def _at(cells: dict[int, Cell], filler: int) -> Cell:
    if filler not in cells:
        memory = next(iter(cells.values())).memory
        raise StatsError(f"{memory} was not measured at filler {filler}; `dssr diagnose --filler {filler}` does it.")
    return cells[filler]


def _lagged(study: Study, memories: Sequence[str], quantity: str) -> Array:
    return _pair([(name, lagged(study, name, quantity)) for name in memories])


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
