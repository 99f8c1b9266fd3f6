"""The reader's training data and its iterations: collect, clone, act, collect again.

Iteration 1 drives Phase B with the reference action. Each later one drives it with the reader trained so far, and
labels every point it visits with the reference action of the state reached. The last reader trains on all of them.
Which contexts it learns from, and in which exact shares, is the configuration's (`context_variants`).
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from dssr.agent.store import stored
from dssr.config import Config, ModelConfig
from dssr.errors import RecordError, UsageError
from dssr.models.load import weights_folder
from dssr.record.run import Run
from dssr.seeds import rng_of, seed_of
from dssr.session import Session, configured, counted, silent, verb
from dssr.stats.bootstrap import Resampler
from dssr.training.reader.accuracy import ALL, HeldOut, ReaderAccuracy, card_accuracies
from dssr.training.reader.points import ReaderPoint, apportion, context_variants, reader_points, stratified
from dssr.types import Cell, Driver, Game, Job, Progress, Workers
from dssr.worlds.archive import Archive

ACCURACY = "accuracy"
"""Run with the held-out accuracy of every iteration, inside the folder of a training."""

# ---------------------------------------------------------------- iterations


@verb
async def reader_train(
    config: Config | str = "nano",
    *,
    out: str | Path | None = None,
    resume: bool = False,
    workers: Workers | int | None = None,
    progress: Progress = silent,
) -> Path:
    """Behaviour cloning over the context mixture, then DAgger; returns the folder of the final adapter."""
    settings = configured(config)
    model = settings.reader_model or settings.writer_model
    if model.backend not in ("hf", "vllm"):
        raise UsageError(f"The {model.backend} backend has no weights to train; use a configuration with hf or vllm.")
    place = Path(out) if out else training_place(settings)
    dagger = Dagger(settings, place, progress, workers)
    if dagger.finished:
        raise RecordError(f"{place} is finished: its adapter is {dagger.adapter(settings.reader.iterations)}.")
    if place.exists() and not resume:
        raise RecordError(f"{place} exists; choose another directory, or continue it with --resume.")
    return await dagger.train()


def training_place(config: Config) -> Path:
    """The folder of a configuration's training, unless another is asked for."""
    return Path(config.runs) / f"reader-{config.name}-{config.digest()[:8]}"


