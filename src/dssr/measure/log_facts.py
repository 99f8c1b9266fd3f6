"""Which rewrite lost it: the facts of logs through the states of a memory, from stored steps alone. Needs no reader.

`dssr.traces.facts` says what a fact is and when a state holds one. Here facts meet audits: a decision whose value the
context no longer holds is explained by the rewrite that dropped it.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from dssr.agent.memory import FULL, is_reference
from dssr.agent.prompts import Happened, render_history
from dssr.errors import StatsError
from dssr.measure.audit import FactMark, survival
from dssr.measure.log_losses import Scored, Sensitivity
from dssr.measure.rows import LOSSES, cell_rows, flat
from dssr.measure.study import Study
from dssr.measure.verdicts import answer_rows
from dssr.record.run import Run
from dssr.stats.bootstrap import Interval, point_mean
from dssr.traces.facts import FactLife, LogFact, Past, lives
from dssr.types import Cell, Episode, Record, Step, Write

KEPT = "not rewritten at this step"
"""Note of a step whose state is the one before."""


class TracePoint(Record, frozen=True):
    """All losses at one audited decision of a log; log `trace_points`. `Audit` has the ones that count."""

    episode: str
    step: int
    loss: str
    """How it was asked: `label`, `text` or `choice`."""
    stratum: str
    """`carried`, `repeat` or `plain`."""
    values: tuple[str, ...]
    """What the action needs and only the context can tell."""
    missing: tuple[str, ...]
    """Of these, what the context does not hold word for word."""
    rewrite: int
    """Step of the last rewrite; -1 when there was none."""
    state: Scored
    full: Scored
    oracle: Scored
    """Under the best hindsight state."""


def rewritten(writes: Sequence[Write], index: int) -> int:
    """The step of the last rewrite up to this one; -1 when there was none."""
    return next((place for place in range(index, -1, -1) if writes[place].note != KEPT), -1)


def with_tail(steps: Sequence[Happened], state: str, last: int, index: int, reference: bool) -> str:
    """The reader's context at a step: a state of an earlier rewrite, and the raw steps since.

    A reference's state ends before its step's observation, so its raw steps begin with that.
    """
    if last < 0:
        return render_history(steps[:index], steps[index].action)
    if last == index:
        return state
    raw = render_history(steps[last + 1 : index], steps[index].action)
    if reference:
        return f"{state}\n{steps[last].observation}\n\n{raw}"
    return f"{state}\n\n{raw}" if state else raw


# ---------------------------------------------------------------- facts of stored episodes


def study_facts(study: Study, episode: Episode, steps: Sequence[Step]) -> tuple[LogFact, ...]:
    """The facts of an episode that was rolled over a log."""
    references = {step.index: step.decision.options.reference for step in steps if step.decision is not None}
    return Past(study.goal(episode.job.game), steps, references).facts()


def fact_marks(study: Study, episode: Episode, steps: Sequence[Step]) -> list[FactMark]:
    """For each fact and step: does the state hold it, and is it needed any more? In a game from the reveal on."""
    if not study.is_of_logs:
        return survival(study.domain.facts(steps, episode.reveal), steps, episode.reveal)
    marks: list[FactMark] = []
    refers, writes = is_reference(episode.job.cell.memory), [step.write for step in steps]
    shown = []
    for step in steps:
        context = with_tail(steps, step.write.state, rewritten(writes, step.index), step.index, refers)
        shown.append(f"{context}\n{step.observation}" if refers else context)
    for fact in study_facts(study, episode, steps):
        before = False
        for step in steps:
            present = fact.seen <= step.index and fact.held_in(shown[step.index])
            over = step.index > fact.last
            marks.append(FactMark(fact.text, step.index, present, over, before and not present and not over))
            before = present
    return marks


def episode_lives(study: Study, episode: Episode) -> tuple[list[Step], list[FactLife]]:
    """An episode's steps, and its facts through its rewrites.

    The state of a reference ends before its step's observation, so it tells what became of the step before.
    """
    steps = study.steps(episode.key)
    early = 1 if is_reference(episode.job.cell.memory) else 0
    states = {step.index - early: step.write.state for step in steps if step.write.note != KEPT and step.index >= early}
    found = lives(study_facts(study, episode, steps), steps, states)
    if not early:
        return steps, found
    moved = [
        msgspec.structs.replace(
            life,
            rewrites=tuple(step + early for step in life.rewrites),
            dropped=None if life.dropped is None else life.dropped + early,
        )
        for life in found
    ]
    return steps, moved


# ---------------------------------------------------------------- rows


class SurvivalRow(Record, frozen=True):
    """What became of the facts of all logs under one memory."""

    memory: str
    budget: int | None
    facts: int
    """Values that later actions need and only the context can tell, and that went through a rewrite."""
    verbatim: int
    """Of these, held word for word by the state of their last use."""
    paraphrased: int
    dropped: int
    """Lost by a rewrite before their last use."""
    by_generation: str
    """Share held after 1, 2, 3 ... rewrites, in per cent."""


class BlameRow(Record, frozen=True):
    """A rewrite that lost facts which later actions needed."""

    memory: str
    budget: int | None
    trace: str
    step: int
    """Of the rewrite."""
    dropped: str
    """The values, joined."""
    needed: str
    """The decisions that needed them later."""
    kappa: float | None
    """Sum of the regret at those of them that were audited; None where none was."""


class StratumRow(Record, frozen=True):
    """Losses of one kind of decision, of the whole action too; means over decisions, traces resampled."""

    memory: str
    budget: int | None
    stratum: str
    loss: str
    points: int
    delta: Interval | None
    beta: Interval | None
    kappa: Interval | None
    whole_delta: Interval | None
    """Of the whole action's text, not its carried values alone."""
    whole_kappa: Interval | None
    sampling_error: float
    """Of the mean kappa, from sampled choices; 0 where losses are computed. The intervals have it in them."""


