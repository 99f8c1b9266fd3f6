"""Collect, clone, act, collect again: the reader's iterations, and the gate it must pass.

Iteration 1 drives Phase B with the reference action. Each later one drives it with the reader trained so far, and
labels every point it visits with the reference action of the state reached. The last reader trains on all of them.
"""

import asyncio
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import msgspec

from dssr.agent.episode import FROM_START, Agent, episode_key, run_jobs
from dssr.agent.store import save, stored
from dssr.config import Config, ModelConfig
from dssr.measure.grid import open_archive, staffed_agent
from dssr.models.load import weights_folder
from dssr.record.run import Run
from dssr.seeds import seed_of
from dssr.train.reader.mixture import ReaderPoint, held_out, jobs_for, reader_points, stratified
from dssr.types import Driver, Game, Job, Tell
from dssr.worlds.archive import Archive


class Dagger:
    """One reader under training, in one directory: collect-N/ are runs, adapters/N what they trained."""

    def __init__(self, config: Config, directory: Path, tell: Tell) -> None:
        self.config, self.directory, self.tell = bare(config), directory, tell
        self.archive: Archive = open_archive(config)
        self.model: ModelConfig = self.config.reader_model or self.config.writer_model
        games = self.archive.games("train")
        self.games, self.kept = held_out(games, config.reader.held_out, config.seed)

    def train(self) -> Path:
        """All iterations; returns the folder of the final adapter."""
        points: list[ReaderPoint] = []
        monitor: list[ReaderPoint] = []
        for number in range(1, self.config.reader.iterations + 1):
            points += self._points(number, self.games, "train")
            monitor += self._points(number, self.kept, "held-out")
            self.fit(number, points, monitor)
        return self.adapter(self.config.reader.iterations)

    def adapter(self, number: int) -> Path:
        return self.directory / "adapters" / str(number)

    def fit(self, number: int, points: Sequence[ReaderPoint], monitor: Sequence[ReaderPoint]) -> None:
        """Train iteration `number` on the union of all points so far."""
        from dssr.agent.prompts import load_prompts
        from dssr.models.tokenizers import open_tokenizer
        from dssr.train.reader.fit import Course, train

        if self.adapter(number).exists():
            return
        self.adapter(number).parent.mkdir(parents=True, exist_ok=True)
        folder = weights_folder(self.model.path)
        course = Course(
            base=folder,
            dtype=self.model.dtype,
            tokenizer=open_tokenizer(folder, self.model.path, self.model.revision),
            instruction=load_prompts(self.config.agent.prompts).reader,
            config=self.config.reader,
            seed=seed_of("reader", self.config.seed, number),
            work=self.directory / "work" / str(number),
            out=self.adapter(number),
        )
        card = {"name": f"reader {number}", "config": self.config.digest(), "games": len(self.games)}
        train(course, points, monitor, card, lambda row: self.tell("train", int(row["step"]), int(row["of"])))

    def _points(self, number: int, games: Sequence[Game], name: str) -> list[ReaderPoint]:
        """The iteration's sample of decision points on some games, collected if that is still owed."""
        if not games:
            return []
        driver: Driver = "reference" if number == 1 else "reader"
        config = self.config
        jobs = jobs_for(
            games, config.reader, config.protocol.fillers, config.protocol.kind, driver, config.seed, number
        )
        path = self.directory / f"collect-{number}-{name}"
        if not (path / "summary.json").exists():
            with self._agent(number - 1, jobs) as agent:
                asyncio.run(self._collect(path, jobs, agent, number, name))
        goals: dict[str, str] = {}
        found: list[ReaderPoint] = []
        for played in stored(Run.open(path)):
            goal = goals.setdefault(played.episode.job.game, self._goal(played.episode.job.game))
            found += reader_points(played.episode, played.steps, goal)
        return stratified(found, config.reader, "reader points", config.seed, number, name)

    async def _collect(self, path: Path, jobs: Sequence[Job], agent: Agent, number: int, name: str) -> None:
        models = {"writer": agent.writer.fingerprint(), "reader": agent.reader.fingerprint()}
        with Run.start(
            path,
            command="reader-collect",
            config=self.config,
            models=models,
            arguments={"iteration": number, "games": name},
            resume=path.exists(),
        ) as run:
            md5 = {game.id: game.md5 for game in self.archive.games("train")}
            owed = [j for j in jobs if not run.has("episodes", episode_key(j, agent, md5[j.game], FROM_START))]
            done = len(jobs) - len(owed)
            async for played in run_jobs(owed, agent):
                save(run, played)
                done += 1
                self.tell(f"collect {number} {name}", done, len(jobs))
            errors = sum(played.episode.error is not None for played in stored(run))
            run.finish({"episodes": len(jobs), "errors": errors})

    def _goal(self, game: str) -> str:
        world = self.archive.world(game)
        try:
            return world.goal
        finally:
            world.close()

    def _agent(self, number: int, jobs: Sequence[Job]) -> AbstractContextManager[Agent]:
        """Models whose reader is the one of iteration `number`; 0 is the bare base."""
        config = with_reader(self.config, self.adapter(number)) if number > 0 else self.config
        return staffed_agent(config, self.archive, jobs)


def with_reader(config: Config, adapter: Path) -> Config:
    """The configuration with this adapter as the reader's."""
    name = "reader"
    model = config.reader_model or config.writer_model
    return _reading(config, {**model.adapters, name: str(adapter)}, name)


def bare(config: Config) -> Config:
    """The configuration without the adapter its reader may have already: training starts from the base."""
    model = config.reader_model or config.writer_model
    left = {name: path for name, path in model.adapters.items() if name != config.agent.reader_adapter}
    return _reading(config, left, None)


def _reading(config: Config, adapters: dict[str, str], name: str | None) -> Config:
    model = config.reader_model or config.writer_model
    changed = msgspec.structs.replace(model, adapters=adapters)
    side: dict[str, Any] = {"reader_model" if config.reader_model else "writer_model": changed}
    return msgspec.structs.replace(config, agent=msgspec.structs.replace(config.agent, reader_adapter=name), **side)
