"""What a model is to the rest of the system: two questions, a tokenizer, and a fingerprint.

A call is a pure function of (fingerprint, request). Nothing else may change its answer: not the
batch it ran in, not the order, not what ran before.
"""

from collections.abc import Sequence
from typing import Protocol

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
