"""The reader's training data and its iterations: collect, clone, act, collect again.

Iteration 1 drives Phase B with the reference action. Each later one drives it with the reader trained so far, and
labels every point it visits with the reference action of the state reached. The last reader trains on all of them.
Which contexts it learns from, and in which exact shares, is the configuration's (`context_variants`).
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from dssr.agent.episode import context_at
from dssr.agent.store import stored
from dssr.config import Config, ModelConfig, ReaderConfig
from dssr.errors import RecordError, UsageError
from dssr.models.load import weights_folder
from dssr.record.run import Run
from dssr.seeds import rng_of, seed_of
from dssr.session import Session, configured, silent, verb
from dssr.types import Cell, Driver, Episode, Game, Job, Options, Progress, Record, Step
from dssr.worlds.archive import Archive


class ContextVariant(Record, frozen=True):
    """One kind of context and its share of the training points."""

    memory: str
    budget: int | None
    share: float


class ReaderPoint(Record, frozen=True):
    """One decision to be cloned."""

    episode: str
    step: int
    memory: str
    budget: int | None
    goal: str
    context: str
    observation: str
    options: Options

    @property
    def key(self) -> str:
        """Episode and step; sorts by step within an episode."""
        return f"{self.episode}:{self.step:04d}"


# ---------------------------------------------------------------- iterations


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
        """Where the adapter of an iteration lies."""
        return self.directory / "adapters" / str(number)

    def fit(self, number: int, points: Sequence[ReaderPoint], monitor: Sequence[ReaderPoint]) -> None:
        """Train iteration `number` on the union of all points so far."""
        from dssr.agent.prompts import load_prompts
        from dssr.models.tokenizers import open_tokenizer
        from dssr.training.fit import Fit
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
        async with Session(config, self.progress, self.archive, bare_reader=number == 1) as session:
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


def context_variants(config: ReaderConfig) -> list[ContextVariant]:
    """`full` with its own share; every written or rendered format at every budget shares the rest evenly."""
    others = [(memory, budget) for memory in config.memories for budget in config.budgets]
    share = (1 - config.full_share) / len(others)
    kinds = [
        ContextVariant("full", None, config.full_share),
        *(ContextVariant(memory, budget, share) for memory, budget in others),
    ]
    return [kind for kind in kinds if kind.share > 0]


def apportion(total: int, shares: Sequence[float]) -> list[int]:
    """Whole numbers that add up to `total` and follow the shares: largest remainders, earlier first among equals."""
    whole = sum(shares)
    exact = [total * share / whole for share in shares]
    counts = [int(value) for value in exact]
    order = sorted(range(len(shares)), key=lambda place: (-(exact[place] - counts[place]), place))
    for place in order[: total - sum(counts)]:
        counts[place] += 1
    return counts


# ---------------------------------------------------------------- which points are learnt from


def reader_points(episode: Episode, steps: Sequence[Step], goal: str) -> list[ReaderPoint]:
    """Every decision of an episode, labelled with the reference action of the state that was reached."""
    if episode.error is not None:
        return []
    cell = episode.job.cell
    return [
        ReaderPoint(
            episode=episode.key,
            step=step.index,
            memory=cell.memory,
            budget=cell.budget,
            goal=goal,
            context=context_at(cell.memory, steps, step.index),
            observation=step.observation,
            options=step.decision.options,
        )
        for step in steps
        if step.decision is not None
    ]


def stratified(points: Iterable[ReaderPoint], config: ReaderConfig, *seed: object) -> list[ReaderPoint]:
    """At most `config.points` points in exactly the variants' shares; a scarce variant shrinks all of them alike."""
    supply: dict[tuple[str, int | None], list[ReaderPoint]] = defaultdict(list)
    for point in sorted(points, key=lambda point: point.key):
        supply[point.memory, point.budget].append(point)
    kinds = context_variants(config)
    total = min([config.points, *(int(len(supply[kind.memory, kind.budget]) / kind.share) for kind in kinds)])
    chosen: list[ReaderPoint] = []
    for kind, count in zip(kinds, apportion(total, [kind.share for kind in kinds]), strict=True):
        mine = supply[kind.memory, kind.budget]
        rng_of(*seed, kind.memory, kind.budget).shuffle(mine)
        chosen += mine[:count]
    return sorted(chosen, key=lambda point: point.key)


def batches(points: Sequence[ReaderPoint], size: int, *seed: object) -> list[list[ReaderPoint]]:
    """Batches in seeded order in which the points of one episode stay together, so that their prompts share a trunk."""
    groups: dict[str, list[ReaderPoint]] = defaultdict(list)
    for point in points:
        groups[point.episode].append(point)
    order = sorted(groups)
    rng_of(*seed).shuffle(order)
    line = [point for episode in order for point in sorted(groups[episode], key=lambda point: point.step)]
    made = [line[first : first + size] for first in range(0, len(line), size)]
    rng_of(*seed, "batches").shuffle(made)
    return made
