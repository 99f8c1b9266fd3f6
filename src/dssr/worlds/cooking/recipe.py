"""Words of cooking games: what the rules name, the shape of what TextWorld prints, and the recipe with its directives;
and what privileged facts say: what is still to be done of it, where things are, how rooms connect.

A directive is held when a state ties its verb to its ingredient: `dice and roast the carrot`, `carrot: dice,
roast`, `the carrot needs to be diced`. A past form alone (`the diced carrot`) reports what was done and holds
nothing, unless its line speaks of a need. Ingredients must be named in full; a plural counts.

Whatever needs `Privileged` input may not reach a writer or a reader, except through `oracle-b`, the context that an
all-knowing writer would keep: `oracle_lines` computes its lines anew at each step.
"""

import re
from collections import deque
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

from dssr.types import Fact, Privileged

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


# ---------------------------------------------------------------- privileged facts

PLAYER = "P"
INVENTORY = "I"
MEAL = "meal"


class Exit(NamedTuple):
    """A way out of a room."""

    direction: str
    room: str
    """Where it leads."""
    door: str | None
    """None when nothing bars the way."""
    closed: bool
    """The door stands closed."""


# ---------------------------------------------------------------- things


def states(facts: Iterable[Fact], thing: str) -> frozenset[str]:
    """Names of the facts about one thing alone: `raw`, `sliced`, `burned`, `open`, `cookable` …"""
    return frozenset(fact.name for fact in facts if fact.args == (thing,))


def is_done(facts: Iterable[Fact], directive: Directive) -> bool:
    """Whether the ingredient is in the state that the directive asks for."""
    return VERBS[directive.verb].done in states(facts, directive.ingredient)


def remaining(facts: Iterable[Fact], recipe: str) -> tuple[Directive, ...]:
    """The directives not yet carried out, in the recipe's order."""
    facts = tuple(facts)
    return tuple(directive for directive in directives(recipe) if not is_done(facts, directive))


def holder(facts: Iterable[Fact], thing: str) -> str | None:
    """What holds a thing: a container, a supporter, a room, or `INVENTORY`; None when it is used up."""
    for fact in facts:
        if fact.name in ("in", "on", "at") and len(fact.args) == 2 and fact.args[0] == thing:
            return fact.args[1]
    return None


def room_of(facts: Iterable[Fact], thing: str) -> str | None:
    """The room a thing is in, through whatever holds it; the player's own room for what is carried."""
    held = {fact.args[0]: fact.args[1] for fact in facts if fact.name in ("in", "on", "at") and len(fact.args) == 2}
    place = held.get(thing)
    while place in held or place == INVENTORY:
        place = held.get(PLAYER if place == INVENTORY else place)
    return place


def is_carried(facts: Iterable[Fact], thing: str) -> bool:
    """Whether the player holds it."""
    return holder(facts, thing) == INVENTORY


def player_room(facts: Iterable[Fact]) -> str:
    """Where the player stands."""
    return next(fact.args[1] for fact in facts if fact.name == "at" and fact.args[0] == PLAYER)


# ---------------------------------------------------------------- rooms


def rooms(facts: Iterable[Fact]) -> tuple[str, ...]:
    """All rooms, sorted."""
    found: set[str] = set()
    for fact in facts:
        if fact.name.endswith("_of") and fact.name[: -len("_of")] in DIRECTIONS:
            found.update(fact.args)
        elif fact.name == "at" and fact.args[0] == PLAYER:
            found.add(fact.args[1])
    return tuple(sorted(found))


def exits(facts: Iterable[Fact], room: str) -> tuple[Exit, ...]:
    """The ways out of a room, in the order north, south, east, west."""
    facts = tuple(facts)
    closed = {fact.args[0] for fact in facts if fact.name == "closed"}
    doors = {fact.args[2]: fact.args[1] for fact in facts if fact.name == "link" and fact.args[0] == room}
    found = []
    for direction in DIRECTIONS:
        for fact in facts:
            if fact.name == f"{direction}_of" and fact.args[1] == room:
                there = fact.args[0]
                door = doors.get(there)
                found.append(Exit(direction, there, door, door in closed))
    return tuple(found)


