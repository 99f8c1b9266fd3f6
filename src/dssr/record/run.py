"""Run directories: what a command was asked, what it found, and where that came from.

run.json        what was asked and where it came from; written first, once
*.jsonl         append-only logs, one content key a line
summary.json    written last, once; its presence means finished
failed.json     instead of the summary, when the run must not be believed
digests.json    what every file held when the run was finished; compared whenever one is read
resumes.jsonl   one line for each time the run was continued
costs.jsonl     what was spent on it, a line every few seconds (`record/cost.py`)
whole.jsonl     until the run is finished: how far each log reached when all that belongs together was written
"""

import datetime
import platform
import shutil
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache, cached_property
from importlib import metadata
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from dssr.config import Config
from dssr.errors import RecordError
from dssr.record import log
from dssr.record.log import (
    DAMAGE,
    DIGESTS,
    PRIVATE_FOLDER,
    RESUMES,
    WHOLE,
    Content,
    Lock,
    Log,
    add_line,
    check_content,
    clear_drafts,
    damaged_line,
    draft_of,
    read_digests,
    restore_whole,
    sync_folder,
    told,
    write_digests,
    write_whole,
)
from dssr.settings import upgraded
from dssr.types import Record

T = TypeVar("T")
Items = Iterable[tuple[str, Struct]]
"""Records with their keys."""


class Provenance(Record, frozen=True):
    """Where a result came from: code, packages, machine."""

    commit: str | None
    """None when the code does not run from a git checkout."""
    dirty: bool | None
    """Whether the checkout had changes that are in no commit."""
    packages: tuple[str, ...]
    """All that are installed, as `name==version`."""
    python: str
    device: str
    host: str
    started: str
    """UTC; the only time stamp of a run."""


class RunInfo(Record, frozen=True):
    """Content of `run.json`."""

    command: str
    arguments: dict[str, Any]
    """What the command line asked for beyond the configuration."""
    config: Config
    """Resolved: every default written out."""
    digest: str
    """Of the configuration."""
    seeds: dict[str, int]
    models: dict[str, str]
    """Role to fingerprint (weights, revision, adapter hashes, template, numerics)."""
    provenance: Provenance
    id: str = ""
    """Drawn when the run is made, so that another run at the same place is not taken for it; empty in old runs."""
    contents: Mapping[str, str] = {}
    """Digests of what else decides: the games' files, the prompts, text or code of each memory; none in old runs."""
    digests: bool = False
    """Finished, the run has `digests.json`; false in old runs."""