class LogRow(Record, frozen=True):
    """One log under one memory; means over its audited decisions."""

    trace: str
    memory: str
    budget: int | None
    points: int
    success: float | None
    delta: float
    beta: float
    kappa: float


def survival_rows(study: Study) -> list[SurvivalRow]:
    """One row per cell."""
    rows = []
    for cell in _written(study):
        ends: Counter[str] = Counter()
        dropped = 0
        met: Counter[int] = Counter()
        held: Counter[int] = Counter()
        for episode in _finished(study, cell):
            for life in episode_lives(study, episode)[1]:
                ends[life.marks[-1:]] += bool(life.marks)
                dropped += bool(life.marks) and life.dropped is not None
                met.update(range(len(life.marks)))
                held.update(place for place, mark in enumerate(life.marks) if mark != "-")
        rows.append(
            SurvivalRow(
                cell.memory,
                cell.budget,
                facts=ends.total(),
                verbatim=ends["v"],
                paraphrased=ends["p"],
                dropped=dropped,
                by_generation=" ".join(f"{100 * held[place] / met[place]:.0f}" for place in range(len(met))),
            )
        )
    return rows


def blame_rows(study: Study) -> list[BlameRow]:
    """One row per rewrite that lost something, the costliest first."""
    rows = []
    for cell in _written(study):
        for episode in _finished(study, cell):
            audits = {audit.step: audit for audit in study.audits[cell].get(episode.job.game, ())}
            lost: dict[int, list[FactLife]] = defaultdict(list)
            for life in episode_lives(study, episode)[1]:
                if life.dropped is not None:
                    lost[life.dropped].append(life)
            for step, found in sorted(lost.items()):
                needed = sorted({use for life in found for use in life.fact.uses if use >= step})
                known = [audits[use].kappa for use in needed if use in audits]
                rows.append(
                    BlameRow(
                        cell.memory,
                        cell.budget,
                        episode.job.game,
                        step,
                        dropped=", ".join(life.fact.text for life in found),
                        needed=", ".join(map(str, needed)),
                        kappa=sum(known) if known else None,
                    )
                )
    return sorted(rows, key=lambda row: -(row.kappa or 0.0))


