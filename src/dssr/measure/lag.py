"""Relevance lag: how long ago the reader was told what a decision needs, and regret against that distance.

Chunks of the history are left out one at a time; the one whose absence hurts most holds the fact. Tables put regret
against the measured lag and against the number of rewrites since the reveal.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from dssr.agent.episode import Agent
from dssr.agent.leaks import Watch
from dssr.agent.prompts import render_history
from dssr.agent.recall import chunks_of
from dssr.config import MeasureConfig
from dssr.errors import StatsError
from dssr.measure.audit import audited_steps, history_at, options_of
from dssr.measure.rows import CellGroup, game_values, groups
from dssr.measure.study import Study
from dssr.stats.bootstrap import Interval
from dssr.stats.contrasts import binned_contrast, binned_means
from dssr.types import Audit, Cell, Chunk, Lag, Played, Protocol, Record, Step


class Relevance(Record, frozen=True):
    """The chunk a decision depends on most."""

    lag: int
    """Steps from the end of the chunk to the decision."""
    kind: str
    """The world's name for this kind of stretch."""
    rise: float


def without(steps: Sequence[Step], index: int, chunk: Chunk) -> str:
    """The history before step `index` as if the chunk had never been."""
    kept = [step for step in steps[:index] if not chunk.first <= step.index <= chunk.last]
    return render_history(kept, steps[index].action)


async def measure_lag(played: Played, index: int, goal: str, agent: Agent, block: int, watch: Watch) -> Lag:
    """Leave one chunk out at a time, at one decision point."""
    steps, step = played.steps, played.steps[index]
    chunks = chunks_of(steps, index, played.episode.reveal, block, agent.worlds.domain.words)
    contexts = [history_at(steps, index), *(without(steps, index, chunk) for chunk in chunks)]
    with watch.at(index):
        full, *rest = await asyncio.gather(
            *(agent.reader.nll(goal, context, step.observation, options_of(step)) for context in contexts)
        )
    return Lag(
        episode=played.episode.key,
        step=index,
        nll_full=full,
        chunks=chunks,
        rises=tuple(loss - full for loss in rest),
    )


async def lags_of(played: Played, goal: str, agent: Agent, measure: MeasureConfig, watch: Watch) -> list[Lag]:
    """Relevance lags at the audited points of an episode."""
    points = audited_steps(played.steps, played.episode.job, measure.points)
    return list(
        await asyncio.gather(*(measure_lag(played, step, goal, agent, measure.block, watch) for step in points))
    )


def relevance(lag: Lag, threshold: float) -> Relevance | None:
    """The chunk with the largest rise, the earliest among equals; None when no rise reaches the threshold."""
    if not lag.rises or max(lag.rises) < threshold:
        return None
    place = lag.rises.index(max(lag.rises))
    chunk = lag.chunks[place]
    return Relevance(lag.step - chunk.last, chunk.kind, lag.rises[place])


Point = tuple[str, float, float]
"""Game, distance, value."""


class RewriteRow(CellGroup, frozen=True):
    """Regret so many writes after the reveal, all fillers together: the mean over the decisions of the bin."""

    bin: str
    """Of writes since the reveal."""
    points: int
    games: int
    kappa: Interval | None


class RewriteContrastRow(Record, frozen=True):
    """Two memories so many writes after the reveal, paired by game within the bin."""

    first: str
    second: str
    budget: int | None
    protocol: Protocol
    bin: str
    """Of writes since the reveal."""
    games: int
    """With values under both memories."""
    left_out: tuple[str, ...]
    """Games with values under one of them only."""
    difference: Interval | None
    """Kappa of `first` minus kappa of `second`."""
    relative: Interval | None
    """Change relative to `second`, where that is told from zero."""


class LagBinRow(CellGroup, frozen=True):
    """Losses at decisions whose measured lag falls into one bin."""

    threshold: float
    """Nats by which leaving a chunk out must raise the loss for the decision to hang on it."""
    bin: str
    """Of the lag, in steps."""
    points: int
    games: int
    kappa: Interval | None
    beta: Interval | None
    nll_full: Interval | None
    """Loss under the full history."""


class ChunkRow(Record, frozen=True):
    """How many decisions hang on one kind of chunk."""

    threshold: float
    kind: str
    """Of a chunk, or `undefined` where none matters by the threshold."""
    points: int
    share: float


def rewrite_rows(study: Study) -> list[RewriteRow]:
    """Regret by writes since the reveal, all fillers together."""
    study.need_audits()
    edges = study.config.measure.rewrite_bins
    return [
        RewriteRow(
            group.memory, group.budget, group.protocol, found.label, found.points, found.games, kappa=found.interval
        )
        for group, cells in _audited(study)
        for found in binned_means(_rewrites(study, _single(study, cells)), edges, study.sampler)
    ]


