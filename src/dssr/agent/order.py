"""Many pieces of work at once, their results in order: what a log needs to come out the same every time."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import TypeVar

T = TypeVar("T")

AT_ONCE = 128
"""Episodes under way together: enough to fill any batch, few enough to keep in memory."""


async def in_order(work: Iterable[Callable[[], Awaitable[T]]], limit: int = AT_ONCE) -> AsyncIterator[T]:
    """Results in the order of the work, at most `limit` pieces under way."""
    waiting: deque[asyncio.Future[T]] = deque()
    try:
        for one in work:
            waiting.append(asyncio.ensure_future(one()))
            if len(waiting) >= limit:
                yield await waiting.popleft()
        while waiting:
            yield await waiting.popleft()
    finally:
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
