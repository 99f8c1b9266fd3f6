"""What privileged facts say: what is still to be done, where things are, how rooms connect.

Everything here needs `Privileged` input; nothing of it may reach a writer or a reader, except through `oracle-b`, the
context that an all-knowing writer would keep: `oracle_lines` computes its lines anew at each step.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from dssr.types import Fact, Privileged
from dssr.worlds.cooking.recipe import CUTS, DIRECTIONS, KITCHEN, VERBS, Directive, directives, ingredients, is_opening

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
