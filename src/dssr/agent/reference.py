"""Contexts that nobody writes: the whole history, and as much of its end as fits."""

from collections.abc import Callable

from dssr.agent.base import Reference
from dssr.agent.oracle import OracleB
from dssr.errors import ConfigError
from dssr.games.history import render_history
from dssr.models.base import Tokenizer
from dssr.types import Privileged, Step

FULL = "full"


class Full:
    """The whole rendered history, without a budget."""

    def render(self, history: tuple[Step, ...], last_action: str | None, privileged: Privileged) -> str:
        return render_history(history, last_action)


class LastK:
    """The most recent steps that fit whole, then the last action."""

    def __init__(self, budget: int, tokenizer: Tokenizer) -> None:
        self.budget = budget
        self.tokenizer = tokenizer

    def render(self, history: tuple[Step, ...], last_action: str | None, privileged: Privileged) -> str:
        shown = render_history((), last_action)
        for count in range(1, len(history) + 1):
            longer = render_history(history[-count:], last_action)
            if len(self.tokenizer.encode(longer)) > self.budget:
                break
            shown = longer
        return shown


_BUDGETED: dict[str, Callable[[int, Tokenizer], Reference]] = {"lastk": LastK, "oracle-b": OracleB}


def is_reference(name: str) -> bool:
    return name == FULL or name in _BUDGETED


def load_reference(name: str, budget: int | None, tokenizer: Tokenizer) -> Reference:
    """The reference context of this name; only `full` has no budget."""
    if name == FULL:
        return Full()
    if budget is None:
        raise ConfigError(f"The memory {name} needs a budget; only full goes without.")
    return _BUDGETED[name](budget, tokenizer)
