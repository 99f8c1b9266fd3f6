"""A worker in a process of its own: opens what it was told to, then does shards, several at once, until told to end.

Driver and worker speak through the worker's standard input and output, in pickles with their length before them: both
ends are this package, one started by the other. An error that has a sentence crosses as it is; any other is a fault of
the program and crosses as a sentence that names it.
"""

import asyncio
import os
import pickle
import signal
import struct
import sys
from collections.abc import Sequence
from typing import Any, Protocol

from dssr.errors import DssrError, WorkerError
from dssr.scale.shards import Work
from dssr.types import Counts

LENGTH = struct.Struct("<Q")
BEAT = 1.0
"""Seconds between two words on what was counted so far."""


class Opened(Protocol):
    """What a worker holds open for its work."""

    @property
    def bench(self) -> Any:
        """What each piece of work gets."""
        ...

    def counts(self) -> Counts:
        """What its models were asked so far."""
        ...

    async def close(self) -> None:
        """Give everything back."""
        ...


class Opener(Protocol):
    """How a worker opens what it needs, from nothing but itself; it can be pickled."""

    def open(self) -> Opened:
        """Called once in each worker."""
        ...


class Host:
    """The worker's side, whoever carries the messages: open one thing at a time, do shards, tell errors."""

    def __init__(self) -> None:
        self.opened: Opened | None = None

    async def open(self, opening: Opener) -> None:
        """Open this in place of what was open before."""
        await self.close()
        try:
            self.opened = opening.open()
        except Exception as error:
            raise sentence(error) from None

    async def run(self, work: Work[Any, Any, Any], items: Sequence[Any]) -> Sequence[Any]:
        """Do one shard."""
        assert self.opened is not None, "work comes after what it needs is open"
        try:
            return await work(self.opened.bench, items)
        except Exception as error:
            raise sentence(error) from None

    def counts(self) -> Counts:
        """What was counted so far."""
        return Counts() if self.opened is None else self.opened.counts()

    async def close(self) -> None:
        """Give everything back."""
        opened, self.opened = self.opened, None
        if opened is not None:
            await opened.close()


def sentence(error: Exception) -> DssrError:
    """An error as the driver can tell it."""
    if isinstance(error, DssrError):
        return error
    return WorkerError(
        f"A worker failed with {type(error).__name__}: {str(error).rstrip('.')}; this is a fault of the program, which "
        "--workers 1 shows with its place."
    )


# ---------------------------------------------------------------- the process


def serve() -> None:
    """The main function of a worker process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the driver, which then ends its workers
    out = os.dup(1)
    os.dup2(2, 1)  # whatever a library prints must not get between the messages
    asyncio.run(_Server(out).serve())


class _Server:
    def __init__(self, out: int) -> None:
        self.out = out
        self.host = Host()
        self.tasks: set[asyncio.Task[None]] = set()

    async def serve(self) -> None:
        reader = asyncio.StreamReader(limit=2**20)
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        self._start(self._beat())
        while (message := await receive(reader)) is not None:
            name, number, content = message
            if name == "open":
                await self._answer(number, self.host.open(content))
            else:
                self._start(self._answer(number, self.host.run(*content)))
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        await self.host.close()

    def _start(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def _answer(self, number: int, work: Any) -> None:
        try:
            reply: tuple[str, int, Any] = ("done", number, (await work, self.host.counts()))
        except DssrError as error:
            reply = ("error", number, error)
        self._send(reply)

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(BEAT)
            self._send(("counts", 0, self.host.counts()))

    def _send(self, message: tuple[str, int, Any]) -> None:
        """Blocks until the driver has taken it; a driver that is gone ends this process."""
        rest = memoryview(packed(message))
        try:
            while rest:
                rest = rest[os.write(self.out, rest) :]
        except BrokenPipeError:
            os._exit(1)


def packed(message: tuple[str, int, Any]) -> bytes:
    """A message with its length before it."""
    body = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    return LENGTH.pack(len(body)) + body


async def receive(reader: asyncio.StreamReader) -> tuple[str, int, Any] | None:
    """The next message; None when the other side is gone."""
    try:
        (length,) = LENGTH.unpack(await reader.readexactly(LENGTH.size))
        message: tuple[str, int, Any] = pickle.loads(await reader.readexactly(length))
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    return message
