"""What a model is to the rest of the system: two questions, a tokenizer, and a fingerprint.

A third question, the likelihood of a given reply, is for logged actions that are free text; a backend may leave it out.

A call is a pure function of (fingerprint, request). Nothing else may change its answer: not the
batch it ran in, not the order, not what ran before.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol, TypeVar, runtime_checkable

from dssr.errors import ModelError
from dssr.types import Record


class Message(Record, frozen=True):
    """One message of a chat: `system`, `user` or `assistant`, and what it says."""

    role: str
    content: str


class Generate(Record, frozen=True):
    """Write text. At temperature 0 the seed has no effect."""

    messages: tuple[Message, ...]
    max_tokens: int
    temperature: float
    seed: int
    adapter: str | None = None
    """Name under which the adapter was loaded; None for the base model."""


class Generated(Record, frozen=True):
    """What was written."""

    text: str
    tokens: int
    """Generated tokens, by the model's own tokenizer."""


class Choose(Record, frozen=True):
    """Pick one of the labels as the first token of the reply."""

    messages: tuple[Message, ...]
    labels: tuple[str, ...]
    adapter: str | None = None


class Chosen(Record, frozen=True):
    """The distribution over the labels."""

    logprobs: tuple[float, ...]
    """One per label, in order, renormalised over exactly these labels."""


class Likelihood(Record, frozen=True):
    """How likely is exactly this reply?"""

    messages: tuple[Message, ...]
    reply: str
    adapter: str | None = None


class TokenScores(Record, frozen=True):
    """The reply token by token, by the model's own tokenizer."""

    starts: tuple[int, ...]
    """Character of the reply at which each token begins."""
    logprobs: tuple[float, ...]
    """Of each token after the prompt and the tokens before it, over the whole vocabulary."""
    best: tuple[bool, ...]
    """Whether no other token was more likely there: all true means that greedy decoding writes this reply."""


MOST_CHARACTERS = 200_000
"""Of a reply that is counted: far more than any budget holds, and what tokenizers take without a panic."""


class Tokenizer(Protocol):
    """Counts and cuts text. `decode(encode(text))` need not be `text`; budgets allow for that."""

    @property
    def name(self) -> str:
        """Of the model it belongs to, for records."""
        ...

    def encode(self, text: str) -> list[int]:
        """Token ids of plain text: no special tokens are added or recognised."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """Text of the ids, special tokens left out."""
        ...


class Model(Protocol):
    """A backend. Errors are raised as `ModelError`, with the request's trouble in one sentence."""

    @property
    def name(self) -> str:
        """As the configuration calls it, for records and messages."""
        ...

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's own."""
        ...

    @property
    def context_length(self) -> int:
        """Most tokens a prompt and its reply may take together."""
        ...

    def fingerprint(self, adapter: str | None = None) -> str:
        """Digest of weights, adapter, chat template and numerics."""
        ...

    def prompt_tokens(self, messages: Sequence[Message]) -> int:
        """Length of the prompt under the chat template."""
        ...

    async def generate(self, request: Generate) -> Generated:
        """Write a reply of at most `max_tokens`."""
        ...

    async def choose(self, request: Choose) -> Chosen:
        """Score every label as the first token of the reply."""
        ...

    async def close(self) -> None:
        """Give back what the model holds; no call may follow."""
        ...


@runtime_checkable
class LikelihoodModel(Protocol):
    """A backend that answers the third question too."""

    async def likelihood(self, request: Likelihood) -> TokenScores:
        """Score a given reply token by token."""
        ...


async def ask_likelihood(model: Model, request: Likelihood) -> TokenScores:
    """The model's answer, or the sentence that it has none."""
    if not isinstance(model, LikelihoodModel):
        raise ModelError(
            f"{model.name} cannot score a given text; use the hf or vllm backend, or choices among options."
        )
    return await model.likelihood(request)


# ---------------------------------------------------------------- clients bound to a loop

T = TypeVar("T")


class Background:
    """An event loop in a thread of its own, for clients that are bound to the loop they were made on.

    Callers come and go with loops of their own (`asyncio.run` makes one each time); the client stays. A cancelled
    caller cancels its own work there and nothing else.
    """

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
