"""A teacher for the writer: the writer itself, which is shown again the stretch of history that will matter.

At a write point some later decisions are looked at. Leaving one chunk of the history out at a time tells which one each
decision hangs on (`measure.lag`); of the chunks that had begun before the point the one with the largest rise of the
reader's loss is marked, if it reaches the threshold of the relevance lag. The teacher's request has the chunk's steps
after the previous state, in the field of that state and in the layout of a history; what came at the point or after
it is cut off, so nothing is shown but what the writer had been shown before. (In the field of the observation nano
takes the chunk's room for the one it is in.)

The student is to write the same without the chunk, so the teacher may be followed only where the fact is still in the
student's input. No fact is looked up for that (`supported`): every word that the teacher's rewrite shares with the
chunk must stand in the request without the chunk too, and one of them at least must be carried, that is, stand in the
previous state and not in the new observation.
"""

import asyncio
import re
from collections.abc import Sequence

from dssr.agent.memory import enforce
from dssr.agent.prompts import render_history
from dssr.config import MeasureConfig
from dssr.measure.audit import coverage, holds_action
from dssr.measure.candidates import Candidate, CandidateScorer, WritePoint
from dssr.measure.lag import measure_lag
from dssr.measure.score import spread
from dssr.scale.shards import once
from dssr.types import Chunk, Lag, Step, View

HINDSIGHT = "hindsight"
"""Name of the score of a teacher's rewrite: the nats by which its chunk mattered, or 0 where it may not be followed."""


class Teacher:
    """The teacher's rewrites on one collected episode. What decisions hang on is measured once for all its points."""

    def __init__(self, scorer: CandidateScorer, measure: MeasureConfig) -> None:
        self.scorer, self.measure = scorer, measure
        self._lags: dict[int, asyncio.Future[Lag]] = {}

    async def candidates(self, point: WritePoint) -> list[Candidate]:
        """The student's own rewrite, number 0 and worth nothing, then the teacher's for each chunk that matters; no
        candidate where no chunk does."""
        scorer = self.scorer
        targets = spread(point.targets, scorer.config.hindsight_targets)
        lags = await asyncio.gather(*(self._lag(target) for target in targets))
        marks: dict[tuple[int, int], float] = {}
        for chunk, rise in filter(None, (marked(lag, point.step, self.measure.lag_threshold) for lag in lags)):
            stretch = chunk.first, min(chunk.last, point.step - 1)
            marks[stretch] = max(rise, marks.get(stretch, 0.0))
        if not marks:
            return []
        view, previous = scorer.request(point)
        own = await scorer.forward.sampled(point.step, previous, 0.0, 0)
        found = [self._candidate(point, 0, own, 0.0)]
        for index, ((first, last), rise) in enumerate(marks.items(), start=1):
            steps = scorer.played.steps[first : last + 1]
            state = await self._taught(point.step, view, reminded(previous, steps))
            score = rise if supported(state, render_history(steps, None), view, previous) else 0.0
            found.append(self._candidate(point, index, state, score))
        return found

    async def _lag(self, index: int) -> Lag:
        scorer = self.scorer

        async def measure() -> Lag:
            block = self.measure.block
            return await measure_lag(scorer.played, index, scorer.goal, scorer.agent, block, scorer.watch)

        return await once(self._lags, index, measure)

    async def _taught(self, step: int, view: View, previous: str) -> str:
        with self.scorer.watch.at(step):
            reply = await self.scorer.memory.sample(view, previous, 0.0, 0)
        state = enforce(reply, self.scorer.budget, self.scorer.agent.tokenizer).state
        self.scorer.watch.wrote(state)
        return state

    def _candidate(self, point: WritePoint, index: int, state: str, score: float) -> Candidate:
        return Candidate(
            point=point.key,
            index=index,
            state=state,
            coverage=coverage(state, self.scorer.facts),
            hint=holds_action(state, self.scorer.offered[point.step]),
            scores={HINDSIGHT: score},
        )


def marked(lag: Lag, step: int, threshold: float) -> tuple[Chunk, float] | None:
    """The chunk that a decision hangs on most and its rise, the earliest among equals, of those that had begun before
    a step; None when no rise reaches the threshold."""
    passed = [(rise, -place) for place, rise in enumerate(lag.rises) if lag.chunks[place].first < step]
    if not passed or max(passed)[0] < threshold:
        return None
    rise, place = max(passed)
    return lag.chunks[-place], rise


def reminded(previous: str, chunk: Sequence[Step]) -> str:
    """What the teacher is given for the previous state: the state, and then the steps of a chunk."""
    history = render_history(chunk, None)
    return f"{previous}\n\n{history}" if previous else history


def supported(rewrite: str, chunk: str, view: View, previous: str) -> bool:
    """Whether what a rewrite says of a chunk could have been written without it: all words it shares with the chunk
    stand in the request, and some of them in the previous state alone."""
    shared, shown = _words(rewrite) & _words(chunk), _words(view.observation)
    known = shown | _words(view.goal) | _words(view.last_action or "") | _words(previous)
    return shared <= known and bool((shared & _words(previous)) - shown)


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text.casefold()))
