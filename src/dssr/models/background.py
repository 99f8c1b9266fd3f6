"""An event loop in a thread of its own, for clients that are bound to the loop they were made on.

Callers come and go with loops of their own (`asyncio.run` makes one each time); the client stays.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from dssr.errors import ModelError

T = TypeVar("T")


class Background:
    """Runs coroutines elsewhere; a cancelled caller cancels its own work there and nothing else."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._stopped = False
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Run to the end, blocking the calling thread."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def run(self, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run what `make` gives on the thread, awaited from any event loop."""
        if self._stopped:
            raise ModelError(f"{self._name} was closed; load the model again.")
        try:
            return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(make(), self._loop))
        except asyncio.CancelledError:
            if self._stopped:
                raise ModelError(f"{self._name} was closed before it answered.") from None
            raise

    def stop(self, last: Callable[[], Coroutine[Any, Any, None]] | None = None) -> None:
        """Run `last` and end the thread; whatever still runs there is cancelled, so that no caller waits for ever."""
        if not self._stopped:
            self._stopped = True
            self.wait(self._cancel_all())
            if last:
                self.wait(last())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()

    async def _cancel_all(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
