"""The fixed words of cooking games: what the rules name, and the shape of what TextWorld prints."""

import re
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
