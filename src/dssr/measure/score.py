"""Sufficiency scores: what a candidate state is worth to the reader at later decisions.

`S_K(z)` is the mean log-probability of the reference action over at most K decision steps after the write.
*window* shows the reader the candidate followed by the raw steps in between; *recursive* rolls the writer
forward from the candidate through the logged steps at temperature 0, and shows only the state it arrives at.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from dssr.agent.budget import enforce
from dssr.agent.history import render_history
from dssr.agent.memory import Memory
from dssr.agent.reader import Reader
from dssr.models.base import Tokenizer
from dssr.types import Options, Step, View

T = TypeVar("T")


def decision_steps(steps: Sequence[Step], after: int, horizon: int) -> tuple[int, ...]:
    """Decision steps u with after < u <= after + horizon."""
    return tuple(step.index for step in steps if step.decision is not None and after < step.index <= after + horizon)


def spread(targets: Sequence[int], most: int) -> tuple[int, ...]:
    """At most `most` targets, evenly spaced, the first always among them; so K = 1 is the next decision."""
    if len(targets) <= most:
        return tuple(targets)
    if most == 1:
        return (targets[0],)
    gap = (len(targets) - 1) / (most - 1)
    return tuple(targets[round(place * gap)] for place in range(most))


class Forward:
    """One logged episode, rolled forward from any state. Equal futures are computed once.

    Two candidates that lead to the same state at the same step share everything after it, whichever write
    point they came from; `writes` and `reads` count the calls that were really made.
    """

    def __init__(
        self, memory: Memory, reader: Reader, tokenizer: Tokenizer, budget: int, goal: str, steps: Sequence[Step]
    ) -> None:
        self.memory = memory
        self.reader = reader
        self.tokenizer = tokenizer
        self.budget = budget
        self.goal = goal
        self.steps = steps
        self.writes = 0
        self.reads = 0
        self._states: dict[tuple[int, str], asyncio.Future[str]] = {}
        self._losses: dict[tuple[int, str], asyncio.Future[float]] = {}

    async def recursive(self, start: int, state: str, targets: Sequence[int]) -> dict[int, float]:
        """log p(a*_u) at each target, from the states reached by rolling `state` forward from step `start`."""
        found: dict[int, Awaitable[float]] = {}
        for step in range(start + 1, max(targets, default=start) + 1):
            state = await self._next(step, state)
            if step in targets:
                found[step] = asyncio.ensure_future(self._logprob(step, state))
        return {step: await value for step, value in found.items()}

    async def window(self, start: int, state: str, targets: Sequence[int]) -> dict[int, float]:
        """log p(a*_u) at each target, from the candidate followed by the raw steps in between."""

        async def one(target: int) -> float:
            between = render_history(self.steps[start + 1 : target], self.steps[target].action)
            return await self._logprob(target, f"{state}\n\n{between}" if state else between)

        values = await asyncio.gather(*(one(target) for target in targets))
        return dict(zip(targets, values, strict=True))

    async def _next(self, step: int, previous: str) -> str:
        async def write() -> str:
            self.writes += 1
            logged = self.steps[step]
            view = View(goal=self.goal, last_action=logged.action, observation=logged.observation)
            return enforce(await self.memory.write(view, previous), self.budget, self.tokenizer).state

        return await once(self._states, (step, previous), write)

    async def _logprob(self, step: int, context: str) -> float:
        async def read() -> float:
            self.reads += 1
            return -await self.reader.nll(self.goal, context, self.steps[step].observation, self._options(step))

        return await once(self._losses, (step, context), read)

    def _options(self, step: int) -> Options:
        decision = self.steps[step].decision
        assert decision is not None, f"step {step} is no decision"
        return decision.options


async def once(
    known: dict[tuple[int, str], "asyncio.Future[T]"], key: tuple[int, str], work: Callable[[], Awaitable[T]]
) -> T:
    """The result of `work` for this key, computed by whoever asks first and awaited by the rest."""
    if key not in known:
        known[key] = asyncio.ensure_future(work())
    return await asyncio.shield(known[key])


def mean_scores(values: dict[int, float], targets: Sequence[int], sizes: Sequence[int]) -> dict[int, float]:
    """S_K for every K, from one set of log-probabilities."""
    scores = {}
    for size in sizes:
        chosen = spread(targets, size)
        scores[size] = sum(values[target] for target in chosen) / len(chosen)
    return scores


def needed(targets: Sequence[int], sizes: Sequence[int]) -> tuple[int, ...]:
    """The targets that any of the sizes looks at."""
    return tuple(sorted({target for size in sizes for target in spread(targets, size)}))
