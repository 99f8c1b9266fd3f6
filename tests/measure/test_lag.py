"""Chunks, removal, and the lag found."""

import asyncio
from typing import Any

import pytest

from dssr.agent.leaks import Watch
from dssr.agent.recall import chunks_of
from dssr.measure.audit import history_at
from dssr.measure.lag import measure_lag, relevance, without
from dssr.types import Chunk, Lag
from dssr.worlds.base import find_domain

GAME = "valid-6-000"
NAMES = find_domain("cooking").words
CHUNKS = (Chunk("visit", 0, 2), Chunk("cookbook", 3, 4), Chunk("block", 5, 9))


@pytest.fixture(scope="module")
def played(lab: Any) -> Any:
    return lab.play(GAME, "full", None, 10)


def test_chunks_are_the_history(played: Any) -> None:
    """At every decision the chunks cover the history once, in order, visits in Phase A and five steps in Phase B."""
    episode, steps = played.episode, played.steps
    for step in steps:
        if step.decision is None:
            continue
        chunks = chunks_of(steps, step.index, episode.reveal, 5, NAMES)
        assert [i for chunk in chunks for i in range(chunk.first, chunk.last + 1)] == list(range(step.index))
        assert [chunk.kind for chunk in chunks].count("cookbook") == 1
        for chunk in chunks:
            inside = steps[chunk.first : chunk.last + 1]
            if chunk.kind == "block":
                assert len(inside) <= 5
                assert {one.kind for one in inside} == {"act"}
            else:
                assert len({one.visit for one in inside}) == 1
                assert (chunk.kind == "cookbook") == (chunk.first <= episode.reveal <= chunk.last)


def test_removal_takes_the_chunk_and_nothing_else(played: Any) -> None:
    """What is left out of the text is exactly the chunk's steps; the last action stays."""
    index = played.episode.begin + 3
    whole = history_at(played.steps, index).split("\n\n> ")
    chunk = chunks_of(played.steps, index, played.episode.reveal, 5, NAMES)[1]
    expected = whole[: chunk.first] + whole[chunk.last + 1 :]
    assert without(played.steps, index, chunk).split("\n\n> ") == expected


def test_the_recipe_is_found(played: Any, lab: Any) -> None:
    """With a reader that plans from text, some decision hangs on the recipe: leaving out the cookbook's visit hurts
    most there, and its lag is the distance to the end of that visit."""
    with lab.worlds.playing(GAME) as world:
        goal = world.goal
    agent = lab.agent()
    kinds = []
    for step in played.steps:
        if step.decision is not None:
            lag = asyncio.run(measure_lag(played, step.index, goal, agent, 5, Watch("", "")))
            assert lag.nll_full == pytest.approx(step.decision.nll)
            found = relevance(lag, 0.5)
            kinds.append(found.kind if found else None)
            if found and found.kind == "cookbook":
                assert found.lag >= step.index - played.episode.reveal - 1
                assert found.rise >= 0.5
    assert "cookbook" in kinds


def test_earliest_of_equals_and_thresholds() -> None:
    """Ties go to the earliest chunk; a largest rise under the threshold leaves the lag undefined."""
    lag = Lag("e", 12, 0.1, CHUNKS, (0.7, 0.7, 0.2))
    found = relevance(lag, 0.5)
    assert found is not None
    assert (found.lag, found.kind) == (10, "visit")
    assert relevance(lag, 0.7) is not None
    assert relevance(lag, 1.0) is None
    assert relevance(Lag("e", 0, 0.1, (), ()), 0.3) is None
