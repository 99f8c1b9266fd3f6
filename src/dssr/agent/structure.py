"""Looks at every writer message before it is sent: the four fields, nothing else, no trace of the reader's layout.

The question is what the framework or a memory *adds*; a game or an earlier state may say anything, so text that
came from the view or the previous state never raises an alarm.
"""

from collections.abc import Callable, Sequence

from dssr.agent.layout import READER_MARKS
from dssr.errors import LeakError
from dssr.models.base import Choose, Chosen, Generate, Generated, Message, Model, Tokenizer
from dssr.types import View


def check_request(messages: Sequence[Message], view: View, previous: str) -> None:
    """For the built-in memories: the user message must be exactly the four fields of this view and state."""
    if [message.role for message in messages] != ["system", "user"]:
        raise LeakError("A writer's request must be one system and one user message; send nothing else to it.")
    _refuse_marks(messages[0].content, known="")
    rest = messages[1].content
    for part in (
        "Goal:\n", view.goal,
        "\n\nPrevious state:\n", previous or "(empty)",
        "\n\nLast action:\n", view.last_action or "(none)",
        "\n\nNew observation:\n", view.observation,
    ):  # fmt: skip
        if not rest.startswith(part):
            raise LeakError(f"A writer's message leaves its four fields at {rest[:40]!r}; build it from the view.")
        rest = rest[len(part) :]
    if rest:
        raise LeakError(f"A writer's message has {rest[:40]!r} after its last field; build it from the view.")


def check_free(messages: Sequence[Message], view: View, previous: str) -> None:
    """For a user's memory, whose messages are its own: no line of the reader's layout that it was not given."""
    known = "\n".join((view.goal, previous, view.last_action or "", view.observation))
    for message in messages:
        _refuse_marks(message.content, known)


def _refuse_marks(text: str, known: str) -> None:
    given = {line.strip() for line in known.splitlines()}
    for line in text.splitlines():
        if line.strip() in READER_MARKS and line.strip() not in given:
            raise LeakError(f"A writer's message has the line {line.strip()!r} of the reader's prompt; remove it.")


class Gate:
    """A model that shows every request's messages to `look` before it is sent."""

    def __init__(self, model: Model, look: Callable[[tuple[Message, ...]], None]) -> None:
        self._model = model
        self._look = look

    @property
    def name(self) -> str:
        return self._model.name

    @property
    def tokenizer(self) -> Tokenizer:
        return self._model.tokenizer

    @property
    def context_length(self) -> int:
        return self._model.context_length

    def fingerprint(self, adapter: str | None = None) -> str:
        return self._model.fingerprint(adapter)

    def prompt_tokens(self, messages: Sequence[Message]) -> int:
        return self._model.prompt_tokens(messages)

    async def generate(self, request: Generate) -> Generated:
        self._look(request.messages)
        return await self._model.generate(request)

    async def choose(self, request: Choose) -> Chosen:
        self._look(request.messages)
        return await self._model.choose(request)

    async def close(self) -> None:
        """The model belongs to the run, not to whoever holds the gate."""
