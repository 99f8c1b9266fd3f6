"""Which of a run's prompts are kept verbatim: a fixed number of each role, spread over its episodes."""

import heapq
from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from dssr.agent.memory import is_reference
from dssr.models.base import Message
from dssr.seeds import digest_of, rng_of, seed_of
from dssr.types import Job, StoredPrompt

Role = Literal["writer", "reader"]


def share(jobs: Sequence[Job], total: int, seed: int) -> dict[str, dict[Role, int]]:
    """How many prompts of each role a job keeps, by the job's digest; together `total` of each. Jobs that keep none are
    left out.

    Spread over the episodes by seed. The choice depends on the list of jobs and on content alone, so an interrupted run
    keeps the same ones.
    """
    asked: dict[Role, list[str]] = {
        "writer": [job_digest(job) for job in jobs if not is_reference(job.cell.memory)],
        "reader": [job_digest(job) for job in jobs if job.driver == "reader"],
    }
    quotas: dict[str, dict[Role, int]] = {}
    for role, keys in asked.items():
        rng_of("prompts", seed, role).shuffle(keys)
        for place, key in enumerate(keys):
            if quota := total // len(keys) + (place < total % len(keys)):
                quotas.setdefault(key, {})[role] = quota
    return quotas


def job_digest(job: Job) -> str:
    """The key under which a job's quota of prompts stands."""
    return digest_of(msgspec.to_builtins(job))


class PromptSampler:
    """Keeps an episode's quota: of all prompts it is shown, those whose seeded rank is lowest."""

    def __init__(self, episode: str, quota: Mapping[Role, int]) -> None:
        self.episode = episode
        self.quota = quota
        self._kept: dict[Role, list[tuple[int, int, StoredPrompt]]] = {"writer": [], "reader": []}
        self._shown = 0

    def show(self, role: Role, step: int, messages: Sequence[Message]) -> None:
        """Offer one prompt, just before it is sent."""
        self._shown += 1
        kept, quota = self._kept[role], self.quota.get(role, 0)
        if not quota:
            return
        # The heap gives up its smallest entry: ranks are negated so that the highest rank leaves.
        rank = -seed_of(self.episode, role, step, self._shown)
        if len(kept) == quota and rank < kept[0][0]:
            return
        pairs = tuple((message.role, message.content) for message in messages)
        prompt = StoredPrompt(role=role, episode=self.episode, step=step, messages=pairs)
        (heapq.heappush if len(kept) < quota else heapq.heappushpop)(kept, (rank, self._shown, prompt))

    def prompts(self) -> tuple[StoredPrompt, ...]:
        """In the order in which they were sent."""
        everything = [entry for kept in self._kept.values() for entry in kept]
        return tuple(prompt for _, _, prompt in sorted(everything, key=lambda entry: entry[1]))
