"""Recursive scores with merged roll-forwards against each candidate and each target rolled forward by itself.

One six-room game of the paper's options, played once; all states are scored by both ways and must agree exactly.
"""

import asyncio
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from tests.measure.naive import Naive
from tests.tiny import make_tiny

from benchmarks.common import Ratio, faster, seconds
from dssr.agent.episode import Agent, play_job
from dssr.agent.leaks import Watch
from dssr.agent.memory import Kit, Prompted, enforce, load_memory
from dssr.agent.prompts import Reader, load_prompts
from dssr.config import GamesConfig, ModelConfig
from dssr.measure.candidates import decision_steps
from dssr.measure.score import Forward, needed
from dssr.models.base import Model
from dssr.models.engine.hf import HFModel
from dssr.models.load import load_model
from dssr.models.scripted import ScriptedModel
from dssr.types import Cell, Job, Played, View
from dssr.worlds.archive import Archive, Worlds, make_archive

SIZES, HORIZON, CANDIDATES = (1, 4, 12), 40, 6
Asked = list[tuple[int, str, tuple[int, ...]]]
Scores = list[dict[int, float]]
CALLS = 2.0
"""At most half the calls."""


def run() -> list[Ratio]:
    with tempfile.TemporaryDirectory() as folder:
        archive = make_archive(GamesConfig(levels=(6,), train=1, valid=0, test=0), Path(folder) / "games")
        scripted = ScriptedModel(0.95, 65536)
        tiny = load_model(
            ModelConfig(
                backend="hf", path=str(make_tiny(Path(folder) / "tiny")), dtype="float32", device="cpu", threads=1
            )
        )
        try:
            return [
                *compare("scripted", scripted, archive, budget=64, points=16, max_actions=50),
                *compare("random transformer", tiny, archive, budget=8, points=2, max_actions=16),
            ]
        finally:
            asyncio.run(tiny.close())


@dataclass(frozen=True)
class Setting:
    """A logged episode and the writer and reader that score its states."""

    memory: Prompted
    reader: Reader
    budget: int
    goal: str
    played: Played

    def forward(self) -> Forward:
        tokenizer = self.reader.tokenizer
        return Forward(self.memory, self.reader, tokenizer, self.budget, self.goal, self.played.steps, Watch("", ""))

    def naive(self) -> Naive:
        return Naive(self.memory, self.reader, self.budget, self.goal, self.played.steps)


def compare(name: str, model: Model, archive: Archive, budget: int, points: int, max_actions: int) -> list[Ratio]:
    """Calls and time of both ways with one model."""
    worlds = Worlds(archive)
    agent = Agent(worlds, model, Reader(model), load_prompts(), max_actions)
    try:
        setting = _play(agent, model, archive.games()[0].id, budget)
    finally:
        worlds.close()
    asked = asyncio.run(_asked(setting, points))
    merged, single, apart = setting.forward(), _Single(setting), setting.naive()
    ours = asyncio.run(_merged(merged, asked))
    if ours != asyncio.run(_apart(apart, asked)) or ours != asyncio.run(single.scores(asked)):
        raise AssertionError("the ways disagree, so their calls cannot be compared")
    what = f"score, {len(asked)} candidates, {name}"
    each = "each candidate and target alone"
    return [
        Ratio(f"{what}: writer calls", merged.writes, apart.writes, each, apart.writes / merged.writes, CALLS, "calls"),
        Ratio(
            f"{what}: writer calls",
            merged.writes,
            single.writes,
            "each candidate alone",
            single.writes / merged.writes,
            None,
            "calls",
        ),
        faster(
            f"{what}: time",
            _time(model, lambda: _merged(setting.forward(), asked)),
            _time(model, lambda: _apart(setting.naive(), asked)),
            each,
            CALLS,
        ),
    ]


def _play(agent: Agent, model: Model, game: str, budget: int) -> Setting:
    job = Job(game, Cell("summary", budget, 0, "post"), seed=0, temperature=0.0, epsilon=0.0, driver="reader")
    played = asyncio.run(play_job(job, agent))
    if played.episode.error is not None:
        raise AssertionError(played.episode.error)
    memory = load_memory("summary", Kit(budget, model.tokenizer, model, None, 0.0, 0), agent.prompts)
    assert isinstance(memory, Prompted)
    with agent.worlds.playing(game) as world:
        return Setting(memory, Reader(model), budget, world.goal, played)


async def _asked(setting: Setting, points: int) -> Asked:
    """Candidates of points spread evenly over the writes that a decision depends on, half of them before Phase B."""
    steps, begin = setting.played.steps, setting.played.episode.begin
    scored = [step.index for step in steps[1:] if decision_steps(steps, step.index, HORIZON)]
    chosen = []
    for phase in ([one for one in scored if one < begin], [one for one in scored if one >= begin]):
        half = min(points // 2, len(phase))
        chosen += [phase[place * len(phase) // half] for place in range(half)]
    asked: Asked = []
    for step in chosen:
        view = View(setting.goal, steps[step].action, steps[step].observation)
        for index in range(CANDIDATES):
            reply = await setting.memory.sample(view, steps[step - 1].write.state, 1.0, index)
            state = enforce(reply, setting.budget, setting.reader.tokenizer).state
            asked.append((step, state, needed(decision_steps(steps, step, HORIZON), SIZES)))
    return asked


async def _merged(forward: Forward, asked: Asked) -> Scores:
    return list(await asyncio.gather(*(forward.recursive(*one) for one in asked)))


async def _apart(naive: Naive, asked: Asked) -> Scores:
    async def one(step: int, state: str, targets: tuple[int, ...]) -> dict[int, float]:
        values = await asyncio.gather(*(naive.logprob(step, state, target) for target in targets))
        return dict(zip(targets, values, strict=True))

    return list(await asyncio.gather(*(one(*each) for each in asked)))


class _Single:
    """All targets from one roll-forward, but nothing shared between candidates."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.writes = 0

    async def scores(self, asked: Asked) -> Scores:
        found = []
        for one in asked:
            forward = self.setting.forward()
            found.append(await forward.recursive(*one))
            self.writes += forward.writes
        return found


def _time(model: Model, work: Callable[[], Awaitable[Scores]]) -> float:
    async def go() -> None:
        if isinstance(model, HFModel):
            model.prefiller.clear()  # what the other way left there must not help
        await work()

    return seconds(lambda: asyncio.run(go()), repeat=1)
