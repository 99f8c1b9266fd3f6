"""Collects requests and runs them together.

An engine that works in batches is started when no coroutine can go on: then everybody who will ask has asked.
It runs in its own thread, so the event loop stays responsive, and may take newcomers while it works. Engines
that batch by themselves need none of this.
"""

import asyncio
import ctypes
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Generic, TypeVar

from dssr.errors import ModelError

Item = TypeVar("Item")
Result = TypeVar("Result")

QUIET_PASSES = 8
"""Rounds of the event loop without a new request after which it counts as idle; a coroutine that can go on
asks again within fewer."""


class ResultSender:
    """Carries answers from the engine's thread to one event loop, many in one go."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._lock = threading.Lock()
        self._answers: list[tuple[asyncio.Future[Any], object]] = []

    def put(self, future: "asyncio.Future[Any]", answer: object) -> None:
        """Sends one answer on its way; from the engine's thread."""
        with self._lock:
            self._answers.append((future, answer))
            first = len(self._answers) == 1
        if first:
            with suppress(RuntimeError):  # the loop was closed: nobody waits any more
                self.loop.call_soon_threadsafe(self._hand_out)

    def _hand_out(self) -> None:
        with self._lock:
            answers, self._answers = self._answers, []
        for future, answer in answers:
            if future.done():
                continue
            if isinstance(answer, Exception):
                future.set_exception(answer)
            else:
                future.set_result(answer)


class PendingRequest(Generic[Item]):
    """One request that waits for its answer."""

    __slots__ = ("_sender", "answered", "future", "item")

    def __init__(self, item: Item, sender: ResultSender) -> None:
        self.item = item
        self.future: asyncio.Future[Any] = sender.loop.create_future()
        self.answered = False
        self._sender = sender

    def answer(self, result: object) -> None:
        """A result, or the error to raise."""
        self.answered = True
        self._sender.put(self.future, result)


class RequestQueue(Generic[Item]):
    """Requests not yet taken by the engine. Safe to use from both threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: deque[PendingRequest[Item]] = deque()
        self._taken: list[PendingRequest[Item]] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, request: PendingRequest[Item]) -> None:
        """Adds a request at the end."""
        with self._lock:
            self._waiting.append(request)

    def take(self, most: int) -> list[PendingRequest[Item]]:
        """Up to `most` requests, oldest first, without those that nobody waits for."""
        taken: list[PendingRequest[Item]] = []
        with self._lock:
            while self._waiting and len(taken) < most:
                request = self._waiting.popleft()
                if not request.future.cancelled():
                    taken.append(request)
            if taken:
                self._taken = [request for request in self._taken if not request.answered] + taken
        return taken

    def fail_all(self, error: Exception) -> None:
        """Answers everything that waits, taken or not, with the error."""
        self.take(len(self._waiting))
        for request in self._taken:
            if not request.answered:
                request.answer(error)


class Batcher(Generic[Item]):
    """Hands waiting requests to `run` whenever the loop is idle and the engine is free.

    `run(queue)` takes requests and answers each; what it leaves in the queue starts another run.
    """

    def __init__(self, run: Callable[[RequestQueue[Item]], None]) -> None:
        self._run = run
        self._queue: RequestQueue[Item] = RequestQueue()
        self._sender: ResultSender | None = None
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="dssr-engine")
        self._lock = threading.Lock()
        self._running = False
        self._closed = False
        self._asked = 0
        self._watched: asyncio.AbstractEventLoop | None = None
        """The loop whose idleness is awaited."""

    async def ask(self, item: Item) -> Any:
        """The answer to one request."""
        if self._closed:
            raise ModelError("The model was closed; load it again.")
        loop = asyncio.get_running_loop()
        if self._sender is None or self._sender.loop is not loop:
            self._sender = ResultSender(loop)
        request = PendingRequest(item, self._sender)
        self._queue.put(request)
        self._asked += 1
        self._watch(loop)
        return await request.future

    def call(self, function: Callable[[], Result]) -> Result:
        """Runs a function in the engine's thread and waits for it."""
        return self._worker.submit(function).result()

    def close(self) -> None:
        """Fails what still waits and ends the engine's thread."""
        self._closed = True
        self._queue.fail_all(ModelError("The model was closed while requests were waiting; load it again."))
        self._worker.shutdown(wait=True)

    def _watch(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._watched is not loop:
            self._watched = loop
            loop.call_soon(self._look, loop, self._asked, 0)

    def _look(self, loop: asyncio.AbstractEventLoop, asked: int, quiet: int) -> None:
        quiet = quiet + 1 if asked == self._asked else 0
        if quiet < QUIET_PASSES:
            loop.call_soon(self._look, loop, self._asked, quiet)
            return
        self._watched = None
        with self._lock:
            if self._running or self._closed:
                return  # the end of the run watches again
            self._running = True
        self._worker.submit(self._work)

    def _work(self) -> None:
        try:
            self._run(self._queue)
        except Exception as error:  # the engine's own trouble belongs to everybody who waits for it
            self._queue.fail_all(ModelError(f"The engine stopped with {type(error).__name__}: {error}."))
        with self._lock:
            self._running = False
        sender = self._sender
        if sender is not None and len(self._queue):
            # Not at once: those just answered may ask again first.
            with suppress(RuntimeError):
                sender.loop.call_soon_threadsafe(self._watch, sender.loop)


def give_back() -> None:
    """Hands freed memory back to the system, where the C library knows how.

    It keeps what is freed, for each thread apart, and every model has a thread of its own: a study that opens one
    model after the other would grow by gigabytes.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
