"""The raw history as text: one renderer for every reader, count and removal."""

from collections.abc import Iterable
from typing import Protocol


class Happened(Protocol):
    """A step as far as history shows it."""

    @property
    def action(self) -> str | None: ...

    @property
    def observation(self) -> str: ...


def render_history(steps: Iterable[Happened], last_action: str | None) -> str:
    """Blocks of `> action` and observation, a blank line between; the last action, if any, closes the text.

    The observation that followed the last action is not part of it: the reader is shown that one apart.
    """
    blocks = [step.observation if step.action is None else f"> {step.action}\n{step.observation}" for step in steps]
    if last_action is not None:
        blocks.append(f"> {last_action}")
    return "\n\n".join(blocks)
