"""Append-only JSON lines with a content key each.

A line is complete or it is not there: a torn last line is set aside, and any other damage is an error,
because it means that the file was altered.
"""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Struct

from dssr.errors import RecordError
from dssr.record.files import PRIVATE_FILE, told, write_all

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


def read(path: Path, kind: type[T]) -> Iterator[tuple[str, T]]:
    """(key, record) of every complete line."""
    decoder = msgspec.json.Decoder(kind)
    for number, line in lines(path):
        try:
            yield _key_decoder.decode(line).key, decoder.decode(line)
        except msgspec.MsgspecError as error:
            raise RecordError(
                f"{path} line {number} is damaged ({error}); restore the file from a copy or start a new run."
            ) from error


class Log:
    """The writing side of one log file. The run's lock guarantees that there is only one."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._keys = self._recover()
        with told(f"Cannot open {path}"):
            self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, PRIVATE_FILE)

    def _recover(self) -> set[str]:
        keys: set[str] = set()
        good = 0
        for number, line in lines(self.path):
            try:
                keys.add(_key_decoder.decode(line).key)
            except msgspec.MsgspecError as error:
                raise RecordError(
                    f"{self.path} line {number} is damaged ({error}); restore the file from a copy or start a new run."
                ) from error
            good += len(line)
        if self.path.exists() and self.path.stat().st_size > good:
            self._set_aside(good)
        return keys

    def _set_aside(self, good: int) -> None:
        with told(f"Cannot repair {self.path}"), self.path.open("r+b") as file:
            file.seek(good)
            torn = os.open(self.path.with_suffix(".torn"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, PRIVATE_FILE)
            try:
                write_all(torn, file.read() + b"\n")
            finally:
                os.close(torn)
            file.truncate(good)
            os.fsync(file.fileno())

    def __contains__(self, key: str) -> bool:
        return key in self._keys

    def append(self, items: Iterable[tuple[str, Struct]]) -> None:
        """Write the items whose keys are new, as one durable block, in order."""
        fresh = [(key, record) for key, record in items if key not in self._keys]
        if not fresh:
            return
        end = os.fstat(self._descriptor).st_size
        try:
            with told(f"Cannot append to {self.path}"):
                write_all(self._descriptor, b"".join(_line(key, record) for key, record in fresh))
        except RecordError:
            os.ftruncate(self._descriptor, end)
            raise
        self._keys.update(key for key, _ in fresh)

    def close(self) -> None:
        """Let go of the file; nothing is left to write."""
        os.close(self._descriptor)
