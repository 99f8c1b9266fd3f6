"""Phase A: explore, reveal the recipe, and walk; where the walk stands and what it shows is the protocol."""

from dssr.errors import GameError
from dssr.seeds import rng_of
from dssr.types import Kind, Protocol
from dssr.worlds.base import Node, WalkStep, World
from dssr.worlds.cooking.explorer import Explored, Walked, shortest_route
from dssr.worlds.cooking.text import brief
from dssr.worlds.cooking.words import COOKBOOK, KITCHEN, OPPOSITE


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
        self.room = self.rooms[self.room][direction]
        self.play(kind, f"go {direction}")

    def play(self, kind: Kind, action: str) -> None:
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
