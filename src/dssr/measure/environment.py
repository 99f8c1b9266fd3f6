"""How long the games of an archive are: steps of both phases and tokens of the history."""

from collections.abc import Callable, Iterable
from statistics import fmean
from typing import NamedTuple

from dssr.agent.history import render_history
from dssr.types import Game, Protocol
from dssr.worlds.archive import Archive
from dssr.worlds.base import World, follow

Count = Callable[[str], int]
"""Tokens of a text."""


class Seen(NamedTuple):
    """A step as the history shows it."""

    action: str | None
    observation: str


class Size(NamedTuple):
    """One game under one filler length, played by the reference policy."""

    phase_a: int
    """Actions of Phase A."""
    phase_b: int
    """Actions of the reference policy."""
    tokens: int
    """Of the whole history as a reader sees it at the last decision."""


def size_of(world: World, protocol: Protocol, filler: int, count: Count) -> Size:
    """The lengths of one game, played by the reference."""
    steps = world.walk(protocol, filler)
    nodes = follow(world, steps[-1].node)
    seen = [Seen(step.action, step.observation) for step in steps]
    seen += [Seen(node.actions[-1], node.moment.observation) for node in nodes[1:]]
    # The reader at the last decision is shown its observation apart; the last node comes after it.
    history = render_history(seen[:-2], seen[-2].action)
    return Size(phase_a=len(steps) - 1, phase_b=len(nodes) - 1, tokens=count(history))


def size_rows(
    archive: Archive,
    games: Iterable[Game],
    protocol: Protocol,
    fillers: tuple[int, ...],
    count: Count,
    on_game: Callable[[], object] = lambda: None,
) -> list[dict[str, int | float]]:
    """One row per level and filler; sealed games are left out, and a game without anywhere to go has no walk."""
    sizes: dict[tuple[int, int], list[Size]] = {}
    for game in games:
        if archive.is_sealed(game):
            on_game()
            continue
        world = archive.world(game)
        for filler in fillers if world.can_walk else (0,):
            sizes.setdefault((game.level, filler), []).append(size_of(world, protocol, filler, count))
        world.close()
        on_game()
    return [
        {
            "level": level,
            "filler": filler,
            "phase_a_steps": fmean(size.phase_a for size in found),
            "phase_b_steps": fmean(size.phase_b for size in found),
            "history_tokens_mean": fmean(size.tokens for size in found),
            "history_tokens_max": max(size.tokens for size in found),
            "games": len(found),
        }
        for (level, filler), found in sorted(sizes.items())
    ]
