"""Worker processes on this machine: how many, and how each is started, fed, replaced and ended."""

import asyncio
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dssr.config import Config, ModelConfig
from dssr.errors import UsageError
from dssr.models.load import weights_folder
from dssr.scale.shards import LostWorkerError, Work
from dssr.scale.worker import Opener, packed, receive
from dssr.types import Counts

MAIN = "from dssr.scale.worker import serve; serve()"
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

    async def run(self, work: Work[Any, Any, Any], items: Sequence[Any]) -> Sequence[Any]:
        """Do one shard there."""
        async with self._starting:
            if self._process is None:
                await self._start()
        results: Sequence[Any] = await self._ask("work", (work, items))
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
    elsewhere = any(model.backend == "server" or on_gpu(model) for model in models)
    return 1 if asked is None and elsewhere else count_of(asked, shards, worker_bytes(config))


BARE, COMPUTING = 2**29, 2**30
"""Bytes that a worker takes with its game, and what a model adds that is computed there, besides its weights."""


def worker_bytes(config: Config) -> int:
    """About what one worker process needs."""
    computed = {one.path for one in (config.writer_model, config.reads_with) if one.backend == "hf"}
    files = [file for path in computed for file in Path(weights_folder(path)).glob("*.safetensors")]
    return BARE + len(computed) * COMPUTING + 2 * sum(file.stat().st_size for file in files)


def on_gpu(model: ModelConfig) -> bool:
    """Whether a model is computed on a GPU."""
    torch = sys.modules.get("torch")  # loaded, if a model of this kind is
    if model.backend == "vllm":
        return True
    return model.backend == "hf" and model.device != "cpu" and torch is not None and torch.cuda.is_available()