class Dagger:
    """One reader under training, in one directory: collect-N/ are runs, adapters/N what they trained."""

    def __init__(
        self, config: Config, directory: Path, progress: Progress = silent, workers: Workers | int | None = None
    ) -> None:
        self.config, self.directory = bare(config), directory
        self.progress, self.workers = progress, workers
        self.archive: Archive = Session(config).archive
        self.model: ModelConfig = self.config.reader_model or self.config.writer_model
        games = self.archive.games("train")
        self.games, self.kept = held_out(games, config.reader.held_out, config.seed)

    @property
    def last(self) -> int:
        """Number of the final iteration."""
        return self.config.reader.iterations

    @property
    def finished(self) -> bool:
        """Whether the final adapter is there, and its accuracy stored where its card has one."""
        if not self.adapter(self.last).exists():
            return False
        return (self.directory / ACCURACY / "summary.json").exists() or not self._accuracies(self.last)

    async def train(self) -> Path:
        """All iterations; returns the folder of the final adapter."""
        points: list[ReaderPoint] = []
        monitor: list[ReaderPoint] = []
        for number in range(1, self.last + 1):
            points += await self.points(number)
            monitor += await self.monitor(number)
            self.fit(number, points, monitor, self.adapter(number), self.directory / "work" / str(number))
        self._store_accuracy()
        return self.adapter(self.last)

    async def points(self, number: int) -> list[ReaderPoint]:
        """An iteration's sample to learn from, collected if that is still owed."""
        return await self._points(number, self.games, "train")

    async def monitor(self, number: int) -> list[ReaderPoint]:
        """The same on the games that are held out."""
        return await self._points(number, self.kept, "held-out")

    def adapter(self, number: int) -> Path:
        """Where the adapter of an iteration lies."""
        return self.directory / "adapters" / str(number)

    @property
    def base(self) -> str:
        """Fingerprint of the bare reader that training starts from; known once iteration 1 is collected."""
        return Run.open(self.directory / "collect-1-train").info.models["reader"]

    def fit(
        self, number: int, points: Sequence[ReaderPoint], monitor: Sequence[ReaderPoint], out: Path, work: Path
    ) -> None:
        """Train by the recipe of iteration `number`, unless `out` is there already."""
        from dssr.agent.prompts import load_prompts
        from dssr.models.tokenizers import open_tokenizer
        from dssr.training.fit import Fit
        from dssr.training.reader.fit import Questions, train_reader

        if out.exists():
            return
        out.parent.mkdir(parents=True, exist_ok=True)
        config, model, stats = self.config.reader, self.model, self.config.stats
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
            work=work,
            out=out,
            card={"name": f"reader {number}", "config": self.config.digest(), "games": len(self.games)},
        )
        tokenizer = open_tokenizer(fit.base, model.path, model.revision)
        questions = Questions(tokenizer, load_prompts(self.config.agent.prompts).reader, config.micro_tokens)
        held_out = HeldOut(monitor, Resampler(stats.resamples, stats.seed, stats.level))
        train_reader(fit, points, held_out, questions, counted(self.progress, "train"))

    def _accuracies(self, number: int) -> list[ReaderAccuracy]:
        return stored_accuracies(self.adapter(number), number)

    def _store_accuracy(self) -> None:
        """The rows of all cards as a run of its own, which a report can show."""
        rows = [row for number in range(1, self.last + 1) for row in self._accuracies(number)]
        place = self.directory / ACCURACY
        if not rows or (place / "summary.json").exists():
            return
        models = {"reader": self.base}
        with Run.start(place, command="reader-train", config=self.config, models=models, resume=True) as run:
            run.extend("reader_accuracy", [(row.key, row) for row in rows])
            final = [row for row in rows if row.memory == ALL][-1]
            run.finish({"adapter": str(self.adapter(self.last)), **msgspec.to_builtins(final)})

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
        opened = Session(config, self.progress, self.archive, bare_reader=number == 1, workers=self.workers)
        async with opened as session:
            with session.run(path, "reader-collect", jobs, arguments, resume=True) as (run, agent):
                await session.play(run, agent, jobs, f"collect {number} {name}")
                errors = sum(played.episode.error is not None for played in stored(run))
                session.finish(run, {"episodes": len(jobs), "errors": errors})

    def _goal(self, game: str) -> str:
        world = self.archive.world(game)
        try:
            return world.goal
        finally:
            world.close()


def stored_accuracies(adapter: Path, iteration: int) -> list[ReaderAccuracy]:
    """What the card beside a reader's adapter says of its answers at held-out points."""
    return card_accuracies(json.loads((adapter / "card.json").read_text()), iteration)


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


# ---------------------------------------------------------------- which episodes are played


def held_out(games: Sequence[Game], share: float, seed: int) -> tuple[list[Game], list[Game]]:
    """(games to train on, games kept for monitoring); whole games, so that no map is seen in both."""
    shuffled = sorted(games, key=lambda game: game.id)
    rng_of("held out", seed).shuffle(shuffled)
    kept = max(1, round(len(shuffled) * share)) if len(shuffled) > 1 else 0
    return sorted(shuffled[kept:], key=lambda game: game.id), sorted(shuffled[:kept], key=lambda game: game.id)


def jobs_for(games: Sequence[Game], config: Config, driver: Driver, iteration: int) -> list[Job]:
    """One variant per episode: every game at every filler, or a sample; the variants dealt out by their shares."""
    places = [(game.id, filler) for game in games for filler in config.protocol.fillers]
    rng_of("deal", config.seed, iteration).shuffle(places)
    places = places[: config.reader.episodes]
    kinds = context_variants(config.reader)
    counts = apportion(len(places), [kind.share for kind in kinds])
    dealt = [kind for kind, count in zip(kinds, counts, strict=True) for _ in range(count)]
    jobs = [
        Job(
            game=game,
            cell=Cell(memory=kind.memory, budget=kind.budget, filler=filler, protocol=config.protocol.kind),
            seed=config.seed,
            temperature=0.0,
            epsilon=0.0 if driver == "reference" else config.reader.epsilon,
            driver=driver,
        )
        for (game, filler), kind in zip(places, dealt, strict=True)
    ]
    return sorted(jobs, key=lambda job: (job.game, job.cell.filler))
