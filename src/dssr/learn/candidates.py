"""Candidates at a write point: sampled from the current writer, scored by what they are worth later."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from dssr.agent.base import Kit
from dssr.agent.budget import enforce
from dssr.agent.episode import Desk, Played
from dssr.agent.fork import fork
from dssr.agent.memory import Prompted, load_memory
from dssr.config import WriterConfig
from dssr.errors import ConfigError, ModelError
from dssr.learn.points import request_at
from dssr.learn.variants import Variant
from dssr.measure.coverage import coverage, directives_shown, holds_command
from dssr.measure.score import Forward, mean_scores, needed, once
from dssr.types import Candidate, Episode, Record, View, WritePoint


class Trouble(Record, frozen=True):
    """A write point whose candidates could not be made or scored; it is counted and never learnt from."""

    point: str
    error: str


Score = Callable[[WritePoint, str], Awaitable[dict[str, float]]]


class Bench:
    """One collected episode on which candidates are tried. Roll-forwards of all its points are shared."""

    def __init__(self, played: Played, desk: Desk, variant: Variant, config: WriterConfig, seed: int) -> None:
        self.played, self.desk, self.variant, self.config = played, desk, variant, config
        budget = played.episode.job.cell.budget
        assert budget is not None, "only written states have candidates"
        kit = Kit(
            budget=budget, tokenizer=desk.reader.tokenizer, model=desk.writer, adapter=None, temperature=0.0, seed=seed
        )
        memory = load_memory(played.episode.job.cell.memory, kit, desk.prompts)
        if not isinstance(memory, Prompted):
            raise ConfigError(
                "Only a prompted memory can be trained: a user's class has no model of its own to change."
            )
        self.memory, self.budget = memory, budget
        with desk.worlds.playing(played.episode.job.game) as world:
            self.goal = world.goal
            node = world.start()
            self.admissible = [node.moment.admissible]
            for step in played.steps[1:]:
                assert step.action is not None
                node = world.step(node, step.action)
                self.admissible.append(node.moment.admissible)
        self.directives = directives_shown(played.steps, played.episode.reveal)
        self._ends: dict[tuple[int, str], asyncio.Future[Episode]] = {}
        self.forward = Forward(memory, desk.reader, desk.reader.tokenizer, budget, self.goal, played.steps)

    def request(self, point: WritePoint) -> tuple[View, str]:
        """What the writer is given at a point: the view, and the state it had."""
        return request_at(self.played.steps, point.step, self.goal)

    def reachable(self, point: WritePoint) -> bool:
        """Whether a directive could still be kept: none has been shown yet, or the input state holds one."""
        return point.since_reveal <= 0 or (coverage(self.request(point)[1], self.directives) or 0.0) > 0.0

    async def candidates(self, point: WritePoint) -> list[Candidate]:
        """The point's candidates with what the variant ranks them by."""
        return await self._tried(point, self.realised if self.variant.score == "return" else self.recursive)

    async def studied(self, point: WritePoint) -> list[Candidate]:
        """The point's candidates with both kinds of scores and the return they led to."""

        async def everything(point: WritePoint, state: str) -> dict[str, float]:
            parts = await asyncio.gather(*(ask(point, state) for ask in (self.recursive, self.window, self.realised)))
            return {name: value for part in parts for name, value in part.items()}

        return await self._tried(point, everything)

    async def _tried(self, point: WritePoint, score: Score) -> list[Candidate]:
        view, previous = self.request(point)
        replies = await asyncio.gather(
            *(
                self.memory.sample(view, previous, self.variant.temperature, index)
                for index in range(self.variant.candidates)
            )
        )
        states = [enforce(reply, self.budget, self.desk.reader.tokenizer).state for reply in replies]
        scores = await asyncio.gather(*(score(point, state) for state in states))
        return [
            Candidate(
                point=point.key,
                index=index,
                state=state,
                coverage=coverage(state, self.directives),
                hint=holds_command(state, self.admissible[point.step]),
                scores=found,
            )
            for index, (state, found) in enumerate(zip(states, scores, strict=True))
        ]

    async def recursive(self, point: WritePoint, state: str) -> dict[str, float]:
        """The scores that writers are trained on, `S1`, `S4`, …"""
        sizes = self.config.targets
        values = await self.forward.recursive(point.step, state, needed(point.targets, sizes))
        return {f"S{size}": value for size, value in mean_scores(values, point.targets, sizes).items()}

    async def window(self, point: WritePoint, state: str) -> dict[str, float]:
        """The scores with raw steps in place of later writes, `W1`, `W4`, …"""
        sizes = self.config.targets
        values = await self.forward.window(point.step, state, needed(point.targets, sizes))
        return {f"W{size}": value for size, value in mean_scores(values, point.targets, sizes).items()}

    async def realised(self, point: WritePoint, state: str) -> dict[str, float]:
        """Normalised score of the game played on from the state."""
        ended = await self.continued(point.step, state)
        return {"return": ended.score / ended.max_score}

    async def continued(self, step: int, state: str) -> Episode:
        """The game played on from the state, once per state: writer at temperature 0, reader by argmax."""

        async def play_on() -> Episode:
            episode = self.played.episode
            job = msgspec.structs.replace(episode.job, temperature=0.0, epsilon=0.0)
            plain = msgspec.structs.replace(episode, job=job)
            ended = (await fork(plain, self.played.steps, step, self.desk, state)).episode
            if ended.error is not None:
                raise ModelError(f"The continuation of {episode.key} from step {step} failed: {ended.error}")
            return ended

        return await once(self._ends, (step, state), play_on)


def usable(candidates: Sequence[Candidate], variant: Variant) -> list[Candidate]:
    """The candidates a variant may learn from."""
    return [one for one in candidates if not (variant.no_hint and one.hint)]
