"""Words of cooking games: what the rules name, the shape of what TextWorld prints, and the recipe with its directives.

A directive is held when a state ties its verb to its ingredient: `dice and roast the carrot`, `carrot: dice,
roast`, `the carrot needs to be diced`. A past form alone (`the diced carrot`) reports what was done and holds
nothing, unless its line speaks of a need. Ingredients must be named in full; a plural counts.
"""

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

# ---------------------------------------------------------------- the rules


class RecipeVerb(NamedTuple):
    """What a recipe can ask for."""

    done: str
    """The word, and the name of the fact, that says it was done."""
    doing: str
    tool: str
    """What it needs, by its name in the game."""
    command: str
    """How the command that does it begins."""


KNIFE = "knife"
VERBS = {
    "slice": RecipeVerb("sliced", "slicing", KNIFE, "slice"),
    "dice": RecipeVerb("diced", "dicing", KNIFE, "dice"),
    "chop": RecipeVerb("chopped", "chopping", KNIFE, "chop"),
    "fry": RecipeVerb("fried", "frying", "stove", "cook"),
    "roast": RecipeVerb("roasted", "roasting", "oven", "cook"),
    "grill": RecipeVerb("grilled", "grilling", "BBQ", "cook"),
}
CUTS = tuple(verb for verb, row in VERBS.items() if row.tool == KNIFE)
COOKS = tuple(verb for verb, row in VERBS.items() if row.tool != KNIFE)

OPPOSITE = {"north": "south", "south": "north", "east": "west", "west": "east"}
"""In the order in which exits are listed and tried."""
DIRECTIONS = tuple(OPPOSITE)
CLOCKWISE = ("north", "east", "south", "west")

KITCHEN = "kitchen"
"""Where the cookbook lies and the meal is prepared."""
COOKBOOK = "examine cookbook"
"""The command that shows the recipe."""


def is_opening(command: str, doors: bool) -> bool:
    """Whether a command opens a door, or, without `doors`, a container; every door's name ends in `door`."""
    return command.startswith("open ") and command.endswith(" door") == doors


# ---------------------------------------------------------------- printed text

STATUS = re.compile(r"\n>[ ]*(-= [^\n]+? =--?\d+/\d+)?\s*\Z")
"""The prompt and, on its line, the status bar: room, score and turn count."""
HEADER = re.compile(r"^-= (.+?) =-$", re.MULTILINE)


def clean(feedback: str, goal: str) -> str:
    """Feedback without banner, prompt line, status line and outer blank lines; otherwise untouched."""
    text = STATUS.sub("", feedback)
    banner, found, rest = text.partition(goal)
    if found and "$$" in banner:
        text = goal + rest
    return text.strip()


def with_inventory(text: str, inventory: str) -> str:
    """An observation: cleaned feedback, then what the player carries."""
    return f"{text}\n\n{inventory.strip()}" if text else inventory.strip()


def room_header(observation: str) -> str | None:
    """The room named by a `-= Room =-` line, or None when the text has no such line."""
    found = HEADER.search(observation)
    return found.group(1) if found else None


def brief(observation: str) -> str:
    """A walking step without the room's contents: its header and the inventory sentence."""
    found = HEADER.search(observation)
    inventory = observation.rpartition("\n\n")[2]
    return f"{found.group(0)}\n\n{inventory}" if found else observation


# ---------------------------------------------------------------- what a recipe says


class Directive(NamedTuple):
    """One thing the recipe asks for."""

    verb: str
    ingredient: str

    @property
    def text(self) -> str:
        """As the recipe says it."""
        return f"{self.verb} the {self.ingredient}"

    def held_in(self, state: str) -> bool:
        """Whether the state ties the verb to the ingredient."""
        return any(self.verb in verbs for verbs in self._verbs_in(state))

    def altered_in(self, state: str, told: Iterable[object]) -> bool:
        """Whether the state ties a verb to the ingredient that the recipe does not ask for."""
        asked = {one.verb for one in told if isinstance(one, Directive) and one.ingredient == self.ingredient}
        return any(verbs - asked for verbs in self._verbs_in(state))

    def _verbs_in(self, state: str) -> Iterable[set[str]]:
        """The verbs that the state ties to the ingredient, group by group."""
        name = re.compile(rf"\b{re.escape(self.ingredient.lower())}s?\b")
        for clause in CLAUSE.split(state.lower()):
            if name.search(clause):
                marked = CHOPS.sub("other", name.sub("@", clause))
                yield from _tied(marked, PLAIN | PAST if NEED.search(clause) else PLAIN)

    def done_by(self, action: str | None) -> bool:
        """Whether a command is the one that fulfils it."""
        row = VERBS[self.verb]
        return action == f"{row.command} {self.ingredient} with {row.tool}"


def directives(recipe: str) -> tuple[Directive, ...]:
    """The verb and ingredient pairs of a recipe, in its order."""
    found = []
    for line in section(recipe, "Directions:"):
        verb, the, ingredient = line.partition(" the ")
        if the and verb in VERBS:
            found.append(Directive(verb, ingredient))
    return tuple(found)


def ingredients(recipe: str) -> tuple[str, ...]:
    """The ingredients of a recipe, in its order."""
    return tuple(section(recipe, "Ingredients:"))


def tools(recipe: str) -> tuple[str, ...]:
    """The tools and appliances a recipe needs, in the order of first need."""
    return tuple(dict.fromkeys(VERBS[directive.verb].tool for directive in directives(recipe)))


def telling_lines(recipe: str) -> list[str]:
    """The lines that differ from game to game: ingredients and directions, not the headings."""
    foods = ingredients(recipe)
    return [line for line in recipe.splitlines() if any(food in line for food in foods)]


def section(recipe: str, title: str) -> list[str]:
    """The lines between a title and the next blank line."""
    _, _, rest = recipe.partition(title)
    return [line.strip() for line in rest.strip().split("\n\n")[0].splitlines()]


# ---------------------------------------------------------------- what a state ties together

PLAIN = {form: verb for verb, row in VERBS.items() for form in (verb, row.doing)}
PAST = {row.done: verb for verb, row in VERBS.items()}
NEED = re.compile(r"\b(needs?|needed|must|should|requires?|required|wants?|recipe|directions?|to be|to do|still)\b")
CHOPS = re.compile(r"\b(pork|lamb|veal) chops?\b")
"""Foods named after a verb: in them the word is no verb."""
LINK = r"(?:\s*(?:,|/|&|\+|;|\band\b|\bthen\b|\bor\b))*\s*"
ARTICLES = r"\s+(?:(?:the|a|an|some|your|all|up)\s+)*"
OPENERS = r"\s*(?:[:=(>→-]|\s|\b(?:is|are|needs?|must|should|to|be|requires?|has|have|still|then)\b)*\s*"
ENTRY = re.compile(r"[\s*•-]*(?:the\s+)?@\s*:([^:]*)")
"""A line about one ingredient; up to the next colon everything in it is said of that one."""
CLAUSE = re.compile(r"[\n.!?\[\]]")


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
