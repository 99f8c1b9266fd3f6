"""Phase A of a cooking game: explore the house, read the cookbook, and walk.

`explore` goes depth-first through the rooms and learns the map from the room headers alone. `phase_a` adds the reveal
and the filler walk; which of the two comes first, and what the walk shows, is the protocol's.
"""

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from dssr.errors import GameError
from dssr.seeds import rng_of
from dssr.types import Kind, Protocol
from dssr.worlds.base import Node, WalkStep, World
from dssr.worlds.cooking.recipe import COOKBOOK, KITCHEN, OPPOSITE, brief, is_opening, room_header

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
    """Header of the room where it began and ended."""


# ---------------------------------------------------------------- exploring


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


# ---------------------------------------------------------------- the steps of Phase A


def phase_a(world: World, explored: Explored, protocol: Protocol, filler: int) -> tuple[WalkStep, ...]:
    """All steps of Phase A, step 0 included."""
    moves: list[tuple[Kind, Walked]] = [("explore", walked) for walked in explored.steps]
    walker = Walker(world, explored, moves)
    if protocol in ("pre", "brief"):
        walker.walk(filler)
        walker.reveal()
    else:
        walker.reveal()
        walker.walk(filler)
    return as_steps(world.start(), moves, short=protocol in ("brief", "post-brief"))


class Walker:
    """Moves on the explored map, adding to a list of moves."""

    def __init__(self, world: World, explored: Explored, moves: list[tuple[Kind, Walked]]) -> None:
        self.world = world
        self.rooms = explored.rooms
        self.moves = moves
        self.node = explored.steps[-1].node if explored.steps else world.start()
        self.room = explored.home

    def go(self, kind: Kind, direction: str) -> None:
        """One move to a neighbouring room."""
        self.room = self.rooms[self.room][direction]
        self.play(kind, f"go {direction}")

    def play(self, kind: Kind, action: str) -> None:
        """Any other action, in the same room."""
        self.node = self.world.step(self.node, action)
        self.moves.append((kind, Walked(action, self.node, self.room)))

    def reveal(self) -> None:
        """Goes to the kitchen by the shortest way, which counts as exploring, and reads the cookbook."""
        # Rooms of the map have the names of their headers, which begin with a capital.
        for direction in shortest_route(self.rooms, self.room, KITCHEN.title()):
            self.go("explore", direction)
        self.play("reveal", COOKBOOK)

    def walk(self, length: int) -> None:
        """A random walk seeded by the game alone: a longer one begins with the shorter one."""
        rng = rng_of("filler", self.world.game.id)
        for _ in range(length):
            exits = [direction for direction in OPPOSITE if direction in self.rooms[self.room]]
            if not exits:
                raise GameError(f"Game {self.world.game.id} has one room, so its filler walk must have length 0.")
            self.go("filler", rng.choice(exits))


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


def as_steps(start: Node, moves: list[tuple[Kind, Walked]], short: bool) -> tuple[WalkStep, ...]:
    """Numbers the room visits and shortens the walk's observations where the protocol says so."""
    steps = [WalkStep("start", None, start.moment.observation, 0, start)]
    for kind, walked in moves:
        full = walked.node.moment.observation
        visit = steps[-1].visit + walked.action.startswith("go ")
        steps.append(
            WalkStep(kind, walked.action, brief(full) if short and kind == "filler" else full, visit, walked.node)
        )
    return tuple(steps)