def route(facts: Iterable[Fact], start: str, goal: str) -> tuple[str, ...]:
    """Directions of a shortest way, closed doors included; empty when already there or out of reach."""
    facts = tuple(facts)
    routes: dict[str, tuple[str, ...]] = {start: ()}
    waiting = deque([start])
    while waiting and goal not in routes:
        room = waiting.popleft()
        for way in exits(facts, room):
            if way.room not in routes:
                routes[way.room] = (*routes[room], way.direction)
                waiting.append(way.room)
    return routes.get(goal, ())


# ---------------------------------------------------------------- oracle-b

FORM_WORDS = frozenset(("room", "in", "on", "carried", "way", "to", "open", "meal", "eat"))
"""Words that come from the form of the lines, not from the facts."""
OPENING = "The "
"""What stands before the name of a thing."""


def oracle_lines(privileged: Privileged, long: bool) -> list[str]:
    """All lines, the most important first; each is kept or dropped whole.

    The short form, for budgets that the long one does not fit, leaves out the names of containers and supporters. No
    line begins with a name: many tokenizers cut a word without a space before it into other tokens, and the reader
    would meet one food under two spellings.
    """
    facts = privileged.facts
    if holder(facts, MEAL) is not None:
        return [f"{OPENING}{MEAL}: carried; eat"]
    here = player_room(facts)
    things = core_things(privileged)
    lines = [f"Room: {here}"]
    for thing, verbs in things.items():
        todo = f"; {', '.join(verbs)}" if verbs else ""
        lines.append(f"{OPENING}{thing}: {_place(facts, thing, long)}{todo}")
    return lines + _ways(privileged, here, list(things))


def core_things(privileged: Privileged) -> dict[str, tuple[str, ...]]:
    """What still matters, with the verbs still to do: unfinished ingredients, then the knife, then appliances."""
    facts, recipe = privileged.facts, privileged.task
    left = remaining(facts, recipe)
    things = {one: tuple(todo.verb for todo in left if todo.ingredient == one) for one in ingredients(recipe)}
    things = {one: verbs for one, verbs in things.items() if verbs or not is_carried(facts, one)}
    tools = dict.fromkeys(VERBS[todo.verb].tool for todo in left if todo.verb in CUTS)
    tools |= dict.fromkeys(VERBS[todo.verb].tool for todo in left)
    return things | dict.fromkeys(tools, ())


def _place(facts: Sequence[Fact], thing: str, long: bool) -> str:
    held = next((fact for fact in facts if fact.name in ("in", "on") and fact.args[:1] == (thing,)), None)
    if held is not None and held.args[1] == INVENTORY:
        return "carried"
    room = room_of(facts, thing) or "gone"
    return f"{held.name} {held.args[1]}, {room}" if held is not None and long else room


def _ways(privileged: Privileged, here: str, things: Sequence[str]) -> list[str]:
    """The way to the room of the next reference step, then to every other room that is needed."""
    facts = privileged.facts
    first, moves = _next_room(privileged, here)
    ways = {first: moves}
    for room in [room_of(facts, thing) for thing in things] + [KITCHEN]:
        if room is not None and room not in ways:
            ways[room] = _moves(facts, here, room)
    return [f"Way to {room}: {', '.join(moves)}" for room, moves in ways.items() if moves]


def _next_room(privileged: Privileged, here: str) -> tuple[str, list[str]]:
    moves: list[str] = []
    for command in privileged.policy:
        if command.startswith("go "):
            direction = command.removeprefix("go ")
            here = next(way.room for way in exits(privileged.facts, here) if way.direction == direction)
            moves.append(direction)
        elif is_opening(command, doors=True):
            moves.append(command)
        else:
            break
    return here, moves


def _moves(facts: Sequence[Fact], here: str, room: str) -> list[str]:
    moves: list[str] = []
    for direction in route(facts, here, room):
        way = next(way for way in exits(facts, here) if way.direction == direction)
        moves += [f"open {way.door}", direction] if way.closed else [direction]
        here = way.room
    return moves
