"""The one splitter: order, limits, failures, lost workers."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Sequence
from functools import partial
from typing import Any

import pytest

from dssr.errors import WorkerError
from dssr.scale.shards import Dispatch, LostWorkerError, ThisProcess, Work, cut, each, finish
from dssr.types import Counts


def near(item: int) -> Hashable:
    return item // 4


async def collect(
    workers: Sequence[Any], one: Callable[[Any, int], Awaitable[int]], shards: Sequence[list[int]], at_once: int = 4
) -> list[int]:
    results = Dispatch(workers, shards, near, at_once).results(partial(each, one))
    return [found async for part in results for found in part]


def test_results_come_in_the_order_of_the_work() -> None:
    """Later work that finishes first waits its turn, and never more than the limit runs at once."""
    running = peak = 0

    async def one(_: None, number: int) -> int:
        nonlocal running, peak
        running += 1
        peak = max(peak, running)
        await asyncio.sleep(0.002 * (5 - number % 5))
        running -= 1
        return number

    assert asyncio.run(collect([ThisProcess(None)], one, [[number] for number in range(12)])) == list(range(12))
    assert 1 < peak <= 4


def test_a_failure_ends_what_is_under_way() -> None:
    """Catches work that goes on in the background after an error, and results before the failed piece held back."""
    ended: list[int] = []
    seen: list[int] = []

    async def one(failed: asyncio.Event, number: int) -> int:
        if number == 1:
            raise ValueError("broken")
        if number > 1:
            await failed.wait()
        ended.append(number)
        return number

    async def go() -> None:
        failed = asyncio.Event()
        try:
            shards = [[number] for number in range(4)]
            async for found in Dispatch([ThisProcess(failed)], shards, near, 3).results(partial(each, one)):
                seen.extend(found)
        finally:
            failed.set()
            for _ in range(5):  # whatever still runs could end now
                await asyncio.sleep(0)

    with pytest.raises(ValueError, match="broken"):
        asyncio.run(go())
    assert (seen, ended) == ([0], [0])


def test_neighbours_of_one_group_stay_together() -> None:
    """Catches nested walks torn apart, and a group that is gathered from afar and so stored out of order."""
    assert cut([10, 11, 20, 12, 13], lambda item: (item // 10,)) == [[10, 11], [20], [12, 13]]


class Failing:
    """A worker that is lost at some of its shards, and gone after enough of them."""

    def __init__(self, name: str, losses: int, most: int) -> None:
        self.name, self.losses, self.most = name, losses, most
        self.gone: str | None = None
        self.counts = Counts()
        self.did: list[Sequence[int]] = []

    async def run(self, work: Work[Any, int, int], items: Sequence[int]) -> Sequence[int]:
        await asyncio.sleep(0)
        if self.losses:
            self.losses -= 1
            self.most -= 1
            self.gone = None if self.most > 0 else f"{self.name} died too often."
            raise LostWorkerError
        self.did.append(items)
        return await work(None, items)


async def same(_: None, number: int) -> int:
    await asyncio.sleep(0)
    return number


def test_a_lost_shard_is_done_by_whoever_is_left() -> None:
    """Catches a shard that is lost or done twice with its worker, and one dead worker that ends the whole work."""
    lame, dead = Failing("lame", losses=3, most=9), Failing("dead", losses=99, most=2)
    shards = [[2 * number, 2 * number + 1] for number in range(20)]
    assert asyncio.run(collect([lame, dead], same, shards)) == list(range(40))
    assert sorted(map(tuple, lame.did)) == [tuple(shard) for shard in shards]
    assert dead.gone


def test_work_ends_with_a_sentence_when_no_worker_is_left() -> None:
    """Catches a driver that waits for ever for workers that are all gone."""
    with pytest.raises(WorkerError, match=r"first died too often\."):
        asyncio.run(collect([Failing("first", 99, 2), Failing("second", 99, 3)], same, [[1], [2], [3]]))


def test_the_time_of_many_workers_is_that_of_the_last() -> None:
    """Catches a plan that divides the time by the workers, though one shard is longer than that."""
    assert finish([3, 1, 1, 1], 1) == 6
    assert finish([3, 1, 1, 1], 2) == 3
    assert finish([1, 1, 1, 3], 2) == 4
    assert finish([1, 1, 1, 3], 64) == 3


def test_workers_share_evenly_and_keep_to_their_game() -> None:
    """Catches one worker that is given everything, and shards of one game scattered while others wait untouched."""
    workers = [Failing("a", 0, 1), Failing("b", 0, 1)]
    shards = [[number] for number in range(32)]
    assert asyncio.run(collect(workers, same, shards)) == list(range(32))
    assert min(len(worker.did) for worker in workers) >= 12
    games = [{near(item) for (item,) in worker.did} for worker in workers]
    assert len(games[0] & games[1]) <= 2
