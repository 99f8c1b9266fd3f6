"""All prompt texts: the files they come from, how prompts are put together, and what a writer may be sent.

`load_prompts` reads the files in `texts/`, or a user's own in their place. `writer_messages`, `reader_messages` and
`render_history` lay prompts out; nothing else in the system does. `check_request` and `check_free` look at a writer's
messages before they are sent. The question there is what the framework or a memory *adds*: a game or an earlier state
may say anything, so text that came from the view or the previous state never raises an alarm.

`Reader` asks the reader's prompt: a distribution over the options shown, from goal, context and observation alone.
"""

import random
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Protocol

from dssr.config import PROMPTED
from dssr.errors import ConfigError, LeakError, ModelError
from dssr.models.base import (
    Choose,
    Chosen,
    Generate,
    Generated,
    Likelihood,
    Message,
    Model,
    Tokenizer,
    TokenScores,
    ask_likelihood,
)
from dssr.types import LABELS, Options, Record, View

# ---------------------------------------------------------------- files

SHIPPED = Path(__file__).parent / "texts"
RETENTION = PROMPTED
"""Each has a retention instruction of its own."""
LOGS = {"writer": "log-writer", "reader": "log-reader", "guide": "log-guide"}
"""Texts that speak of a game, and what stands in their place where a memory is rolled over a log."""
FILES = ("writer", "reader", *RETENTION, "edit", *LOGS.values(), "log-actor")


class Prompts(Record, frozen=True):
    """Texts by file name without `.txt`."""

    texts: dict[str, str]

    @property
    def reader(self) -> str:
        """The reader's system message."""
        return self.texts["reader"]

    @property
    def actor(self) -> str:
        """The system message of a reader that writes the next action instead of choosing it."""
        return self.texts["log-actor"]

    def for_logs(self) -> "Prompts":
        """The same with texts that fit any task, not games alone."""
        return Prompts(self.texts | {name: self.texts[log] for name, log in LOGS.items()})

    def writer(self, style: str, budget: int) -> str:
        """The writer's system message: the shared framing with one retention instruction and the budget."""
        framed = self.texts["writer"].replace("{retention}", self.texts[style])
        return framed.replace("{budget}", str(budget))


def load_prompts(folder: str | Path | None = None) -> Prompts:
    """The shipped prompts; a file of the same name in `folder` replaces one."""
    chosen = {name: SHIPPED / f"{name}.txt" for name in FILES}
    if folder is not None:
        own = {name: path for name in FILES if (path := Path(folder) / f"{name}.txt").is_file()}
        if not own:
            wanted = ", ".join(f"{name}.txt" for name in FILES)
            raise ConfigError(f"{folder} holds no prompt file; give a folder with at least one of {wanted}.")
        chosen |= own
    texts = {name: _read(path) for name, path in chosen.items()}
    for frame in ("writer", LOGS["writer"]):
        for gap in ("{retention}", "{budget}"):
            if gap not in texts[frame]:
                raise ConfigError(f"{chosen[frame]} lacks {gap}; put it where that text belongs.")
    return Prompts(texts)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read as UTF-8 text: {error}.") from error


# ---------------------------------------------------------------- layout

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
    system: str, goal: str, context: str, observation: str, actions: Sequence[str]
) -> tuple[Message, ...]:
    """The reader's request. The context stands early, so that prompts of one history share their beginning."""
    options = "\n".join(f"{label}. {action}" for label, action in zip(LABELS, actions, strict=False))
    parts = (
        f"Goal:\n{goal}",
        f"{CONTEXT_BEGIN}\n{context or EMPTY}\n{CONTEXT_END}",
        f"Current observation:\n{observation}",
        f"Options:\n{options}",
        "Action:",
    )
    return (Message("system", system), Message("user", "\n\n".join(parts)))


def actor_messages(system: str, goal: str, context: str, observation: str) -> tuple[Message, ...]:
    """The request of a reader that writes the next action: the same fields, without options."""
    parts = (
        f"Goal:\n{goal}",
        f"{CONTEXT_BEGIN}\n{context or EMPTY}\n{CONTEXT_END}",
        f"Current observation:\n{observation}",
        "Action:",
    )
    return (Message("system", system), Message("user", "\n\n".join(parts)))


class Happened(Protocol):
    """A step as far as history shows it."""

    @property
    def action(self) -> str | None:
        """What was played; None at step 0."""
        ...

    @property
    def observation(self) -> str:
        """What was shown after it."""
        ...


