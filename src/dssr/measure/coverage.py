"""Which of the facts worth following a state holds, when one was lost, and how much of a state is actions."""

import re
from collections.abc import Iterable, Sequence

from dssr.types import Record, Step
from dssr.worlds.base import KeyFact


class FactMark(Record, frozen=True):
    """One fact at one step of an episode."""

    fact: str
    step: int
    present: bool
    """The state of the step holds it."""
    done: bool
    """It has been carried out."""
    lost: bool
    """The state before held it, this one does not, and it is still to be done."""


def coverage(state: str, wanted: Sequence[KeyFact]) -> float | None:
    """Share of the facts that the state holds; None where there are none."""
    return sum(fact.held_in(state) for fact in wanted) / len(wanted) if wanted else None


def survival(facts: Sequence[KeyFact], steps: Sequence[Step], reveal: int) -> list[FactMark]:
    """For each fact and step from the reveal on: is it in the state, and has it been carried out?"""
    marks: list[FactMark] = []
    for fact in facts:
        before, done = False, False
        for step in steps[reveal:]:
            if step.decision is None and step.kind == "act":
                break
            done = done or fact.done_by(step.action)
            present = fact.held_in(step.write.state)
            marks.append(FactMark(fact.text, step.index, present, done, before and not present and not done))
            before = present
    return marks


def action_fraction(state: str, actions: Iterable[str]) -> float:
    """Share of the state's words that stand inside one of the actions written out in it."""
    words = re.findall(r"\w+", state.lower())
    inside = [False] * len(words)
    for action in actions:
        phrase = re.findall(r"\w+", action.lower())
        for start in range(len(words) - len(phrase) + 1):
            if phrase and words[start : start + len(phrase)] == phrase:
                inside[start : start + len(phrase)] = [True] * len(phrase)
    return sum(inside) / len(words) if words else 0.0


def holds_action(state: str, actions: Iterable[str]) -> bool:
    """Whether the state contains one of the actions word for word."""
    return action_fraction(state, actions) > 0
