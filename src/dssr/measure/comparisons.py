"""Memories compared: within one study with the base memory, paired by game; and writers under several readers: what a
memory gains over the base memory, and how much of that a second reader keeps.

From stored diagnoses alone. The reader of the first run is the one that the others are compared with.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np

from dssr.agent.memory import FULL
from dssr.errors import StatsError
from dssr.measure.rows import (
    BASE,
    CellGroup,
    CellRow,
    Quantity,
    cell_rows,
    filler_rows,
    game_values,
    groups,
    long_fillers,
    mean_of,
)
from dssr.measure.study import Study, name_of, same_device
from dssr.record.run import Run
from dssr.session import verb
from dssr.stats.bootstrap import Array, Interval, Resampler, align
from dssr.stats.contrasts import change_if_any, difference, over_fillers, ratio, spearman_over_cells
from dssr.types import Cell, Protocol, Record

T = TypeVar("T")
SHORT = 8
"""Characters of a fingerprint that tell two readers of one name apart."""


class TransferRow(CellGroup, frozen=True):
    """One writer under one reader."""

    reader: str
    """Model and adapter."""
    games: int
    near: Interval | None
    """Success at the near filler of the gates, 0."""
    success: Interval | None
    """Success over the long fillers."""
    kappa: Interval | None
    """Write-time regret over the long fillers."""
    gain: Interval | None
    """Success over the long fillers minus that of the base memory under the same reader, paired by game."""
    kept: float | None
    """Share of the first reader's gain; None for the first reader itself and where there was no gain to keep."""
    kept_low: float | None
    """None when some resample of the games has no gain: a share of nothing has no bounds."""
    kept_high: float | None
    problem: str | None
    """Why a value is missing."""


class ReaderRow(CellGroup, frozen=True):
    """One memory under one reader, side by side at every filler."""

    reader: str
    """Model and adapter."""
    games: int
    at: dict[int | str, Interval | None]
    """Success by filler."""
    kappa: Interval | None
    """Write-time regret over the long fillers; None where one of them was not measured."""


def reader_rows(studies: Mapping[str, Study]) -> list[ReaderRow]:
    """The rows of every reader together, by its name."""
    rows = []
    for reader, study in studies.items():
        long = {CellGroup(one.memory, one.budget, one.protocol): one.kappa for one in filler_rows(study)}
        found: dict[CellGroup, dict[int | str, CellRow]] = {}
        for row in cell_rows(study):
            found.setdefault(CellGroup(row.memory, row.budget, row.protocol), {})[row.filler] = row
        for group, cells in found.items():
            at = {filler: row.success for filler, row in sorted(cells.items(), key=lambda item: int(item[0]))}
            games = max(row.games for row in cells.values())
            rows.append(ReaderRow(group.memory, group.budget, group.protocol, reader, games, at, long.get(group)))
    return rows


@verb
async def transfer(runs: Sequence[str | Path | Run]) -> list[TransferRow]:
    """The matrix writer × reader from diagnoses of the same games and memories under different readers.

    The reader of the first run is R1: the other rows say what share of its gain over `summary` they keep.
    """
    return transfer_rows([run if isinstance(run, Run) else Run.open(run) for run in runs])


