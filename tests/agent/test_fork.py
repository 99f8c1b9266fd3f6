"""Continuing from a logged state reproduces the log; continuing from another does not touch what came before."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.agent.bench import FORMATS, make_agent, make_job, play_all

from dssr.agent.episode import continue_episode, first_difference
from dssr.errors import UsageError
from dssr.models.cache import Cache, CachedModel
from dssr.models.scripted import ScriptedModel
from dssr.seeds import rng_of
from dssr.worlds.archive import Worlds

FORKS = 200


def test_200_forks_from_logged_states(worlds: Worlds, tmp_path: Path) -> None:
    """Catches anything that crosses a step besides the state: a fork would then miss it and go another way."""
    model = CachedModel(ScriptedModel(0.97, 65536), Cache(tmp_path / "cache", 2**27))
    agent = make_agent(worlds, model)
    settings: dict[str, Any] = {"temperature": 0.7, "epsilon": 0.1}
    jobs = [make_job("valid-6-001", memory, filler=10, **settings) for memory in FORMATS]
    jobs += [make_job("train-1-001", memory, budget=64, **settings) for memory in FORMATS]
    logged = play_all(jobs, agent)
    points = [(played, step.index) for played in logged for step in played.steps[:-1]]
    rng_of("forks").shuffle(points)

    async def differences() -> list[int | None]:
        forks = (continue_episode(played.episode, played.steps, index, agent) for played, index in points[:FORKS])
        done = await asyncio.gather(*forks)
        return [first_difference(played.steps, one.steps) for (played, _), one in zip(points, done, strict=False)]

    found = asyncio.run(differences())
    assert found == [None] * FORKS
    assert {played.episode.job.cell.memory for played, _ in points[:FORKS]} == set(FORMATS)


def test_a_fork_without_a_cache_reproduces_too(worlds: Worlds) -> None:
    """Catches a fork that is right only because the cache answered for it."""
    agent = make_agent(worlds)
    (played,) = play_all([make_job("train-1-002", "belief", temperature=0.7)], agent)
    for index in range(len(played.steps)):
        again = asyncio.run(continue_episode(played.episode, played.steps, index, agent))
        assert first_difference(played.steps, again.steps) is None
        assert (again.episode.outcome, again.episode.score) == (played.episode.outcome, played.episode.score)


def test_a_substituted_state_changes_the_future_alone(worlds: Worlds) -> None:
    """Catches a state that is not really used, one over budget, and a past that is rewritten."""
    agent = make_agent(worlds)
    (played,) = play_all([make_job("valid-6-000", "summary", budget=64)], agent)
    index = played.episode.begin
    other = asyncio.run(continue_episode(played.episode, played.steps, index, agent, "nothing is known " * 50))
    assert first_difference(played.steps, other.steps) == index
    assert other.steps[index].write.tokens <= 64
    assert other.steps[index].write.truncated
    assert other.episode.key != played.episode.key


def test_impossible_forks_are_refused(worlds: Worlds) -> None:
    agent = make_agent(worlds)
    (played,) = play_all([make_job("train-1-002", "full")], agent)
    with pytest.raises(UsageError, match="has steps 0 to"):
        asyncio.run(continue_episode(played.episode, played.steps, 999, agent))
    with pytest.raises(UsageError, match="full has no state"):
        asyncio.run(continue_episode(played.episode, played.steps, 1, agent, "state"))
