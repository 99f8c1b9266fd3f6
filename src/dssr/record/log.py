"""Files that appear whole or not at all, one writer at a time, and append-only JSON lines with a content key each.

A line is complete or it is not there: a torn last line is set aside, and any other damage is an error,
because it means that the file was altered.
"""

import fcntl
import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Struct

from dssr.errors import RecordError
from dssr.types import Record

DAMAGE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What decoding raises for bytes that are not what was written: wrong fields, broken text, endless nesting."""
PRIVATE_FOLDER = 0o700
PRIVATE_FILE = 0o600
"""Prompts, replies and host names are the user's own; who wants to share a run sets its modes."""


def write_all(descriptor: int, data: bytes) -> None:
    """Write every byte and make the disk hold it before returning."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
    os.fsync(descriptor)


def sync_folder(folder: Path) -> None:
    """Make a rename or a new name in the folder survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_whole(path: Path, data: bytes, mode: int = PRIVATE_FILE) -> None:
    """Create or replace a file so that a reader sees the old content or the new, never a part."""
    draft = draft_of(path)
    with told(f"Cannot write {path}"):
        try:
            descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
            try:
                write_all(descriptor, data)
            finally:
                os.close(descriptor)
            os.replace(draft, path)
            sync_folder(path.parent)
        except OSError:
            draft.unlink(missing_ok=True)
            raise


def draft_of(path: Path) -> Path:
    """Where something is made before it appears as `path`; it names the process, whose death makes it a left-over."""
    return path.with_name(f".{path.name}.{os.getpid()}.part")


def clear_drafts(folder: Path, name: str = "*") -> None:
    """Remove what processes that are no more began to make in a folder."""
    for draft in folder.glob(f".{name}.*.part"):
        maker = draft.name.split(".")[-2]
        if maker.isdigit() and not _alive(int(maker)):
            with told(f"Cannot remove the left-over {draft}"):
                shutil.rmtree(draft) if draft.is_dir() and not draft.is_symlink() else draft.unlink(missing_ok=True)


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):  # somebody else's
        return True
    return True


@contextmanager
def told(trouble: str, remedy: str = "free or repair the place and run again with --resume") -> Iterator[None]:
    """Turn an operating system error into one sentence."""
    try:
        yield
    except OSError as error:
        raise RecordError(f"{trouble}: {error.strerror or error}; {remedy}.") from error


class Lock:
    """Held by the one process that writes a directory; the system releases it when the process dies."""

    def __init__(self, path: Path, wait: bool = False) -> None:
        """Held elsewhere, it is refused, or with `wait` waited for."""
        with told(f"Cannot lock {path.parent}"):
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT, PRIVATE_FILE)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except OSError as error:
            os.close(self._descriptor)
            raise RecordError(
                f"{path.parent} is being written by another process; wait for it or choose another directory."
            ) from error

    def release(self) -> None:
        """Let another process write."""
        os.close(self._descriptor)


T = TypeVar("T")


class _Keyed(Struct):
    key: str


_key_decoder = msgspec.json.Decoder(_Keyed)


def _line(key: str, record: Struct) -> bytes:
    fields = msgspec.to_builtins(record)
    fields.pop("key", None)
    return msgspec.json.encode({"key": key, **fields}) + b"\n"


def lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Complete lines with their numbers; a torn last line is left out."""
    if not path.exists():
        return
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if line.endswith(b"\n"):
                yield number, line


def measured(path: Path, decoder: msgspec.json.Decoder[T]) -> Iterator[tuple[T, int]]:
    """Record and length in bytes of every complete line."""
    for number, line in lines(path):
        try:
            yield decoder.decode(line), len(line)
        except DAMAGE as error:
            raise damaged_line(path, number, error) from error


def read(path: Path, kind: type[T]) -> Iterator[tuple[str, T]]:
    """(key, record) of every complete line."""
    decoder = msgspec.json.Decoder(kind)
    for number, line in lines(path):
        try:
            yield _key_decoder.decode(line).key, decoder.decode(line)
        except DAMAGE as error:
            raise damaged_line(path, number, error) from error


def keys(path: Path) -> Iterator[tuple[str, int]]:
    """Key and length in bytes of every complete line."""
    return ((one.key, length) for one, length in measured(path, _key_decoder))


def damaged_line(path: Path, number: int, error: Exception) -> RecordError:
    """The one sentence about a line that is not what was written."""
    return RecordError(f"{path} line {number} is damaged ({error}); restore the file from a copy or start a new run.")


def set_aside(path: Path, good: int) -> None:
    """Move what follows the first `good` bytes of a log to a file of the same name that ends in `.torn`."""
    with told(f"Cannot repair {path}"), path.open("r+b") as file:
        file.seek(good)
        rest = file.read()
        torn = os.open(path.with_suffix(".torn"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, PRIVATE_FILE)
        try:
            write_all(torn, rest if rest.endswith(b"\n") else rest + b"\n")
        finally:
            os.close(torn)
        file.truncate(good)
        os.fsync(file.fileno())


class KeySet:
    """The keys of a log. Of keys like `EPISODE:0000` and `EPISODE:WORD` the episode is held once for all logs: a driver
    has thousands of episodes, and each of them dozens of steps."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        """Of every beginning: its numbers, as the bits of one."""
        self._words: dict[str, set[str]] = {}
        """Of every other end: its beginnings."""

    def add(self, key: str) -> None:
        """One more."""
        beginning, end = _parted(key)
        if isinstance(end, int):
            self._numbers[beginning] = self._numbers.get(beginning, 0) | 1 << end
        else:
            self._words.setdefault(end, set()).add(beginning)

    def __contains__(self, key: str) -> bool:
        beginning, end = _parted(key)
        if isinstance(end, int):
            return bool(self._numbers.get(beginning, 0) >> end & 1)
        return beginning in self._words.get(end, ())


def _parted(key: str) -> tuple[str, int | str]:
    """What stands before the last colon, and after it: a number where that is four digits; all without a colon."""
    beginning, colon, end = key.rpartition(":")
    if not colon:
        return sys.intern(key), ""
    plain = len(end) == 4 and end.isascii() and end.isdigit()
    return sys.intern(beginning), int(end) if plain else colon + end


class Log:
    """The writing side of one log file. The run's lock guarantees that there is only one."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._keys = self._recover()
        with told(f"Cannot open {path}"):
            self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, PRIVATE_FILE)

    def _recover(self) -> KeySet:
        known = KeySet()
        good = 0
        for key, length in keys(self.path):
            known.add(key)
            good += length
        if self.path.exists() and self.path.stat().st_size > good:
            set_aside(self.path, good)
        return known

    def __contains__(self, key: str) -> bool:
        return key in self._keys

    @property
    def size(self) -> int:
        """Bytes written."""
        return os.fstat(self._descriptor).st_size

    def append(self, items: Iterable[tuple[str, Struct]]) -> None:
        """Write the items whose keys are new, as one durable block, in order."""
        fresh = [(key, record) for key, record in items if key not in self._keys]
        if not fresh:
            return
        end = self.size
        try:
            with told(f"Cannot append to {self.path}"):
                write_all(self._descriptor, b"".join(_line(key, record) for key, record in fresh))
        except RecordError:
            os.ftruncate(self._descriptor, end)
            raise
        for key, _ in fresh:
            self._keys.add(key)

    def close(self) -> None:
        """Let go of the file; nothing is left to write."""
        os.close(self._descriptor)


def add_line(path: Path, content: object) -> None:
    """Append one line that nobody looks for by its key; what a kill left of the one before it is set aside."""
    with told(f"Cannot write to {path}"):
        before = path.read_bytes() if path.name in SITTINGS and path.exists() else b""  # others are mended on resume
        if not before.endswith(b"\n") and before:
            set_aside(path, before.rfind(b"\n") + 1)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, PRIVATE_FILE)
        try:
            write_all(descriptor, msgspec.json.encode(content) + b"\n")
        finally:
            os.close(descriptor)


