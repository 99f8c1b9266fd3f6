"""One splitter for everything a run owes.

Items are cut into shards by content (`cut`): what shares much, such as the nested walks of one game and memory, stays
together. A `Dispatch` hands shards to workers and gives their results back in the order of the items, whichever worker
was first, so what is stored does not depend on how many there were. A worker is anything with `run`: this process,
another one, an actor of a cluster. A shard whose worker was lost is handed to the next; a worker that is gone for good
is left out, and only when none remains does the work end, with a sentence.
"""

import asyncio
import heapq
import pickle
import zlib
from bisect import insort
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Iterable, Sequence
from itertools import groupby
from typing import Any, Generic, Protocol, TypeVar

from dssr.errors import WorkerError
from dssr.types import Counts, WorkerStanding

T = TypeVar("T")
R = TypeVar("R")
C = TypeVar("C")
K = TypeVar("K")

AT_ONCE = 128
"""Items under way together in one worker: enough to fill any batch, few enough to keep in memory."""
TICK = 1.0
"""Seconds after which the driver says again where it stands, though nothing has come in."""
LOOK_AHEAD = 64
"""Shards among which a worker looks for one that shares something with its last."""

Work = Callable[[C, Sequence[T]], Awaitable[Sequence[R]]]
"""Does the items of one shard and gives a result for each, in order. What other processes shall do is a function of a
module, or a `partial` of one: it is sent by its name."""


class LostWorkerError(Exception):
    """A worker died under a shard; the next one may finish it."""


class Worker(Protocol):
    """Does shards, several at once."""

    @property
    def name(self) -> str:
        """As the table of workers shows it."""
        ...

    @property
    def gone(self) -> str | None:
        """Why it is of no use any more; None while it is."""
        ...

    @property
    def counts(self) -> Counts:
        """What its models were asked so far."""
        ...

    async def run(self, work: Work[Any, Any, Any], items: Sequence[Any]) -> Sequence[Any] | bytes:
        """Do one shard; results from elsewhere are still packed. Raises `LostWorkerError` where it should be tried
        again."""
        ...


class ThisProcess(Generic[C]):
    """The worker that is always there."""

    name = "this process"
    gone = None

    def __init__(self, bench: C, count: Callable[[], Counts] = Counts) -> None:
        self.bench = bench
        self._count = count

    @property
    def counts(self) -> Counts:
        """What the models here were asked so far."""
        return self._count()

    async def run(self, work: Work[C, T, R], items: Sequence[T]) -> Sequence[R]:
        """Do one shard here."""
        return await work(self.bench, items)


async def each(one: Callable[[C, T], Awaitable[R]], context: C, items: Sequence[T]) -> list[R]:
    """Work for items that share nothing but their shard: `partial(each, one)`."""
    tasks = [asyncio.ensure_future(one(context, item)) for item in items]
    try:
        return [await task for task in tasks]
    finally:
        await _cancel(tasks)


def cut(items: Iterable[T], group: Callable[[T], tuple[Hashable, ...]]) -> list[list[T]]:
    """Neighbours of one group as one shard, in order."""
    return [list(shard) for _, shard in groupby(items, key=group)]


def pack(results: Sequence[Any]) -> bytes:
    """Results as they travel and wait: they are mostly text, and take a seventh of the room that they did."""
    return zlib.compress(pickle.dumps(results, pickle.HIGHEST_PROTOCOL), level=1)


def unpack(results: bytes) -> Sequence[Any]:
    """What was packed."""
    found: Sequence[Any] = pickle.loads(zlib.decompress(results))
    return found


def finish(times: Iterable[float], workers: int) -> float:
    """When the last of so many workers is done, if shards of these times are handed out in order to whoever is free."""
    free = [0.0] * workers
    for time in times:
        heapq.heapreplace(free, free[0] + time)
    return max(free)


