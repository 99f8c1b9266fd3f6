"""What a diagnosis covers: memories × budgets × fillers on the games of a split, as an ordered list of jobs."""

from collections.abc import Sequence
from typing import TypeVar

import msgspec

from dssr.agent.memory import FULL
from dssr.config import Config
from dssr.errors import UsageError
from dssr.types import Cell, Grid, Job, Split
from dssr.worlds.archive import Archive

T = TypeVar("T")


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
    cells = cells_of(grid, config)
    return tuple(
        Job(game, cell, config.seed, config.agent.temperature, config.agent.epsilon, "reader")
        for game in grid.games
        for cell in cells
    )


def arguments_of(grid: Grid) -> dict[str, object]:
    """The grid as plain values, for the run's record."""
    plain: dict[str, object] = msgspec.to_builtins(grid)
    return {name: list(value) if isinstance(value, tuple) else value for name, value in plain.items()}


def _once(values: Sequence[T]) -> tuple[T, ...]:
    return tuple(dict.fromkeys(values))
