"""Reading privileged facts: what is still to be done, where things are, how rooms connect.

Everything here needs `Privileged` input; nothing of it may reach a writer or a reader, except through
`oracle-b`.
"""

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from dssr.types import Fact
from dssr.worlds.cooking.recipe import Directive, directives
from dssr.worlds.cooking.words import DIRECTIONS, VERBS

PLAYER = "P"
INVENTORY = "I"
MEAL = "meal"


class Exit(NamedTuple):
    """A way out of a room."""

    direction: str
    room: str
    door: str | None
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
    facts = tuple(facts)
    names = rooms(facts)
    place: str | None = thing
    while place is not None and place not in names:
        place = holder(facts, PLAYER if place == INVENTORY else place)
    return place


def is_carried(facts: Iterable[Fact], thing: str) -> bool:
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
