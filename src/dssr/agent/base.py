"""What a memory is. Implement `write` and you have one.

A memory receives a `View` and its own previous state, nothing else: no options, no reference action, no
facts. The framework enforces the budget on whatever comes back.
"""

from typing import Protocol

from dssr.models.base import Model, Tokenizer
from dssr.types import Privileged, Record, Step, View


class Kit(Record, frozen=True):
    """What a memory is built from: `Class(kit)`."""

    budget: int
    """Tokens a state may have, by `tokenizer`."""
    tokenizer: Tokenizer
    """The reader's: the one that counts."""
    model: Model
    """The writer's model; a memory without a model ignores it."""
    adapter: str | None
    temperature: float
    seed: int


class Memory(Protocol):
    """Only the returned text crosses from one step to the next."""

    async def write(self, view: View, previous: str) -> str:
        """The new state, from this step's view and the previous state (empty at step 0)."""
        ...


class Reference(Protocol):
    """A context computed from the record instead of written: `full`, `lastk`, `oracle-b`. Built in only."""

    def render(self, history: tuple[Step, ...], last_action: str | None, privileged: Privileged) -> str:
        """The reader's context at the step that follows `history`."""
        ...
