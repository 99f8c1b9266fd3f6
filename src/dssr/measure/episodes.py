"""Verbs on episodes: `play` one, `fork` a logged one, and measure those of a finished run (`lag`, `audit`, `check`).

A finished run is never changed: each measurement goes into a run of its own.
"""

import logging
from collections.abc import Callable, Sequence
from pathlib import Path

from dssr.agent.episode import Agent, continue_episode, first_difference, play_job
from dssr.agent.leaks import LeakReport, check_prompts
from dssr.agent.memory import FULL
from dssr.agent.store import find, stored
from dssr.config import Config
from dssr.errors import UsageError
from dssr.measure.audit import audit_episode, audited_steps, has_audits
from dssr.measure.distance import chunk_rows, lag_bin_rows
from dssr.measure.lag import lags_of
from dssr.measure.study import Study
from dssr.record.run import Run
from dssr.session import Session, Stage, configured, silent, verb
from dssr.types import Audit, Cell, Job, Lag, Played, Progress, Record

log = logging.getLogger("dssr")


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
    run: str | Path, *, out: str | Path | None = None, resume: bool = False, progress: Progress = silent
) -> Study:
    """Leave one chunk of history out at a time, and find how long ago each decision's fact was seen.

    The lags go into a run of their own, by default `RUN-lag`; the study returned holds both.
    """
    source = Run.open(run)
    audited = Study.load([source])
    audited.need_audits()
    episodes = [played for played in stored(source) if played.episode.key in audited.audited_keys]
    place = Path(out) if out else source.path.with_name(f"{source.path.name}-lag")
    async with Session(source.config, progress) as session:
        with session.run(place, "lag", _jobs(episodes), _origin(source), resume) as (made, agent):
            _warn_of_another_reader(source, agent)

            async def work(played: Played) -> list[Lag]:
                return await lags_of(played, _goal(played, agent), agent, source.config.measure)

            def keep(found: list[Lag]) -> None:
                made.extend("lags", [(f"{one.episode}:{one.step:04d}", one) for one in found])

            await session.work(made, Stage("episodes", "lags", episodes, _last_point(source), work, keep))
            whole = Study.gather([source, made])
            session.finish(made, {"chunks": chunk_rows(whole), "bins": lag_bin_rows(whole)})
    return Study.load([source.path, place])


@verb
async def audit(
    run: str | Path, *, out: str | Path | None = None, resume: bool = False, progress: Progress = silent
) -> Study:
    """Audit stored episodes that nobody audited when they were played: collected ones, or those of a training round.

    The audits go into a run of their own, by default `RUN-audit`; the study returned holds both.
    """
    source = Run.open(run)
    done = {one.episode for one in source.read("audits", Audit)}
    episodes = [
        played
        for played in stored(source)
        if played.episode.error is None and has_audits(played.episode.job) and played.episode.key not in done
    ]
    if not episodes:
        raise UsageError(f"{run} has no episode left to audit: all that have a budget and did not fail are audited.")
    place = Path(out) if out else source.path.with_name(f"{source.path.name}-audit")
    async with Session(source.config, progress) as session:
        with session.run(place, "audit", _jobs(episodes), _origin(source), resume) as (made, agent):
            _warn_of_another_reader(source, agent)

            async def work(played: Played) -> list[Audit]:
                return await audit_episode(played, _goal(played, agent), agent, source.config.measure)

            def keep(found: list[Audit]) -> None:
                made.extend("audits", [(f"{one.episode}:{one.step:04d}", one) for one in found])

            await session.work(made, Stage("episodes", "audits", episodes, _last_point(source), work, keep))
            session.finish(made, {"episodes": len(episodes), "audits": sum(1 for _ in made.read("audits", Audit))})
    return Study.load([source.path, place])


@verb
async def check(run: str | Path) -> LeakReport:
    """Search the stored prompts of a run for anything that writer and reader must not know."""
    opened = Run.open(run)
    async with Session(opened.config) as session:
        return check_prompts(stored(opened), session.worlds)


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
