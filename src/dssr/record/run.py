"""Run directories: what a command was asked, what it found, and where that came from.

run.json        what was asked and where it came from; written first, once
*.jsonl         append-only logs, one content key a line
summary.json    written last, once; its presence means finished
failed.json     instead of the summary, when the run must not be believed
resumes.jsonl   one line for each time the run was continued
"""

import datetime
import os
import platform
import shutil
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import metadata
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from dssr.config import Config
from dssr.config_files import upgraded
from dssr.errors import RecordError
from dssr.record import log
from dssr.record.files import PRIVATE_FILE, PRIVATE_FOLDER, Lock, sync_folder, told, write_all, write_whole
from dssr.record.log import Log
from dssr.types import Record

T = TypeVar("T")


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


class Run:
    """One run. Use `Run.start` to write and `Run.open` to read."""

    def __init__(self, path: Path, info: RunInfo, lock: Lock | None) -> None:
        self.path = path
        self.info = info
        self._lock = lock
        self._logs: dict[str, Log] = {}

    @classmethod
    def start(
        cls,
        directory: str | Path,
        *,
        command: str,
        config: Config,
        models: Mapping[str, str],
        arguments: Mapping[str, Any] | None = None,
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
        draft = path.with_name(f".{path.name}.{os.getpid()}.part")
        with told(f"Cannot make {path}"):
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                draft.mkdir(PRIVATE_FOLDER)
                write_whole(draft / "run.json", _pretty(info))
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
        with told(f"Cannot write to {path}"):
            descriptor = os.open(path / "resumes.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND, PRIVATE_FILE)
            try:
                write_all(descriptor, msgspec.json.encode(asked.provenance) + b"\n")
            finally:
                os.close(descriptor)
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
            return cls(path, msgspec.convert(stored, RunInfo), None)
        except msgspec.MsgspecError as error:
            raise RecordError(f"{file} is damaged ({error}); restore it from a copy or start a new run.") from error

    @property
    def config(self) -> Config:
        """As it was when the run started."""
        return self.info.config

    @property
    def devices(self) -> tuple[str, ...]:
        """Every device that the run was computed on, the first one first: a resume elsewhere counts."""
        file = self.path / "resumes.jsonl"
        found = [self.info.provenance.device]
        for number, line in log.lines(file):
            try:
                found.append(msgspec.json.decode(line, type=Provenance).device)
            except msgspec.MsgspecError as error:
                raise RecordError(f"{file} line {number} is damaged ({error}); restore it from a copy.") from error
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

    def extend(self, name: str, items: Iterable[tuple[str, Struct]]) -> None:
        """Append several records as one block. Keys that are there already are left as they are."""
        self._log(name).append(items)

    def read(self, name: str, kind: type[T]) -> Iterator[T]:
        """The records of a log, in the order of writing."""
        for _, record in log.read(self.path / f"{name}.jsonl", kind):
            yield record

    def read_keyed(self, name: str, kind: type[T]) -> Iterator[tuple[str, T]]:
        """The records of a log with their keys."""
        return log.read(self.path / f"{name}.jsonl", kind)

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
        write_whole(self.path / name, _pretty(dict(content)))
        self.close()

    def _json(self, name: str) -> dict[str, Any] | None:
        file = self.path / name
        return msgspec.json.decode(file.read_bytes(), type=dict[str, Any]) if file.exists() else None


def open_run(directory: str | Path) -> Run:
    """A run directory for reading."""
    return Run.open(directory)


def _pretty(value: object) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value), indent=1) + b"\n"


def _difference(stored: RunInfo, asked: RunInfo) -> str:
    """Names of the settings that differ, empty when the two ask for the same work."""
    old, new = (msgspec.to_builtins(info) for info in (stored, asked))
    names: list[str] = [name for name in ("command", "arguments", "models", "seeds") if old[name] != new[name]]
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
    return Provenance(
        commit=commit,
        dirty=dirty,
        packages=tuple(sorted({f"{d.name}=={d.version}" for d in metadata.distributions() if d.name})),
        python=platform.python_version(),
        device=device(),
        host=platform.node(),
        started=now(),
    )


def now() -> str:
    """The time in UTC, to the second."""
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")


def device() -> str:
    """What computed: the accelerator if one is in use, else the processor's model name."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        return str(torch.cuda.get_device_name(0))
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text(errors="replace").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


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
