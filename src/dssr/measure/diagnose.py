"""Play and audit a grid of episodes, into a run that can be interrupted anywhere and continued."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from dssr.agent.episode import Agent, Played, episode_key, play
from dssr.agent.order import in_order
from dssr.agent.store import save
from dssr.config import MeasureConfig
from dssr.errors import GameError, ModelError
from dssr.measure.answers import answer_rows
from dssr.measure.audit import audit_episode, audited_steps, has_audits
from dssr.measure.lag import measure_lag
from dssr.measure.rows import cell_rows, long_filler_rows, relation, slope_rows
from dssr.measure.study import Problem, Study
from dssr.record.run import Run
from dssr.types import Audit, Job, Lag


@dataclass(frozen=True)
class Measured:
    """An episode with all that was measured on it."""

    played: Played
    audits: Sequence[Audit] = ()
    lags: Sequence[Lag] = ()
    problems: Sequence[Problem] = ()


async def diagnose(
    run: Run,
    jobs: Sequence[Job],
    agent: Agent,
    measure: MeasureConfig,
    lag: bool = False,
    done: Callable[[int], None] = lambda count: None,
) -> None:
    """Do what the run still owes. Lines are written in the order of the jobs, whatever finishes first."""
    owed = []
    for job in jobs:
        if run.has("episodes", episode_key(job, agent, agent.worlds.archive.game(job.game).md5)):
            done(1)
        else:
            owed.append(job)
    async for found in in_order(partial(measured, job, agent, measure, lag) for job in owed):
        store(run, found)
        done(1)


async def measured(job: Job, agent: Agent, measure: MeasureConfig, lag: bool) -> Measured:
    """Play one episode and audit it. A failed measurement is recorded beside the episode, never as a number."""
    played = await play(job, agent)
    if played.episode.outcome == "error" or not has_audits(job):
        return Measured(played)
    key = played.episode.key
    with agent.worlds.playing(job.game) as world:
        goal = world.goal
    try:
        audits = await audit_episode(played, goal, agent, measure)
        lags = await lags_of(played, goal, agent, measure) if lag else []
    except (ModelError, GameError) as error:
        return Measured(played, problems=[Problem(key, "audit", str(error))])
    return Measured(played, audits, lags)


async def lags_of(played: Played, goal: str, agent: Agent, measure: MeasureConfig) -> list[Lag]:
    """Relevance lags at the audited points of an episode."""
    points = audited_steps(played.steps, played.episode.job, measure.points)
    return list(await asyncio.gather(*(measure_lag(played, step, goal, agent, measure.block) for step in points)))


async def measure_lags(
    run: Run,
    episodes: Sequence[Played],
    agent: Agent,
    measure: MeasureConfig,
    done: Callable[[int], None] = lambda count: None,
) -> None:
    """Relevance lags of stored episodes, into a run of their own, in their order."""

    def work(played: Played) -> Callable[[], Awaitable[list[Lag]]]:
        with agent.worlds.playing(played.episode.job.game) as world:
            goal = world.goal
        return lambda: lags_of(played, goal, agent, measure)

    owed = []
    for played in episodes:
        points = audited_steps(played.steps, played.episode.job, measure.points)
        if run.has("lags", f"{played.episode.key}:{points[-1]:04d}"):
            done(1)
        else:
            owed.append(played)
    async for found in in_order(work(played) for played in owed):
        run.extend("lags", [(f"{lag.episode}:{lag.step:04d}", lag) for lag in found])
        done(1)


def store(run: Run, found: Measured) -> None:
    """Append what was measured; the episode's own line goes last and makes it count."""
    key = found.played.episode.key
    if found.audits:
        run.extend("audits", [(f"{key}:{audit.step:04d}", audit) for audit in found.audits])
    if found.lags:
        run.extend("lags", [(f"{key}:{lag.step:04d}", lag) for lag in found.lags])
    if found.problems:
        run.extend("problems", [(f"{key}:{problem.what}", problem) for problem in found.problems])
    save(run, found.played)


def summary_of(run: Run) -> dict[str, Any]:
    """What a finished diagnosis says, from its own logs."""
    study = Study.gather([run])
    audited = any(study.audits.values())
    return {
        "answers": answer_rows(study) if audited else [],
        "cells": cell_rows(study),
        "lag_means": long_filler_rows(study),
        "slopes": slope_rows(study) if audited else [],
        "relation": relation(study) if audited else None,
        "episodes": sum(len(games) for games in study.episodes.values()),
        "errors": sum(e.outcome == "error" for games in study.episodes.values() for e in games.values()),
        "problems": len(study.problems),
    }
