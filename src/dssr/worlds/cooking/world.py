"""TextWorld cooking: find things in a house, prepare them as the cookbook says, eat the meal.

`CookingWorld` is one game, a tree of moments: a step played before, by this process or any other, is looked up; an
unseen one is played by TextWorld, in its own process, and stored. `Cooking` is the kind of world, one of `DOMAINS`.

Phase A is to explore the house, read the cookbook, and walk. `explore` goes depth-first through the rooms and learns
the map from the room headers alone. `phase_a` adds the reveal and the filler walk; which of the two comes first, and
what the walk shows, is the protocol's.
"""

import re
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from dssr.config import GamesConfig
from dssr.errors import GameError
from dssr.seeds import rng_of
from dssr.types import Game, Kind, Moment, Options, Privileged, Protocol, Step
from dssr.worlds.base import ChunkKind, GamePlan, Node, Secret, WalkStep, Words, World, follow, lettered
from dssr.worlds.cooking import generate
from dssr.worlds.cooking.recipe import (
    COOKBOOK,
    FORM_WORDS,
    KITCHEN,
    OPENING,
    OPPOSITE,
    Directive,
    brief,
    directives,
    ingredients,
    is_opening,
    oracle_lines,
    player_room,
    room_header,
    rooms,
    telling_lines,
    tools,
)
from dssr.worlds.cooking.textworld import begin, play
from dssr.worlds.cooking.tree import FORMAT, StepTree

# ---------------------------------------------------------------- Phase A

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


# ---------------------------------------------------------------- the world

HIDDEN = ("examine ", "close ", "put ", "insert ")
"""How actions begin that only re-print or undo."""


class CookingWorld:
    """One game. Walk it with `start` and `step`; positions stay valid for ever."""

    def __init__(self, game: Game, path: Path, trees: Path) -> None:
        self.game = game
        self._path = path
        self._tree = StepTree(trees / f"{game.md5}.{FORMAT}.jsonl")
        if self._tree.constants is None:
            self._tree.begin(*begin(path))
        assert self._tree.constants is not None
        self._constants = self._tree.constants
        self._walks: dict[tuple[Protocol, int], tuple[WalkStep, ...]] = {}
        self._nodes: dict[int, Node] = {}
        self._explored: Explored | None = None
        self._oracle: dict[int, tuple[Secret, ...]] = {}
        self._lock = threading.RLock()
        """Held while something new is played; what is known is read without."""

    @property
    def goal(self) -> str:
        """TextWorld's own words for the task."""
        return self._constants.goal

    @property
    def can_walk(self) -> bool:
        """A house of one room leads nowhere."""
        return self.game.level > 1

    def start(self) -> Node:
        """The position before the first action."""
        return self._node(0, ())

    def step(self, node: Node, action: str) -> Node:
        """The position after one action, which must be admissible or the reference."""
        number = self._tree.children[node.number].get(action)
        if number is None:
            self._check(node, action)
            number = self._play(node, action)
        return self._nodes.get(number) or self._node(number, (*node.actions, action))

    def knows(self, node: Node, action: str) -> bool:
        """Whether the step was played before."""
        return action in self._tree.children[node.number]

    def options(self, node: Node, step: int) -> Options:
        """The lettered choice at a position."""
        return options_at(node.moment, self.game.id, step)

    def walk(self, protocol: Protocol, filler: int) -> tuple[WalkStep, ...]:
        """Phase A; found once for each protocol and length."""
        with self._lock:
            if (protocol, filler) not in self._walks:
                self._explored = self._explored or explore(self)
                self._walks[protocol, filler] = phase_a(self, self._explored, protocol, filler)
        return self._walks[protocol, filler]

    def oracle_lines(self, node: Node, long: bool) -> list[str]:
        """The lines of `oracle-b`."""
        return oracle_lines(node.moment.privileged, long)

    def secrets(self, nodes: Iterable[Node]) -> Iterator[Secret]:
        """The recipe's lines, the walkthrough and every plan, the facts, and the `oracle-b` lines."""
        visited = dict.fromkeys(nodes)
        facts = {fact for node in visited for fact in node.moment.privileged.facts}
        for fact in facts:
            if fact.args:
                yield Secret("fact", f"{fact.name}({','.join(fact.args)})", "code")
            if len(fact.args) > 1:
                yield Secret("fact", f"{fact.name} {' '.join(fact.args)}", "code")
        for node in visited:
            if node.number not in self._oracle:
                self._oracle[node.number] = tuple(_oracle_secrets(node.moment.privileged))
            yield from self._oracle[node.number]
        if visited:
            yield Secret("plan", "\n".join(self._constants.walkthrough), "plan")
            for line in telling_lines(self._constants.recipe):
                yield Secret("recipe", line, "line")

    def faults(self, max_actions: int) -> tuple[str, ...]:
        """Whether Phase A shows all that Phase B needs, and the reference wins in time."""
        steps = self.walk("post", 0)
        found = [f"Phase A never shows {thing}." for thing in unseen(steps)]
        nodes = follow(self, steps[-1].node)
        if not nodes[-1].moment.won:
            found.append("The reference policy does not win.")
        if len(nodes) - 1 > max_actions:
            found.append(f"The reference policy needs {len(nodes) - 1} actions, more than {max_actions}.")
        return tuple(found)

    def close(self) -> None:
        """Closes the stored tree, and forgets positions and walks, which hold this world in turn."""
        self._tree.close()
        self._nodes.clear()
        self._walks.clear()
        self._explored = None

    def _node(self, number: int, actions: tuple[str, ...]) -> Node:
        return self._nodes.setdefault(number, Node(number, actions, self._moment))

    def _play(self, node: Node, action: str) -> int:
        with self._lock:
            number = self._tree.children[node.number].get(action)
            if number is None:
                number = self._tree.add(node.number, action, play(self._path, node.actions, action))
        return number

    def _check(self, node: Node, action: str) -> None:
        moment = node.moment
        if moment.won or moment.lost:
            raise GameError(f"The game is over: {action!r} cannot be played.")
        if action not in moment.admissible and action not in moment.privileged.policy[:1]:
            raise GameError(f"{action!r} is not admissible in the {moment.place}: choose one of the options.")

    def _moment(self, number: int) -> Moment:
        line, constants = self._tree.lines[number], self._constants
        facts = self._tree.facts(number)
        return Moment(
            observation=line.observation,
            place=player_room(facts),
            admissible=line.admissible,
            score=line.score,
            max_score=constants.max_score,
            won=line.won,
            lost=line.lost,
            privileged=Privileged(
                facts=facts,
                policy=line.policy,
                task=constants.recipe,
                walkthrough=constants.walkthrough,
                entities=constants.entities,
            ),
        )


