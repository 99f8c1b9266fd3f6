"""What a study says, as typed rows: the cells of the grid, and comparisons of them. From stored records alone.

A quantity with an interval is an `Interval`, or None where it has no value. `flat` turns a row into plain columns, for
files, data frames and programs. Success, score and shares are fractions; losses are in nats.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any, Literal, get_args

import msgspec
import numpy as np

from dssr.errors import StatsError
from dssr.measure.study import Study
from dssr.stats.bootstrap import Interval, Resampler, align, mean_interval
from dssr.stats.contrasts import change_if_any, difference, over_fillers, slope
from dssr.stats.ranks import spearman_over_cells
from dssr.types import Audit, Cell, Episode, Protocol, Record

BASE = "summary"
"""The plain prompted memory, which others are compared with."""

Quantity = Literal["success", "score", "delta", "beta", "kappa"]
LOSSES: dict[str, Callable[[Audit], float]] = {
    "delta": lambda audit: audit.delta,
    "beta": lambda audit: audit.beta,
    "kappa": lambda audit: audit.kappa,
}
OUTCOMES: dict[str, Callable[[Episode], float]] = {
    "success": lambda episode: float(episode.outcome == "won"),
    "score": lambda episode: episode.score / episode.max_score,
}

# ---------------------------------------------------------------- rows


class CellRow(Cell, frozen=True):
    """One cell of the grid: what was won there, and what decisions lost."""

    games: int
    """Finished episodes, one per game."""
    errors: int
    """Episodes that broke; they are in no mean."""
    success: Interval | None
    """Share of games won."""
    score: Interval | None
    """Mean share of the points to be had."""
    delta: Interval | None
    """Loss under the state minus loss under the full history."""
    beta: Interval | None
    """The part of delta that the budget costs: even a state written in hindsight loses it."""
    kappa: Interval | None
    """The part that the writer's choices cost: write-time regret."""
    points: int
    """Audited decisions."""
    coverage: float | None
    """Mean share of the facts worth following in the states of audited decisions."""
    truncated: float | None
    """Share of writes that had to be cut to the budget."""
    tokens: float | None
    """Mean length of a written state."""
    actions: float | None
    """Mean decisions per finished episode."""
    disagreements: int
    """Decisions where the reader's choice was not the reference action."""
    ties: int
    """Of these, those where the reader's choice shortened the optimal plan too."""
    tie_rate: float | None
    """Share of ties among disagreements."""


class CellGroup(Record, frozen=True):
    """The cells that differ only in the length of the filler walk."""

    memory: str
    budget: int | None
    """None for `full`."""
    protocol: Protocol


class FillerRow(CellGroup, frozen=True):
    """One value for the long fillers together: each game's mean of its means at those fillers."""

    fillers: str
    """Joined by a slash."""
    problem: str | None
    """Why a value is missing."""
    success: Interval | None
    delta: Interval | None
    beta: Interval | None
    kappa: Interval | None


class SlopeRow(CellGroup, frozen=True):
    """Regret against the length of the filler walk."""

    problem: str | None
    """Why there is no slope."""
    slope: Interval | None
    """Nats per step of the walk."""


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
    """Does the gap go with failure? Rank correlation of mean delta and success over the audited cells."""

    cells: int
    rho: Interval


# ---------------------------------------------------------------- columns


def flat(row: Record) -> dict[str, Any]:
    """A row as plain columns: an interval `x` takes three, `x`, `x_low` and `x_high`; a tuple becomes a list.

    A mapping has no column of its own: a table of rows with one says which of its values are columns.
    """
    found: dict[str, Any] = {}
    for name in row.__struct_fields__:
        value = getattr(row, name)
        if name in interval_fields(type(row)):
            found |= columns(name, value)
        elif not isinstance(value, dict):
            found[name] = list(value) if isinstance(value, tuple) else value
    return found


def columns(name: str, found: Interval | None) -> dict[str, float | None]:
    """The three columns of a quantity, all None where it has no value."""
    if found is None:
        return dict.fromkeys((name, f"{name}_low", f"{name}_high"))
    return {name: found.estimate, f"{name}_low": found.low, f"{name}_high": found.high}


@cache
def interval_fields(kind: type[Record]) -> frozenset[str]:
    """The fields of a kind of row that hold intervals."""
    fields = msgspec.structs.fields(kind)
    return frozenset(one.name for one in fields if one.type is Interval or Interval in get_args(one.type))


# ---------------------------------------------------------------- values by game


def game_values(study: Study, cell: Cell, quantity: Quantity) -> dict[str, float]:
    """Per game its value in one cell; a failed episode or a missing audit has none."""
    if quantity in OUTCOMES:
        outcome = OUTCOMES[quantity]
        return {game: outcome(e) for game, e in study.episodes[cell].items() if e.outcome != "error"}
    loss = LOSSES[quantity]
    return {game: float(np.mean([loss(audit) for audit in audits])) for game, audits in study.audits[cell].items()}


def mean_of(values: Mapping[str, float], sampler: Resampler) -> Interval | None:
    """Mean over games; None of no game."""
    return mean_interval(np.array([values[game] for game in sorted(values)]), sampler) if values else None