class Dispatch(Generic[T]):
    """Hands shards to workers: which wait, who has what, and what came back."""

    def __init__(
        self,
        workers: Sequence[Worker],
        shards: Sequence[Sequence[T]],
        near: Callable[[T], Hashable],
        at_once: int = AT_ONCE,
    ) -> None:
        """`near` is what the shards of one worker should have in common; `at_once` counts items in one worker."""
        self.shards, self.at_once = shards, at_once
        self._left_in = list(workers)
        self._near = [near(shard[0]) for shard in shards]
        self._waiting = list(range(len(shards)))
        self._left = sum(map(len, shards))
        """Items of the shards that wait."""
        self._load: dict[Worker, int] = dict.fromkeys(workers, 0)
        self._done: dict[Worker, int] = dict.fromkeys(workers, 0)
        self._last: dict[Worker, Hashable] = {}

    def standing(self) -> tuple[WorkerStanding, ...]:
        """Where every worker stands."""
        return tuple(
            WorkerStanding(worker.name, self._done[worker], load, worker.counts) for worker, load in self._load.items()
        )

    async def results(self, work: Work[Any, T, R]) -> AsyncIterator[Sequence[R]]:
        """The results of every shard, in order; an empty one now and then while nothing comes in."""
        running: dict[asyncio.Future[Sequence[R] | bytes], tuple[Worker, int]] = {}
        found: dict[int, Sequence[R] | bytes] = {}
        """Waiting for their turn."""
        given = 0
        try:
            while given < len(self.shards):
                while (pick := self._pick(sum(len(self.shards[place]) for place in found))) is not None:
                    worker, place = pick
                    running[asyncio.ensure_future(worker.run(work, self.shards[place]))] = pick
                ended, _ = await asyncio.wait(running, timeout=TICK, return_when=asyncio.FIRST_COMPLETED)
                if not ended:
                    yield ()
                failure: BaseException | None = None
                for task in sorted(ended, key=lambda task: running[task][1]):
                    worker, place = running.pop(task)
                    self._load[worker] -= len(self.shards[place])
                    error = task.exception()
                    if isinstance(error, LostWorkerError):
                        insort(self._waiting, place)
                        self._left += len(self.shards[place])
                    elif error is None:
                        self._done[worker] += len(self.shards[place])
                        found[place] = task.result()
                    else:
                        failure = failure or error
                while given in found:
                    results = found.pop(given)
                    yield unpack(results) if isinstance(results, bytes) else results
                    given += 1
                if failure is not None:
                    raise failure
        finally:
            await _cancel(list(running))

    def _pick(self, held: int) -> tuple[Worker, int] | None:
        """The next shard and its worker; None while all have enough. `held` counts items done before their turn."""
        usable = self._left_in = [worker for worker in self._left_in if worker.gone is None]
        if not usable:
            raise WorkerError(next(str(worker.gone) for worker in self._load))
        under_way = sum(self._load.values())
        if not self._waiting or (under_way and held > self.at_once + under_way):
            return None
        worker = min(usable, key=self._load.__getitem__)
        # Half of what is left is handed out and half kept back, so that all workers end at about the same time.
        share = self._left / len(usable) if len(usable) > 1 else self.at_once
        if self._load[worker] and self._load[worker] >= min(self.at_once, share):
            return None
        place = self._choose(worker)
        self._waiting.remove(place)
        self._left -= len(self.shards[place])
        self._load[worker] += len(self.shards[place])
        self._last[worker] = self._near[place]
        return worker, place

    def _choose(self, worker: Worker) -> int:
        """One near the worker's last, or one that is near nobody's; else the first."""
        ahead = self._waiting[:LOOK_AHEAD]
        taken = set(self._last.values())
        same = (place for place in ahead if self._near[place] == self._last.get(worker, self))
        fresh = (place for place in ahead if self._near[place] not in taken)
        return next(same, next(fresh, ahead[0]))


async def _cancel(tasks: Sequence["asyncio.Future[Any]"]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def once(known: dict[K, "asyncio.Future[T]"], key: K, work: Callable[[], Awaitable[T]]) -> T:
    """The result of `work` for this key, computed by whoever asks first and awaited by the rest."""
    if key not in known:
        known[key] = asyncio.ensure_future(work())
    return await asyncio.shield(known[key])
