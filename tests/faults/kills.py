"""SIGKILL at any durable operation, and what a resume makes of it.

A try is a child process, forked from a warm one, that kills itself at its n-th durable operation: a new file (left
empty), a write (of which half is written), an fsync, a rename, a removal, a new folder. Then the work is resumed, and
must come out as if nothing had happened. What libraries write below Python (the cache's database, weights) is not
counted; the folders and renames around it are.
"""

import builtins
import io
import os
import random
import shutil
import signal
import stat
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from dssr.types import Record

Work = Callable[[Path, bool], object]
"""Does the work into a folder; the flag says to resume."""
OPERATIONS = ("fsync", "replace", "rename", "unlink", "rmdir", "mkdir", "ftruncate")
"""Of the module `os`, besides new files and writes: the kill comes before any of these is done."""
OWN = ("resumes.jsonl", "costs.jsonl", "run.json", "digests.json", "lock", ".lock", "whole.jsonl")
"""Files that say when and where something was made, or that are there only meanwhile."""
RAW = ("closefd", "opener")
"""What `open` hands to the file below the buffer."""
COUNT, NEVER = "operations", 100_000


@dataclass(frozen=True)
class Case:
    """Work that is killed and resumed."""

    name: str
    work: Work
    stride: int = 1
    """Every so many operations are tried, unless another stride is asked for."""

    @property
    def slug(self) -> str:
        """Its name as a folder's."""
        return self.name.replace(", ", "-").replace(" ", "-")


class Try(Record, frozen=True):
    """One kill, and what the resume made of it."""

    case: str
    number: int
    """Of the operation at which it was killed."""
    same: bool
    left_over: int


class Killed(Record, frozen=True):
    """What became of the kills of one case."""

    case: str
    operations: int
    """Of a try that is not killed."""
    kills: int
    same: int
    """Resumed to the same bytes."""
    left_over: int
    """Drafts that were still there after the resume."""


def kill_everywhere(case: Case, folder: Path, stride: int, notes: Path | None = None) -> Killed:
    """Kill at every operation, or every `stride`-th, each time in a fresh folder, and resume.

    What became of each kill is added to the `notes`; those that are there already are not done again.
    """
    folder.mkdir(parents=True, exist_ok=True)
    case.work(folder / "whole", False)  # here, so that every try finds all modules loaded
    expected, done = content(folder / "whole"), noted(notes, case)
    for number in range(1, NEVER, stride):
        if number in done:
            continue
        place = folder / str(number)
        ended = attempt(case.work, place, False, kill_at=number)
        if ended == 0:
            break
        assert ended == -signal.SIGKILL, (folder / "told").read_text()
        assert attempt(case.work, place, True) == 0, (folder / "told").read_text()
        left = sum(1 for _ in folder.rglob("*.part"))
        done[number] = Try(case.name, number, content(place) == expected, left)
        if notes is not None:
            with notes.open("ab") as file:
                file.write(msgspec.json.encode(done[number]) + b"\n")
        shutil.rmtree(place)
    same, left = sum(one.same for one in done.values()), sum(one.left_over for one in done.values())
    return Killed(case.name, int((folder / COUNT).read_text()), len(done), same, left)


def noted(notes: Path | None, case: Case) -> dict[int, Try]:
    """The kills of a case that were done before, by the number of the operation."""
    lines = notes.read_bytes().splitlines() if notes is not None and notes.exists() else []
    found = [msgspec.json.decode(line, type=Try) for line in lines]
    return {one.number: one for one in found if one.case == case.name}


def kill_again_and_again(
    case: Case, folder: Path, wanted: int, most: int, before: Callable[[], None] = lambda: None
) -> Iterator[Path]:
    """Kill so many tries in all, at most `most` operations after each resume; yields each folder that was finished.

    `before` is called before every try.
    """
    rng, kills, number = random.Random(0), 0, 0
    while kills < wanted:
        place = folder / str(number)
        ended, number = None, number + 1
        while ended != 0:
            before()
            at = rng.randint(1, most) if kills < wanted else None
            ended = attempt(case.work, place, ended is not None, at)
            assert ended in (0, -signal.SIGKILL), (folder / "told").read_text()
            kills += ended != 0
        yield place


