"""SIGKILL at any durable operation, and what a resume makes of it.

A try is a child process, forked from a warm one, that kills itself at its n-th durable operation: a write (of which
half is written), an fsync, a rename, a removal, a new folder. Then the work is resumed, and must come out as if nothing
had happened.
"""

import os
import random
import shutil
import signal
import stat
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dssr.types import Record

Work = Callable[[Path, bool], object]
"""Does the work into a folder; the flag says to resume."""
OPERATIONS = ("write", "fsync", "replace", "rename", "unlink", "mkdir", "ftruncate")
OWN = ("resumes.jsonl", "run.json", "digests.json", "lock", ".lock", "whole.jsonl")
"""Files that say when and where something was made, or that are there only meanwhile."""


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


class Killed(Record, frozen=True):
    """What became of the kills of one case."""

    case: str
    kills: int
    same: int
    """Resumed to the same bytes."""
    left_over: int
    """Drafts that were still there after the resume."""


def kill_everywhere(case: Case, folder: Path, stride: int) -> Killed:
    """Kill at every operation, or every `stride`-th, each time in a fresh folder, and resume."""
    whole = folder / "whole"
    assert attempt(case.work, whole, False) == 0, (folder / "told").read_text()
    expected, kills, same, left = content(whole), 0, 0, 0
    for number in range(1, 100_000, stride):
        place = folder / str(number)
        ended = attempt(case.work, place, False, kill_at=number)
        if ended == 0:
            break
        assert ended == -signal.SIGKILL, (folder / "told").read_text()
        kills += 1
        assert attempt(case.work, place, True) == 0, (folder / "told").read_text()
        same += content(place) == expected
        left += sum(1 for _ in folder.rglob("*.part"))
        shutil.rmtree(place)
    return Killed(case.name, kills, same, left)


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
        if kill_at is not None:
            arm(kill_at)
        work(place, resume)
        code = 0
    except BaseException:
        with suppress(OSError):
            traceback.print_exc()
            sys.stderr.flush()
    finally:
        os._exit(code)  # whatever happened: a child that lived on would be a second test runner


def arm(kill_at: int) -> None:
    """Make this process kill itself at its n-th durable operation."""
    process, left = os.getpid(), kill_at

    def counted(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **rest: Any) -> Any:
            nonlocal left
            if name in ("write", "fsync") and not stat.S_ISREG(os.fstat(args[0]).st_mode):
                return real(*args, **rest)  # pipes and folders
            left -= os.getpid() == process
            if left == 0:
                if name == "write":
                    real(args[0], bytes(args[1])[: len(args[1]) // 2])
                os.kill(process, signal.SIGKILL)
            return real(*args, **rest)

        return call

    for name in OPERATIONS:
        setattr(os, name, counted(name, getattr(os, name)))


def content(folder: Path) -> dict[str, object]:
    """What must come out the same: every file but those that say when and where; lists of games in any order."""
    found: dict[str, object] = {}
    for file in sorted(folder.rglob("*")):
        name = file.relative_to(folder).as_posix()
        if file.is_file() and file.name not in OWN and file.suffix != ".torn" and "work/" not in f"{name}/":
            data = file.read_bytes().replace(os.fsencode(folder), b"here")  # a summary may name its own folder
            found[name] = sorted(data.splitlines()) if file.name == "manifest.jsonl" else data
    return found
