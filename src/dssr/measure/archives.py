"""Archives of games: make one, check it, measure how long its games are."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import cache, partial
from multiprocessing import get_context
from pathlib import Path
from statistics import fmean, stdev
from typing import NamedTuple

from dssr.agent.prompts import render_history
from dssr.config import Config
from dssr.models.load import load_tokenizer
from dssr.scale.processes import cores
from dssr.session import configured, counted, silent, verb
from dssr.types import Game, Progress, Protocol, Record, Standing
from dssr.worlds.archive import Archive, make_archive
from dssr.worlds.base import World, follow

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
    workers: int | None = None,
    resume: bool = False,
    progress: Progress = silent,
) -> Archive:
    """Make the games of a configuration, once; `resume` goes on with an archive that was broken off."""
    settings = configured(config)
    told = counted(progress, "games")
    return await asyncio.to_thread(
        make_archive, settings.games, folder_of(settings, folder), workers or cores(), told, resume
    )


@verb
async def check_games(
    config: Config | str = "nano",
    *,
    folder: str | Path | None = None,
    workers: int | None = None,
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
    with ProcessPoolExecutor(workers or cores(), mp_context=get_context("spawn")) as pool:
        waiting = {pool.submit(archive.check, game.id, settings.protocol.max_actions): game.id for game in games}
        for done, future in enumerate(as_completed(waiting), start=1):
            if found := future.result():
                faults[waiting[future]] = found
            progress(Standing("games checked", done, len(games)))
    return CheckedArchive(str(place), len(games), dict(sorted(faults.items())))


@verb
async def game_stats(
    config: Config | str = "nano",
    *,
    folder: str | Path | None = None,
    tokenizer: str = WORDS,
    workers: int | None = None,
    progress: Progress = silent,
) -> list[dict[str, int | float | None]]:
    """Per level and filler, the steps of both phases and the tokens of the history; sealed games are left out."""
    settings = configured(config)
    archive = Archive.open(folder_of(settings, folder))
    games = [game for game in archive.games() if not archive.is_sealed(game)]
    measure = partial(
        sizes_of, archive, protocol=settings.protocol.kind, fillers=settings.protocol.fillers, tokenizer=tokenizer
    )
    progress(Standing("games measured", 0, len(games)))
    workers = workers or cores()
    if workers == 1:
        return size_rows(games, told(map(measure, games), len(games), progress))
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        return size_rows(games, told(pool.map(measure, games), len(games), progress))


def told(sizes: "Iterable[Sizes]", of: int, progress: Progress) -> "Iterator[Sizes]":
    """The same, with word of how many there are so far."""
    for done, found in enumerate(sizes, start=1):
        progress(Standing("games measured", done, of))
        yield found


def folder_of(config: Config, folder: str | Path | None) -> Path:
    """The archive's folder: the one given, or the configuration's own."""
    return Path(folder) if folder else Path(config.data) / config.games.archive


# ---------------------------------------------------------------- sizes of games

Count = Callable[[str], int]
"""Tokens of a text."""


@cache
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


Sizes = dict[int, Size]
"""Of one game, by filler."""


def sizes_of(archive: Archive, game: Game, protocol: Protocol, fillers: tuple[int, ...], tokenizer: str) -> Sizes:
    """One game under every filler; one without anywhere to go has no walk. Steps that were ever played are not played
    again: they are stored beside the games."""
    world = archive.world(game)
    try:
        count = counter(tokenizer)
        return {one: size_of(world, protocol, one, count) for one in (fillers if world.can_walk else (0,))}
    finally:
        world.close()


def size_rows(games: Iterable[Game], found_sizes: Iterable[Sizes]) -> list[dict[str, int | float | None]]:
    """One row per level and filler."""
    sizes: dict[tuple[int, int], list[Size]] = {}
    for game, by_filler in zip(games, found_sizes, strict=True):
        for filler, size in by_filler.items():
            sizes.setdefault((game.level, filler), []).append(size)
    return [
        {
            "level": level,
            "filler": filler,
            "phase_a_steps": fmean(size.phase_a for size in found),
            "phase_b_steps": fmean(size.phase_b for size in found),
            "phase_a_error": standard_error([size.phase_a for size in found]),
            "phase_b_error": standard_error([size.phase_b for size in found]),
            "history_tokens_mean": fmean(size.tokens for size in found),
            "history_tokens_max": max(size.tokens for size in found),
            "games": len(found),
        }
        for (level, filler), found in sorted(sizes.items())
    ]


def standard_error(values: Sequence[float]) -> float | None:
    """Of a mean over games: another draw of as many games would give a mean about this far away."""
    return stdev(values) / len(values) ** 0.5 if len(values) > 1 else None


def size_of(world: World, protocol: Protocol, filler: int, count: Count) -> Size:
    """The lengths of one game, played by the reference."""
    steps = world.walk(protocol, filler)
    nodes = follow(world, steps[-1].node)
    seen = [Seen(step.action, step.observation) for step in steps]
    seen += [Seen(node.actions[-1], node.moment.observation) for node in nodes[1:]]
    # The reader at the last decision is shown its observation apart; the last node comes after it.
    history = render_history(seen[:-2], seen[-2].action)
    return Size(phase_a=len(steps) - 1, phase_b=len(nodes) - 1, tokens=count(history))
