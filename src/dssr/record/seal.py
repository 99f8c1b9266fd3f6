"""The seal on the test games: an approval lists the runs of the evaluation, and each of them sees the games once.

approved.jsonl  one line per approved run; closed by the first opening
opened.jsonl    one line per approved run that was started: it, and no other, has seen the games; one more each time it
                goes on at another place, where it was moved

Lines are only ever added, under a lock. The seal is a record that keeps honest work honest; it does not stop somebody
who deletes it.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from dssr.config import Config
from dssr.errors import RecordError, SealError
from dssr.record import log
from dssr.record.log import DAMAGE, Lock, Log, told
from dssr.record.run import Run, changed, now
from dssr.seeds import digest_of
from dssr.types import Record

T = TypeVar("T", bound=Record)

APPROVED, OPENED = "approved.jsonl", "opened.jsonl"
OLD_OPENED = "opened.json"
"""Of the version whose approvals were words alone, for any one run; its `approved.json` approves nothing any more."""
HOW = "`dssr gates approve TEXT` with the same options as `dssr evaluate`"


class Evaluation(Record, frozen=True):
    """What one run of the evaluation computes; a run that differs in anything is another run."""

    digest: str
    """Of the configuration."""
    config: dict[str, Any]
    """The configuration as far as its digest covers it, to say what differs."""
    arguments: dict[str, Any]
    """Memories, budgets, fillers, games and the rest, as `run.json` holds them."""
    models: dict[str, str]
    """Role to fingerprint: the reader, the writer, and the writer under each adapter used."""
    contents: dict[str, str]
    """Digests of what else decides: the games' files, the prompts, the texts or code of each memory."""

    @classmethod
    def of(
        cls, config: Config, arguments: Mapping[str, Any], models: Mapping[str, str], contents: Mapping[str, str]
    ) -> "Evaluation":
        """As it comes back from a file, so that two can be compared."""
        made = cls(config.digest(), config.content(), dict(arguments), dict(models), dict(contents))
        return msgspec.json.decode(msgspec.json.encode(made), type=cls)

    @property
    def name(self) -> str:
        """The configuration's name with a digest of everything."""
        return f"{self.config.get('name')}-{digest_of(msgspec.to_builtins(self))[:8]}"

    def differences(self, other: "Evaluation") -> list[str]:
        """What the other has otherwise, in words; empty when the two are the same run."""
        found = [] if self.digest == other.digest else [f"config.{name}" for name in changed(self.config, other.config)]
        for name in sorted(self.arguments.keys() | other.arguments.keys()):
            ours, theirs = self.arguments.get(name), other.arguments.get(name)
            if ours != theirs:
                found.append(name if name == "games" else f"{name} ({_plain(theirs)} instead of {_plain(ours)})")
        for ours, theirs in ((self.models, other.models), (self.contents, other.contents)):
            # A part that only one of them has comes with another memory, which is named already.
            found += [
                f"the content of {name}" for name in sorted(ours.keys() & theirs.keys()) if ours[name] != theirs[name]
            ]
        return found if found or self == other else ["its models"]


class Approval(Record, frozen=True):
    name: str
    """Of the run, by content."""
    text: str
    """Who approved what."""
    date: str
    run: Evaluation


class Opening(Record, frozen=True):
    name: str
    """Of the approved run."""
    date: str
    place: str
    """Resolved directory of the run."""
    id: str
    """The run's own, from its `run.json`: another run at the same place is not this one."""
    digest: str
    """Of the configuration."""
    arguments: dict[str, Any]
    models: dict[str, str]


class OldOpening(Record, frozen=True):
    """Content of `opened.json` of the version before."""

    run: str
    """Resolved directory of the run that saw the test games."""
    date: str


