"""Play and audit a grid of episodes, into a run that can be interrupted anywhere and continued."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from dssr.agent.episode import play_job
from dssr.agent.leaks import Watch
from dssr.agent.store import keep_searches, save
from dssr.config import Config
from dssr.errors import GameError, ModelError
from dssr.measure.answers import answer_rows
from dssr.measure.audit import audit_episode, has_audits
from dssr.measure.lag import lags_of
from dssr.measure.plan import Rates, arguments_of, grid_of, jobs_of, plan_grid, totals
from dssr.measure.rows import cell_rows, filler_rows, flat, relation, slope_rows
from dssr.measure.study import Problem, Study
from dssr.record.run import Run
from dssr.scale.shards import each
from dssr.session import Bench, Session, Stage, configured, group_of, place_of, silent, verb
from dssr.types import Audit, Grid, Job, Lag, Played, Progress, Search, Split, Workers

log = logging.getLogger("dssr")


@verb
async def diagnose(
    config: Config | str = "nano",
    memories: Sequence[str] = (),
    budgets: Sequence[int] = (),
    fillers: Sequence[int] = (),
    *,
    games: int | None = None,
    split: Split = "valid",
    lag: bool = False,
    out: str | Path | None = None,
    resume: bool = False,
    workers: Workers | int | None = None,
    progress: Progress = silent,
) -> Study:
    """Play and audit memories × budgets × fillers, and say what loses: the budget or the writer.

    What is left out comes from the configuration; `games` is how many per level. The split `test` is sealed: see
    `evaluate`. The run goes to `out`, or to a directory named after the question; `resume` continues it.
    """
    settings = configured(config)
    async with Session(settings, progress, workers=workers) as session:
        grid = grid_of(settings, session.archive, memories, budgets, fillers, games, split, lag)
        place = Path(out) if out else place_of(settings, verb_of(grid), msgspec.to_builtins(grid))
        return Study.load([await measure_grid(session, grid, place, resume)])


@verb
async def evaluate(
    config: Config | str = "nano",
    memories: Sequence[str] = (),
    budgets: Sequence[int] = (),
    fillers: Sequence[int] = (),
    *,
    games: int | None = None,
    lag: bool = False,
    out: str | Path | None = None,
    resume: bool = False,
    workers: Workers | int | None = None,
    progress: Progress = silent,
) -> Study:
    """Diagnose on the sealed test games, which open once for each approved run (`dssr.approve`)."""
    return await diagnose.aio(
        config,
        memories,
        budgets,
        fillers,
        games=games,
        split="test",
        lag=lag,
        out=out,
        resume=resume,
        workers=workers,
        progress=progress,
    )


def verb_of(grid: Grid) -> str:
    """What a diagnosis is called: that of test games is the evaluation."""
    return "evaluate" if grid.split == "test" else "diagnose"


async def measure_grid(session: Session, grid: Grid, place: Path, resume: bool = False) -> Run:
    """Play and audit a grid into one run; whoever needs a diagnosis inside another use case calls this."""
    config, jobs = session.config, jobs_of(grid, session.config)
    Run.check_place(place, resume)
    if grid.split != "test":  # what test games take is not counted: that would open them
        expected = totals(plan_grid(grid, config, session.agent(jobs)), Rates())
        calls = f"{expected['calls']:,} to {expected['most_calls']:,} model calls"
        log.info(
            "%d episodes, %s, %s tokens to read or more; into %s", len(jobs), calls, f"{expected['tokens_in']:,}", place
        )
    with session.run(place, "diagnose", jobs, arguments_of(grid), resume, grid.split) as (run, agent):
        key, keep = session.episode_key(agent), partial(store, run)
        do = partial(each, partial(measured, grid.lag))
        await session.work(run, Stage("episodes", "episodes", jobs, key, group_of, do, keep))
        session.finish(run, summary_of(run))
    return Run.open(place)


@dataclass(frozen=True)
class Measured:
    """An episode with all that was measured on it."""

    played: Played
    audits: Sequence[Audit] = ()
    lags: Sequence[Lag] = ()
    problems: Sequence[Problem] = ()
    searches: Sequence[Search] = ()
    """Of the prompts that audits and lags sent."""


async def measured(lag: bool, bench: Bench, job: Job) -> Measured:
    """Play one episode and audit it. A failed measurement is recorded beside the episode, never as a number."""
    agent, measure = bench.agent, bench.config.measure
    played = await play_job(job, agent)
    if played.episode.outcome == "error" or not has_audits(job):
        return Measured(played)
    key = played.episode.key
    with agent.worlds.playing(job.game) as world:
        goal = world.goal
    watches = [Watch(key, "audit"), Watch(key, "lag")]
    audits: list[Audit] = []
    lags: list[Lag] = []
    problems: list[Problem] = []
    try:
        audits = await audit_episode(played, goal, agent, measure, watches[0])
        lags = await lags_of(played, goal, agent, measure, watches[1]) if lag else []
    except (ModelError, GameError) as error:
        audits, problems = [], [Problem(key, "audit", str(error))]
    searches = [watch.search(agent.worlds, job, played.steps) for watch in watches if watch.used]
    return Measured(played, audits, lags, problems, searches)


def store(run: Run, found: Measured) -> None:
    """Append what was measured; the episode's own line goes last and makes it count."""
    key = found.played.episode.key
    if found.audits:
        run.extend("audits", [(f"{key}:{audit.step:04d}", audit) for audit in found.audits])
    if found.lags:
        run.extend("lags", [(f"{key}:{lag.step:04d}", lag) for lag in found.lags])
    if found.problems:
        run.extend("problems", [(f"{key}:{problem.what}", problem) for problem in found.problems])
    keep_searches(run, key, found.searches)
    save(run, found.played)


def summary_of(run: Run) -> dict[str, Any]:
    """What a finished diagnosis says, from its own logs."""
    study = Study.gather([run])
    audited = any(study.audits.values())
    return {
        "answers": [flat(row) for row in answer_rows(study)] if audited else [],
        "cells": [flat(row) for row in cell_rows(study)],
        "lag_means": [flat(row) for row in filler_rows(study)],
        "slopes": [flat(row) for row in slope_rows(study)] if audited else [],
        "relation": flat(found) if audited and (found := relation(study)) else None,
        "episodes": sum(len(games) for games in study.episodes.values()),
        "errors": sum(e.outcome == "error" for games in study.episodes.values() for e in games.values()),
        "problems": len(study.problems),
    }
