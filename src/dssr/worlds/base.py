"""What a world is. Implement `World` for one game and `Domain` for its kind, and everything else works on it.

    archive = Archive.open("data/demo")                # dssr.worlds.archive: games made once, found by name
    world = archive.world("valid-6-000")
    walk = world.walk("post", 20)                      # Phase A: a script explores, is told the task, and walks
    node, index = walk[-1].node, len(walk) - 1
    options = world.options(node, index)               # what the reader chooses from, the reference among them
    node = world.step(node, options.reference)         # any position can be played on from, as often as needed
    node.moment.privileged.policy                      # the reference plan from there
    archive.domain.facts(steps, reveal)                # what is worth following in a logged episode

Nothing outside `dssr.worlds` knows which world it is; `dssr.testing.WorldSuite` checks an implementation.
"""

import asyncio
import importlib
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, TypeVar, runtime_checkable
from weakref import WeakKeyDictionary

import msgspec

from dssr.config import Config, GamesConfig
from dssr.errors import ConfigError
from dssr.seeds import rng_of
from dssr.types import LABELS, Game, Kind, Moment, Options, Record, Split, Step
from dssr.types import Protocol as WalkProtocol

DOMAINS = {"cooking": "dssr.worlds.cooking.world:COOKING", "logs": "dssr.traces.trace:LOGS"}
"""Name of a kind of world, as `games.world` gives it, to where its `Domain` lies."""


# ---------------------------------------------------------------- one game


class Node:
    """A position in a game. Worlds hand these out; nobody else makes them."""

    __slots__ = ("_look", "_moment", "actions", "number")

    def __init__(self, number: int, actions: tuple[str, ...], look: Callable[[int], Moment]) -> None:
        self.number = number
        """The world's own name for the position."""
        self.actions = actions
        """What was played to get here."""
        self._look = look
        self._moment: Moment | None = None

    @property
    def moment(self) -> Moment:
        """What is the case here; asked of the world once."""
        if self._moment is None:
            self._moment = self._look(self.number)
        return self._moment


class WalkStep(NamedTuple):
    """One step of a walk."""

    kind: Kind
    """`reveal` is the one step that tells the task in full."""
    action: str | None
    """What led here; None at step 0."""
    observation: str
    """As the agent is shown it: some protocols shorten that of the position."""
    visit: int
    """Number of the stay at one place; consecutive steps at the same place share it."""
    node: Node


class Secret(NamedTuple):
    """A text that no prompt may show before an observation has shown it."""

    kind: str
    """The world's own word for it, for the report of a leak."""
    text: str
    form: Literal["line", "plan", "code"]
    """`line`: words that a writer could put together itself. `plan`: actions, one a line; a few in a
    row are searched for, however joined. `code`: a notation that nobody writes by chance."""


class World(Protocol):
    """One game, open for playing. Equal calls give equal answers, in any order, in any process."""

    @property
    def game(self) -> Game:
        """What is being played."""
        ...

    @property
    def goal(self) -> str:
        """What the agent is told to do, at every step."""
        ...

    @property
    def can_walk(self) -> bool:
        """Whether there is anywhere to go: if not, only walks of length 0 exist."""
        ...

    def start(self) -> Node:
        """The position before the first action."""
        ...

    def step(self, node: Node, action: str) -> Node:
        """The position after one action, which must be admissible there or the reference; else a `GameError`."""
        ...

    def options(self, node: Node, step: int) -> Options:
        """What the reader may choose from at this step of an episode; see `lettered`."""
        ...

    def walk(self, protocol: WalkProtocol, filler: int) -> tuple[WalkStep, ...]:
        """All steps of Phase A, step 0 included; with the walk after the reveal, a shorter one begins a longer one."""
        ...

    def oracle_lines(self, node: Node, long: bool) -> list[str]:
        """What an all-knowing writer would keep here, the most important line first."""
        ...

    def secrets(self, nodes: Iterable[Node]) -> Iterable[Secret]:
        """All that an agent which visits these positions may learn from observations alone; none for no positions."""
        ...

    def faults(self, max_actions: int) -> tuple[str, ...]:
        """What makes the game useless, one sentence each: something needed is never shown, the reference loses …"""
        ...

    def close(self) -> None:
        """Let go of what the world holds open."""
        ...