def _oracle_secrets(privileged: Privileged) -> Iterator[Secret]:
    for line in dict.fromkeys((*oracle_lines(privileged, long=True), *oracle_lines(privileged, long=False))):
        yield Secret("oracle", line.removeprefix(OPENING), "line")
    yield Secret("plan", "\n".join(privileged.policy), "plan")


def is_option(action: str) -> bool:
    """Whether an admissible action may be shown as a choice."""
    return action == COOKBOOK or not (action in ("look", "inventory") or action.startswith(HIDDEN))


def options_at(moment: Moment, game: str, step: int) -> Options:
    """What may be chosen at a moment, the reference among it."""
    if not moment.privileged.policy:
        raise GameError(f"Game {game} has no reference action at step {step}: it is over or cannot be won.")
    return lettered(filter(is_option, moment.admissible), moment.privileged.policy[0], game, step)


def unseen(steps: tuple[WalkStep, ...]) -> tuple[str, ...]:
    """Ingredients, tools and rooms that the game needs and that Phase A did not show outside the cookbook."""
    privileged = steps[-1].node.moment.privileged
    text = "\n".join(step.observation for step in steps if step.kind != "reveal")
    needed = ingredients(privileged.task) + tools(privileged.task)
    reached = {step.node.moment.place for step in steps}
    hidden = [thing for thing in needed if not re.search(rf"\b{re.escape(thing)}\b", text)]
    return (*hidden, *[room for room in rooms(privileged.facts) if room not in reached])


# ---------------------------------------------------------------- the kind of world


class Cooking:
    """The games of `tw-cooking`; a level is a number of rooms."""

    engine = generate.TEXTWORLD
    form_words = FORM_WORDS
    words = Words(
        task="recipe",
        fact="directive",
        level="rooms",
        home=KITCHEN,
        reveal_chunk=ChunkKind("cookbook", "the cookbook"),
        visit_chunk=ChunkKind("visit", "a room visit before the task"),
        block_chunk=ChunkKind("block", "a step of the task itself"),
        heading=r"^-= (.+) =-$",
    )

    def settled(self, games: GamesConfig) -> GamesConfig:
        """The section with recipe, take, open, cook and cut written out, and `first` where it is not 0: a run's digest
        must not change because a new option exists."""
        options = generate.options_of(games)
        plain = {name: value for name, value in msgspec.to_builtins(options).items() if name != "first" or value}
        return msgspec.structs.replace(games, options=plain)

    def plans(self, games: GamesConfig) -> tuple[GamePlan, ...]:
        """Every game, ordered so that all cells grow at the same pace."""
        return generate.plan_games(games)

    def make(self, plans: Sequence[GamePlan], folder: Path) -> Iterator[Game]:
        """Runs `tw-make` for each, in one process."""
        return generate.make_games(folder, plans)

    def files(self, path: Path) -> tuple[Path, ...]:
        """The `.z8` file and its `.json` companion."""
        return generate.files_of(path)

    def open(self, game: Game, path: Path, kept: Path) -> CookingWorld:
        """The game with its stored tree."""
        generate.require_textworld(game.engine)
        generate.refuse_other_split(game, path)
        return CookingWorld(game, path, kept)

    def facts(self, steps: Sequence[Step], reveal: int) -> tuple[Directive, ...]:
        """The directives of the recipe as the log shows it."""
        return directives(steps[reveal].observation)

    def is_home(self, place: str) -> bool:
        """Whether it is the kitchen."""
        return place == KITCHEN


COOKING = Cooking()
