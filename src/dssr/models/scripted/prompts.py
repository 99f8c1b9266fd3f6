"""Takes the fields out of the two prompts. The layout is the agent's; only its literals are known here."""

import re
from typing import NamedTuple

from dssr.errors import ModelError
from dssr.models.base import Message
from dssr.models.scripted.formats import Format
from dssr.types import View

_BUDGET = re.compile(r"(\d+) tokens")
_OPTION = re.compile(r"^([A-Za-z])\. (.+)$", re.M)
_WRITER = re.compile(
    r"\AGoal:\n(?P<goal>.*?)\n\nPrevious state:\n(?P<previous>.*)"
    r"\n\nLast action:\n(?P<action>[^\n]*)\n\nNew observation:\n(?P<observation>.*)\Z",
    re.S,
)
_READER = re.compile(
    r"\AGoal:\n(?P<goal>.*?)\n\n<CONTEXT>\n(?P<context>.*)\n</CONTEXT>"
    r"\n\nCurrent observation:\n(?P<observation>.*)\n\nOptions:\n(?P<options>.*)\n\nAction:\Z",
    re.S,
)


class Question(NamedTuple):
    """A reader's prompt."""

    goal: str
    context: str
    observation: str
    commands: dict[str, str]
    """Label to command."""


class Order(NamedTuple):
    """A writer's prompt."""

    style: Format
    budget: int | None
    """None when the system message names no number of tokens."""
    previous: str
    view: View


def order_of(messages: tuple[Message, ...]) -> Order:
    """What a writer's messages ask for."""
    match = _WRITER.match(_user(messages))
    if match is None:
        raise ModelError(
            "The scripted model cannot read this writer's prompt; its user message must have the fields "
            "Goal, Previous state, Last action and New observation, in that order."
        )
    system = "\n".join(message.content for message in messages if message.role == "system")
    budget = _BUDGET.search(system)
    action = None if match["action"] == "(none)" else match["action"]
    view = View(match["goal"], action, match["observation"])
    previous = match["previous"]
    return Order(_style(system), int(budget[1]) if budget else None, "" if previous == "(empty)" else previous, view)


def question_of(messages: tuple[Message, ...]) -> Question:
    """What a reader's messages ask."""
    match = _READER.match(_user(messages))
    if match is None:
        raise ModelError(
            "The scripted model cannot read this reader's prompt; its user message must have the fields "
            "Goal, CONTEXT, Current observation, Options and Action, in that order."
        )
    context = match["context"]
    commands = {label: command.strip() for label, command in _OPTION.findall(match["options"])}
    return Question(match["goal"], "" if context == "(empty)" else context, match["observation"], commands)


def _user(messages: tuple[Message, ...]) -> str:
    return "\n".join(message.content for message in messages if message.role == "user")


def _style(system: str) -> Format:
    """Each retention instruction has words the others lack."""
    if "[certain]" in system:
        return "belief"
    if "Saved observations:" in system:
        return "slots"
    if "stove" in system and "oven" in system:
        return "guide"
    return "summary"
