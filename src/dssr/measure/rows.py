"""What a study says, as typed rows: the cells of the grid, and their means and slopes over fillers. From stored records
alone.
A quantity with an interval is an `Interval`, or None where it has no value. `flat` turns a row into plain columns, for
files, data frames and programs. Success, score and shares are fractions; losses are in nats.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Literal, get_args

import msgspec
import numpy as np

from dssr.errors import StatsError
from dssr.measure.study import Study, name_of
from dssr.stats.bootstrap import Interval, Resampler, align, mean_interval, wilson
from dssr.stats.contrasts import over_fillers, slope
from dssr.types import Audit, Cell, Episode, Protocol, Record

BASE = "summary"
"""The plain prompted memory, which others are compared with."""

Quantity = Literal["success", "score", "delta", "beta", "kappa", "kappa_first", "kappa_mean"]
LOSSES: dict[str, Callable[[Audit], float | None]] = {
    "delta": lambda audit: audit.delta,
    "beta": lambda audit: audit.beta,
    "kappa": lambda audit: audit.kappa,
    "kappa_first": lambda audit: audit.kappa_first,
    "kappa_mean": lambda audit: audit.kappa_mean,
}


def share(episode: Episode) -> float | None:
    """Share of the points to be had; of a log, of its audited decisions that the reader makes as logged."""
    return episode.score / episode.max_score if episode.max_score else None


OUTCOMES: dict[str, Callable[[Episode], float | None]] = {
    "success": lambda episode: float(episode.outcome == "won") if episode.outcome != "logged" else share(episode),
    "score": lambda episode: share(episode),
}

# ---------------------------------------------------------------- rows


class CellRow(Cell, frozen=True):
    """One cell of the grid: what was won there, and what decisions lost. A writer trained with several seeds has a row
    of its own, in which a game's value is the mean over its seeds."""

    games: int
    """Games whose episode, or every seed's, was finished."""
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
    wilson: Interval | None
    """Where success is near 0 or 1: the share with Wilson's interval. Not for pooled seeds, whose values are no
    yes or no."""
    kappa_first: Interval | None
    """Regret against the first hindsight sample instead of the best; None in runs of before."""
    kappa_mean: Interval | None
    """Regret against the mean over the hindsight samples."""
    seeds: int
    """Trained seeds that the row stands for."""
    problem: str | None
    """Why a value is missing."""


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
    """The three columns of a quantity, all None where it has no value, bounds None where it has none."""
    if found is None:
        return dict.fromkeys((name, f"{name}_low", f"{name}_high"))
    low, high = found.ends
    return {name: found.estimate, f"{name}_low": low, f"{name}_high": high}


@cache
def interval_fields(kind: type[Record]) -> frozenset[str]:
    """The fields of a kind of row that hold intervals."""
    fields = msgspec.structs.fields(kind)
    return frozenset(one.name for one in fields if one.type is Interval or Interval in get_args(one.type))


# ---------------------------------------------------------------- values by game


def game_values(study: Study, cell: Cell, quantity: Quantity) -> dict[str, float]:
    """Per game its value in one condition; a failed episode or a missing audit has none.

    A writer of several seeds has the mean over seeds of a game's values. A game that some seeds have and others lack is
    an error: a mean of fewer seeds would be another quantity.
    """
    seeds = study.single(cell)
    if len(seeds) > 1:
        columns = {one.memory: _cell_values(study, one, quantity) for one in seeds}
        try:
            games, values = align(columns)
        except StatsError as error:
            raise StatsError(f"{name_of(cell)} has no {quantity} pooled over its seeds. {error}") from None
        return dict(zip(games, values.mean(0).tolist(), strict=True))
    return _cell_values(study, seeds[0], quantity)


