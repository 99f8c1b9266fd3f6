"""The suite of memories."""

import asyncio
import tempfile
from pathlib import Path

import msgspec

from dssr.agent.episode import Agent, run_jobs
from dssr.agent.memory import FULL
from dssr.agent.prompts import load_prompts
from dssr.agent.reader import Reader
from dssr.agent.store import save, stored
from dssr.config import Config
from dssr.models.scripted import ScriptedModel
from dssr.record.run import Run
from dssr.types import Cell, Episode, Job, Played
from dssr.worlds.archive import Worlds


class MemorySuite:
    """What every memory must do. Fixtures: `memory` (its name), `worlds`, and `game`, one of their games, not too long.

    The models are scripted: what is tested is the memory.
    """

    budgets = (7, 64)
    """The first is far too small for any memory."""

    def test_states_keep_their_budget(self, worlds: Worlds, game: str, memory: str) -> None:
        """Catches a memory whose states escape the budget, even one far too small for it."""
        for played in self.played(worlds, game, memory):
            assert played.episode.error is None, played.episode.error
            assert played.steps
            budget = played.episode.job.cell.budget
            assert all(budget is None or step.write.tokens <= budget for step in played.steps)

    def test_equal_jobs_give_equal_records(self, worlds: Worlds, game: str, memory: str) -> None:
        """Catches a memory with a hidden source of chance or a life beyond its text."""
        assert self.played(worlds, game, memory) == self.played(worlds, game, memory)

    def test_records_come_back_from_disk_unchanged(self, worlds: Worlds, game: str, memory: str) -> None:
        """Catches text that JSON lines change or cannot hold."""
        runs = self.played(worlds, game, memory)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "run"
            with Run.start(path, command="test", config=Config(name="test"), models={}) as run:
                for played in runs:
                    save(run, played)
                    save(run, played)
            assert list(stored(Run.open(path))) == runs
        assert msgspec.json.decode(msgspec.json.encode(runs[0].episode), type=Episode) == runs[0].episode

    def played(self, worlds: Worlds, game: str, memory: str) -> list[Played]:
        """An episode at each budget; the whole history has none."""
        model = ScriptedModel(retention=0.97, context_length=65536)
        agent = Agent(worlds, model, Reader(model), load_prompts(), max_actions=50)
        cells = [Cell(memory, None if memory == FULL else budget, 0, "post") for budget in self.budgets]
        jobs = [Job(game, cell, 0, 0.5, 0.0, "reader") for cell in dict.fromkeys(cells)]

        async def collect() -> list[Played]:
            return [played async for played in run_jobs(jobs, agent)]

        return asyncio.run(collect())