def groups(study: Study) -> dict[CellGroup, dict[int, Cell]]:
    """The cells that differ only in the length of the walk, by that length."""
    found: dict[CellGroup, dict[int, Cell]] = {}
    for cell in study.cells:
        found.setdefault(CellGroup(cell.memory, cell.budget, cell.protocol), {})[cell.filler] = cell
    return {group: dict(sorted(cells.items())) for group, cells in found.items()}


def long_fillers(study: Study) -> tuple[int, ...]:
    """The fillers that stand for "long" wherever one value does."""
    return study.config.stats.long_fillers


# ---------------------------------------------------------------- one row per cell, one per group


def cell_rows(study: Study) -> list[CellRow]:
    """One row per cell of the grid."""
    return [_cell_row(study, cell) for cell in study.cells]


def _cell_row(study: Study, cell: Cell) -> CellRow:
    finished = [episode for episode in study.episodes[cell].values() if episode.outcome != "error"]
    audits = [audit for game in study.audits[cell].values() for audit in game]
    covered = [audit.coverage for audit in audits if audit.coverage is not None]
    writes = tokens = cut = decisions = differ = ties = 0
    for episode in finished:
        for step in study.steps(episode.key):
            writes += step.write.tokens > 0
            tokens += step.write.tokens
            cut += step.write.truncated
            if step.decision is not None:
                decisions += 1
                differ += step.decision.tie is not None
                ties += bool(step.decision.tie)

    def mean(quantity: Quantity) -> Interval | None:
        return mean_of(game_values(study, cell, quantity), study.sampler)

    return CellRow(
        memory=cell.memory,
        budget=cell.budget,
        filler=cell.filler,
        protocol=cell.protocol,
        games=len(finished),
        errors=len(study.episodes[cell]) - len(finished),
        success=mean("success"),
        score=mean("score"),
        delta=mean("delta"),
        beta=mean("beta"),
        kappa=mean("kappa"),
        points=len(audits),
        coverage=float(np.mean(covered)) if covered else None,
        truncated=cut / writes if writes else None,
        tokens=tokens / writes if writes else None,
        actions=decisions / len(finished) if finished else None,
        disagreements=differ,
        ties=ties,
        tie_rate=ties / differ if differ else None,
    )


def filler_rows(study: Study) -> list[FillerRow]:
    """One row per group that was measured at all long fillers."""
    return [_filler_row(study, group, cells) for group, cells in groups(study).items() if _has_long(study, cells)]


def _has_long(study: Study, cells: Mapping[int, Cell]) -> bool:
    return set(long_fillers(study)) <= set(cells)


def _filler_row(study: Study, group: CellGroup, cells: Mapping[int, Cell]) -> FillerRow:
    long, problems = long_fillers(study), []

    def mean(quantity: Quantity) -> Interval | None:
        try:
            values = over_fillers({filler: game_values(study, cells[filler], quantity) for filler in long})
        except StatsError as error:
            problems.append(str(error))
            return None
        return mean_of(values, study.sampler)

    success, delta, beta, kappa = mean("success"), mean("delta"), mean("beta"), mean("kappa")
    problem = problems[-1] if problems else None
    named = "/".join(map(str, long))
    return FillerRow(group.memory, group.budget, group.protocol, named, problem, success, delta, beta, kappa)


def slope_rows(study: Study) -> list[SlopeRow]:
    """One row per group with a budget and two or more fillers."""
    study.need_audits()
    rows = []
    for group, cells in groups(study).items():
        if len(cells) < 2 or group.budget is None:
            continue
        found, problem = None, None
        try:
            _, values = align({f"filler {filler}": game_values(study, c, "kappa") for filler, c in cells.items()})
            found = slope(values, np.array(list(cells), dtype=float), study.sampler)
        except StatsError as error:
            problem = str(error)
        rows.append(SlopeRow(group.memory, group.budget, group.protocol, problem, found))
    return rows


# ---------------------------------------------------------------- comparisons


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
                for filler, first, second in _pairs(study, cells, against, quantity):
                    found = compared(first, second, other.memory, base, study.sampler)
                    head = (other.memory, base, group.budget, filler, group.protocol, quantity)
                    rows.append(ContrastRow(*head, found.difference, found.relative, found.games, found.problem))
    return rows


def _pairs(
    study: Study, cells: Mapping[int, Cell], against: Mapping[int, Cell], quantity: Quantity
) -> Iterable[tuple[str, dict[str, float], dict[str, float]]]:
    both = [filler for filler in cells if filler in against]
    found = {f: (game_values(study, cells[f], quantity), game_values(study, against[f], quantity)) for f in both}
    yield from ((str(filler), *pair) for filler, pair in found.items())
    long = long_fillers(study)
    if set(long) <= set(both):
        try:
            first, second = (over_fillers({filler: found[filler][side] for filler in long}) for side in (0, 1))
        except StatsError:
            return  # the rows of the single fillers say which games are missing
        yield "/".join(map(str, long)), first, second


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
    """Rank correlation of mean gap and success over all audited cells; None where there is none to be had."""
    study.need_audits()
    audited = [cell for cell in study.cells if study.audits[cell]]
    quantities: tuple[Quantity, Quantity] = ("delta", "success")
    both = {f"{q} of {i}": game_values(study, cell, q) for q in quantities for i, cell in enumerate(audited)}
    try:
        _, values = align(both)
        half = len(audited)
        return RelationRow(half, spearman_over_cells(values[:half], values[half:], study.sampler))
    except StatsError:
        return None