def by_reader(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """The runs of each reader, by its fingerprint, in the order in which the readers occur."""
    found: dict[str, list[Run]] = {}
    for run in runs:
        found.setdefault(run.info.models.get("reader", ""), []).append(run)
    return found


def transfer_rows(runs: Sequence[Run]) -> list[TransferRow]:
    """One row per writer and reader; runs that cannot be compared are refused with a sentence."""
    if not runs:
        raise StatsError("There is no run to read; give diagnoses of the same games under two readers.")
    same_device(runs)
    readers = by_reader(runs)
    if len(readers) < 2:
        raise StatsError(
            f"These runs have one reader, {reader_name(runs[0])}; give a diagnosis of the same games and memories "
            "under a second one too."
        )
    same_archive(runs)
    same_tokenizer(runs)
    _same_writers(runs)
    studies = {name: Study.load(readers[key]) for key, name in reader_names(readers).items()}
    align({name: dict.fromkeys(study.games, 0.0) for name, study in studies.items()})
    first = next(iter(studies.values()))
    written = dict.fromkeys(group for study in studies.values() for group in groups(study))
    return [
        _row(group, name, study, first)
        for group in written
        for name, study in studies.items()
        if group in groups(study)
    ]


def reader_name(run: Run) -> str:
    """Model and adapter of a run's reader."""
    adapter = run.config.agent.reader_adapter
    return run.config.reads_with.path + (f"@{adapter}" if adapter else "")


# ---------------------------------------------------------------- what is refused


def reader_names(readers: Mapping[str, Sequence[Run]]) -> dict[str, str]:
    """Fingerprint to name; two readers of one name are told apart by their fingerprints."""
    plain = {key: reader_name(runs[0]) for key, runs in readers.items()}
    return {
        key: name if list(plain.values()).count(name) == 1 else f"{name} ({key[:SHORT]})" for key, name in plain.items()
    }


def same_archive(runs: Sequence[Run]) -> None:
    """Game names repeat from archive to archive."""
    for run in runs:
        if run.config.games != runs[0].config.games:
            raise StatsError(f"{runs[0].path} and {run.path} were not played on the same archive of games.")


def same_tokenizer(runs: Sequence[Run]) -> None:
    """States of the same budget must be the same text under every reader."""
    first = runs[0]
    for run in runs:
        if run.config.counts_with != first.config.counts_with:
            raise StatsError(
                f"{first.path} counts budgets by the tokenizer of {first.config.counts_with} and {run.path} by that of "
                f"{run.config.counts_with}, so their states are not the same; set agent.budget_tokenizer alike."
            )


def _same_writers(runs: Sequence[Run]) -> None:
    """A memory must have been written by one and the same model under every reader."""
    known: dict[str, tuple[str, Run]] = {}
    for run in runs:
        for role, fingerprint in run.info.models.items():
            if role == "reader":
                continue
            before, other = known.setdefault(role, (fingerprint, run))
            if before != fingerprint:
                raise StatsError(
                    f"{other.path} and {run.path} were written by different models under the name {role}; "
                    "compare readers on one writer."
                )


# ---------------------------------------------------------------- rows


class Kept(Record, frozen=True):
    """A share of a gain; without bounds where some resample has no gain."""

    share: float
    interval: Interval | None


def _row(group: CellGroup, reader: str, study: Study, first: Study) -> TransferRow:
    problems: list[str] = []

    def tried(make: Callable[[], T]) -> T | None:
        try:
            return make()
        except StatsError as error:
            problems.append(str(error))
            return None

    def mean(values: Mapping[str, float] | None) -> Interval | None:
        return mean_of(values, study.sampler) if values else None

    cells, near = groups(study)[group], study.config.gates.near
    success = tried(lambda: _over_long(study, group, "success"))
    kappa = tried(lambda: _over_long(study, group, "kappa")) if group.budget is not None else None
    compared = group.memory != BASE and success is not None
    gain = tried(lambda: gain_of(study, group)) if compared else None
    kept = tried(lambda: kept_of(gain, gain_of(first, group), study.sampler)) if gain and study is not first else None
    bounds = kept.interval if kept else None
    return TransferRow(
        memory=group.memory,
        budget=group.budget,
        protocol=group.protocol,
        reader=reader,
        games=len(study.games),
        near=mean(game_values(study, cells[near], "success")) if near in cells else None,
        success=mean(success),
        kappa=mean(kappa),
        gain=mean(gain),
        kept=kept.share if kept else None,
        kept_low=bounds.ends[0] if bounds else None,
        kept_high=bounds.ends[1] if bounds else None,
        problem=problems[0] if problems else None,
    )


def _over_long(study: Study, group: CellGroup, quantity: Quantity) -> dict[str, float]:
    """Per game the mean over the long fillers."""
    found, long = groups(study), long_fillers(study)
    if group not in found:
        size = "" if group.budget is None else f" at {group.budget} tokens"
        raise StatsError(f"The memory {group.memory}{size} is not in the runs of every reader.")
    missing = [str(filler) for filler in long if filler not in found[group]]
    if missing:
        raise StatsError(f"The memory {group.memory} was not played at the long filler {', '.join(missing)}.")
    return over_fillers({filler: game_values(study, found[group][filler], quantity) for filler in long})


def gain_of(study: Study, group: CellGroup) -> dict[str, float]:
    """Per game, success over the long fillers minus that of the base memory; `full` has no budget to match."""
    budgets = (group.budget,) if group.budget is not None else (study.config.gates.budget,)
    base = CellGroup(BASE, budgets[0], group.protocol)
    games, (mine, other) = align(
        {group.memory: _over_long(study, group, "success"), BASE: _over_long(study, base, "success")}
    )
    return dict(zip(games, (mine - other).tolist(), strict=True))


def kept_of(gain: Mapping[str, float], first: Mapping[str, float], sampler: Resampler) -> Kept:
    """The mean gain as a share of the first reader's, on the same games; both are recomputed in each resample."""
    _, (mine, other) = align({"the reader": gain, "the first reader": first})
    if np.mean(other) <= 0:
        raise StatsError("The first reader has no gain to keep.")
    share = float(np.mean(mine) / np.mean(other))
    if (sampler.sums(other) <= 0).any():
        return Kept(share, None)
    return Kept(share, ratio(mine, other, sampler))


# ---------------------------------------------------------------- one study: its memories and cells

LEAST_CELLS = 10
"""Cells from which on a rank correlation over them is told."""


class Compared(Record, frozen=True):
    """Two columns of per-game values, paired by game."""

    difference: Interval | None
    """First minus second."""
    relative: Interval | None
    """Change relative to the second, where that is told from zero."""
    games: int | None
    problem: str | None
    """Why they cannot be compared."""


class ContrastRow(Record, frozen=True):
    """A memory against another at one filler, or over the long ones, paired by game."""

    memory: str
    base: str
    """What it is compared with."""
    budget: int | None
    filler: str
    """One filler, or the long ones joined by a slash."""
    protocol: Protocol
    quantity: Quantity
    difference: Interval | None
    """Of `memory` minus `base`."""
    relative: Interval | None
    """Change relative to `base`, where that is told from zero."""
    games: int | None
    problem: str | None
    """Why the two cannot be compared."""


class RelationRow(Record, frozen=True):
    """Does the gap go with failure? Rank correlation of mean delta and success over all cells, `full` at delta 0."""

    cells: int
    rho: Interval


def contrast_rows(study: Study, base: str = BASE) -> list[ContrastRow]:
    """Every memory against one of them, paired by game, at each filler and over the long ones."""
    known = groups(study)
    if not any(group.memory == base for group in known):
        raise StatsError(f"No cell has the memory {base!r} to compare with; choose one of the memories in the runs.")
    rows = []
    for group, against in known.items():
        if group.memory != base:
            continue
        for other, cells in known.items():
            if other.memory == base or other.protocol != group.protocol or other.budget not in (group.budget, None):
                continue
            quantities: tuple[Quantity, ...] = ("success", "kappa") if other.budget is not None else ("success",)
            for quantity in quantities:
                for filler, found in _pairs(study, cells, against, quantity):
                    head = (other.memory, base, group.budget, filler, group.protocol, quantity)
                    rows.append(ContrastRow(*head, found.difference, found.relative, found.games, found.problem))
    return rows


def _pairs(
    study: Study, cells: Mapping[int, Cell], against: Mapping[int, Cell], quantity: Quantity
) -> Iterable[tuple[str, Compared]]:
    """Per filler that both have, and over the long ones if they have these, the comparison."""
    both = [filler for filler in cells if filler in against]
    name, base = (next(iter(side.values())).memory for side in (cells, against))
    found: dict[int, tuple[dict[str, float], dict[str, float]]] = {}
    for filler in both:
        try:
            found[filler] = (
                game_values(study, cells[filler], quantity),
                game_values(study, against[filler], quantity),
            )
        except StatsError as error:
            yield str(filler), Compared(None, None, None, str(error))
            continue
        yield str(filler), compared(*found[filler], name, base, study.sampler)
    long = long_fillers(study)
    if set(long) <= set(found):
        try:
            first, second = (over_fillers({filler: found[filler][side] for filler in long}) for side in (0, 1))
        except StatsError:
            return  # the rows of the single fillers say which games are missing
        yield "/".join(map(str, long)), compared(first, second, name, base, study.sampler)


def compared(
    first: Mapping[str, float], second: Mapping[str, float], name: str, base: str, sampler: Resampler
) -> Compared:
    """Difference and relative change of two columns, or the sentence why they cannot be compared."""
    try:
        games, (a, b) = align({name: first, base: second})
        apart = difference(a, b, sampler)
    except StatsError as error:
        return Compared(None, None, None, str(error))
    return Compared(apart, change_if_any(a, b, sampler), len(games), None)


def relation(study: Study) -> RelationRow | None:
    """Rank correlation of mean gap and success over all cells; None of fewer than `LEAST_CELLS`, whose order is soon
    chance, and where there is none to be had."""
    study.need_audits()
    try:
        delta, success = gap_and_success(study)
        if len(delta) < LEAST_CELLS:
            return None
        return RelationRow(len(delta), spearman_over_cells(delta, success, study.sampler))
    except StatsError:
        return None


def gap_and_success(study: Study) -> tuple[Array, Array]:
    """Delta and success, `[cells, games]` each, of every played cell that has both; `full` is the state that loses
    nothing, so its delta is 0 by definition. Seeds count one by one, as they were played."""
    gaps: dict[str, dict[str, float]] = {}
    wins: dict[str, dict[str, float]] = {}
    for cell in study.cells:
        won = game_values(study, cell, "success")
        gap = dict.fromkeys(won, 0.0) if cell.memory == FULL else game_values(study, cell, "delta")
        if gap:
            gaps[f"delta of {name_of(cell)}"], wins[f"success of {name_of(cell)}"] = gap, won
    _, values = align(gaps | wins)
    return values[: len(gaps)], values[len(gaps) :]
