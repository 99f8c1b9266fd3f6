"""How the two prompts look. Nothing else in the system puts prompt text together."""

from collections.abc import Sequence

from dssr.models.base import Message
from dssr.types import LABELS, View

EMPTY = "(empty)"
NONE = "(none)"
CONTEXT_BEGIN = "<CONTEXT>"
CONTEXT_END = "</CONTEXT>"
READER_MARKS = (CONTEXT_BEGIN, CONTEXT_END, "Current observation:", "Options:", "Action:")
"""Lines that only a reader's prompt has."""
WRITER_FIELDS = ("Goal:", "Previous state:", "Last action:", "New observation:")


def writer_messages(system: str, view: View, previous: str) -> tuple[Message, ...]:
    """The writer's request: the four fields, in order."""
    values = (view.goal, previous or EMPTY, view.last_action or NONE, view.observation)
    fields = [f"{label}\n{value}" for label, value in zip(WRITER_FIELDS, values, strict=True)]
    return (Message("system", system), Message("user", "\n\n".join(fields)))


def reader_messages(
    system: str, goal: str, context: str, observation: str, commands: Sequence[str]
) -> tuple[Message, ...]:
    """The reader's request. The context stands early, so that prompts of one history share their beginning."""
    options = "\n".join(f"{label}. {command}" for label, command in zip(LABELS, commands, strict=False))
    parts = (
        f"Goal:\n{goal}",
        f"{CONTEXT_BEGIN}\n{context or EMPTY}\n{CONTEXT_END}",
        f"Current observation:\n{observation}",
        f"Options:\n{options}",
        "Action:",
    )
    return (Message("system", system), Message("user", "\n\n".join(parts)))