def stratum_rows(study: Study) -> list[StratumRow]:
    """One row per cell, kind of decision and kind of loss."""
    where = {one.key: (cell, game) for cell, games in study.episodes.items() for game, one in games.items()}
    found: dict[tuple[Cell, str, str], list[tuple[str, tuple[Scored, Scored, Scored]]]] = defaultdict(list)
    for run in study.runs:
        for point in run.read("trace_points", TracePoint):
            cell, game = where[point.episode]
            found[cell, point.stratum, point.loss].append((game, (point.state, point.full, point.oracle)))
    rows = []
    for (cell, stratum, loss), points in found.items():
        games = [game for game, _ in points]
        state, full, oracle = (np.array([_both(one[place]) for _, one in points]) for place in range(3))
        means = [point_mean(values, games, study.sampler) for values in _differences(state, full, oracle)]
        noise = sum(state.variance + oracle.variance for _, (state, _, oracle) in points)
        delta, beta, kappa, whole_delta, whole_kappa = means
        error = float(np.sqrt(noise)) / len(points)
        rows.append(
            StratumRow(
                cell.memory,
                cell.budget,
                stratum,
                loss,
                len(points),
                delta,
                beta,
                kappa,
                whole_delta,
                whole_kappa,
                error,
            )
        )
    return rows


def _both(found: Scored) -> tuple[float, float]:
    return found.nll, found.whole


def _differences(state: Any, full: Any, oracle: Any) -> Iterator[Any]:
    yield (state - full)[:, 0]
    yield (oracle - full)[:, 0]
    yield (state - oracle)[:, 0]
    yield (state - full)[:, 1]
    yield (state - oracle)[:, 1]


def log_rows(study: Study) -> list[LogRow]:
    """One row per log and cell that has audits."""
    rows = []
    for cell, games in study.audits.items():
        for game, audits in games.items():
            episode = study.episodes[cell][game]
            success = episode.score / episode.max_score if episode.max_score else None
            delta, beta, kappa = (_mean([LOSSES[name](one) for one in audits]) for name in ("delta", "beta", "kappa"))
            rows.append(LogRow(game, cell.memory, cell.budget, len(audits), success, delta, beta, kappa))
    return rows


def _mean(values: Sequence[float | None]) -> float:
    return float(np.mean([value for value in values if value is not None]))


def _written(study: Study) -> list[Cell]:
    return [cell for cell in study.cells if cell.memory != FULL]


def _finished(study: Study, cell: Cell) -> list[Episode]:
    return [episode for episode in study.episodes[cell].values() if episode.outcome != "error"]


# ---------------------------------------------------------------- the summary of an audit


def log_summary(run: Run, verdict: Sensitivity, counts: Mapping[str, Any]) -> dict[str, Any]:
    """What a finished audit says, from its own logs."""
    study = Study.gather([run])
    audited = any(study.audits.values())
    try:
        answers = [flat(row) for row in answer_rows(study)] if audited else []
    except StatsError:
        answers = []
    return {
        "sensitivity": {
            "decisions": verdict.decisions,
            "sensitive": verdict.sensitive,
            "sentence": verdict.sentence,
            "history": verdict.history and [verdict.history.mean, verdict.history.error],
            "deletion": verdict.deletion and [verdict.deletion.mean, verdict.deletion.error],
        },
        "answers": answers,
        "cells": [flat(row) for row in cell_rows(study)],
        "survival": [flat(row) for row in survival_rows(study)],
        "blame": [flat(row) for row in blame_rows(study)],
        "strata": [flat(row) for row in stratum_rows(study)],
        "logs": [flat(row) for row in log_rows(study)],
        "episodes": sum(len(games) for games in study.episodes.values()),
        "errors": sum(one.outcome == "error" for games in study.episodes.values() for one in games.values()),
        "problems": len(study.problems),
        **counts,
    }
