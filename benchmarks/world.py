"""The memoised world against TextWorld itself, on one six-room game of the paper's options."""

import asyncio
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from benchmarks.common import Ratio, by_turns, faster, rate, seconds
from dssr.config import GamesConfig
from dssr.types import Game
from dssr.worlds.archive import Archive, make_archive
from dssr.worlds.base import Node, World, find_domain, follow, stepped
from dssr.worlds.cooking.textworld import infos

LAGS = (0, 10, 20, 40)
FORMATS = 7
MADE = 4


def run() -> list[Ratio]:
    with tempfile.TemporaryDirectory() as folder:
        archive = make_archive(GamesConfig(levels=(6,), train=1, valid=0, test=0), folder)
        return measure(archive)


def measure(archive: Archive) -> list[Ratio]:
    import textworld

    game = archive.games()[0]
    world = archive.world(game)
    commands = follow(world, world.walk("post", max(LAGS))[-1].node)[-1].actions
    env = textworld.start(str(archive.path(game)), infos())
    # Taking turns, so that a busy moment of the machine falls on both.
    raw, first = [], []
    for _ in range(5):
        env.reset()
        raw.append(seconds(lambda: play_raw(env, commands), repeat=1))
        fresh = emptied(archive).world(game)
        first.append(seconds(lambda here=fresh: play(here, commands), repeat=1))  # type: ignore[misc]
    revisit = seconds(lambda: play(world, commands), repeat=20)
    phases = {lag: [step.action for step in world.walk("post", lag)[1:]] for lag in LAGS}
    raw_phases = FORMATS * seconds(lambda: [play_phase(env, found) for found in phases.values()], repeat=1)
    reused = seconds(lambda: grid(archive), repeat=1)
    env.close()
    turns, spent = {}, {}
    for way in (stepped, at_once):
        turns[way] = asyncio.run(others(emptied(archive).world(game), commands, way))
        spent[way] = min(_play_new(archive, game, commands, way) for _ in range(3))
    made = by_turns({"alone": lambda: make(1), "together": lambda: make(MADE)}, repeat=1)
    steps = len(commands)
    return [
        rate("world: steps seen before", steps / revisit, steps / min(raw), "raw TextWorld", 1000, "steps/s"),
        faster("world: first visits (at most 1.1x the time)", min(first), min(raw), "raw TextWorld", 1 / 1.1),
        faster("world: Phase A of 4 lags x 7 formats", reused, raw_phases, "Phase A played raw each time", 10),
        rate("world: turns of others in a new step", turns[stepped], turns[at_once], "played in the loop", 5, "turns"),
        faster("world: new steps awaited", spent[stepped], spent[at_once], "played in the loop", 0.9),
        faster(f"games: {MADE} made", made["together"][0], made["alone"][0], "a process for each", 1.5),
    ]


Way = Callable[[World, Node, str], Awaitable[Node]]


async def at_once(world: World, node: Node, action: str) -> Node:
    """As if there were nobody else."""
    return world.step(node, action)


async def others(world: World, commands: tuple[str, ...], way: Way) -> float:
    """How often the other coroutines of a loop have their turn, on average, while a new step is played."""
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0.0005)

    task = asyncio.ensure_future(other())
    node = world.start()
    for command in commands:
        node = await way(world, node, command)
        await asyncio.sleep(0)
    task.cancel()
    world.close()
    return turns / len(commands)


def _play_new(archive: Archive, game: Game, commands: tuple[str, ...], way: Way) -> float:
    world = emptied(archive).world(game)

    async def play() -> None:
        node = world.start()
        for command in commands:
            node = await way(world, node, command)

    took = seconds(lambda: asyncio.run(play()), repeat=1)
    world.close()
    return took


def make(together: int) -> None:
    """Makes games, so many in one process."""
    domain = find_domain("cooking")
    plans = domain.plans(domain.settled(GamesConfig(levels=(6,), train=MADE, valid=0, test=0)))
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "games").mkdir()
        for start in range(0, MADE, together):
            list(domain.make(plans[start : start + together], Path(folder)))


def emptied(archive: Archive) -> Archive:
    for file in (archive.folder / "trees").glob("*"):
        Path(file).unlink()
    return archive


def play_raw(env: Any, commands: Any) -> Any:
    return [env.step(command) for command in commands]


def play_phase(env: Any, commands: Any) -> Any:
    env.reset()
    return play_raw(env, commands)


def play(world: World, commands: tuple[str, ...]) -> None:
    node = world.start()
    for command in commands:
        node = world.step(node, command)
        node.moment  # noqa: B018


def grid(archive: Archive) -> None:
    """What a run over all formats and lags asks for, from nothing stored."""
    game = emptied(archive).games()[0]
    for _ in range(FORMATS):
        world = archive.world(game)
        for lag in LAGS:
            world.walk("post", lag)
        world.close()
