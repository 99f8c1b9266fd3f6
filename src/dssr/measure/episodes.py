"""Single episodes: watch one, or continue a logged one from any of its steps."""

from pathlib import Path

from dssr.agent.episode import continue_episode, first_difference, play_job
from dssr.agent.memory import FULL
from dssr.agent.store import find
from dssr.config import Config
from dssr.record.run import Run
from dssr.session import Session, configured, verb
from dssr.types import Cell, Job, Played, Record


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
