"""Archives of games: make one, check it, measure how long its games are."""

import asyncio
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from dssr.agent.prompts import render_history
from dssr.config import Config
from dssr.models.load import load_tokenizer
from dssr.session import configured, silent, verb
from dssr.types import Game, Progress, Protocol, Record
from dssr.worlds.archive import Archive
from dssr.worlds.base import World, follow
from dssr.worlds.make import make_archive

WORDS = "words"
"""The tokenizer that counts what stands between blanks, and needs no model."""


class CheckedArchive(Record, frozen=True):
    """What a check of an archive found."""

    archive: str
    games: int
    faults: dict[str, tuple[str, ...]]
    """Game to its faults, one sentence each; good games are not in it."""


@verb
async def make_games(
    config: Config | str = "nano",
    *,
    folder: str | Path | None = None,
    workers: int = 1,
    resume: bool = False,
    progress: Progress = silent,
) -> Archive:
    """Make the games of a configuration, once; `resume` goes on with an archive that was broken off."""
    settings = configured(config)

    def told(done: int, of: int) -> None:
        progress("games", done, of)

    return await asyncio.to_thread(make_archive, settings.games, folder_of(settings, folder), workers, told, resume)


@verb
async def check_games(
    config: Config | str = "nano",
    *,
    folder: str | Path | None = None,
    workers: int = 1,
    progress: Progress = silent,
) -> CheckedArchive:
    """Verify every game: its files, that Phase A shows all that is needed, that the reference policy wins.

    Test games are sealed: only their files are verified.
    """
    settings = configured(config)
    place = folder_of(settings, folder)
    archive = Archive.open(place)
    games = archive.games()
    faults: dict[str, tuple[str, ...]] = {}
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        waiting = {pool.submit(archive.check, game.id, settings.protocol.max_actions): game.id for game in games}
        for done, future in enumerate(as_completed(waiting), start=1):
            if found := future.result():
                faults[waiting[future]] = found
            progress("games checked", done, len(games))
    return CheckedArchive(str(place), len(games), dict(sorted(faults.items())))


@verb
async def game_stats(
    config: Config | str = "nano",
    *,
    folder: str | Path | None = None,
    tokenizer: str = WORDS,
    progress: Progress = silent,
) -> list[dict[str, int | float]]:
    """Per level and filler, the steps of both phases and the tokens of the history; sealed games are left out."""
    settings = configured(config)
    archive = Archive.open(folder_of(settings, folder))
    games = archive.games()
    done = 0

    def measured() -> None:
        nonlocal done
        done += 1
        progress("games measured", done, len(games))

    kind, fillers = settings.protocol.kind, settings.protocol.fillers
    return size_rows(archive, games, kind, fillers, counter(tokenizer), measured)


def folder_of(config: Config, folder: str | Path | None) -> Path:
    """The archive's folder: the one given, or the configuration's own."""
    return Path(folder) if folder else Path(config.data) / config.games.archive


# ---------------------------------------------------------------- sizes of games

Count = Callable[[str], int]
"""Tokens of a text."""


def counter(tokenizer: str) -> Count:
    """Counts the tokens of a text by a model's tokenizer, or words."""
    if tokenizer == WORDS:
        return lambda text: len(text.split())
    encode = load_tokenizer(tokenizer).encode
    return lambda text: len(encode(text))


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


def size_of(world: World, protocol: Protocol, filler: int, count: Count) -> Size:
    """The lengths of one game, played by the reference."""
    steps = world.walk(protocol, filler)
    nodes = follow(world, steps[-1].node)
    seen = [Seen(step.action, step.observation) for step in steps]
    seen += [Seen(node.actions[-1], node.moment.observation) for node in nodes[1:]]
    # The reader at the last decision is shown its observation apart; the last node comes after it.
    history = render_history(seen[:-2], seen[-2].action)
    return Size(phase_a=len(steps) - 1, phase_b=len(nodes) - 1, tokens=count(history))