def attempt(work: Work, place: Path, resume: bool, kill_at: int | None = None) -> int:
    """Exit code of a child that does the work; what it says goes to `told` beside the place."""
    sys.stdout.flush()
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    place.parent.mkdir(parents=True, exist_ok=True)
    told = os.open(place.parent / "told", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(told, 1)
    os.dup2(told, 2)
    sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")  # a test runner has put its own there
    code = 1
    try:
        if kill_at is None:
            work(place, resume)
        else:
            armed = Armed(kill_at)
            work(place, resume)
            armed.report(place.parent / COUNT)
        code = 0
    except BaseException:
        with suppress(OSError):
            traceback.print_exc()
            sys.stderr.flush()
    finally:
        os._exit(code)  # whatever happened: a child that lived on would be a second test runner


class Armed:
    """Makes this process kill itself at its n-th durable operation, and counts them."""

    def __init__(self, kill_at: int) -> None:
        self.process, self.kill_at, self.done = os.getpid(), kill_at, 0
        self.lock = threading.Lock()  # games are made by threads
        self.open, self.write = os.open, os.write
        for name in OPERATIONS:
            setattr(os, name, self.before(name, getattr(os, name)))
        for name, counted in (("open", self.opened), ("write", self.written)):
            setattr(os, name, counted)
        real, files = io.open, counted_files(self)

        def open_file(file: Any, mode: str = "r", buffering: int = -1, *text: Any, **rest: Any) -> Any:
            if not set(mode) & set("wax+"):
                return real(file, mode, buffering, *text, **rest)
            raw = files(file, mode.replace("b", "").replace("t", ""), **{k: rest.pop(k) for k in RAW if k in rest})
            if not buffering:
                return raw
            whole = io.BufferedRandom(raw) if "+" in mode else io.BufferedWriter(raw)
            return whole if "b" in mode else io.TextIOWrapper(whole, *text, **rest)

        for module in (io, builtins):
            vars(module)["open"] = open_file

    def due(self) -> bool:
        """Count one operation; whether it is the last."""
        with self.lock:
            self.done += os.getpid() == self.process
            return self.done == self.kill_at

    def die(self) -> None:
        """The end."""
        os.kill(self.process, signal.SIGKILL)

    def before(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        """An operation, with the kill before it."""

        def call(*args: Any, **rest: Any) -> Any:
            if (name != "fsync" or regular(args[0])) and self.due():
                self.die()
            return real(*args, **rest)

        return call

    def opened(self, path: Any, flags: int, *args: Any, **rest: Any) -> int:
        """`os.open`, with the kill after a new file is made."""
        new = bool(flags & os.O_CREAT) and not os.path.lexists(path)
        descriptor = self.open(path, flags, *args, **rest)
        if new and self.due():
            self.die()
        return descriptor

    def written(self, descriptor: int, data: Any) -> int:
        """`os.write`, with the kill after half of the bytes."""
        if regular(descriptor) and self.due():
            self.write(descriptor, bytes(data)[: len(data) // 2])
            self.die()
        return self.write(descriptor, data)

    def report(self, file: Path) -> None:
        """Store how many operations there were."""
        descriptor = self.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        self.write(descriptor, str(self.done).encode())
        os.close(descriptor)


def counted_files(armed: Armed) -> type[io.FileIO]:
    """What Python's own files write through, counted as `os.open` and `os.write` are."""

    class Counted(io.FileIO):
        def __init__(self, file: Any, mode: str, **rest: Any) -> None:
            new = not isinstance(file, int) and not os.path.lexists(file)
            super().__init__(file, mode, **rest)
            if new and armed.due():
                armed.die()

        def write(self, data: Any) -> int:
            return os.write(self.fileno(), data)

    return Counted


def regular(descriptor: int) -> bool:
    """Whether this is a file, not a pipe or a folder."""
    return stat.S_ISREG(os.fstat(descriptor).st_mode)


def content(folder: Path) -> dict[str, object]:
    """What must come out the same: every file but those that say when and where; lists of games in any order."""
    found: dict[str, object] = {}
    for file in sorted(folder.rglob("*")):
        name = file.relative_to(folder).as_posix()
        if file.is_file() and file.name not in OWN and file.suffix != ".torn" and "work/" not in f"{name}/":
            data = file.read_bytes().replace(os.fsencode(folder), b"here")  # a summary may name its own folder
            found[name] = sorted(data.splitlines()) if file.name == "manifest.jsonl" else data
    return found
