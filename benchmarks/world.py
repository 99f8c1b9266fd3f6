"""The memoised world against TextWorld itself, on one six-room game of the paper's options."""

import tempfile
from pathlib import Path
from typing import Any

from benchmarks.common import Ratio, faster, rate, seconds
from dssr.config import GamesConfig
from dssr.worlds.archive import Archive
from dssr.worlds.base import World, follow
from dssr.worlds.cooking.textworld import infos
from dssr.worlds.make import make_archive

LAGS = (0, 10, 20, 40)
FORMATS = 7


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
    steps = len(commands)
    return [
        rate("world: steps seen before", steps / revisit, steps / min(raw), "raw TextWorld", 1000, "steps/s"),
        faster("world: first visits (at most 1.1x the time)", min(first), min(raw), "raw TextWorld", 1 / 1.1),
        faster("world: Phase A of 4 lags x 7 formats", reused, raw_phases, "Phase A played raw each time", 10),
    ]


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
