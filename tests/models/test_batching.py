"""Flush on idle: everybody who can ask has asked before the engine starts."""

import asyncio
import gc
import threading
import time
from typing import Any

import pytest

from dssr.errors import ModelError
from dssr.models.engine.batching import Batcher, RequestQueue

HANGS = 60.0
"""Seconds after which a thread that waits for another is stuck; nothing here takes a second."""


class Recorder:
    """An engine that doubles numbers and remembers its batches."""

    def __init__(self, pause: float = 0.0) -> None:
        self.batches: list[list[int]] = []
        self.pause = pause
        self.go_on = threading.Event()
        """A batch waits for it; cleared by tests in which the engine must still be at work."""
        self.go_on.set()
        self.waited_in_vain = False
        self.batcher: Batcher[int] = Batcher(self.run)

    def run(self, queue: RequestQueue[int]) -> None:
        requests = queue.take(100_000)
        self.batches.append([request.item for request in requests])
        time.sleep(self.pause)
        self.waited_in_vain |= not self.go_on.wait(HANGS)
        for request in requests:
            if request.item < 0:
                request.answer(ModelError("negative"))
            else:
                request.answer(2 * request.item)


async def chain(batcher: Batcher[int], number: int, length: int) -> int:
    """Asks again and again, with some turns of the loop in between, as an episode does."""
    for _ in range(length):
        await asyncio.sleep(0)
        number = await batcher.ask(number)
        await asyncio.sleep(0)
    return number


def test_all_coroutines_share_each_batch() -> None:
    """Catches a flush that does not wait for coroutines which can still go on: there would be many small batches."""
    engine = Recorder()

    async def main() -> list[int]:
        return await asyncio.gather(*(chain(engine.batcher, number, 5) for number in range(50)))

    assert asyncio.run(main()) == [32 * number for number in range(50)]
    assert [len(batch) for batch in engine.batches] == [50] * 5


def test_ten_thousand_wait_at_once() -> None:
    """Catches lost requests and quadratic bookkeeping: ten times the requests would cost a hundred times as much."""

    def cost(count: int) -> float:
        engine = Recorder()

        async def main() -> list[int]:
            return await asyncio.gather(*(chain(engine.batcher, number, 2) for number in range(count)))

        gc.collect()
        gc.disable()  # it walks all that waits, again and again: that would be its cost and not the batcher's
        try:
            begin = time.process_time()
            assert asyncio.run(main()) == [4 * number for number in range(count)]
            spent = time.process_time() - begin
        finally:
            gc.enable()
        assert sum(len(batch) for batch in engine.batches) == 2 * count
        return spent

    cost(100)
    few, many = (min(cost(count) for _ in range(3)) for count in (1_000, 10_000))
    assert many < 50 * few


def test_the_loop_stays_responsive_while_the_engine_works() -> None:
    """Catches an engine run in the loop's own thread: the loop could not tell it to go on."""
    engine = Recorder()
    engine.go_on.clear()

    async def main() -> int:
        asked = asyncio.ensure_future(engine.batcher.ask(1))
        while not engine.batches:
            await asyncio.sleep(0.01)
        assert not asked.done()
        engine.go_on.set()
        answer: int = await asked
        return answer

    assert asyncio.run(main()) == 2
    assert not engine.waited_in_vain


def test_requests_that_come_while_the_engine_works_are_run_next() -> None:
    """Catches a lost wake-up between the worker's last look and its stop."""
    engine = Recorder(pause=0.001)

    async def late(number: int) -> int:
        await asyncio.sleep(0.0005 * (number % 7))
        return await chain(engine.batcher, number, 3)

    async def main() -> list[int]:
        return await asyncio.wait_for(asyncio.gather(*(late(number) for number in range(200))), HANGS)

    assert asyncio.run(main()) == [8 * number for number in range(200)]


def test_one_failure_is_its_own() -> None:
    """Catches an error that spreads to batch mates."""
    engine = Recorder()

    async def main() -> list[Any]:
        return list(
            await asyncio.gather(*(engine.batcher.ask(number) for number in (1, -1, 2)), return_exceptions=True)
        )

    one, failed, two = asyncio.run(main())
    assert (one, two) == (2, 4)
    assert isinstance(failed, ModelError)


def test_an_engine_that_breaks_fails_everybody_and_recovers() -> None:
    """Catches coroutines left waiting for ever, taken requests too, when the engine raises."""
    broken = threading.Event()
    broken.set()

    def run(queue: RequestQueue[int]) -> None:
        requests = queue.take(2)
        if broken.is_set():
            raise MemoryError("no room")
        for request in requests:
            request.answer(request.item)

    batcher: Batcher[int] = Batcher(run)

    async def main() -> list[Any]:
        answers = asyncio.gather(*(batcher.ask(number) for number in range(5)), return_exceptions=True)
        return list(await asyncio.wait_for(answers, HANGS))

    assert all(isinstance(answer, ModelError) and "no room" in str(answer) for answer in asyncio.run(main()))
    broken.clear()
    assert asyncio.run(main()) == [0, 1, 2, 3, 4]


def test_it_outlives_event_loops_and_their_cancelled_tasks() -> None:
    """Catches state bound to one loop: a cancelled or abandoned run must not block the next `asyncio.run`."""
    engine = Recorder()
    engine.go_on.clear()

    async def give_up() -> None:
        asked = asyncio.ensure_future(engine.batcher.ask(1))
        while not engine.batches:
            await asyncio.sleep(0.01)
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked

    async def abandon() -> None:
        asyncio.ensure_future(engine.batcher.ask(2)).cancel()

    async def again() -> int:
        result: int = await asyncio.wait_for(engine.batcher.ask(21), HANGS)
        return result

    asyncio.run(give_up())
    asyncio.run(abandon())
    engine.go_on.set()
    assert asyncio.run(again()) == 42


def test_a_closed_model_says_so() -> None:
    """Catches a request that waits for ever on a model that was closed."""
    engine = Recorder()
    engine.batcher.close()
    with pytest.raises(ModelError, match="closed"):
        asyncio.run(engine.batcher.ask(1))