class Spilled:
    """Texts by number in a file without a name, for whoever makes more of them than should be held."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 — lives as long as the texts
        self._ends = [0]

    def append(self, text: str) -> None:
        """Add one at the end."""
        self._file.seek(self._ends[-1])
        self._ends.append(self._ends[-1] + self._file.write(text.encode()))

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __getitem__(self, place: int) -> str:
        first, end = self._ends[range(len(self))[place]], self._ends[range(1, len(self) + 1)[place]]
        self._file.seek(first)
        return self._file.read(end - first).decode()

    def __iter__(self) -> Iterator[str]:
        return (self[place] for place in range(len(self)))


# ---------------------------------------------------------------- logs that belong together

WHOLE = "whole.jsonl"
"""Beside logs that are being written: a line after each unit, with the size that each log has now."""
RESUMES = "resumes.jsonl"
"""Beside the logs of a run: a line for each time it was continued."""
COSTS = "costs.jsonl"
"""Beside the logs of a run: what was spent on it since the line before."""
SITTINGS = (RESUMES, COSTS)
"""What is told of the sittings of a run and is no result: equal runs differ in it."""


def restore_whole(folder: Path) -> None:
    """Take out of the logs what was written of a unit that a kill cut short. It will be done again, and where a model
    does not repeat itself one record must not be joined from two tries."""
    logs = [file for file in sorted(folder.glob("*.jsonl")) if file.name not in (*SITTINGS, WHOLE)]
    ended = read_digests(folder) or {}  # killed before its last file, the summary, or that was taken away
    for name in sorted({*ended, *(file.name for file in logs)} if ended else ()):
        if name.endswith(".jsonl") and name not in SITTINGS:
            check_content(folder / name, ended.get(name))
    (folder / DIGESTS).unlink(missing_ok=True)
    marks = _marks(folder / WHOLE)
    if marks is None:  # of a version before, or everything was whole and only the end was owed
        marks = {file.stem: file.stat().st_size for file in logs}
    for name, size in marks.items():
        file = folder / f"{name}.jsonl"
        if not file.exists() or file.stat().st_size < size:
            raise RecordError(f"{file} lost a part of what was written to it; restore it from a copy.")
    for file in logs:
        if file.stat().st_size > marks.get(file.stem, 0):
            set_aside(file, marks.get(file.stem, 0))
    write_whole(folder / WHOLE, msgspec.json.encode(marks) + b"\n")


def _marks(file: Path) -> dict[str, int] | None:
    if not file.exists():
        return None
    found: dict[str, int] = {}
    for number, line in lines(file):
        try:
            found.update(msgspec.json.decode(line, type=dict[str, int]))
        except DAMAGE as error:
            raise damaged_line(file, number, error) from error
    return found


# ---------------------------------------------------------------- what a finished folder held

DIGESTS = "digests.json"


class Content(Record, frozen=True):
    """What a file held."""

    lines: int
    sha256: str

    @classmethod
    def of(cls, data: Iterable[bytes]) -> "Content":
        """Of a file that is read in parts."""
        count, digest = 0, hashlib.sha256()
        for part in data:
            count += part.count(b"\n")
            digest.update(part)
        return cls(count, digest.hexdigest())

    @classmethod
    def in_file(cls, path: Path) -> "Content":
        """Of a file on disk."""
        with told(f"Cannot read {path}", "repair or restore it"), path.open("rb") as file:
            return cls.of(iter(lambda: file.read(1 << 20), b""))


def write_digests(folder: Path, contents: Mapping[str, Content], mode: int = PRIVATE_FILE) -> None:
    """Store what the files of a folder hold, now that nothing will be added to them."""
    write_whole(folder / DIGESTS, msgspec.json.format(msgspec.json.encode(contents), indent=1) + b"\n", mode)


def read_digests(folder: Path) -> dict[str, Content] | None:
    """What the files of a folder held when it was finished; None where nobody stored it."""
    path = folder / DIGESTS
    if not path.exists():
        return None
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Content])
    except DAMAGE as error:
        raise RecordError(f"{path} is damaged ({error}); restore it from a copy.") from error


def check_content(path: Path, expected: Content | None) -> None:
    """Refuse a file that is not what it was when its folder was finished; None means that there was none."""
    found = Content.in_file(path) if path.exists() else None
    if found == expected:
        return
    if found is None:
        change = "is missing"
    elif expected is None:
        change = "was added"
    elif found.lines != expected.lines:
        change = f"has {found.lines} lines instead of {expected.lines}"
    else:
        change = "was altered"
    raise RecordError(f"{path} {change} since {path.parent} was finished; restore it from a copy.")
