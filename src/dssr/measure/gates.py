"""The gates of a study: which columns of its stored runs each looks at, and the ledger they are kept in.

The ledger holds gates written before the data, dated amendments and verdicts. Lines are only ever added.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np

from dssr.agent.memory import FULL
from dssr.config import Config
from dssr.errors import ConfigError, GameError, RecordError, StatsError, UsageError
from dssr.measure.comparisons import gap_and_success
from dssr.measure.continuation import Returns
from dssr.measure.grid import arguments_of, grid_of, jobs_of
from dssr.measure.lag import split_by_lag
from dssr.measure.rows import BASE, CellGroup, Quantity, game_values, groups, long_fillers
from dssr.measure.sampled import filler_check, format_cells, word_for_filler
from dssr.measure.study import Study, same_device
from dssr.measure.verdicts import (
    Found,
    Verdict,
    filler_is_lag,
    gain_kept,
    gap_predicts_failure,
    horizon_matters,
    plain_checks,
    regret_falls,
    regret_grows_with_lag,
    score_is_informative,
    statements,
    success_gain,
    verdict,
)
from dssr.record.log import Lock, Log, read, told
from dssr.record.run import now
from dssr.record.seal import Approval
from dssr.seeds import digest_of
from dssr.session import Session, configured, verb
from dssr.stats.bootstrap import Array, align
from dssr.stats.contrasts import over_fillers
from dssr.types import Cell, Record

# ---------------------------------------------------------------- what each gate looks at


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
    if not by_lag[0]:
        raise StatsError(
            f"No game has decision points with lags of {settings.lag_split} steps and more and of fewer, which this "
            "gate compares; it takes more games or more audited points."
        )
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


# ---------------------------------------------------------------- the ledger


class Entry(Record, frozen=True):
    """One line of the ledger: a gate, an amendment of one, or a verdict on it."""

    kind: Literal["gate", "amendment", "verdict"]
    gate: str
    date: str
    """UTC, ISO format."""
    text: str
    """The statement, the amendment and its reason, or the statement as it was judged."""
    verdict: Verdict | None = None
    runs: tuple[str, ...] = ()
    """Directories of the runs judged."""


class Ledger:
    """One JSON-lines file."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    def entries(self) -> list[Entry]:
        """Everything written so far, in order."""
        return [entry for _, entry in read(self.path, Entry)]

    def gates(self) -> dict[str, Entry]:
        """The gates written so far, by name."""
        return {entry.gate: entry for entry in self.entries() if entry.kind == "gate"}

    def write(self, statements: Mapping[str, str], date: str) -> None:
        """Write gates down. A gate that stands with other words is not rewritten."""
        standing = self.gates()
        for gate, text in statements.items():
            if gate in standing and standing[gate].text != text:
                raise RecordError(
                    f"{self.path} already holds {gate} in other words; add to it with `dssr gates amend {gate} TEXT`."
                )
        self._append([Entry("gate", gate, date, text) for gate, text in statements.items() if gate not in standing])

    def amend(self, gate: str, text: str, date: str) -> None:
        """Add a dated change to a gate; the first wording stays."""
        self._standing(gate)
        if not text.strip():
            raise RecordError(f"An amendment of {gate} needs words; say what changes and why.")
        self._append([Entry("amendment", gate, date, text)])

    def judge(self, verdict: Verdict, runs: Mapping[str, str], date: str) -> None:
        """Add a verdict on runs, given as directory to start time; runs older than the gate cannot be judged by it."""
        written = self._standing(verdict.gate).date
        early = sorted(run for run, started in runs.items() if started < written)
        if early:
            raise RecordError(
                f"{early[0]} was started before {verdict.gate} was written ({written}); "
                "a gate judges only data that came after it."
            )
        self._append([Entry("verdict", verdict.gate, date, verdict.statement, verdict, tuple(runs))])

    def statement(self, gate: str) -> str:
        """The gate's words with its amendments."""
        amended = [entry for entry in self.entries() if entry.gate == gate and entry.kind == "amendment"]
        return " ".join([self._standing(gate).text, *(f"[Amended {e.date[:10]}: {e.text}]" for e in amended)])

    def _standing(self, gate: str) -> Entry:
        found = self.gates().get(gate)
        if found is None:
            raise RecordError(f"{self.path} holds no gate {gate}; write the gates first with `dssr gates write`.")
        return found

    def _append(self, entries: Sequence[Entry]) -> None:
        with self._open() as log:
            log.append((digest_of(e.kind, e.gate, e.date, e.text, e.runs), e) for e in entries)

    @contextmanager
    def _open(self) -> Iterator[Log]:
        with told(f"Cannot make {self.path.parent}"):
            self.path.parent.mkdir(parents=True, exist_ok=True)
        lock = Lock(self.path.with_suffix(".lock"))
        try:
            log = Log(self.path)
            try:
                yield log
            finally:
                log.close()
        finally:
            lock.release()