class Seal:
    """The two lists in a folder beside the games."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    @property
    def approvals(self) -> tuple[Approval, ...]:
        """The approved runs, in the order of approval."""
        return self._read(APPROVED, Approval)

    @property
    def openings(self) -> tuple[Opening, ...]:
        """The runs that the games were opened for, in order."""
        return self._read(OPENED, Opening)

    # ---------------------------------------------------------------- approving

    def check_approvable(self, text: str) -> None:
        """Refuse an approval that cannot be given whatever it lists; asked before anything slow is loaded."""
        if not text.strip():
            raise SealError("An approval needs words: say who approves opening the test split, and for what.")
        self._refuse_old_opening()
        if openings := self.openings:
            first = openings[0]
            raise SealError(
                f"The test games were opened by {first.place} on {first.date}; no run can be approved after that."
            )

    def approve(self, run: Evaluation, text: str, date: str) -> Approval:
        """Add a run to those that may see the test games."""
        with self._locked():
            self.check_approvable(text)
            for known in self.approvals:
                if known.run == run:
                    raise SealError(f"{known.name} was approved before, on {known.date}; an approval is given once.")
            made = Approval(run.name, text, date, run)
            self._append(APPROVED, made.name, made)
        return made

    # ---------------------------------------------------------------- opening

    def check_approved(self, asked: Evaluation, models_known: bool = True) -> Approval:
        """The approval of a run; one that is on no list is refused, with what differs from the nearest on it.

        Before models are loaded their fingerprints are not known, and the rest is compared.
        """
        self._refuse_old_opening()
        approvals = self.approvals
        if not approvals:
            raise SealError(f"The test split is sealed; once everything is decided on valid, approve this run: {HOW}.")
        found: list[tuple[list[str], Approval]] = []
        for approval in approvals:
            run = asked if models_known else msgspec.structs.replace(asked, models=approval.run.models)
            found.append((approval.run.differences(run), approval))
        differences, nearest = min(found, key=lambda one: len(one[0]))
        if differences:
            late = bool(self.openings)
            then = "the first opening closed the list" if late else f"or approve this run too: {HOW}"
            raise SealError(
                f"The test split is sealed for this run: it differs from the approved {nearest.name} in "
                f"{', '.join(differences)}; run what was approved, {then}."
            )
        return nearest

    def open(self, asked: Evaluation, place: str | Path, resume: bool, start: Callable[[], Run]) -> Run:
        """Start or continue the approved run and put its opening on record; after that it may see the test games.

        All of it happens under the lock, so of two processes that ask for one run the second finds the opening of the
        first, and has made no directory.
        """
        with self._locked():
            approval = self.check_approved(asked)
            before = [one for one in self.openings if one.name == approval.name]
            moved = bool(before) and resume and _has_moved(before[-1], Path(place).resolve())
            if before and not moved:
                self._refuse_another(before[-1], Path(place).resolve(), resume)
            run = start()
            if moved or not before:
                where = str(run.path.resolve())
                made = Opening(approval.name, now(), where, run.info.id, asked.digest, asked.arguments, asked.models)
                try:
                    self._append(OPENED, f"{approval.name}:{len(before)}" if moved else approval.name, made)
                except RecordError:
                    run.close()
                    raise
            return run

    def _refuse_another(self, opening: Opening, place: Path, resume: bool) -> None:
        """Only the run that was opened may come back, where it was."""
        opened = f"The test games were opened for {opening.name} by {opening.place} on {opening.date}"
        then = Path(opening.place).resolve()
        if not (then / "run.json").exists():
            raise SealError(
                f"{opened}, and that run is gone; put it back, or continue it with --resume where it lies now: moving "
                "it away opens nothing again."
            )
        if Run.open(then).info.id != opening.id:
            raise SealError(f"{opened}, where another run lies now; put the opened one back to continue it.")
        if place != then or not resume:
            raise SealError(f"{opened}; they open once for each approved run: continue that one with --resume.")

    def _refuse_old_opening(self) -> None:
        path = self.folder / OLD_OPENED
        if not path.exists():
            return
        try:
            old = msgspec.json.decode(path.read_bytes(), type=OldOpening)
        except DAMAGE as error:
            raise SealError(f"{path} is damaged ({error}); the test split stays shut until it is restored.") from error
        raise SealError(f"The test games were opened before by {old.run} on {old.date}; they open once.")

    # ---------------------------------------------------------------- files

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with told(f"Cannot write the seal in {self.folder}"):
            self.folder.mkdir(parents=True, exist_ok=True)
        lock = Lock(self.folder / "lock", wait=True)
        try:
            yield
        finally:
            lock.release()

    def _append(self, name: str, key: str, line: Record) -> None:
        with self._damage_told():
            written = Log(self.folder / name)
        try:
            written.append([(key, line)])
        finally:
            written.close()

    def _read(self, name: str, kind: type[T]) -> tuple[T, ...]:
        with self._damage_told():
            return tuple(line for _, line in log.read(self.folder / name, kind))

    @contextmanager
    def _damage_told(self) -> Iterator[None]:
        try:
            yield
        except RecordError as error:
            reason = str(error).split(";")[0]
            raise SealError(f"{reason}; the test split stays shut until it is restored.") from error


def _has_moved(opening: Opening, place: Path) -> bool:
    """Whether the opened run lies at this place now and no longer where it was, as when a study goes on elsewhere."""
    then = Path(opening.place).resolve()
    return place != then and _holds(place, opening.id) and not _holds(then, opening.id)


def _holds(place: Path, run: str) -> bool:
    return (place / "run.json").exists() and Run.open(place).info.id == run


def _plain(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
