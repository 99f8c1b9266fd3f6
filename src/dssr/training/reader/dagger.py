"""Collect, clone, act, collect again: the reader's iterations.

Iteration 1 drives Phase B with the reference action. Each later one drives it with the reader trained so far, and
labels every point it visits with the reference action of the state reached. The last reader trains on all of them.
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from dssr.agent.episode import episode_key, play_job
from dssr.agent.store import save, stored
from dssr.config import Config, ModelConfig
from dssr.errors import RecordError, UsageError
from dssr.models.load import weights_folder
from dssr.record.run import Run
from dssr.seeds import seed_of
from dssr.session import Session, Stage, configured, silent, verb
from dssr.training.reader.mixture import ReaderPoint, held_out, jobs_for, reader_points, stratified
from dssr.types import Driver, Game, Job, Played, Progress
from dssr.worlds.archive import Archive


@verb
async def reader_train(
    config: Config | str = "nano",
    *,
    out: str | Path | None = None,
    resume: bool = False,
    progress: Progress = silent,
) -> Path:
    """Behaviour cloning over the context mixture, then DAgger; returns the folder of the final adapter."""
    settings = configured(config)
    model = settings.reader_model or settings.writer_model
    if model.backend not in ("hf", "vllm"):
        raise UsageError(f"The {model.backend} backend has no weights to train; use a configuration with hf or vllm.")
    place = Path(out) if out else Path(settings.runs) / f"reader-{settings.name}-{settings.digest()[:8]}"
    dagger = Dagger(settings, place, progress)
    if dagger.adapter(settings.reader.iterations).exists():
        raise RecordError(f"{place} is finished: its adapter is {dagger.adapter(settings.reader.iterations)}.")
    if place.exists() and not resume:
        raise RecordError(f"{place} exists; choose another directory, or continue it with --resume.")
    return await dagger.train()


class Dagger:
    """One reader under training, in one directory: collect-N/ are runs, adapters/N what they trained."""

    def __init__(self, config: Config, directory: Path, progress: Progress = silent) -> None:
        self.config, self.directory, self.progress = bare(config), directory, progress
        self.archive: Archive = Session(config).archive
        self.model: ModelConfig = self.config.reader_model or self.config.writer_model
        games = self.archive.games("train")
        self.games, self.kept = held_out(games, config.reader.held_out, config.seed)

    async def train(self) -> Path:
        """All iterations; returns the folder of the final adapter."""
        points: list[ReaderPoint] = []
        monitor: list[ReaderPoint] = []
        for number in range(1, self.config.reader.iterations + 1):
            points += await self._points(number, self.games, "train")
            monitor += await self._points(number, self.kept, "held-out")
            self.fit(number, points, monitor)
        return self.adapter(self.config.reader.iterations)

    def adapter(self, number: int) -> Path:
        return self.directory / "adapters" / str(number)

    def fit(self, number: int, points: Sequence[ReaderPoint], monitor: Sequence[ReaderPoint]) -> None:
        """Train iteration `number` on the union of all points so far."""
        from dssr.agent.prompts import load_prompts
        from dssr.models.tokenizers import open_tokenizer
        from dssr.training.lora import Fit
        from dssr.training.reader.fit import Questions, train_reader

        if self.adapter(number).exists():
            return
        self.adapter(number).parent.mkdir(parents=True, exist_ok=True)
        config, model = self.config.reader, self.model
        fit = Fit(
            base=weights_folder(model.path),
            dtype=model.dtype,
            revision=model.revision,
            device=model.device,
            rate=config.learning_rate,
            epochs=config.epochs,
            batch=config.batch,
            warmup=config.warmup,
            rank=config.rank,
            alpha=config.alpha,
            seed=seed_of("reader", self.config.seed, number),
            work=self.directory / "work" / str(number),
            out=self.adapter(number),
            card={"name": f"reader {number}", "config": self.config.digest(), "games": len(self.games)},
        )
        tokenizer = open_tokenizer(fit.base, model.path, model.revision)
        questions = Questions(tokenizer, load_prompts(self.config.agent.prompts).reader, config.micro_tokens)
        train_reader(fit, points, monitor, questions, partial(self.progress, "train"))

    async def _points(self, number: int, games: Sequence[Game], name: str) -> list[ReaderPoint]:
        """The iteration's sample of decision points on some games, collected if that is still owed."""
        if not games:
            return []
        driver: Driver = "reference" if number == 1 else "reader"
        config = self.config
        jobs = jobs_for(games, config, driver, number)
        path = self.directory / f"collect-{number}-{name}"
        if not (path / "summary.json").exists():
            await self._collect(path, jobs, number, name)
        goals: dict[str, str] = {}
        found: list[ReaderPoint] = []
        for played in stored(Run.open(path)):
            goal = goals.setdefault(played.episode.job.game, self._goal(played.episode.job.game))
            found += reader_points(played.episode, played.steps, goal)
        return stratified(found, config.reader, "reader points", config.seed, number, name)

    async def _collect(self, path: Path, jobs: Sequence[Job], number: int, name: str) -> None:
        """Play the iteration's episodes with the reader of the one before; 0 is the bare base."""
        config = with_reader(self.config, self.adapter(number - 1)) if number > 1 else self.config
        arguments = {"iteration": number, "games": name}
        async with Session(config, self.progress, self.archive) as session:
            with session.run(path, "reader-collect", jobs, arguments, resume=True) as (run, agent):

                def key(job: Job) -> str:
                    return episode_key(job, agent, self.archive.game(job.game).md5)

                async def work(job: Job) -> Played:
                    return await play_job(job, agent)

                def keep(played: Played) -> None:
                    save(run, played)

                stage = Stage(f"collect {number} {name}", "episodes", jobs, key, work, keep)
                await session.work(run, stage)
                errors = sum(played.episode.error is not None for played in stored(run))
                session.finish(run, {"episodes": len(jobs), "errors": errors})

    def _goal(self, game: str) -> str:
        world = self.archive.world(game)
        try:
            return world.goal
        finally:
            world.close()


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