class Run:
    """One run. Use `Run.start` to write and `Run.open` to read."""

    def __init__(self, path: Path, info: RunInfo, lock: Lock | None) -> None:
        self.path = path
        self.info = info
        self._lock = lock
        self._logs: dict[str, Log] = {}
        self._unit: dict[str, list[tuple[str, Struct]]] | None = None
        self._checked: set[str] = set()

    @classmethod
    def start(
        cls,
        directory: str | Path,
        *,
        command: str,
        config: Config,
        models: Mapping[str, str],
        arguments: Mapping[str, Any] | None = None,
        contents: Mapping[str, str] | None = None,
        resume: bool = False,
    ) -> "Run":
        """Make the directory, or with `resume` continue an interrupted one of the same configuration."""
        path = Path(directory)
        info = RunInfo(
            command=command,
            arguments=dict(arguments or {}),
            config=config,
            digest=config.digest(),
            seeds={"run": config.seed, "stats": config.stats.seed},
            models=dict(models),
            provenance=gather(),
            id=uuid.uuid4().hex,
            contents=dict(contents or {}),
            digests=True,
        )
        cls.check_place(path, resume)
        return cls._continue(path, info) if path.exists() else cls._create(path, info)

    @classmethod
    def check_place(cls, directory: str | Path, resume: bool) -> None:
        """Refuse a directory in which no run can start or go on; asked before anything slow is loaded."""
        path = Path(directory)
        if not path.exists():
            return
        if not (path / "run.json").exists():
            raise RecordError(f"{path} exists and holds no run; choose another directory.")
        if not resume:
            raise RecordError(f"{path} exists; choose another directory, or continue it with --resume.")
        if cls.open(path).finished:
            raise RecordError(f"{path} is finished; read it with `dssr report {path}` or choose another directory.")

    @classmethod
    def _create(cls, path: Path, info: RunInfo) -> "Run":
        draft = draft_of(path)
        with told(f"Cannot make {path}"):
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                clear_drafts(path.parent, path.name)
                draft.mkdir(PRIVATE_FOLDER)
                write_whole(draft / "run.json", _pretty(info))
                write_whole(draft / WHOLE, b"{}\n")
                draft.rename(path)
                sync_folder(path.parent)
            except OSError:
                shutil.rmtree(draft, ignore_errors=True)
                raise
        return cls(path, info, Lock(path / "lock"))

    @classmethod
    def _continue(cls, path: Path, asked: RunInfo) -> "Run":
        stored = cls.open(path)
        difference = _difference(stored.info, asked)
        if difference:
            raise RecordError(
                f"{path} was made with other settings ({difference}); "
                "resume it with the settings in its run.json or choose another directory."
            )
        run = cls(path, stored.info, Lock(path / "lock"))
        try:
            clear_drafts(path)
            restore_whole(path)
            add_line(path / RESUMES, asked.provenance)
        except RecordError:
            run.close()
            raise
        return run

    @classmethod
    def open(cls, directory: str | Path) -> "Run":
        """For reading; a run that is still being written can be read too."""
        path = Path(directory)
        file = path / "run.json"
        if not file.exists():
            raise RecordError(
                f"{path} is not a run directory: it has no run.json; give the folder a dssr command made."
            )
        try:
            plain = msgspec.json.decode(file.read_bytes(), type=dict[str, Any])
            stored = plain | {"config": upgraded(plain.get("config", {}))}
            run = cls(path, msgspec.convert(stored, RunInfo), None)
        except DAMAGE as error:
            raise RecordError(f"{file} is damaged ({error}); restore it from a copy or start a new run.") from error
        run._trusted("run.json")
        return run

    @property
    def config(self) -> Config:
        """As it was when the run started."""
        return self.info.config

    @property
    def devices(self) -> tuple[str, ...]:
        """Every device that the run was computed on, the first one first: a resume elsewhere counts."""
        file = self._trusted(RESUMES)
        found = [self.info.provenance.device]
        for number, line in log.lines(file):
            try:
                found.append(msgspec.json.decode(line, type=Provenance).device)
            except DAMAGE as error:
                raise damaged_line(file, number, error) from error
        return tuple(dict.fromkeys(found))

    @property
    def finished(self) -> bool:
        """Whether nothing can be added any more: it has its summary, or it failed."""
        return (self.path / "summary.json").exists() or (self.path / "failed.json").exists()

    @property
    def summary(self) -> dict[str, Any] | None:
        """None while the run is unfinished; a failed run has none either."""
        return self._json("summary.json")

    @property
    def failure(self) -> dict[str, Any] | None:
        """Why the run must not be believed; None unless it failed."""
        return self._json("failed.json")

    def has(self, name: str, key: str) -> bool:
        """Whether a log holds a record of this key."""
        return key in self._log(name)

    def owed(self, name: str, items: Iterable[T], key: Callable[[T], str]) -> list[T]:
        """The items whose keys a log does not hold yet: what is left to do."""
        log_ = self._log(name)
        return [item for item in items if key(item) not in log_]

    def append(self, name: str, key: str, record: Struct) -> None:
        """Add one record to a log, unless its key is there already."""
        self.extend(name, [(key, record)])

    def extend(self, name: str, items: Items) -> None:
        """Append several records as one block. Keys that are there already are left as they are."""
        log_ = self._log(name)
        if self._unit is None:
            log_.append(items)
            add_line(self.path / WHOLE, {name: log_.size})
        else:
            self._unit.setdefault(name, []).extend(items)

    @contextmanager
    def unit(self) -> Iterator[None]:
        """What is appended inside belongs together: it is written at the end, and after a kill all of it counts or
        nothing, in whichever logs it lies."""
        if self._unit is not None:
            yield
            return
        unit: dict[str, list[tuple[str, Struct]]] = {}
        self._unit = unit
        try:
            yield
        finally:
            self._unit = None
        for name, items in unit.items():
            self._logs[name].append(items)
        if unit:
            add_line(self.path / WHOLE, {name: self._logs[name].size for name in unit})

    def read(self, name: str, kind: type[T]) -> Iterator[T]:
        """The records of a log, in the order of writing."""
        for _, record in self.read_keyed(name, kind):
            yield record

    def read_keyed(self, name: str, kind: type[T]) -> Iterator[tuple[str, T]]:
        """The records of a log with their keys."""
        return log.read(self.log_file(name), kind)

    def log_file(self, name: str) -> Path:
        """Where a log lies, for whoever reads a part of it; that of a finished run is as it was then."""
        return self._trusted(f"{name}.jsonl")

    def check(self) -> int | None:
        """Refuse a finished run in which a file was altered, added or lost; the number of files compared, or None if
        there is nothing to compare with: the run is not finished, or is an old one."""
        if self._digests is None:
            return None
        for name in sorted({*self._digests, *(file.name for file in self.path.glob("*.jsonl"))}):
            self._trusted(name)
        return len(self._digests)

    @cached_property
    def _digests(self) -> dict[str, Content] | None:
        if not self.finished or not self.info.digests:
            return None
        found = read_digests(self.path)
        if found is None:
            raise RecordError(f"{self.path / DIGESTS} is missing; restore it from a copy.")
        return found

    def _trusted(self, name: str) -> Path:
        """The file of this name, if nobody changed it since the run was finished."""
        path = self.path / name
        if name not in self._checked and self._lock is None and self._digests is not None:
            check_content(path, self._digests.get(name))
            self._checked.add(name)
        return path

    def finish(self, summary: Mapping[str, Any]) -> None:
        """Write the summary. Nothing can be added after it."""
        self._end("summary.json", summary)

    def fail(self, reason: Mapping[str, Any]) -> None:
        """Mark the run as not to be believed, for example after a leak."""
        self._end("failed.json", reason)

    def close(self) -> None:
        """Let go of logs and lock; an unfinished run can be resumed."""
        for one in self._logs.values():
            one.close()
        self._logs.clear()
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def __enter__(self) -> "Run":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _log(self, name: str) -> Log:
        if self._lock is None or self.finished:
            raise RecordError(f"{self.path} is open for reading only; nothing can be appended to it.")
        if name not in self._logs:
            self._logs[name] = Log(self.path / f"{name}.jsonl")
        return self._logs[name]

    def _end(self, name: str, content: Mapping[str, Any]) -> None:
        if self._lock is None or self.finished:
            raise RecordError(f"{self.path} is finished or open for reading only; its {name} is not written again.")
        data = _pretty(dict(content))
        (self.path / WHOLE).unlink(missing_ok=True)  # from here on nothing can be half written
        files = [self.path / "run.json", *sorted(self.path.glob("*.jsonl"))]
        found = {file.name: Content.in_file(file) for file in files}
        write_digests(self.path, {**found, name: Content.of([data])})
        write_whole(self.path / name, data)
        self.close()

    def _json(self, name: str) -> dict[str, Any] | None:
        file = self._trusted(name)
        if not file.exists():
            return None
        try:
            return msgspec.json.decode(file.read_bytes(), type=dict[str, Any])
        except DAMAGE as error:
            raise RecordError(f"{file} is damaged ({error}); restore it from a copy.") from error