@runtime_checkable
class SlowWorld(Protocol):
    """A world whose new steps take long, as another process computes them; it can be played from several threads."""

    def knows(self, node: Node, action: str) -> bool:
        """Whether the step was played before, and costs nothing now."""
        ...


# ---------------------------------------------------------------- one kind of world


class KeyFact(Protocol):
    """A fact worth following: told at the reveal, and to be kept until it is carried out."""

    @property
    def text(self) -> str:
        """As the reveal tells it."""
        ...

    def held_in(self, state: str) -> bool:
        """Whether a state still tells it."""
        ...

    def altered_in(self, state: str, told: "Iterable[KeyFact]") -> bool:
        """Whether a state says of the same thing something that none of the facts told does: a copy gone wrong."""
        ...

    def done_by(self, action: str | None) -> bool:
        """Whether an action carries it out."""
        ...


class ChunkKind(NamedTuple):
    """A kind of stretch of history, as the relevance lag tells them apart."""

    name: str
    """In logs and tables."""
    words: str
    """In a sentence."""


class Words(NamedTuple):
    """How reports speak of a world."""

    task: str
    """What the reveal tells, after `the`: `recipe`."""
    fact: str
    """One part of it: `directive`."""
    level: str
    """What levels count: `rooms`."""
    home: str
    """Where the task is carried out, after `the`: `kitchen`."""
    reveal_chunk: ChunkKind
    visit_chunk: ChunkKind
    block_chunk: ChunkKind
    heading: str = ""
    """Pattern of the line by which an observation names a place; empty where none does."""

    @property
    def chunks(self) -> tuple[ChunkKind, ...]:
        """All kinds of stretches."""
        return self.reveal_chunk, self.visit_chunk, self.block_chunk

    def heading_of(self, observation: str) -> str | None:
        """The place that an observation names; None where it names none."""
        found = re.search(self.heading, observation, re.M) if self.heading else None
        return found[1] if found else None


class GamePlan(Record, frozen=True):
    """One game to make."""

    id: str
    split: Split
    level: int
    seed: int
    command: tuple[str, ...]
    """How it is made, exactly; stored with the game."""


class Domain(Protocol):
    """A kind of world: how its games are made and opened, and what its logs tell without opening any."""

    @property
    def engine(self) -> str:
        """Version of what makes and runs the games; a game made by another one is not played."""
        ...

    @property
    def words(self) -> Words:
        """How reports speak of it."""
        ...

    @property
    def form_words(self) -> Collection[str]:
        """Words of the oracle's lines that come from their form, not from facts."""
        ...

    def settled(self, games: GamesConfig) -> GamesConfig:
        """The section with the world's own options checked and written out; a `ConfigError` says what is wrong."""
        ...

    def plans(self, games: GamesConfig) -> tuple[GamePlan, ...]:
        """Every game of a configuration, in the order of making."""
        ...

    def make(self, plans: Sequence[GamePlan], folder: Path) -> Iterator[Game]:
        """Make games, their files in `games/` of the archive's folder; each is given out as soon as it is whole."""
        ...

    def files(self, path: Path) -> tuple[Path, ...]:
        """The files that a game consists of, which its digest covers in this order; `path` is that of `Game.file`."""
        ...

    def open(self, game: Game, path: Path, kept: Path) -> World:
        """The world of a game whose digest was checked; `kept` is a folder for what playing it costs time to find."""
        ...

    def facts(self, steps: Sequence[Step], reveal: int) -> tuple[KeyFact, ...]:
        """What is worth following in a logged episode, from what its step `reveal` shows."""
        ...

    def is_home(self, place: str) -> bool:
        """Whether the task can be carried out at this place, without going anywhere first."""
        ...


