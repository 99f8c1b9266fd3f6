"""Train a reader, and say what it is worth: its iterations, the gate it must pass before anything is measured with it,
and its learning curve.

Iteration 1 drives Phase B with the reference action. Each later one drives it with the reader trained so far, and
labels every point it visits with the reference action of the state reached. The last reader trains on all of them.
Which contexts it learns from, and in which exact shares, is the configuration's (`context_variants`).

The gate is online success with the full history and no filler. What a reader reached lies in one file per reader under
the data folder. The file's name is a digest of the reader's fingerprint (weights, adapter, chat template, numerics),
its instruction and the kind of games, so that a reader changed in any of them has to be tried anew.

The curve trains the final reader again on smaller samples of the points it learnt from. Nothing is collected anew: a
smaller sample is a part of every larger one, has the same shares of contexts, and is trained by the same recipe from
the same seed; all readers answer the same held-out points. The largest sample gives the final reader itself.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import field

from dssr.agent.episode import stored
from dssr.agent.prompts import load_prompts
from dssr.config import Config, ModelConfig
from dssr.errors import RecordError, StatsError, UsageError
from dssr.measure.diagnose import measure_grid
from dssr.measure.grid import grid_of
from dssr.models.load import weights_folder
from dssr.record.log import write_whole
from dssr.record.run import Run
from dssr.seeds import digest_of, seed_of
from dssr.session import Session, configured, counted, place_of, silent, verb
from dssr.stats.bootstrap import Resampler
from dssr.training.reader_points import (
    ALL,
    HeldOut,
    ReaderAccuracy,
    ReaderPoint,
    card_accuracies,
    held_out,
    jobs_for,
    nested,
    reader_points,
    stratified,
)
from dssr.types import Driver, Episode, Game, Job, Progress, Record, Workers
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
        from dssr.training.reader_fit import Questions, train_reader

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


# ---------------------------------------------------------------- the gate


class Acceptance(Record, frozen=True):
    """What one reader reached, as it is written down."""

    reader: str
    """Fingerprint."""
    success: float
    """With the full history and no filler, averaged over levels."""
    games: int
    levels: dict[str, float] = field(name="rooms")
    """The same at each level."""
    run: str
    """Where it was measured."""
    threshold: float = 0.0
    """What it had to reach."""

    @property
    def accepted(self) -> bool:
        """Whether it did."""
        return self.success >= self.threshold


@verb
async def reader_accept(
    config: Config | str = "nano",
    *,
    adapter: str | Path | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    workers: Workers | int | None = None,
    progress: Progress = silent,
) -> Acceptance:
    """Play validation games with the full history and no filler, and write down whether the reader is good enough."""
    settings = configured(config)
    if adapter is not None:
        settings = with_reader(settings, Path(adapter))
    async with Session(settings, progress, workers=workers) as session:
        grid = grid_of(settings, session.archive, ["full"], fillers=[0])
        if len(grid.games) < settings.reader.accept_games:
            raise StatsError(
                f"{len(grid.games)} validation games are too few to accept a reader; make "
                f"{settings.reader.accept_games} or more, or set reader.accept_games."
            )
        place = Path(out) if out else place_of(settings, "reader-accept", msgspec.to_builtins(grid))
        run = await measure_grid(session, grid, place, resume)
    return note_acceptance(settings, run)


def acceptance(episodes: Iterable[Episode], threshold: float) -> dict[str, Any]:
    """`success`, `games`, `accepted` and the success at each level; an error is no verdict."""
    won: dict[int, list[bool]] = defaultdict(list)
    for episode in episodes:
        if episode.error is not None:
            error = episode.error.rstrip(".")
            raise StatsError(f"Game {episode.job.game} failed ({error}); the reader cannot be judged without it.")
        won[episode.level].append(episode.outcome == "won")
    if not won:
        raise StatsError("No episode was played, so the reader cannot be judged; make the archive's valid games first.")
    by_level = {str(level): sum(values) / len(values) for level, values in sorted(won.items())}
    success = sum(by_level.values()) / len(by_level)
    return {
        "success": success,
        "games": sum(map(len, won.values())),
        "accepted": success >= threshold,
        "threshold": threshold,
        "levels": by_level,
    }


def note_acceptance(config: Config, run: Run) -> Acceptance:
    """Write down what a reader reached in a run, good or bad; a later measurement replaces an earlier one."""
    reader, verdict = run.info.models["reader"], acceptance(run.read("episodes", Episode), config.reader.accept)
    measured = {name: verdict[name] for name in ("success", "games", "levels")}
    noted = Acceptance(reader=reader, run=str(run.path), threshold=config.reader.accept, **measured)
    file = acceptance_file(config, reader)
    file.parent.mkdir(parents=True, exist_ok=True)
    content = msgspec.json.encode(noted)
    write_whole(file, msgspec.json.format(content, indent=1) + b"\n")
    return noted


def known_acceptance(config: Config, reader: str) -> Acceptance | None:
    """What is written down of a reader."""
    file = acceptance_file(config, reader)
    if not file.is_file():
        return None
    try:
        return msgspec.json.decode(file.read_bytes(), type=Acceptance)
    except msgspec.MsgspecError as error:
        raise RecordError(f"{file} is damaged ({error}); run `dssr reader accept` again.") from error


def require_accepted(config: Config, reader: str) -> Acceptance:
    """The reader's acceptance, or one sentence why there is none."""
    found, least = known_acceptance(config, reader), config.reader.accept
    if found is None:
        raise UsageError(
            "This reader has not been accepted; run `dssr reader accept` with the same configuration, "
            "or train on it all the same with --force, which is recorded."
        )
    if found.success < least:
        raise UsageError(
            f"This reader wins {100 * found.success:.0f} % of {found.games} games with the full history, below the "
            f"{100 * least:.0f} % it must reach; train a better one, or use it all the same with --force, which is "
            "recorded."
        )
    return found


