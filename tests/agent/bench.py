"""What tests of the agent share: desks, jobs, and a model that replies as told."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from dssr.agent.episode import Agent, run_jobs
from dssr.agent.prompts import Reader, load_prompts
from dssr.models.base import Choose, Chosen, Generate, Generated, Message, Model
from dssr.models.scripted import ScriptedModel
from dssr.types import Cell, Job, Played
from dssr.worlds.archive import Worlds

WRITTEN = ("summary", "belief", "slots", "guide", "verbatim", "edit")
FORMATS = ("full", "lastk", "mask", "oracle-b", *WRITTEN)
FILLERS = (0, 10, 20, 40)


def make_agent(worlds: Worlds, model: Model | None = None, max_actions: int = 50, **rest: Any) -> Agent:
    model = model or ScriptedModel(retention=0.97, context_length=65536)
    return Agent(worlds, model, Reader(model), load_prompts(), max_actions, **rest)


def make_job(game: str, memory: str, budget: int | None = 128, filler: int = 0, **rest: Any) -> Job:
    settings: dict[str, Any] = {"seed": 0, "temperature": 0.0, "epsilon": 0.0, "driver": "reader"} | rest
    protocol = settings.pop("protocol", "post")
    return Job(game, Cell(memory, None if memory == "full" else budget, filler, protocol), **settings)


def play_all(jobs: Iterable[Job], agent: Agent, limit: int = 64) -> list[Played]:
    async def collect() -> list[Played]:
        return [played async for played in run_jobs(jobs, agent, limit)]

    return asyncio.run(collect())


class Told:
    """The scripted model, except that the writer's reply comes from a function of the request's number."""

    def __init__(self, reply: Callable[[int, Generate], str]) -> None:
        self.inner = ScriptedModel(retention=1.0, context_length=65536)
        self.reply = reply
        self.requests: list[Generate] = []

    @property
    def name(self) -> str:
        return "told"

    @property
    def tokenizer(self) -> Any:
        return self.inner.tokenizer

    @property
    def context_length(self) -> int:
        return self.inner.context_length

    def fingerprint(self, adapter: str | None = None) -> str:
        return f"told {adapter}"

    def prompt_tokens(self, messages: Sequence[Message]) -> int:
        return self.inner.prompt_tokens(messages)

    async def generate(self, request: Generate) -> Generated:
        self.requests.append(request)
        return Generated(self.reply(len(self.requests) - 1, request), 0)

    async def choose(self, request: Choose) -> Chosen:
        return await self.inner.choose(request)

    async def close(self) -> None:
        pass
