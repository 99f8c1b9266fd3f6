"""Steps of many episodes at once: awaited, played once, and nobody held up."""

import asyncio
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from dssr.errors import GameError
from dssr.worlds.archive import Archive
from dssr.worlds.base import Node, stepped, walked
from dssr.worlds.cooking import textworld
from dssr.worlds.cooking import world as cooking
from dssr.worlds.cooking.world import CookingWorld

STUCK = 300.0
"""Seconds after which a loop that is held up is let go; only a failure takes as long."""


@pytest.fixture
def fresh(archive: Archive, tmp_path: Path) -> Iterator[CookingWorld]:
    """A game of which nothing but the start was played."""
    game = archive.games("valid", level=6)[0]
    world = CookingWorld(game, archive.path(game), tmp_path)
    yield world
    world.close()


def actions(node: Node, count: int) -> tuple[str, ...]:
    return node.moment.admissible[:count]


def test_others_go_on_while_textworld_computes(fresh: CookingWorld) -> None:
    """Catches an event loop that stands still during a new step: the process is stopped, and nothing would come."""
    start = fresh.start()
    seen, new = actions(start, 2)
    known = fresh.step(start, seen)
    process = textworld._child._process
    assert process is not None

    async def play() -> Node:
        os.kill(process.pid, signal.SIGSTOP)
        stuck = threading.Timer(STUCK, os.kill, (process.pid, signal.SIGCONT))
        stuck.start()
        try:
            task = asyncio.ensure_future(stepped(fresh, start, new))
            for _ in range(50):
                await asyncio.sleep(0)
                assert await stepped(fresh, start, seen) is known
            assert not task.done()
        finally:
            stuck.cancel()
            os.kill(process.pid, signal.SIGCONT)
        return await task

    node = asyncio.run(play())
    assert node is fresh.step(start, new)
    assert node.actions == (new,)


def test_a_step_that_many_ask_for_is_played_once(fresh: CookingWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches equal steps of several episodes played one by one, and an error that reaches those who asked rightly."""
    played: list[str] = []
    real = textworld.play

    def play(path: Path, commands: tuple[str, ...], command: str) -> object:
        played.append(command)
        return real(path, commands, command)

    monkeypatch.setattr(cooking, "play", play)
    start = fresh.start()
    wanted = actions(start, 3)

    async def ask() -> list[object]:
        asked = [stepped(fresh, start, action) for action in (*wanted, "fly", *wanted)]
        return list(await asyncio.gather(*asked, return_exceptions=True))

    found = asyncio.run(ask())
    assert sorted(played) == sorted(wanted)
    assert found[:3] == found[4:]
    assert isinstance(found[3], GameError)
    assert [node.actions for node in found[:3] if isinstance(node, Node)] == [(action,) for action in wanted]


def test_a_walk_is_the_same_when_it_is_awaited(fresh: CookingWorld, archive: Archive) -> None:
    """Catches a walk that others' steps disturb: it and a line of play go on side by side in one game."""

    async def both() -> None:
        async def play() -> None:
            node = fresh.start()
            while policy := node.moment.privileged.policy:
                node = await stepped(fresh, node, policy[0])

        await asyncio.gather(play(), walked(fresh, "post", 10), walked(fresh, "post", 0))

    asyncio.run(both())
    plain = archive.world(fresh.game)
    for filler in (0, 10):
        here, there = fresh.walk("post", filler), plain.walk("post", filler)
        assert [step[:4] for step in here] == [step[:4] for step in there]
        assert [step.node.moment for step in here] == [step.node.moment for step in there]
    plain.close()
