"""The budget: whatever a memory replies becomes a state of at most B tokens, and the log says what was done."""

import unicodedata

from dssr.agent.prompts import WRITER_FIELDS
from dssr.errors import BudgetError
from dssr.models.base import Tokenizer
from dssr.types import Write


def enforce(reply: str, budget: int, tokenizer: Tokenizer) -> Write:
    """The state that `reply` stands for. Enforcing a state a second time leaves it as it is."""
    if budget < 1:
        raise BudgetError(f"A budget of {budget} tokens leaves no room for a state; use at least 1.")
    text, notes = _clean(reply)
    ids = tokenizer.encode(text)
    state = text if len(ids) <= budget else _cut(ids, budget, tokenizer)
    return Write(
        state=state,
        tokens=len(tokenizer.encode(state)),
        raw_tokens=len(ids),
        truncated=len(ids) > budget,
        note="; ".join(notes) or None,
    )


def _cut(ids: list[int], budget: int, tokenizer: Tokenizer) -> str:
    """The longest beginning of `ids` whose decoded text takes at most `budget` tokens when encoded again."""
    for length in range(budget, 0, -1):
        text = _clean(tokenizer.decode(ids[:length]))[0]
        if len(tokenizer.encode(text)) <= budget:
            return text
    return ""


def _clean(reply: str) -> tuple[str, list[str]]:
    """Text that can be stored and shown everywhere, and what had to be changed for it."""
    notes: list[str] = []
    text = reply.replace("\r\n", "\n").replace("\r", "\n")
    if any(unicodedata.category(char) == "Cs" for char in text):
        text = "".join("\N{REPLACEMENT CHARACTER}" if unicodedata.category(char) == "Cs" else char for char in text)
        notes.append("broken Unicode replaced")
    kept = "".join(char for char in text if char in "\n\t" or unicodedata.category(char) != "Cc")
    if kept != text:
        notes.append("control characters removed")
    text = kept.strip()
    if not text:
        notes.append("empty reply")
    if sum(line.strip() in WRITER_FIELDS for line in text.split("\n")) > 1:
        notes.append("the reply repeats its prompt")
    return text, notes
