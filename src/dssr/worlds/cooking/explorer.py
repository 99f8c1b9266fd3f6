"""The scripted explorer: depth-first over the rooms, learning the map from the room headers alone."""

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from dssr.errors import GameError
from dssr.worlds.base import Node, World
from dssr.worlds.cooking.text import room_header
from dssr.worlds.cooking.words import OPPOSITE, is_opening

Map = dict[str, dict[str, str]]
"""Room to direction to room, all by header name."""


class Walked(NamedTuple):
    """An action of the explorer and the position it led to."""

    action: str
    node: Node
    room: str
    """By its header."""


class Explored(NamedTuple):
    """A finished exploration; it ends where it began."""

    steps: tuple[Walked, ...]
    rooms: Map
    home: str


def explore(world: World) -> Explored:
    """Visits every room, opens every container and door, and returns to the first room."""
    start = world.start()
    home = header_of(start)
    rooms: Map = {home: {}}
    steps = tuple(visit(world, start, home, rooms))
    return Explored(steps=steps, rooms=rooms, home=home)


def visit(world: World, node: Node, room: str, rooms: Map) -> Iterator[Walked]:
    """First visit of a room: open what opens, then follow and backtrack every exit not yet known."""
    for doors in (False, True):
        for command in [name for name in node.moment.admissible if is_opening(name, doors)]:
            node = world.step(node, command)
            yield Walked(command, node, room)
    for direction in OPPOSITE:
        if f"go {direction}" not in node.moment.admissible or direction in rooms[room]:
            continue
        node = world.step(node, f"go {direction}")
        there = header_of(node)
        yield Walked(f"go {direction}", node, there)
        new = there not in rooms
        rooms[room][direction] = there
        rooms.setdefault(there, {})[OPPOSITE[direction]] = room
        if new:
            for walked in visit(world, node, there, rooms):
                node = walked.node
                yield walked
        node = world.step(node, f"go {OPPOSITE[direction]}")
        yield Walked(f"go {OPPOSITE[direction]}", node, room)


def header_of(node: Node) -> str:
    """The room a position shows."""
    room = room_header(node.moment.observation)
    if room is None:
        raise GameError(f"No room header after {node.actions[-1:]}: the explorer cannot tell where it is.")
    return room


def shortest_route(rooms: Map, start: str, goal: str) -> tuple[str, ...]:
    """Directions from one room to another on the learned map; among equals, the first in exit order."""
    routes: dict[str, tuple[str, ...]] = {start: ()}
    waiting = deque([start])
    while waiting:
        room = waiting.popleft()
        if room == goal:
            return routes[room]
        for direction in OPPOSITE:
            there = rooms[room].get(direction)
            if there is not None and there not in routes:
                routes[there] = (*routes[room], direction)
                waiting.append(there)
    raise GameError(f"The explored map has no way from {start} to {goal}.")
