"""The ledger of a study: gates written before the data, dated amendments, verdicts. Lines are only ever added."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import msgspec

from dssr.config import Config, check_gates
from dssr.errors import GameError, RecordError
from dssr.measure.checks import Verdict, statements, verdict
from dssr.measure.gates import Case, checks_of
from dssr.measure.plan import arguments_of, grid_of, jobs_of
from dssr.measure.study import Study
from dssr.record.log import Lock, Log, read, told
from dssr.record.run import now
from dssr.record.seal import Approval
from dssr.seeds import digest_of
from dssr.session import Session, configured, verb
from dssr.types import Record


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
    late = [e.date[:10] for e in ledger.entries() if (e.kind, e.gate) == ("amendment", gate) and e.date > begun]
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
