"""Relevance lag: how long ago the reader was told what this decision needs.

Chunks of the history are left out one at a time; the one whose absence hurts most holds the fact.
"""

import asyncio
from collections.abc import Sequence

from dssr.agent.episode import Agent
from dssr.agent.prompts import render_history
from dssr.config import MeasureConfig
from dssr.measure.audit import audited_steps, history_at, options_of
from dssr.types import Chunk, Lag, Played, Record, Step
from dssr.worlds.base import Words


class Relevance(Record, frozen=True):
    """The chunk a decision depends on most."""

    lag: int
    """Steps from the end of the chunk to the decision."""
    kind: str
    """The world's name for this kind of stretch."""
    rise: float


def chunks_of(steps: Sequence[Step], index: int, reveal: int, block: int, words: Words) -> tuple[Chunk, ...]:
    """The history before step `index`, whole: one chunk per stay at a place in Phase A, blocks of steps in Phase B."""
    phase_a = [step for step in steps[:index] if step.kind != "act"]
    phase_b = [step for step in steps[:index] if step.kind == "act"]
    chunks = []
    for visit in dict.fromkeys(step.visit for step in phase_a):
        places = [step.index for step in phase_a if step.visit == visit]
        kind = words.reveal_chunk if reveal in places else words.visit_chunk
        chunks.append(Chunk(kind.name, places[0], places[-1]))
    for start in range(0, len(phase_b), block):
        part = phase_b[start : start + block]
        chunks.append(Chunk(words.block_chunk.name, part[0].index, part[-1].index))
    return tuple(chunks)


def without(steps: Sequence[Step], index: int, chunk: Chunk) -> str:
    """The history before step `index` as if the chunk had never been."""
    kept = [step for step in steps[:index] if not chunk.first <= step.index <= chunk.last]
    return render_history(kept, steps[index].action)


async def measure_lag(played: Played, index: int, goal: str, agent: Agent, block: int) -> Lag:
    """Leave one chunk out at a time, at one decision point."""
    steps, step = played.steps, played.steps[index]
    chunks = chunks_of(steps, index, played.episode.reveal, block, agent.worlds.domain.words)
    contexts = [history_at(steps, index), *(without(steps, index, chunk) for chunk in chunks)]
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


async def lags_of(played: Played, goal: str, agent: Agent, measure: MeasureConfig) -> list[Lag]:
    """Relevance lags at the audited points of an episode."""
    points = audited_steps(played.steps, played.episode.job, measure.points)
    return list(await asyncio.gather(*(measure_lag(played, step, goal, agent, measure.block) for step in points)))


def relevance(lag: Lag, threshold: float) -> Relevance | None:
    """The chunk with the largest rise, the earliest among equals; None when no rise reaches the threshold."""
    if not lag.rises or max(lag.rises) < threshold:
        return None
    place = lag.rises.index(max(lag.rises))
    chunk = lag.chunks[place]
    return Relevance(lag.step - chunk.last, chunk.kind, lag.rises[place])
