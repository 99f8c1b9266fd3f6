"""The words that the rules of the game fix: verbs of recipes with their forms and tools, and directions."""

from typing import NamedTuple


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
