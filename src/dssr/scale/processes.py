"""Worker processes on this machine: how many, and how each is started, fed, replaced and ended.

A worker opens what it was told to, then does shards, several at once, until told to end. Driver and worker speak
through the worker's standard input and output, in pickles with their length before them: both ends are this package,
one started by the other. An error that has a sentence crosses as it is; any other is a fault of the program and crosses
as a sentence that names it.
"""

import asyncio
import os
import pickle
import signal
import struct
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from dssr.config import Config
from dssr.errors import DssrError, UsageError, WorkerError
from dssr.models.load import weights_folder
from dssr.scale.shards import LostWorkerError, Work, pack
from dssr.types import Counts

# ---------------------------------------------------------------- in the worker

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

    async def run(self, work: Work[Any, Any, Any], items: Sequence[Any]) -> bytes:
        """Do one shard; its results, packed for whoever is told them."""
        assert self.opened is not None, "work comes after what it needs is open"
        try:
            return pack(await work(self.opened.bench, items))
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


# ---------------------------------------------------------------- in the driver

MAIN = "from dssr.scale.processes import serve; serve()"
ONE_THREAD = dict.fromkeys(
    ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "TOKENIZERS_PARALLELISM"), "1"
)
"""Cores are used by having one process for each; threads of several processes would only get in each other's way."""
MOST_DEATHS = 4
"""Times in a row that a worker may die without having finished a shard."""
PATIENCE = 20.0
"""Seconds that a worker has to close what it holds before it is killed."""


class ProcessWorker:
    """A worker in a process of its own, started when first needed and again when it dies."""

    def __init__(self, number: int, opener: Opener) -> None:
        self.name = f"process {number}"
        self.gone: str | None = None
        self.counts = Counts()
        self.opener = opener
        self._process: asyncio.subprocess.Process | None = None
        self._starting = asyncio.Lock()
        self._reading: asyncio.Task[None] | None = None
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._number = 0
        self._deaths = 0
        self._before = Counts()
        """Counted by processes that died."""

    @property
    def pid(self) -> int | None:
        """Of the process that runs now."""
        return None if self._process is None else self._process.pid

    async def run(self, work: Work[Any, Any, Any], items: Sequence[Any]) -> bytes:
        """Do one shard there."""
        async with self._starting:
            if self._process is None:
                await self._start()
        results: bytes = await self._ask("work", (work, items))
        self._deaths = 0
        return results

    async def close(self) -> None:
        """End the process; what it has not finished is dropped."""
        process, self._process = self._process, None
        if process is None:
            return
        if self._reading is not None:
            self._reading.cancel()
        assert process.stdin is not None
        process.stdin.close()
        try:
            await asyncio.wait_for(process.wait(), PATIENCE)
        except asyncio.TimeoutError:
            process.kill()
            await process.wait()

    async def _start(self) -> None:
        if self.gone is not None:
            raise LostWorkerError
        errors = tempfile.TemporaryFile()  # noqa: SIM115 — closed when the process has ended
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", MAIN),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
            env={**os.environ, **ONE_THREAD, "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)},
            limit=2**20,
        )
        self._reading = asyncio.ensure_future(self._read(self._process, errors))
        await self._ask("open", self.opener)

    async def _ask(self, name: str, content: Any) -> Any:
        process = self._process
        if process is None:
            raise LostWorkerError
        self._number += 1
        number, answer = self._number, asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        assert process.stdin is not None
        try:
            process.stdin.write(packed((name, number, content)))
            await process.stdin.drain()
            return await answer
        except (BrokenPipeError, ConnectionResetError):
            raise LostWorkerError from None
        finally:
            self._waiting.pop(number, None)

    async def _read(self, process: asyncio.subprocess.Process, errors: Any) -> None:
        """Hand out what the process says, until it ends."""
        assert process.stdout is not None
        try:
            while (message := await receive(process.stdout)) is not None:
                name, number, content = message
                answer = self._waiting.get(number)
                if name == "counts":
                    self.counts = self._before + content
                elif answer is None or answer.done():
                    continue  # whoever asked has given up
                elif name == "error":
                    answer.set_exception(content)
                else:
                    result, counted = content
                    self.counts = self._before + counted
                    answer.set_result(result)
            await process.wait()
            self._died(process.returncode or 0, _last_line(errors))
        finally:
            errors.close()

    def _died(self, code: int, said: str) -> None:
        self._process, self._before = None, self.counts
        self._deaths += 1
        if self._deaths >= MOST_DEATHS:
            how = f"signal {-code}, as when memory runs out" if code < 0 else f"exit code {code}"
            self.gone = (
                f"A worker died {self._deaths} times in a row ({how}){said}; what was finished is stored: continue "
                "with --resume, and with fewer --workers if memory is short."
            )
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(LostWorkerError())


def _last_line(errors: Any) -> str:
    """What a process said last, for the sentence about its end."""
    errors.seek(0)
    lines = errors.read()[-2000:].decode(errors="replace").strip().splitlines()
    return f", saying {lines[-1]!r}" if lines else ""


# ---------------------------------------------------------------- how many

LEAST_SHARDS = 4
"""For each worker, where the number is left to us: a process for less costs more than it saves."""


def cores() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def free_memory() -> int | None:
    """Bytes that new processes can have; None where the system does not say."""
    try:
        facts = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
        return int(facts["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return None


def count_of(asked: int | None, shards: int, each: int) -> int:
    """How many processes of `each` bytes to use for so many shards: as many as asked for, or as it is worth here."""
    free = free_memory()
    fit = max(1, free // each) if free is not None else 1 << 16
    if asked is None:
        return max(1, min(cores(), fit, shards // LEAST_SHARDS))
    if asked > fit:
        raise UsageError(
            f"{asked} workers of about {each / 2**30:.1f} GiB do not fit into the memory that is free; {fit} do: use "
            f"--workers {fit}."
        )
    return min(asked, max(shards, 1))


def processes_for(config: Config, asked: int | None, shards: int) -> int:
    """How many processes do so many shards. Where a server or a GPU computes, one is enough to keep it busy."""
    if asked is None and (known := os.environ.get("DSSR_WORKERS", "")).isdigit():
        asked = int(known)
    models = (config.writer_model, config.reads_with)
    if any(model.backend == "vllm" for model in models):
        if asked is not None and asked > 1:
            raise UsageError(
                f"{asked} workers would each load an engine onto the same GPU; use one, or --ray for more."
            )
        return 1
    elsewhere = any(model.backend == "server" for model in models)
    return 1 if asked is None and elsewhere else count_of(asked, shards, worker_bytes(config))


BARE, COMPUTING = 2**29, 2**30
"""Bytes that a worker takes with its game, and what a model adds that is computed there, besides its weights."""


def worker_bytes(config: Config) -> int:
    """About what one worker process needs."""
    computed = {one.path for one in (config.writer_model, config.reads_with) if one.backend == "hf"}
    files = [file for path in computed for file in Path(weights_folder(path)).glob("*.safetensors")]
    return BARE + len(computed) * COMPUTING + 2 * sum(file.stat().st_size for file in files)
