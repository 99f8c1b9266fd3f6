"""The stored tree of one game: every command sequence ever played, and what TextWorld answered.

One append-only file per game. A line is a checksum and a JSON record; a record names its parent by line
number, so the file is whole after every line. Processes that share a game take turns with a file lock and
read each other's lines before they add their own. A line cut short by a kill is dropped by the next writer.
"""

import errno
import fcntl
import os
import zlib
from pathlib import Path

import msgspec

from dssr.errors import GameError
from dssr.types import Fact, Record

FORMAT = 1
"""Part of the file's name: a later format starts a new file."""


class Constants(Record, frozen=True):
    """What is true of a game at every step; the first line of the file."""

    goal: str
    max_score: int
    recipe: str
    walkthrough: tuple[str, ...]
    entities: tuple[str, ...]


class StepResult(Record, frozen=True):
    """What TextWorld answered to one command; everything that changes from step to step."""

    observation: str
    admissible: tuple[str, ...]
    policy: tuple[str, ...]
    """An optimal plan from here; empty when the game is over or cannot be won."""
    facts: tuple[Fact, ...]
    score: int
    won: bool
    lost: bool


class TreeLine(Record, frozen=True, array_like=True):
    """An answer as stored: facts as the difference from the parent's."""

    parent: int
    """Number of the line played on from; -1 at the start."""
    command: str
    observation: str
    admissible: tuple[str, ...]
    policy: tuple[str, ...]
    gone: tuple[Fact, ...]
    """Facts of the parent that hold no more."""
    come: tuple[Fact, ...]
    """Facts that the parent does not have."""
    score: int
    won: bool
    lost: bool


class StepTree:
    """The lines of one game's file, by number, and the way from a line to its children."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.constants: Constants | None = None
        self.lines: list[TreeLine] = []
        self.children: list[dict[str, int]] = []
        self._facts: dict[int, tuple[Fact, ...]] = {}
        self._shared: dict[Fact, Fact] = {}
        self._read_to = 0
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            # A link in an archive from elsewhere would have us append to whatever it points to.
            self._handle = os.open(file, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o644)
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise GameError(f"{file} is a symbolic link, which is not followed: delete it.") from error
            raise GameError(
                f"{file} cannot be written ({error.strerror}): the archive needs a writable folder."
            ) from error
        self._catch_up()

    def close(self) -> None:
        """Let go of the file; known steps can still be looked up."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1

    def begin(self, constants: Constants, answer: StepResult) -> None:
        """Stores the first two lines: the constants and the answer at the start of the game."""
        self._locked_append(None, [constants, self._line(-1, "", answer, ())])

    def add(self, parent: int, command: str, answer: StepResult) -> int:
        """Stores one answer, unless another process was first; returns its number."""
        self._locked_append((parent, command), [self._line(parent, command, answer, self.facts(parent))])
        return self.children[parent][command]

    def facts(self, number: int) -> tuple[Fact, ...]:
        """The facts at one line, rebuilt from the differences above it."""
        pending = []
        above = number
        while above >= 0 and above not in self._facts:
            pending.append(above)
            above = self.lines[above].parent
        for below in reversed(pending):
            line = self.lines[below]
            base = self._facts[line.parent] if line.parent >= 0 else ()
            if line.gone or line.come:
                gone = set(line.gone)
                kept = [fact for fact in base if fact not in gone]
                kept += [self._shared.setdefault(fact, fact) for fact in line.come]
                base = tuple(sorted(kept, key=fact_key))
            self._facts[below] = base
        return self._facts[number]

    def _line(self, parent: int, command: str, answer: StepResult, base: tuple[Fact, ...]) -> TreeLine:
        before, after = set(base), set(answer.facts)
        return TreeLine(
            parent=parent,
            command=command,
            observation=answer.observation,
            admissible=answer.admissible,
            policy=answer.policy,
            gone=tuple(fact for fact in base if fact not in after),
            come=tuple(fact for fact in answer.facts if fact not in before),
            score=answer.score,
            won=answer.won,
            lost=answer.lost,
        )

    def _locked_append(self, place: tuple[int, str] | None, records: list[Constants | TreeLine]) -> None:
        if self._handle < 0:
            raise GameError(f"{self.file} was closed: open the world again to play on.")
        fcntl.flock(self._handle, fcntl.LOCK_EX)
        try:
            self._catch_up()
            if os.fstat(self._handle).st_size > self._read_to:
                os.ftruncate(self._handle, self._read_to)
            known = self.constants is not None if place is None else place[1] in self.children[place[0]]
            if not known:
                self._write(b"".join(packed(record) for record in records))
                self._catch_up()
        finally:
            fcntl.flock(self._handle, fcntl.LOCK_UN)

    def _write(self, content: bytes) -> None:
        try:
            written = os.write(self._handle, content)
        except OSError as error:
            raise GameError(f"{self.file} cannot be written ({error.strerror}).") from error
        if written != len(content):
            raise GameError(f"{self.file} cannot be written: the disk is full.")

    def _catch_up(self) -> None:
        """Takes in whole lines added since the last look, by this process or another."""
        size = os.fstat(self._handle).st_size
        if size <= self._read_to:
            return
        content = os.pread(self._handle, size - self._read_to, self._read_to)
        whole = content[: content.rfind(b"\n") + 1]
        for line in whole.splitlines():
            self._take(line)
        self._read_to += len(whole)

    def _take(self, content: bytes) -> None:
        body = content[9:]
        try:
            if content[:9] != checksum(body):
                raise ValueError("checksum")
            if self.constants is None:
                self.constants = msgspec.json.decode(body, type=Constants)
                return
            line = msgspec.json.decode(body, type=TreeLine)
            if not -1 <= line.parent < len(self.lines):
                raise ValueError("parent")
        except (ValueError, RecursionError):  # of msgspec and of broken text too
            raise GameError(f"{self.file} is damaged: delete it and it will be built anew.") from None
        self.lines.append(line)
        self.children.append({})
        if line.parent >= 0:
            self.children[line.parent][line.command] = len(self.lines) - 1


def fact_key(fact: Fact) -> tuple[str, tuple[str, ...]]:
    """The order of facts: TextWorld keeps them in sets, whose order changes from process to process."""
    return (fact.name, fact.args)


def checksum(body: bytes) -> bytes:
    """What stands before a line's record."""
    return b"%08x " % zlib.crc32(body)


def packed(record: Constants | TreeLine) -> bytes:
    """A record as one line of the file."""
    body = msgspec.json.encode(record)
    return checksum(body) + body + b"\n"
