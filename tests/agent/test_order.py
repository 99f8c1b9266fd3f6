"""The one runner of many pieces of work."""

import asyncio
from functools import partial

import pytest

from dssr.agent.episode import in_order


def test_results_come_in_the_order_of_the_work() -> None:
    """Later work that finishes first waits its turn, and never more than the limit runs at once."""
    running = peak = 0

    async def one(number: int) -> int:
        nonlocal running, peak
        running += 1
        peak = max(peak, running)
        await asyncio.sleep(0.002 * (5 - number % 5))
        running -= 1
        return number

    async def collect() -> list[int]:
        return [found async for found in in_order((partial(one, number) for number in range(12)), 4)]

    assert asyncio.run(collect()) == list(range(12))
    assert 1 < peak <= 4


def test_a_failure_ends_what_is_under_way() -> None:
    """Catches work that goes on in the background after an error, and results before the failed piece held back."""
    ended: list[int] = []
    seen: list[int] = []

    async def one(number: int, failed: asyncio.Event) -> int:
        if number == 1:
            raise ValueError("broken")
        if number > 1:
            await failed.wait()
        ended.append(number)
        return number

    async def collect() -> None:
        failed = asyncio.Event()
        try:
            async for found in in_order((partial(one, number, failed) for number in range(4)), 3):
                seen.append(found)  # noqa: PERF401 — what came before the failure is the point
        finally:
            failed.set()
            for _ in range(5):  # whatever still runs could end now
                await asyncio.sleep(0)

    with pytest.raises(ValueError, match="broken"):
        asyncio.run(collect())
    assert (seen, ended) == ([0], [0])