def open_run(directory: str | Path) -> Run:
    """A run directory for reading."""
    return Run.open(directory)


def _pretty(value: object) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value), indent=1) + b"\n"


def _difference(stored: RunInfo, asked: RunInfo) -> str:
    """Names of the settings that differ, empty when the two ask for the same work."""
    old, new = (msgspec.to_builtins(info) for info in (stored, asked))
    names: list[str] = [name for name in ("command", "arguments", "models", "seeds") if old[name] != new[name]]
    if stored.contents and asked.contents:
        names += [f"the content of {name}" for name in changed(old["contents"], new["contents"])]
    if stored.digest != asked.digest:
        names += [f"config.{path}" for path in changed(old["config"], new["config"])]
    return ", ".join(names)


def changed(old: dict[str, Any], new: dict[str, Any], prefix: str = "") -> list[str]:
    """Dotted names of the settings in which two configurations differ."""
    found: list[str] = []
    for name in sorted(old.keys() | new.keys()):
        one, other = old.get(name), new.get(name)
        if isinstance(one, dict) and isinstance(other, dict):
            found += changed(one, other, f"{prefix}{name}.")
        elif one != other:
            found.append(f"{prefix}{name}")
    return found


# ---------------------------------------------------------------- where a result comes from


def gather() -> Provenance:
    """The provenance of a run that starts now."""
    commit, dirty = _git_state()
    here = {"python": platform.python_version(), "device": device(), "host": platform.node(), "started": now()}
    return Provenance(commit=commit, dirty=dirty, packages=_packages(), **here)


@cache
def _packages() -> tuple[str, ...]:
    """Read once for all runs of a process: there are hundreds of files to parse."""
    installed = [one.metadata for one in metadata.distributions()]  # each access parses a file anew
    return tuple(sorted({f"{one['Name']}=={one['Version']}" for one in installed if one["Name"]}))


def now() -> str:
    """The time in UTC, to the second."""
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")


def device() -> str:
    """What computed: the accelerator if one is in use, else the processor's model name."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        return str(torch.cuda.get_device_name(0))
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text(errors="replace").splitlines() if cpuinfo.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _git_state() -> tuple[str | None, bool | None]:
    def git(*arguments: str) -> str | None:
        folder = Path(__file__).parent
        try:
            done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, check=True)
        except (OSError, subprocess.CalledProcessError):
            return None
        return done.stdout.strip()

    # An installed package may lie inside someone else's checkout: only a commit that tracks this file counts.
    if git("ls-files", "--error-unmatch", Path(__file__).name) is None:
        return None, None
    status = git("status", "--porcelain")
    return git("rev-parse", "HEAD"), None if status is None else bool(status)
