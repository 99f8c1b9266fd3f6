"""What a diagnosis covers: memories × budgets × fillers on the games of a split, as an ordered list of jobs."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import msgspec

from dssr.agent.capture import share
from dssr.agent.episode import Agent
from dssr.agent.memory import FULL, Kit, is_reference, load_memory, split_name
from dssr.agent.prompts import load_prompts
from dssr.agent.reader import Reader
from dssr.config import Config
from dssr.errors import UsageError
from dssr.models.base import Model
from dssr.models.load import load_models
from dssr.types import Cell, Job, Record, Split
from dssr.worlds.archive import Archive, Worlds

T = TypeVar("T")


class Grid(Record, frozen=True):
    """What one diagnosis was asked for beyond its configuration."""

    memories: tuple[str, ...]
    budgets: tuple[int, ...]
    fillers: tuple[int, ...]
    split: Split
    games: tuple[str, ...]
    lag: bool
    """Measure the relevance lag at audited points too."""


def grid_of(
    config: Config,
    archive: Archive,
    memories: Sequence[str] = (),
    budgets: Sequence[int] = (),
    fillers: Sequence[int] = (),
    games: int | None = None,
    split: Split = "valid",
    lag: bool = False,
) -> Grid:
    """The grid asked for; what is not given comes from the configuration. `games` is how many per level."""
    chosen = [game for level in config.games.levels for game in archive.games(split, level)[:games]]
    if not chosen:
        raise UsageError(
            f"{archive.folder} has no {split} games of the levels {list(config.games.levels)}; make some first."
        )
    low = [number for number in (*budgets, *(filler + 1 for filler in fillers)) if number < 1]
    if low or (games is not None and games < 1):
        raise UsageError("A budget and a number of games must be at least 1, and a filler at least 0.")
    return Grid(
        memories=_once(memories or config.agent.memories),
        budgets=_once(budgets or config.agent.budgets),
        fillers=_once(fillers or config.protocol.fillers),
        split=split,
        games=tuple(game.id for game in chosen),
        lag=lag,
    )


def cells_of(grid: Grid, config: Config) -> tuple[Cell, ...]:
    """The cells in grid order; `full` has no budget and is one cell per filler."""
    return tuple(
        Cell(memory, budget, filler, config.protocol.kind)
        for memory in grid.memories
        for budget in ((None,) if memory == FULL else grid.budgets)
        for filler in grid.fillers
    )


def jobs_of(grid: Grid, config: Config) -> tuple[Job, ...]:
    """All episodes, game by game, so that an interrupted run holds whole games."""
    return tuple(
        Job(game, cell, config.seed, config.agent.temperature, config.agent.epsilon, "reader")
        for game in grid.games
        for cell in cells_of(grid, config)
    )


@contextmanager
def open_agent(config: Config, archive: Archive, models: tuple[Model, Model], jobs: Sequence[Job]) -> Iterator[Agent]:
    """What the episodes of a run share, with every memory of the jobs tried out before anything starts."""
    writer, reader = models
    prompts = load_prompts(config.agent.prompts)
    agent = Agent(
        worlds=Worlds(archive),
        writer=writer,
        reader=Reader(reader, config.agent.reader_adapter, prompts.reader),
        prompts=prompts,
        max_actions=config.protocol.max_actions,
        quotas=share(jobs, config.measure.stored_prompts, config.seed),
    )
    for memory in dict.fromkeys(job.cell.memory for job in jobs):
        if not is_reference(memory):
            load_memory(memory, Kit(64, agent.reader.tokenizer, writer, None, 0.0, 0), prompts)
    try:
        yield agent
    finally:
        agent.worlds.close()


@contextmanager
def staffed_agent(config: Config, archive: Archive, jobs: Sequence[Job] = ()) -> Iterator[Agent]:
    """A agent with models of its own, which are closed with it: training needs their memory."""
    models = load_models(config)
    try:
        with open_agent(config, archive, models, jobs) as agent:
            yield agent
    finally:
        for model in dict.fromkeys(models):
            asyncio.run(model.close())


def open_archive(config: Config) -> Archive:
    """The games of a configuration."""
    return Archive.open(Path(config.data) / config.games.archive)


def fingerprints(grid: Grid, agent: Agent) -> dict[str, str]:
    """Role to model, for the run's record: the reader, the writer, and the writer under each adapter used."""
    adapters = {adapter for memory in grid.memories if (adapter := split_name(memory)[1])}
    found = {"reader": agent.reader.fingerprint(), "writer": agent.writer.fingerprint()}
    return found | {f"writer@{adapter}": agent.writer.fingerprint(adapter) for adapter in sorted(adapters)}


def arguments_of(grid: Grid) -> dict[str, object]:
    """The grid as plain values, for the run's record."""
    plain: dict[str, object] = msgspec.to_builtins(grid)
    return {name: list(value) if isinstance(value, tuple) else value for name, value in plain.items()}


def _once(values: Sequence[T]) -> tuple[T, ...]:
    return tuple(dict.fromkeys(values))
