"""Which recipe directives a state holds, when one was lost, and how much of a state is commands.

A directive is held when a state ties its verb to its ingredient: `dice and roast the carrot`, `carrot: dice,
roast`, `the carrot needs to be diced`. A past form alone (`the diced carrot`) reports what was done and holds
nothing, unless its line speaks of a need. Ingredients must be named in full; a plural counts.
"""

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

from dssr.types import Step
from dssr.worlds.cooking.facts import COOKS, DONE, TOOLS, Directive, directives

ING = {
    "slice": "slicing",
    "chop": "chopping",
    "dice": "dicing",
    "fry": "frying",
    "roast": "roasting",
    "grill": "grilling",
}
PLAIN = {form: verb for verb in DONE for form in (verb, ING[verb])}
PAST = {form: verb for verb, form in DONE.items()}
NEED = re.compile(r"\b(needs?|needed|must|should|requires?|required|wants?|recipe|directions?|to be|to do|still)\b")
CHOPS = re.compile(r"\b(pork|lamb|veal) chops?\b")
"""Foods named after a verb: in them the word is no verb."""
LINK = r"(?:\s*(?:,|/|&|\+|;|\band\b|\bthen\b|\bor\b))*\s*"
ARTICLES = r"\s+(?:(?:the|a|an|some|your|all|up)\s+)*"
OPENERS = r"\s*(?:[:=(>→-]|\s|\b(?:is|are|needs?|must|should|to|be|requires?|has|have|still|then)\b)*\s*"
ENTRY = re.compile(r"[\s*•-]*(?:the\s+)?@\s*:([^:]*)")
"""A line about one ingredient; up to the next colon everything in it is said of that one."""
CLAUSE = re.compile(r"[\n.!?\[\]]")


def directives_shown(steps: Sequence[Step], reveal: int) -> tuple[Directive, ...]:
    """The directives of the recipe as the log shows it, at the step that revealed it."""
    return directives(steps[reveal].observation)


def holds(state: str, directive: Directive) -> bool:
    """Whether the state ties the directive's verb to its ingredient."""
    name = re.compile(rf"\b{re.escape(directive.ingredient.lower())}s?\b")
    for clause in CLAUSE.split(state.lower()):
        if not name.search(clause):
            continue
        marked = CHOPS.sub("other", name.sub("@", clause))
        forms = PLAIN | PAST if NEED.search(clause) else PLAIN
        if any(directive.verb in verbs for verbs in _tied(marked, forms)):
            return True
    return False


def _tied(clause: str, forms: dict[str, str]) -> Iterable[set[str]]:
    """The verbs of each group that stands directly before or after the ingredient, written `@`, or in its entry."""
    group = _group(tuple(forms))
    for pattern in (rf"\b({group}){ARTICLES}@", rf"@{OPENERS}({group})(?!{ARTICLES}\w)"):
        for match in re.finditer(pattern, clause):
            yield {forms[word] for word in re.findall(r"\w+", match[1]) if word in forms}
    entry = ENTRY.match(clause)
    if entry:
        yield {forms[word] for word in re.findall(r"\b(\w+)\b(?!\s+(?:the|an?|some)\b)", entry[1]) if word in forms}


@lru_cache(maxsize=8)
def _group(forms: tuple[str, ...]) -> str:
    verb = rf"\b(?:{'|'.join(forms)})\b"
    return rf"{verb}(?:{LINK}{verb})*"


def coverage(state: str, wanted: Sequence[Directive]) -> float | None:
    """Share of the directives the state holds; None for a recipe without any."""
    return sum(holds(state, one) for one in wanted) / len(wanted) if wanted else None


def survival(steps: Sequence[Step], reveal: int) -> list[dict[str, Any]]:
    """For each directive and step from the reveal on: is it in the state, and has it been carried out?

    `lost` marks the rewrite that dropped a directive still to do.
    """
    rows: list[dict[str, Any]] = []
    for directive in directives_shown(steps, reveal):
        before, done = False, False
        for step in steps[reveal:]:
            if step.decision is None and step.kind == "act":
                break
            done = done or carries_out(step.action, directive)
            present = holds(step.write.state, directive)
            rows.append(
                {
                    "directive": f"{directive.verb} the {directive.ingredient}",
                    "step": step.index,
                    "present": present,
                    "done": done,
                    "lost": before and not present and not done,
                }
            )
            before = present
    return rows


def carries_out(action: str | None, directive: Directive) -> bool:
    """Whether a command is the one that fulfils the directive."""
    verb = "cook" if directive.verb in COOKS else directive.verb
    return action == f"{verb} {directive.ingredient} with {TOOLS[directive.verb]}"


def command_fraction(state: str, commands: Iterable[str]) -> float:
    """Share of the state's words that stand inside an admissible command written out in it."""
    words = re.findall(r"\w+", state.lower())
    inside = [False] * len(words)
    for command in commands:
        phrase = re.findall(r"\w+", command.lower())
        for start in range(len(words) - len(phrase) + 1):
            if phrase and words[start : start + len(phrase)] == phrase:
                inside[start : start + len(phrase)] = [True] * len(phrase)
    return sum(inside) / len(words) if words else 0.0


def holds_command(state: str, commands: Iterable[str]) -> bool:
    """Whether the state contains an admissible command word for word."""
    return command_fraction(state, commands) > 0
