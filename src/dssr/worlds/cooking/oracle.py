"""`oracle-b`: what an all-knowing writer would keep, recomputed at each step from the true facts.

Lines stand in order of priority and are kept or dropped whole. If the long form does not fit the budget,
the names of containers and supporters go first. No line begins with a name: many tokenizers cut a word without
a space before it into other tokens, and the reader would meet one food under two spellings.
"""

from collections.abc import Sequence

from dssr.types import Fact, Privileged
from dssr.worlds.cooking.facts import (
    INVENTORY,
    MEAL,
    exits,
    holder,
    is_carried,
    player_room,
    remaining,
    room_of,
    route,
)
from dssr.worlds.cooking.recipe import ingredients
from dssr.worlds.cooking.words import CUTS, KITCHEN, VERBS, is_opening

FORM_WORDS = frozenset(("room", "in", "on", "carried", "way", "to", "open", "meal", "eat"))
"""Words that come from the form of the lines, not from the facts."""
OPENING = "The "
"""What stands before the name of a thing."""


def oracle_lines(privileged: Privileged, long: bool) -> list[str]:
    """All lines, the most important first."""
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