# ---------------------------------------------------------------- verbs


def ledger_of(config: Config) -> Ledger:
    """The ledger of a configuration's runs."""
    return Ledger(Path(config.runs) / "ledger.jsonl")


def check_gates(config: Config) -> None:
    """Refuse gates that no diagnosis of this configuration could be judged by."""
    budget = config.gates.budget
    if budget not in config.agent.budgets:
        raise ConfigError(
            f"gates.budget is {budget}, which is not one of agent.budgets {list(config.agent.budgets)}: nothing would "
            "be measured at it; set it to one of them."
        )


@verb
async def gates(config: Config | str = "nano", *, write: bool = False) -> list[Entry]:
    """What the ledger holds: gates, amendments, verdicts; with `write`, the gates are written down first."""
    settings = configured(config)
    ledger = ledger_of(settings)
    if write:
        check_gates(settings)
        ledger.write(statements(settings.gates, settings.stats.long_fillers), now())
    return ledger.entries()


@verb
async def amend(gate: str, text: str, config: Config | str = "nano") -> None:
    """Add a dated change to a gate; its first words stay."""
    ledger_of(configured(config)).amend(gate, text, now())


@verb
async def judge(
    gate: str,
    runs: Sequence[str | Path],
    config: Config | str = "nano",
    *,
    roles: Mapping[str, str] | None = None,
    second: Sequence[str | Path] = (),
) -> Verdict:
    """Judge one gate on finished runs and add the verdict to the ledger.

    `roles` names the memories that the gate compares as they stand in the runs: `dssr`, `outcome`, `one_target`,
    `no_hint`. `second` are the runs under the second reader.
    """
    ledger = ledger_of(configured(config))
    statement = ledger.statement(gate)
    study, other = Study.load(runs), Study.load(second) if second else None
    found = verdict(gate, statement, checks_of(gate, Case(study, second=other, **(roles or {}))))
    judged = (*study.runs, *(other.runs if other else ()))
    begun = min(run.info.provenance.started for run in judged)
    late = [e.date[:10] for e in ledger.entries() if (e.kind, e.gate) == ("amendment", gate) and e.date >= begun]
    if late:
        said = f"Late: the gate was amended on {', '.join(late)}, after the first of these runs was begun."
        found = msgspec.structs.replace(found, notes=(*found.notes, said))
    ledger.judge(found, {str(run.path): run.info.provenance.started for run in judged}, now())
    return found


@verb
async def approvals(config: Config | str = "nano") -> tuple[Approval, ...]:
    """The runs of the evaluation that were approved, in order; none where there are no games yet."""
    session = Session(configured(config))
    try:
        return session.seal.approvals
    except GameError:
        return ()


def asked_for(
    config: Config | str, memories: Sequence[str], budgets: Sequence[int], fillers: Sequence[int], *, lag: bool
) -> dict[str, Any]:
    """What an approval of these would open: the run's memories, budgets, fillers and games."""
    settings = configured(config)
    session = Session(settings)
    return dict(arguments_of(grid_of(settings, session.archive, memories, budgets, fillers, split="test", lag=lag)))


@verb
async def approve(
    text: str,
    config: Config | str = "nano",
    memories: Sequence[str] = (),
    budgets: Sequence[int] = (),
    fillers: Sequence[int] = (),
    *,
    games: int | None = None,
    lag: bool = False,
) -> Approval:
    """Approve one run of the evaluation: what `evaluate` would compute if it were asked the same now.

    Call it once for each run, before the first of them is started: that closes the list. The models are loaded for
    their fingerprints, and the test games stay shut.
    """
    settings = configured(config)
    async with Session(settings) as session:
        grid = grid_of(settings, session.archive, memories, budgets, fillers, games, "test", lag)
        return session.approve(text, jobs_of(grid, settings), arguments_of(grid))
