"""TextWorld in a process of its own: started when first needed, shared by all games, replaced when it
dies or grows too large. Losing it costs time only: positions are replayed from the commands that led to them.
"""

import atexit
import os
import struct
import subprocess
import sys
import threading
from pathlib import Path
from typing import IO, TypeVar

import msgspec

from dssr.errors import GameError
from dssr.types import Record
from dssr.worlds.cooking.tree import Constants, StepResult

MEMORY = 1500
"""Megabytes at which the process is replaced: TextWorld is reported to leak, and here it cannot hurt."""
MAIN = "from dssr.worlds.cooking.textworld import serve; serve()"
LENGTH = struct.Struct("<I")

T = TypeVar("T")


class PlayRequest(Record, frozen=True):
    """Play one command after others; without a command, begin the game."""

    path: str
    commands: tuple[str, ...]
    command: str | None


class PlayReply(Record, frozen=True):
    """The answer, or one sentence on why there is none."""

    constants: Constants | None
    answer: StepResult | None
    error: str | None
    memory: int
    """Megabytes the process uses."""


def send(pipe: IO[bytes], message: PlayRequest | PlayReply) -> None:
    body = msgspec.msgpack.encode(message)
    pipe.write(LENGTH.pack(len(body)) + body)
    pipe.flush()


def receive(pipe: IO[bytes], kind: type[T]) -> T | None:
    """The next message, or None when the other side is gone."""
    head = pipe.read(LENGTH.size)
    if len(head) < LENGTH.size:
        return None
    (length,) = LENGTH.unpack(head)
    body = pipe.read(length)
    return msgspec.msgpack.decode(body, type=kind) if len(body) == length else None


class Child:
    """The process, if one is running, and the lock that makes callers take turns."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0
        self._lock = threading.Lock()

    def ask(self, request: PlayRequest) -> PlayReply:
        """One request. A process that dies on it is replaced and asked once more."""
        with self._lock:
            told = self._try(request) or self._try(request)
            if told is None:
                raise GameError(f"TextWorld crashed twice on {request.path} at {request.command!r}.")
            if told.memory > MEMORY:
                self._stop()
        if told.error is not None:
            raise GameError(told.error)
        return told

    def stop(self) -> None:
        with self._lock:
            self._stop()

    def _try(self, request: PlayRequest) -> PlayReply | None:
        process = self._running()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            send(process.stdin, request)
            told = receive(process.stdout, PlayReply)
        except OSError:
            told = None
        if told is None:
            self._stop()
        return told

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._owner != os.getpid():
            # A session of its own, so that an interrupt from the keyboard reaches us and not the child.
            self._process = subprocess.Popen(
                [sys.executable, "-c", MAIN],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={**os.environ, "PYTHONHASHSEED": "0"},
                start_new_session=True,
            )
            self._owner = os.getpid()
        return self._process

    def _stop(self) -> None:
        process, self._process = self._process, None
        if process is not None and self._owner == os.getpid():
            process.kill()
            process.communicate()


_child = Child()
atexit.register(_child.stop)


def begin(path: Path) -> tuple[Constants, StepResult]:
    """A game's constants and the answer before any command."""
    told = _child.ask(PlayRequest(path=str(path.resolve()), commands=(), command=None))
    assert told.constants is not None
    assert told.answer is not None
    return told.constants, told.answer


def play(path: Path, commands: tuple[str, ...], command: str) -> StepResult:
    """The answer to a command after others that were played before."""
    told = _child.ask(PlayRequest(path=str(path.resolve()), commands=commands, command=command))
    assert told.answer is not None
    return told.answer
