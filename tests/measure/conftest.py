"""A small laboratory: real games, the scripted model, one episode at a time."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dssr.agent.episode import Agent, play_job
from dssr.agent.prompts import Reader, load_prompts
from dssr.config import (
    AgentConfig,
    Config,
    GamesConfig,
    GatesConfig,
    MeasureConfig,
    ModelConfig,
    ProtocolConfig,
    StatsConfig,
)
from dssr.measure.diagnose import measure_grid
from dssr.measure.grid import grid_of
from dssr.models.base import Model
from dssr.models.scripted import ScriptedModel
from dssr.record.run import Run
from dssr.session import Session
from dssr.types import Cell, Job, Played
from dssr.worlds.archive import Archive, Worlds


class Lab:
    """Plays episodes on the shared archive."""

    def __init__(self, archive: Archive) -> None:
        self.worlds = Worlds(archive)

    def agent(self, retention: float = 0.9) -> Agent:
        model = ScriptedModel(retention, context_length=65536)
        return Agent(self.worlds, model, Reader(model), load_prompts(), max_actions=50)

    def job(self, game: str, memory: str, budget: int | None, filler: int) -> Job:
        return Job(game, Cell(memory, budget, filler, "post"), seed=0, temperature=0.0, epsilon=0.0, driver="reader")

    def play(self, game: str, memory: str, budget: int | None, filler: int, retention: float = 0.9) -> Played:
        done = asyncio.run(play_job(self.job(game, memory, budget, filler), self.agent(retention)))
        assert done.episode.error is None
        return done


@pytest.fixture(scope="session")
def lab(archive: Archive) -> Iterator[Lab]:
    made = Lab(archive)
    yield made
    made.worlds.close()


class Bench:
    """Runs whole diagnoses on the shared archive, each into a directory of its own."""

    def __init__(self, archive: Archive, folder: Path) -> None:
        self.archive = archive
        self.folder = folder
        (folder / "data").mkdir()
        (folder / "data" / "small").symlink_to(archive.folder)
        self.config = Config(
            name="bench",
            data=str(folder / "data"),
            runs=str(folder / "runs"),
            cache_gib=0,
            games=GamesConfig(archive="small", levels=(6,)),
            protocol=ProtocolConfig(fillers=(0, 5, 10), max_actions=20),
            writer_model=ModelConfig(backend="scripted", path="scripted", retention=0.93, context_length=65536),
            agent=AgentConfig(memories=("full", "summary", "guide"), budgets=(64,)),
            measure=MeasureConfig(points=2, oracle_samples=2),
            stats=StatsConfig(resamples=200, long_fillers=(5, 10)),
            gates=GatesConfig(budget=64, far=10, formats=("summary", "guide")),
        )

    def levels(self, *counts: int) -> Config:
        """The same with games of other sizes."""
        return msgspec.structs.replace(self.config, games=msgspec.structs.replace(self.config.games, levels=counts))

    def diagnose(self, name: str, config: Config | None = None, model: Model | None = None, **ask: Any) -> Run:
        settings = config or self.config
        own = model or ScriptedModel(settings.writer_model.retention, 65536)
        asked = grid_of(settings, self.archive, **ask)

        async def go() -> Run:
            async with Session(settings, archive=self.archive, models=(own, own)) as session:
                return await measure_grid(session, asked, self.folder / "runs" / name)

        return asyncio.run(go())


@pytest.fixture(scope="session")
def bench(archive: Archive, tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return Bench(archive, tmp_path_factory.mktemp("bench"))


@pytest.fixture(scope="session")
def diagnosed(bench: Bench) -> Run:
    """Two six-room games, three memories, three fillers, with lags."""
    return bench.diagnose("shared", lag=True)