def rewrite_contrast_rows(study: Study, first: str, second: str) -> list[RewriteContrastRow]:
    """The same for two memories, paired by game within each bin."""
    study.need_audits()
    edges = study.config.measure.rewrite_bins
    known = dict(_audited(study))
    rows = []
    for group, cells in known.items():
        other = known.get(CellGroup(second, group.budget, group.protocol))
        if group.memory != first or other is None:
            continue
        rows += [
            RewriteContrastRow(
                first=first,
                second=second,
                budget=group.budget,
                protocol=group.protocol,
                bin=found.label,
                games=found.games,
                left_out=found.left_out,
                difference=found.interval,
                relative=found.relative,
            )
            for found in binned_contrast(_by_seed(study, cells), _by_seed(study, other), edges, study.sampler)
        ]
    return rows


def lag_bin_rows(study: Study) -> list[LagBinRow]:
    """Losses by relevance lag, for the threshold in use and for those that check it."""
    study.need_audits()
    study.need_lags()
    measure = study.config.measure
    rows = []
    for group, cells in _audited(study):
        for threshold in (measure.lag_threshold, *measure.lag_robustness):
            kappa, beta, loss = (
                binned_means(_lagged(study, _single(study, cells), threshold, value), measure.lag_bins, study.sampler)
                for value in (lambda a: a.kappa, lambda a: a.beta, lambda a: a.nll_full)
            )
            rows += [
                LagBinRow(
                    memory=group.memory,
                    budget=group.budget,
                    protocol=group.protocol,
                    threshold=threshold,
                    bin=one.label,
                    points=one.points,
                    games=one.games,
                    kappa=one.interval,
                    beta=two.interval,
                    nll_full=three.interval,
                )
                for one, two, three in zip(kappa, beta, loss, strict=True)
            ]
    return rows


def chunk_rows(study: Study) -> list[ChunkRow]:
    """Which kind of chunk decisions hang on."""
    study.need_lags()
    measure = study.config.measure
    lags = [lag for steps in study.lags.values() for lag in steps.values()]
    rows: list[ChunkRow] = []
    for threshold in (measure.lag_threshold, *measure.lag_robustness):
        found: Counter[str] = Counter(one.kind if (one := relevance(lag, threshold)) else "undefined" for lag in lags)
        kinds = (*(kind.name for kind in study.domain.words.chunks), "undefined")
        rows += [ChunkRow(threshold, kind, found[kind], found[kind] / len(lags)) for kind in kinds]
    return rows


def split_by_lag(study: Study, cells: Iterable[Cell], split: int) -> tuple[dict[str, float], dict[str, float]]:
    """Per game the mean regret at lags from `split` on, and at shorter ones; games that have both."""
    points = _lagged(study, cells, study.config.measure.lag_threshold, lambda audit: audit.kappa)
    sides: tuple[dict[str, list[float]], dict[str, list[float]]] = ({}, {})
    for game, lag, value in points:
        sides[lag < split].setdefault(game, []).append(value)
    both = sorted(sides[0].keys() & sides[1].keys())
    long, short = ({game: float(np.mean(side[game])) for game in both} for side in sides)
    return long, short


def _single(study: Study, cells: Iterable[Cell]) -> list[Cell]:
    """The played cells behind these conditions: all seeds of a pooled writer."""
    return [one for cell in cells for one in study.single(cell)]


def _by_seed(study: Study, cells: Sequence[Cell]) -> list[list[Point]]:
    """The points of each seed apart; every condition of a writer has the same seeds."""
    return [_rewrites(study, seed) for seed in zip(*(study.single(cell) for cell in cells), strict=True)]


def _rewrites(study: Study, cells: Iterable[Cell]) -> list[Point]:
    return [
        (game, float(audit.rewrites), audit.kappa)
        for cell in cells
        for game, audits in study.audits[cell].items()
        for audit in audits
    ]


def _lagged(study: Study, cells: Iterable[Cell], threshold: float, value: Callable[[Audit], float]) -> list[Point]:
    points = []
    for cell in cells:
        for game, audits in study.audits[cell].items():
            for audit in audits:
                lag = study.lags.get(audit.episode, {}).get(audit.step)
                found = relevance(lag, threshold) if lag else None
                if found:
                    points.append((game, float(found.lag), value(audit)))
    return points


def _complete(study: Study, cells: Iterable[Cell]) -> bool:
    """Whether every game of a pooled writer has all its seeds; where not, the row of its cell says what is missing."""
    try:
        for cell in cells:
            game_values(study, cell, "kappa")
    except StatsError:
        return False
    return True


def _audited(study: Study) -> Iterable[tuple[CellGroup, list[Cell]]]:
    for group, cells in groups(study).items():
        audited = [cell for cell in cells.values() if any(study.audits[one] for one in study.single(cell))]
        if audited and _complete(study, audited):
            yield group, audited
