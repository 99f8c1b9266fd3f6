"""Verbs on episodes: `diagnose` plays and audits a grid of them, `evaluate` does so on the sealed test games, `play`
plays one, `fork` plays on from a logged one, `lag` and `check` measure those of a finished run.

A grid goes into a run that can be interrupted anywhere and continued. A finished run is never changed: each measurement
goes into a run of its own.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from dssr.agent.episode import Agent, continue_episode, find, first_difference, play_job, save, stored
from dssr.agent.leaks import SEARCHES, STORED, Watch, keep_searches, searched_again
from dssr.agent.leaks import totals as totals_of
from dssr.agent.memory import FULL
from dssr.config import Config
from dssr.errors import GameError, ModelError
from dssr.measure.audit import audit_episode, audited_steps, has_audits
from dssr.measure.comparisons import relation
from dssr.measure.grid import arguments_of, grid_of, jobs_of
from dssr.measure.lag import chunk_rows, lag_bin_rows, lags_of
from dssr.measure.plan import Rates, plan_grid, totals
from dssr.measure.rows import cell_rows, filler_rows, flat, slope_rows
from dssr.measure.study import Problem, Study
from dssr.measure.verdicts import answer_rows
from dssr.record.run import Run
from dssr.scale.shards import each
from dssr.session import Bench, Session, Stage, configured, group_of, place_of, silent, verb
from dssr.types import Audit, Cell, Grid, Job, Lag, Played, Progress, Record, Search, Split, Workers
from dssr.worlds.archive import Worlds

# ---------------------------------------------------------------- grids

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


# ---------------------------------------------------------------- single episodes


class Forked(Record, frozen=True):
    """A logged episode, continued."""

    played: Played
    differs: int | None
    """First step at which it departs from the log; None when it came out as logged."""


@verb
async def play(
    game: str,
    config: Config | str = "nano",
    *,
    memory: str = "summary",
    budget: int | None = None,
    filler: int = 0,
) -> Played:
    """One episode of a game; without a budget the middle one of the configuration."""
    settings = configured(config)
    if budget is None:
        budget = settings.agent.budgets[len(settings.agent.budgets) // 2]
    cell = Cell(memory, None if memory == FULL else budget, filler, settings.protocol.kind)
    job = Job(game, cell, settings.seed, settings.agent.temperature, settings.agent.epsilon, "reader")
    async with Session(settings) as session:
        session.archive.game(game)
        return await play_job(job, session.agent([job]))


@verb
async def fork(run: str | Path, episode: str, step: int, state: str | None = None) -> Forked:
    """Continue a logged episode from a step: from its logged state, which comes out as logged, or from `state`.

    `episode` is the beginning of its key.
    """
    source = Run.open(run)
    logged = find(source, episode)
    async with Session(source.config) as session:
        agent = session.agent([logged.episode.job])
        played = await continue_episode(logged.episode, logged.steps, step, agent, state)
    return Forked(played, first_difference(logged.steps, played.steps))


# ---------------------------------------------------------------- the episodes of a run


@verb
async def lag(
    run: str | Path,
    *,
    out: str | Path | None = None,
    resume: bool = False,
    workers: Workers | int | None = None,
    progress: Progress = silent,
) -> Study:
    """Leave one chunk of history out at a time, and find how long ago each decision's fact was seen.

    The lags go into a run of their own, by default `RUN-lag`; the study returned holds both.
    """
    source = Run.open(run)
    audited = Study.load([source])
    audited.need_audits()
    episodes = [played for played in stored(source) if played.episode.key in audited.audited_keys]
    place = Path(out) if out else source.path.with_name(f"{source.path.name}-lag")
    async with Session(source.config, progress, workers=workers) as session:
        with session.run(place, "lag", _jobs(episodes), _origin(source), resume) as (made, agent):
            _warn_of_another_reader(source, agent)

            def keep(found: tuple[list[Lag], Search]) -> None:
                lags, search = found
                keep_searches(made, lags[0].episode, [search])
                made.extend("lags", [(f"{one.episode}:{one.step:04d}", one) for one in lags])

            do = partial(each, measure_lags)
            await session.work(made, Stage("episodes", "lags", episodes, _last_point(source), _group, do, keep))
            whole = Study.gather([source, made])
            session.finish(made, {"chunks": chunk_rows(whole), "bins": lag_bin_rows(whole)})
    return Study.load([source.path, place])


@verb
async def check(run: str | Path) -> list[Search]:
    """What the leak check found in all prompts of a run, by what sent them; those it keeps are searched once more.

    A finished run in which a file was changed is refused.
    """
    opened = Run.open(run)
    opened.check()
    async with Session(opened.config) as session:
        again = check_stored(opened, session.worlds)
    return [*totals_of(opened.read(SEARCHES, Search)).values(), again]


async def measure_lags(bench: Bench, played: Played) -> tuple[list[Lag], Search]:
    """The work of `lag`."""
    agent, watch = bench.agent, Watch(played.episode.key, "lag")
    found = await lags_of(played, _goal(played, agent), agent, bench.config.measure, watch)
    return found, watch.search(agent.worlds, played.episode.job, played.steps)


def _group(played: Played) -> tuple[str, ...]:
    return group_of(played.episode.job)


def _jobs(episodes: Sequence[Played]) -> list[Job]:
    return [played.episode.job for played in episodes]


def _origin(source: Run) -> dict[str, str]:
    """Which run was measured, for the record of the new one."""
    return {"source": source.path.name, "digest": source.info.digest}


def _goal(played: Played, agent: Agent) -> str:
    with agent.worlds.playing(played.episode.job.game) as world:
        return world.goal


def _last_point(source: Run) -> Callable[[Played], str]:
    """Key of an episode's last audited point: once it is stored, the episode is done."""

    def key(played: Played) -> str:
        points = audited_steps(played.steps, played.episode.job, source.config.measure.points)
        return f"{played.episode.key}:{points[-1]:04d}"

    return key


def _warn_of_another_reader(source: Run, agent: Agent) -> None:
    if agent.reader.fingerprint() != source.info.models.get("reader"):
        log.warning("The reader is not the one of %s: its weights or settings have changed since.", source.path)


def check_stored(run: Run, worlds: Worlds) -> Search:
    """Search the prompts that a run keeps verbatim once more."""
    found = [searched_again(played, worlds) for played in stored(run)]
    return totals_of(found).get(STORED, Search(STORED))