def _cell_values(study: Study, cell: Cell, quantity: Quantity) -> dict[str, float]:
    if quantity in OUTCOMES:
        outcome = OUTCOMES[quantity]
        won = {game: outcome(e) for game, e in study.episodes[cell].items() if e.outcome != "error"}
        return {game: value for game, value in won.items() if value is not None}
    loss, found = LOSSES[quantity], {}
    for game, audits in study.audits[cell].items():
        values = [value for audit in audits if (value := loss(audit)) is not None]
        if len(values) == len(audits):
            found[game] = float(np.mean(values))
    return found


def mean_of(values: Mapping[str, float], sampler: Resampler) -> Interval | None:
    """Mean over games; None of no game."""
    return mean_interval(np.array([values[game] for game in sorted(values)]), sampler) if values else None


def groups(study: Study) -> dict[CellGroup, dict[int, Cell]]:
    """The cells that differ only in the length of the walk, by that length."""
    found: dict[CellGroup, dict[int, Cell]] = {}
    for cell in study.conditions:
        found.setdefault(CellGroup(cell.memory, cell.budget, cell.protocol), {})[cell.filler] = cell
    return {group: dict(sorted(cells.items())) for group, cells in found.items()}


def long_fillers(study: Study) -> tuple[int, ...]:
    """The fillers that stand for "long" wherever one value does."""
    return study.config.stats.long_fillers


# ---------------------------------------------------------------- one row per cell, one per group


def cell_rows(study: Study) -> list[CellRow]:
    """One row per condition: the cells of the grid, and the writers pooled over seeds."""
    return [_cell_row(study, cell) for cell in study.conditions]


def _cell_row(study: Study, cell: Cell) -> CellRow:
    seeds = study.single(cell)
    per_game: Counter[str] = Counter()
    errors = won = writes = tokens = cut = decisions = differ = ties = points = 0
    for episode in (episode for one in seeds for episode in study.episodes[one].values()):
        if episode.outcome == "error":
            errors += 1
            continue
        per_game[episode.job.game] += 1
        won += episode.outcome == "won"
        for step in study.steps(episode.key):
            writes += step.write.tokens > 0
            tokens += step.write.tokens
            cut += step.write.truncated
            if step.decision is not None:
                decisions += 1
                differ += step.decision.tie is not None
                ties += bool(step.decision.tie)
    finished, covered = per_game.total(), []
    for audit in (audit for one in seeds for game in study.audits[one].values() for audit in game):
        points += 1
        covered += [] if audit.coverage is None else [audit.coverage]
    problems: list[str] = []

    def mean(quantity: Quantity) -> Interval | None:
        try:
            return mean_of(game_values(study, cell, quantity), study.sampler)
        except StatsError as error:
            problems.append(str(error))
            return None

    success = mean("success")
    return CellRow(
        memory=cell.memory,
        budget=cell.budget,
        filler=cell.filler,
        protocol=cell.protocol,
        games=sum(count == len(seeds) for count in per_game.values()),
        errors=errors,
        success=success,
        score=mean("score"),
        delta=mean("delta"),
        beta=mean("beta"),
        kappa=mean("kappa"),
        points=points,
        coverage=float(np.mean(covered)) if covered else None,
        truncated=cut / writes if writes else None,
        tokens=tokens / writes if writes else None,
        actions=decisions / finished if finished else None,
        disagreements=differ,
        ties=ties,
        tie_rate=ties / differ if differ else None,
        wilson=_wilson(study, won, finished, success) if len(seeds) == 1 else None,
        kappa_first=mean("kappa_first"),
        kappa_mean=mean("kappa_mean"),
        seeds=len(seeds),
        problem=problems[0] if problems else None,
    )


def _wilson(study: Study, won: int, finished: int, success: Interval | None) -> Interval | None:
    """Only where the bootstrap says too little: near 0 and 1."""
    if (
        success is None
        or study.is_of_logs
        or study.config.stats.extreme < success.estimate < 1 - study.config.stats.extreme
    ):
        return None
    return wilson(won, finished, study.sampler)


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
