"""Phase A: explore, reveal the recipe, and walk; where the walk stands and what it shows is the protocol."""

from typing import NamedTuple, cast

from dssr.errors import GameError
from dssr.seeds import rng_of
from dssr.types import Kind, Protocol
from dssr.worlds.cooking.explorer import OPPOSITE, Explored, Walked, explore, shortest_route
from dssr.worlds.cooking.text import brief
from dssr.worlds.cooking.world import Node, World

KITCHEN = "Kitchen"
REVEAL = "examine cookbook"


class PhaseStep(NamedTuple):
    """One step of Phase A."""

    kind: Kind
    """`reveal` is the one step that shows the recipe; the way to the kitchen counts as `explore`."""
    command: str | None
    """None at step 0."""
    observation: str
    visit: int
    """Number of the room visit; consecutive steps in one room share it."""
    node: Node


def phase_a(world: World, protocol: Protocol, filler: int) -> tuple[PhaseStep, ...]:
    """All steps of Phase A, step 0 included; computed once per world, protocol and length of the walk."""
    found = world.once(("phase a", protocol, filler), lambda: trace(world, protocol, filler))
    return cast("tuple[PhaseStep, ...]", found)


def trace(world: World, protocol: Protocol, filler: int) -> tuple[PhaseStep, ...]:
    explored = cast(Explored, world.once("explored", lambda: explore(world)))
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
        self.room = self.rooms[self.room][direction]
        self.play(kind, f"go {direction}")

    def play(self, kind: Kind, command: str) -> None:
        self.node = self.world.step(self.node, command)
        self.moves.append((kind, Walked(command, self.node, self.room)))

    def reveal(self) -> None:
        """Goes to the kitchen by the shortest way and reads the cookbook."""
        for direction in shortest_route(self.rooms, self.room, KITCHEN):
            self.go("explore", direction)
        self.play("reveal", REVEAL)

    def walk(self, length: int) -> None:
        """A random walk seeded by the game alone: a longer one begins with the shorter one."""
        rng = rng_of("filler", self.world.game.id)
        for _ in range(length):
            exits = [direction for direction in OPPOSITE if direction in self.rooms[self.room]]
            if not exits:
                raise GameError(f"Game {self.world.game.id} has one room, so its filler walk must have length 0.")
            self.go("filler", rng.choice(exits))


def as_steps(start: Node, moves: list[tuple[Kind, Walked]], short: bool) -> tuple[PhaseStep, ...]:
    """Numbers the room visits and shortens the walk's observations where the protocol says so."""
    steps = [PhaseStep("start", None, start.moment.observation, 0, start)]
    for kind, walked in moves:
        full = walked.node.moment.observation
        visit = steps[-1].visit + walked.command.startswith("go ")
        steps.append(
            PhaseStep(kind, walked.command, brief(full) if short and kind == "filler" else full, visit, walked.node)
        )
    return tuple(steps)