def find_domain(name: str) -> Domain:
    """The kind of world of this name."""
    if name not in DOMAINS:
        raise ConfigError(f"There is no world {name!r}; games.world must be one of {', '.join(DOMAINS)}.")
    module, _, attribute = DOMAINS[name].partition(":")
    found: Domain = getattr(importlib.import_module(module), attribute)
    return found


def settled(config: Config) -> Config:
    """The configuration with the world's own options checked and written out."""
    games = find_domain(config.games.world).settled(config.games)
    return msgspec.structs.replace(config, games=games)


# ---------------------------------------------------------------- for those who write a world


def lettered(actions: Iterable[str], reference: str, game: str, step: int) -> Options:
    """The actions in an order that depends on game and step alone, the reference among them, at most one per label."""
    shown = list(actions)
    appended = reference not in shown
    if appended:
        shown.append(reference)
    rng_of("options", game, step).shuffle(shown)
    others = [action for action in shown if action != reference][: len(LABELS) - 1]
    kept = {*others, reference}
    return Options(
        actions=tuple(action for action in shown if action in kept),
        reference=reference,
        appended=appended,
        dropped=len(shown) - len(kept),
    )


def follow(world: World, node: Node) -> tuple[Node, ...]:
    """The positions that the reference goes through from here, the first one included."""
    nodes = [node]
    while policy := nodes[-1].moment.privileged.policy:
        nodes.append(world.step(nodes[-1], policy[0]))
    return tuple(nodes)


# ---------------------------------------------------------------- for those who play many at once

T = TypeVar("T")


async def stepped(world: World, node: Node, action: str) -> Node:
    """`world.step` that holds nobody up: what has to be computed first is awaited, what is known comes at once."""
    if not isinstance(world, SlowWorld) or world.knows(node, action):
        return world.step(node, action)
    return await _elsewhere(partial(world.step, node, action))


async def walked(world: World, protocol: WalkProtocol, filler: int) -> tuple[WalkStep, ...]:
    """`world.walk` that holds nobody up."""
    if not isinstance(world, SlowWorld):
        return world.walk(protocol, filler)
    return await _elsewhere(partial(world.walk, protocol, filler))


class StepQueue:
    """Does what waits in a thread, all of it together: whoever asked is answered when all is done. So a model that is
    asked next gets its prompts in one batch, as if the loop had been held up meanwhile."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: list[tuple[Callable[[], Any], asyncio.Future[Any]]] = []
        self._busy = False

    def put(self, work: Callable[[], T]) -> "asyncio.Future[T]":
        """The future of one piece of work."""
        future: asyncio.Future[T] = self._loop.create_future()
        self._waiting.append((work, future))
        if not self._busy:
            self._busy = True
            self._loop.call_soon(self._start)  # others may ask in the same round
        return future

    def _start(self) -> None:
        batch, self._waiting = self._waiting, []
        self._busy = bool(batch)
        if batch:
            done = self._loop.run_in_executor(None, _outcomes, [work for work, _ in batch])
            done.add_done_callback(partial(self._hand_out, [future for _, future in batch]))

    def _hand_out(self, futures: "list[asyncio.Future[Any]]", done: "asyncio.Future[list[Any]]") -> None:
        if done.cancelled():  # the loop is being shut down
            return
        for future, outcome in zip(futures, done.result(), strict=True):
            if future.done():
                continue
            if isinstance(outcome, Exception):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)
        self._start()


_queues: "WeakKeyDictionary[asyncio.AbstractEventLoop, StepQueue]" = WeakKeyDictionary()


async def _elsewhere(work: Callable[[], T]) -> T:
    loop = asyncio.get_running_loop()
    if loop not in _queues:
        _queues[loop] = StepQueue(loop)
    return await _queues[loop].put(work)


def _outcomes(works: list[Callable[[], Any]]) -> list[Any]:
    """What each gives, or the error that it raises."""
    found: list[Any] = []
    for work in works:
        try:
            found.append(work())
        except Exception as error:  # handed to whoever asked for it
            found.append(error)
    return found
