"""What a diagnosis covers: memories × budgets × fillers on the games of a split, as an ordered list of jobs."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import msgspec

from dssr.agent.base import Kit
from dssr.agent.capture import share
from dssr.agent.episode import Desk
from dssr.agent.memory import load_memory, split_name
from dssr.agent.reader import Reader
from dssr.agent.reference import FULL, is_reference
from dssr.agent.texts import load_prompts
from dssr.agent.worlds import Worlds
from dssr.config import Config
from dssr.errors import UsageError
from dssr.games.archive import Archive
from dssr.models.base import Model
from dssr.models.load import load_models
from dssr.types import Cell, Job, Record, Split

T = TypeVar("T")


class Ask(Record, frozen=True):
    """What one diagnosis was asked for beyond its configuration."""

    memories: tuple[str, ...]
    budgets: tuple[int, ...]
    fillers: tuple[int, ...]
    split: Split
    games: tuple[str, ...]
    lag: bool
    """Measure the relevance lag at audited points too."""


def ask_of(
    config: Config,
    archive: Archive,
    memories: Sequence[str] = (),
    budgets: Sequence[int] = (),
    fillers: Sequence[int] = (),
    games: int | None = None,
    split: Split = "valid",
    lag: bool = False,
) -> Ask:
    """The grid asked for; what is not given comes from the configuration. `games` is how many per room count."""
    chosen = [game for rooms in config.games.rooms for game in archive.games(split, rooms)[:games]]
    if not chosen:
        raise UsageError(f"{archive.folder} has no {split} games of {list(config.games.rooms)} rooms; make some first.")
    low = [number for number in (*budgets, *(filler + 1 for filler in fillers)) if number < 1]
    if low or (games is not None and games < 1):
        raise UsageError("A budget and a number of games must be at least 1, and a filler at least 0.")
    return Ask(
        memories=_once(memories or config.agent.memories),
        budgets=_once(budgets or config.agent.budgets),
        fillers=_once(fillers or config.protocol.fillers),
        split=split,
        games=tuple(game.id for game in chosen),
        lag=lag,
    )


def cells_of(ask: Ask, config: Config) -> tuple[Cell, ...]:
    """The cells in grid order; `full` has no budget and is one cell per filler."""
    return tuple(
        Cell(memory, budget, filler, config.protocol.kind)
        for memory in ask.memories
        for budget in ((None,) if memory == FULL else ask.budgets)
        for filler in ask.fillers
    )


def jobs_of(ask: Ask, config: Config) -> tuple[Job, ...]:
    """All episodes, game by game, so that an interrupted run holds whole games."""
    return tuple(
        Job(game, cell, config.seed, config.agent.temperature, config.agent.epsilon, "reader")
        for game in ask.games
        for cell in cells_of(ask, config)
    )


@contextmanager
def open_desk(config: Config, archive: Archive, models: tuple[Model, Model], jobs: Sequence[Job]) -> Iterator[Desk]:
    """What the episodes of a run share, with every memory of the jobs tried out before anything starts."""
    writer, reader = models
    prompts = load_prompts(config.agent.prompts)
    desk = Desk(
        worlds=Worlds(archive),
        writer=writer,
        reader=Reader(reader, config.agent.reader_adapter, prompts.reader),
        prompts=prompts,
        max_actions=config.protocol.max_actions,
        quotas=share(jobs, config.measure.stored_prompts, config.seed),
    )
    for memory in dict.fromkeys(job.cell.memory for job in jobs):
        if not is_reference(memory):
            load_memory(memory, Kit(64, desk.reader.tokenizer, writer, None, 0.0, 0), prompts)
    try:
        yield desk
    finally:
        desk.worlds.close()


@contextmanager
def staffed_desk(config: Config, archive: Archive, jobs: Sequence[Job] = ()) -> Iterator[Desk]:
    """A desk with models of its own, which are closed with it: training needs their memory."""
    models = load_models(config)
    try:
        with open_desk(config, archive, models, jobs) as desk:
            yield desk
    finally:
        for model in dict.fromkeys(models):
            asyncio.run(model.close())


def open_archive(config: Config) -> Archive:
    """The games of a configuration."""
    return Archive.open(Path(config.data) / config.games.archive)


def fingerprints(ask: Ask, desk: Desk) -> dict[str, str]:
    """Role to model, for the run's record: the reader, the writer, and the writer under each adapter used."""
    adapters = {adapter for memory in ask.memories if (adapter := split_name(memory)[1])}
    found = {"reader": desk.reader.fingerprint(), "writer": desk.writer.fingerprint()}
    return found | {f"writer@{adapter}": desk.writer.fingerprint(adapter) for adapter in sorted(adapters)}


def arguments_of(ask: Ask) -> dict[str, object]:
    """The ask as plain values, for the run's record."""
    plain: dict[str, object] = msgspec.to_builtins(ask)
    return {name: list(value) if isinstance(value, tuple) else value for name, value in plain.items()}


def _once(values: Sequence[T]) -> tuple[T, ...]:
    return tuple(dict.fromkeys(values))