def render_history(steps: Iterable[Happened], last_action: str | None) -> str:
    """Blocks of `> action` and observation, a blank line between; the last action, if any, closes the text.

    The observation that followed the last action is not part of it: the reader is shown that one apart.
    """
    blocks = [step.observation if step.action is None else f"> {step.action}\n{step.observation}" for step in steps]
    if last_action is not None:
        blocks.append(f"> {last_action}")
    return "\n\n".join(blocks)


# ---------------------------------------------------------------- what a writer may be sent


def check_request(messages: Sequence[Message], view: View, previous: str) -> None:
    """For the built-in memories: the user message must be exactly the four fields of this view and state."""
    if [message.role for message in messages] != ["system", "user"]:
        raise LeakError("A writer's request must be one system and one user message; send nothing else to it.")
    _refuse_marks(messages[0].content, known="")
    rest = messages[1].content
    # Written out instead of taken from the layout: a change there that adds anything must not pass unseen.
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


class WatchedModel:
    """A model that shows every request's messages to `look` before it is sent."""

    def __init__(self, model: Model, look: Callable[[tuple[Message, ...]], None]) -> None:
        self.model = model
        self._look = look

    @property
    def name(self) -> str:
        """The watched model's."""
        return self.model.name

    @property
    def tokenizer(self) -> Tokenizer:
        """The watched model's."""
        return self.model.tokenizer

    @property
    def context_length(self) -> int:
        """The watched model's."""
        return self.model.context_length

    def fingerprint(self, adapter: str | None = None) -> str:
        """The watched model's: looking changes no answer."""
        return self.model.fingerprint(adapter)

    def prompt_tokens(self, messages: Sequence[Message]) -> int:
        """By the watched model."""
        return self.model.prompt_tokens(messages)

    async def generate(self, request: Generate) -> Generated:
        """Show the messages, then send them."""
        self._look(request.messages)
        return await self.model.generate(request)

    async def choose(self, request: Choose) -> Chosen:
        """Show the messages, then send them."""
        self._look(request.messages)
        return await self.model.choose(request)

    async def likelihood(self, request: Likelihood) -> TokenScores:
        """Show the messages, then send them."""
        self._look(request.messages)
        return await ask_likelihood(self.model, request)

    async def close(self) -> None:
        """Nothing: the model belongs to the run, not to the memory that is watched."""


# ---------------------------------------------------------------- the reader


class Reader:
    """A model with one adapter and one instruction."""

    def __init__(self, model: Model, adapter: str | None = None, instruction: str | None = None) -> None:
        self.model = model
        self.adapter = adapter
        self.instruction = load_prompts().reader if instruction is None else instruction

    @property
    def tokenizer(self) -> Tokenizer:
        """Its own; budgets are counted with the agent's, which may be another reader's."""
        return self.model.tokenizer

    def fingerprint(self) -> str:
        """Of the model with the reader's adapter; the instruction is not part of it."""
        return self.model.fingerprint(self.adapter)

    def messages(self, goal: str, context: str, observation: str, actions: Sequence[str]) -> tuple[Message, ...]:
        """The prompt for one decision."""
        return reader_messages(self.instruction, goal, context, observation, actions)

    async def score(self, goal: str, context: str, observation: str, actions: Sequence[str]) -> tuple[float, ...]:
        """Log-probability of each action, renormalised over these."""
        labels = LABELS[: len(actions)]
        messages = self.messages(goal, context, observation, actions)
        logprobs = (await self.model.choose(Choose(messages, labels, self.adapter))).logprobs
        if len(logprobs) != len(labels):
            raise ModelError(f"The reader scored {len(logprobs)} of {len(labels)} options; its backend must score all.")
        return logprobs

    async def nll(self, goal: str, context: str, observation: str, options: Options) -> float:
        """Decision loss of one context: -log p(a*)."""
        return nll_of(await self.score(goal, context, observation, options.actions), options)


def nll_of(logprobs: Sequence[float], options: Options) -> float:
    """Decision loss of a distribution over the options: -log p(a*)."""
    # A sure reader has log-probability 0, whose negation would be stored as -0.0.
    return 0.0 - logprobs[options.actions.index(options.reference)]


def most_likely(logprobs: Sequence[float], actions: Sequence[str]) -> str:
    """The argmax; among equals the first shown."""
    return actions[max(range(len(actions)), key=lambda place: logprobs[place])]


def explore(actions: Sequence[str], best: str, epsilon: float, rng: random.Random) -> str:
    """Epsilon-greedy: `best`, or with chance `epsilon` any action."""
    return rng.choice(actions) if rng.random() < epsilon else best
