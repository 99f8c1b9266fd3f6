"""Recursive scores the plain way: every candidate and every target is rolled forward by itself."""

from collections.abc import Sequence
from dataclasses import dataclass

from dssr.agent.memory import Memory, enforce
from dssr.agent.prompts import Reader
from dssr.types import Step, View


@dataclass
class Naive:
    """One logged episode; `writes` counts calls of the writer."""

    memory: Memory
    reader: Reader
    budget: int
    goal: str
    steps: Sequence[Step]
    writes: int = 0

    async def logprob(self, start: int, state: str, target: int) -> float:
        """log p(a*) at one target, from the state that `state` has become there."""
        for step in self.steps[start + 1 : target + 1]:
            self.writes += 1
            reply = await self.memory.write(View(self.goal, step.action, step.observation), state)
            state = enforce(reply, self.budget, self.reader.tokenizer).state
        decision = self.steps[target].decision
        assert decision is not None
        asked = (self.goal, state, self.steps[target].observation, decision.options)
        return -await self.reader.nll(*asked)
