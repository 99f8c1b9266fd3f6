"""Verbs on episodes: `play` one, `fork` a logged one, and measure those of a finished run (`lag`, `audit`, `check`).

A finished run is never changed: each measurement goes into a run of its own.
"""

import logging
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from dssr.agent.episode import Agent, continue_episode, first_difference, play_job
from dssr.agent.leaks import Watch, check_stored, totals
from dssr.agent.memory import FULL
from dssr.agent.store import SEARCHES, find, keep_searches, stored
from dssr.config import Config
from dssr.measure.audit import audited_steps
from dssr.measure.lag import chunk_rows, lag_bin_rows, lags_of
from dssr.measure.study import Study
from dssr.record.run import Run
from dssr.scale.shards import each
from dssr.session import Bench, Session, Stage, configured, group_of, silent, verb
from dssr.types import Cell, Job, Lag, Played, Progress, Record, Search, Workers

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
    return [*totals(opened.read(SEARCHES, Search)).values(), again]


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