def acceptance_file(config: Config, reader: str) -> Path:
    """Where the acceptance of a reader, given by its fingerprint, is written down."""
    name = digest_of(reader, load_prompts(config.agent.prompts).reader, msgspec.to_builtins(config.games))
    return Path(config.data) / "readers" / f"{name}.json"


# ---------------------------------------------------------------- learning curve

PARTS = 3
"""Sizes of the curve unless others are asked for: thirds of the stored sample, 2k, 4k and 6k of the method's 6k."""


@verb
async def reader_curve(
    config: Config | str = "nano",
    *,
    points: Sequence[int] | None = None,
    training: str | Path | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    workers: Workers | int | None = None,
    progress: Progress = silent,
) -> Run:
    """Train the final reader on nested samples of so many points per iteration, and ask each at held-out points.

    `training` is the folder of a finished `reader_train`, the configuration's own if left out.
    """
    settings = configured(config)
    dagger = Dagger(settings, Path(training) if training else training_place(settings), progress, workers)
    samples = await _samples(dagger)
    most = max(map(len, samples.train))
    sizes = sorted(set(points)) if points else [most * part // PARTS for part in range(1, PARTS + 1)]
    if sizes[0] < 1 or sizes[-1] > most:
        raise UsageError(f"{dagger.directory} has {most} points an iteration; ask for sizes from 1 to {most}.")
    asked = {"points": sizes, "training": str(dagger.directory)}
    place = Path(out) if out else place_of(dagger.config, "reader-curve", asked)
    models = {"reader": dagger.base}
    with Run.start(
        place, command="reader-curve", config=dagger.config, models=models, arguments=asked, resume=resume
    ) as run:
        for size in sizes:
            adapter = place / "adapters" / str(size)
            learnt = [point for sample in samples.train for point in sample[:size]]
            dagger.fit(dagger.last, learnt, samples.held_out, adapter, place / "work" / str(size))
            run.extend("reader_curve", [(row.key, row) for row in stored_accuracies(adapter, dagger.last)])
        run.finish({"sizes": sizes, "held_out": len(samples.held_out)})
    return Run.open(place)


def curve_rows(run: Run) -> list[ReaderAccuracy]:
    """The curve itself: the rows over all context variants, the bare base first."""
    return [row for row in run.read("reader_curve", ReaderAccuracy) if row.memory == ALL]


class _Samples(Record, frozen=True):
    train: list[list[ReaderPoint]]
    """By iteration, each in an order whose every beginning is a sample."""
    held_out: list[ReaderPoint]


async def _samples(dagger: Dagger) -> _Samples:
    """The stored points of a finished training of the same configuration."""
    if not dagger.adapter(dagger.last).exists():
        raise UsageError(
            f"{dagger.directory} holds no finished training; run `dssr reader train` with the same configuration first."
        )
    if Run.open(dagger.directory / "collect-1-train").info.digest != dagger.config.digest():
        raise UsageError(
            f"{dagger.directory} was trained with another configuration; give the one in its collect-1-train/run.json."
        )
    numbers = range(1, dagger.last + 1)
    config, seed = dagger.config.reader, dagger.config.seed
    train = [nested(await dagger.points(number), config, "reader curve", seed, number) for number in numbers]
    held_out = [point for number in numbers for point in await dagger.monitor(number)]
    if not held_out:
        raise UsageError(f"{dagger.directory} held no game out; a curve needs `reader.held_out` above 0 and two games.")
    return _Samples(train, held_out)
