"""The sufficiency score: what a state is worth at later decisions of a logged episode.

`S_K(z)` is the mean log-probability of the reference action over at most K decision steps after the write. *window*
shows the reader the candidate followed by the raw steps in between; *recursive* rolls the writer forward from the
candidate through the logged steps at temperature 0, and shows only the state it arrives at; *enforced* goes on from the
best of several replies at each rewrite, so that what a candidate keeps is not lost by a rewrite that will be unlearnt.
"""

import asyncio
from collections.abc import Awaitable, Sequence

from dssr.agent.leaks import Watch
from dssr.agent.memory import Prompted, enforce
from dssr.agent.prompts import Reader, render_history
from dssr.models.base import Tokenizer
from dssr.scale.shards import once
from dssr.types import Options, Record, Step, View


def spread(targets: Sequence[int], most: int) -> tuple[int, ...]:
    """At most `most` targets, evenly spaced, the first always among them; so K = 1 is the next decision."""
    if len(targets) <= most:
        return tuple(targets)
    if most == 1:
        return (targets[0],)
    gap = (len(targets) - 1) / (most - 1)
    return tuple(targets[round(place * gap)] for place in range(most))


def needed(targets: Sequence[int], sizes: Sequence[int]) -> tuple[int, ...]:
    """The targets that any of the sizes looks at."""
    return tuple(sorted({target for size in sizes for target in spread(targets, size)}))


def mean_scores(values: dict[int, float], targets: Sequence[int], sizes: Sequence[int]) -> dict[int, float]:
    """S_K for every K, from one set of log-probabilities."""
    scores = {}
    for size in sizes:
        chosen = spread(targets, size)
        scores[size] = sum(values[target] for target in chosen) / len(chosen)
    return scores


class Enforced(Record, frozen=True):
    """How later rewrites are enforced in a roll-forward: the best of several replies goes on."""

    samples: int
    """Beside the greedy reply; with none the roll-forward is the plain one."""
    temperature: float
    targets: int
    """Decisions still ahead at which replies are compared, evenly spaced; the next one is always among them."""


PLAIN = Enforced(0, 0.0, 1)


class Forward:
    """One logged episode, rolled forward from any state. Equal futures are computed once.

    Two candidates that lead to the same state at the same step share everything after it, whichever write
    point they came from; `writes` and `reads` count the calls that were really made.
    """

    def __init__(
        self,
        memory: Prompted,
        reader: Reader,
        tokenizer: Tokenizer,
        budget: int,
        goal: str,
        steps: Sequence[Step],
        watch: Watch,
    ) -> None:
        self.memory = memory
        self.reader = reader
        self.tokenizer = tokenizer
        self.budget = budget
        self.goal = goal
        self.steps = steps
        self.watch = watch
        self.writes = 0
        self.reads = 0
        self._states: dict[tuple[int, int, str], asyncio.Future[str]] = {}
        self._losses: dict[tuple[int, str], asyncio.Future[float]] = {}

    async def recursive(
        self, start: int, state: str, targets: Sequence[int], enforced: Enforced = PLAIN
    ) -> dict[int, float]:
        """log p(a*_u) at each target, from the states reached by rolling `state` forward from step `start`."""
        found: dict[int, Awaitable[float]] = {}
        heats = (0.0, *(enforced.temperature for _ in range(enforced.samples)))
        for step in range(start + 1, max(targets, default=start) + 1):
            tried = await asyncio.gather(*(self.sampled(step, state, heat, place) for place, heat in enumerate(heats)))
            ahead = spread([target for target in targets if target >= step], enforced.targets)
            state = await self._best(tuple(dict.fromkeys(tried)), ahead)
            if step in targets:
                found[step] = asyncio.ensure_future(self.logprob(step, state))
        return {step: await value for step, value in found.items()}

    async def _best(self, states: Sequence[str], targets: Sequence[int]) -> str:
        """The state whose mean log p(a*_u) at the targets is highest when the reader is shown the state itself beside
        the observation of u; the first among equals.

        That is an approximation: to look one step ahead costs reads alone, whereas to roll every reply forward to
        the targets would cost as many writes again at every rewrite.
        """
        if len(states) == 1:
            return states[0]

        async def worth(state: str) -> float:
            return sum(await asyncio.gather(*(self.logprob(target, state) for target in targets)))

        values = await asyncio.gather(*map(worth, states))
        return states[values.index(max(values))]

    async def window(self, start: int, state: str, targets: Sequence[int]) -> dict[int, float]:
        """log p(a*_u) at each target, from the candidate followed by the raw steps in between."""

        async def one(target: int) -> float:
            between = render_history(self.steps[start + 1 : target], self.steps[target].action)
            return await self.logprob(target, f"{state}\n\n{between}" if state else between)

        values = await asyncio.gather(*(one(target) for target in targets))
        return dict(zip(targets, values, strict=True))

    async def sampled(self, step: int, previous: str, temperature: float, index: int) -> str:
        """The state at a step, reply number `index` at a temperature; at 0 the greedy one, whatever its number."""
        return await self._next(step, previous, temperature, index if temperature else 0)

    async def _next(self, step: int, previous: str, temperature: float = 0.0, index: int = 0) -> str:
        async def write() -> str:
            self.writes += 1
            logged = self.steps[step]
            view = View(goal=self.goal, last_action=logged.action, observation=logged.observation)
            with self.watch.at(step):
                reply = await self.memory.sample(view, previous, temperature, index)
            state = enforce(reply, self.budget, self.tokenizer).state
            self.watch.wrote(state)
            return state

        return await once(self._states, (step, index, previous), write)

    async def logprob(self, step: int, context: str) -> float:
        """log p(a*) at a decision step, under a context."""

        async def read() -> float:
            self.reads += 1
            with self.watch.at(step):
                return -await self.reader.nll(self.goal, context, self.steps[step].observation, self._options(step))

        return await once(self._losses, (step, context), read)

    def _options(self, step: int) -> Options:
        decision = self.steps[step].decision
        assert decision is not None, f"step {step} is no decision"
        return decision.options
