"""The one frame of every run: open, owe, work, check for leaks, finish, close.

A session opens what the runs of one configuration share: archive, worlds, prompts, answer cache, models. A verb is the
work inside it:

    async with Session(config, progress) as session:
        with session.run(place, "diagnose", jobs, arguments, resume) as (run, agent):
            await session.work(run, Stage("episodes", "episodes", jobs, key, group, do, store))
            session.finish(run, summary)

Whatever happens inside, an error or Ctrl-C included, what the session opened is closed again.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial, update_wrapper, wraps
from pathlib import Path
from time import process_time
from types import TracebackType
from typing import Any, Generic, ParamSpec, TypeVar

from dssr.agent.episode import Agent, episode_key, fingerprints, play_job, save
from dssr.agent.kept_prompts import share
from dssr.agent.leaks import refuse_leaks
from dssr.agent.memory import Kit, check_memory, identity_of, is_reference, load_memory
from dssr.agent.prompts import Prompts, Reader, load_prompts
from dssr.agent.recall import RecallRules
from dssr.config import Config, load
from dssr.errors import WorkerError, in_one_sentence
from dssr.models.base import Model, Tokenizer
from dssr.models.cache import CachedModel
from dssr.models.load import bare, load_models, load_tokenizer, require_trained_reader, require_weights
from dssr.record.cost import Meter
from dssr.record.run import Run, now
from dssr.record.seal import Approval, Evaluation, Seal
from dssr.scale.cluster import ARCHIVE, Cluster, Parcel, RayWorker, config_there, parcels_of
from dssr.scale.processes import ProcessWorker, processes_for
from dssr.scale.shards import AT_ONCE, Dispatch, ThisProcess, Work, Worker, cut, each
from dssr.seeds import digest_of
from dssr.types import Counts, Job, Played, Progress, Split, Standing, Workers
from dssr.worlds.archive import Archive, Worlds, unmade
from dssr.worlds.base import settled
from dssr.worlds.shipped import provided

T = TypeVar("T")
R = TypeVar("R")
P = ParamSpec("P")

TRIAL_BUDGET = 64
"""Tokens of the state with which a memory is built once before anything starts: a misspelt one is told at once."""


def silent(standing: Standing) -> None:
    """Progress that nobody watches."""


def counted(progress: Progress, stage: str) -> Callable[[int, int], None]:
    """Progress of a stage that only counts: (done, of)."""
    return lambda done, of: progress(Standing(stage, done, of))


@dataclass(frozen=True)
class Bench:
    """What a piece of work has before it, in whichever process it is done."""

    agent: Agent
    config: Config


@dataclass(frozen=True)
class WorkerSession:
    """How another process opens what the runs of a session share."""

    config: Config
    kind: type[Archive]
    archive: Path
    jobs: tuple[Job, ...]
    tested: bool
    """The jobs are those of an approved evaluation, which the driver has opened."""
    bare_reader: bool
    models: Mapping[str, str]
    """Fingerprints that the models there must have too."""

    def open(self) -> "Session":
        """A session with its agent ready; refuses models that would answer otherwise than the driver's."""
        session = Session(self.config, archive=self.kind.open(self.archive), bare_reader=self.bare_reader)
        if self.tested:
            session.archive.unseal()
        agent = session.agent(self.jobs)
        found = fingerprints(agent, (job.cell.memory for job in self.jobs))
        if found != dict(self.models):
            other = ", ".join(sorted(role for role in self.models if found.get(role) != self.models[role]))
            raise WorkerError(
                f"A worker's models answer otherwise than the driver's ({other}): its processor or the versions of its "
                "packages differ; use machines that are alike."
            )
        session.bench = Bench(agent, self.config)
        return session

    def parcels(self) -> dict[str, Parcel]:
        """What another machine needs of this one: the games played, prompts and adapters. Weights must be there."""
        return parcels_of(self.config, self.archive, [job.game for job in self.jobs])

    def settle(self, place: Callable[[str], Path]) -> "WorkerSession":
        """The same on a machine where `place` gives the folder of each parcel."""
        return replace(self, config=config_there(self.config, place), archive=place(ARCHIVE))


@dataclass(frozen=True)
class Stage(Generic[T, R]):
    """Work that a run owes, item by item; an item whose key is in the log is done.

    Neighbours of one `group` are one shard: `do` gets them together, in this process or in another one, and gives a
    result for each. It is a function of a module, or a `partial` of one, and knows nothing but its bench and items.
    """

    name: str
    """As progress shows it."""
    log: str
    items: Sequence[T]
    key: Callable[[T], str]
    group: Callable[[T], tuple[str, ...]]
    """What the items of a shard have in common, the game first."""
    do: Work[Bench, T, R]
    store: Callable[[R], None]
    """Called in the order of the items, whatever finishes first."""
    at_once: int = AT_ONCE
    """Items under way together in one worker."""


class Session:
    """What the runs of one configuration share; opened as it is needed, closed at the end of `async with`."""

    def __init__(
        self,
        config: Config,
        progress: Progress = silent,
        archive: Archive | None = None,
        models: tuple[Model, Model] | None = None,
        bare_reader: bool = False,
        workers: Workers | int | None = None,
    ) -> None:
        """`workers` share the work: so many processes, those of a cluster, or, with None, as many as it is worth.

        `archive` and `models` (writer, reader) may be handed in; then they stay the caller's to close.

        `bare_reader` is for work that measures nothing with the reader: its own training, which starts from the base
        model, and a plan.
        """
        self.config = settled(config)
        self.progress = progress
        self._given = models
        self._bare_reader = bare_reader
        self.workers = workers if isinstance(workers, Workers) else Workers(workers)
        self._crew: Sequence[ProcessWorker | RayWorker] = ()
        self._cluster: Cluster | None = None
        self._opening: WorkerSession | None = None
        self._loaded: tuple[Model, Model] | None = None
        self._meters: dict[Path, Meter] = {}
        if archive is not None:
            self.archive = archive

    async def __aenter__(self) -> "Session":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close workers, worlds and models; the session can be used again, and opens them anew."""
        await self._dismiss()
        cluster, self._cluster = self._cluster, None
        if cluster is not None:
            cluster.close()
        if "worlds" in self.__dict__:
            self.worlds.close()
            del self.worlds
        loaded, self._loaded = self._loaded, None
        for model in dict.fromkeys(loaded or ()):
            await model.close()

    # ---------------------------------------------------------------- what is shared

    @cached_property
    def archive(self) -> Archive:
        """The games of the configuration."""
        folder = provided(Path(self.config.data) / self.config.games.archive)
        if not folder.exists():
            require_weights(self.config)  # or games would be made for minutes, to end with a folder that is not there
            raise unmade(folder, self.config)
        return Archive.open(folder)

    @cached_property
    def worlds(self) -> Worlds:
        """Its games, opened as they are played."""
        return Worlds(self.archive)

    @cached_property
    def prompts(self) -> Prompts:
        """The shipped prompts, or the configuration's own."""
        return load_prompts(self.config.agent.prompts)

    @property
    def models(self) -> tuple[Model, Model]:
        """Writer and reader, loaded when first asked for."""
        if self._given is not None:
            return self._given
        if self._loaded is None:
            self._loaded = load_models(self.config)
        return self._loaded

    @property
    def seal(self) -> Seal:
        """The seal on the test games, which lies beside them."""
        return Seal(self.archive.folder / "seal")

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """What counts budgets, whichever reader reads."""
        (writer, reader), name = self.models, self.config.counts_with
        known = {self.config.writer_model.path: writer, self.config.reads_with.path: reader}
        return known[name].tokenizer if name in known else load_tokenizer(name)

    def agent(self, jobs: Sequence[Job] = ()) -> Agent:
        """What the episodes of these jobs are played with, every memory among them tried out first.

        Jobs on sealed games are refused before models are loaded, whichever verb they come from.
        """
        for name in dict.fromkeys(job.game for job in jobs):
            self.archive.path(self.archive.game(name))
        return self._agent(jobs)

    def _agent(self, jobs: Sequence[Job]) -> Agent:
        if not self._bare_reader:
            require_trained_reader(self.config)
        for memory in dict.fromkeys(job.cell.memory for job in jobs):
            check_memory(memory)  # before models are loaded, which can take minutes
        writer, reader = self.models
        agent = Agent(
            worlds=self.worlds,
            writer=writer,
            reader=Reader(reader, self.config.agent.reader_adapter, self.prompts.reader),
            prompts=self.prompts,
            max_actions=self.config.protocol.max_actions,
            quotas=share(jobs, self.config.measure.stored_prompts, self.config.seed),
            counted_by=self.tokenizer,
            write_seconds=self.config.agent.write_seconds,
            recall=RecallRules.of(self.config),
        )
        for memory in dict.fromkeys(job.cell.memory for job in jobs):
            if not is_reference(memory):
                load_memory(memory, Kit(TRIAL_BUDGET, agent.tokenizer, writer, None, 0.0, 0), self.prompts)
        return agent

    # ---------------------------------------------------------------- the frame

    @contextmanager
    def run(
        self,
        place: Path,
        command: str,
        jobs: Sequence[Job],
        arguments: Mapping[str, Any],
        resume: bool = False,
        split: Split = "valid",
    ) -> Iterator[tuple[Run, Agent]]:
        """A run directory open for writing, and the agent that plays its jobs.

        The directory is looked at before models are loaded, which can take minutes. The seal on the test games breaks
        last, when everything else has been opened and nothing is left that could refuse to start; it shuts again when
        the run ends.
        """
        Run.check_place(place, resume)
        meter = self._meters[place] = Meter(place, self._spenders)
        if self.workers.ray is not None and self._cluster is None:
            self._cluster = Cluster(self.workers.ray)
        tested = split == "test"
        if tested:
            self.seal.check_approved(self._evaluation(jobs, arguments, {}), models_known=False)
        agent = self._agent(jobs) if tested else self.agent(jobs)
        models = fingerprints(agent, (job.cell.memory for job in jobs))
        self.bench = Bench(agent, self.config)
        there = type(self.archive), self.archive.folder
        self._opening = WorkerSession(self.config, *there, tuple(jobs), tested, self._bare_reader, models)
        asked: dict[str, Any] = {"config": self.config, "models": models, "arguments": arguments}

        def start() -> Run:
            return Run.start(place, command=command, contents=self._contents(jobs), resume=resume, **asked)

        if not tested:
            with start() as run, meter:
                yield run, agent
            return
        for model in self.models:
            bare(model)  # weights that wait for their first call could refuse to load after it broke
        with self.seal.open(self._evaluation(jobs, arguments, models), place, resume, start) as run, meter:
            self.archive.unseal()
            try:
                yield run, agent
            finally:
                self.archive.seal()

    def approve(self, text: str, jobs: Sequence[Job], arguments: Mapping[str, Any]) -> Approval:
        """Add the run of these jobs to those that may see the test games; models are loaded for their fingerprints."""
        self.seal.check_approvable(text)
        models = fingerprints(self._agent(jobs), (job.cell.memory for job in jobs))
        return self.seal.approve(self._evaluation(jobs, arguments, models), text, now())

    def _evaluation(self, jobs: Sequence[Job], arguments: Mapping[str, Any], models: Mapping[str, str]) -> Evaluation:
        """All that decides what a run on test games computes, the games' files verified."""
        for name in dict.fromkeys(job.game for job in jobs):
            self.archive.verify(self.archive.game(name))
        return Evaluation.of(self.config, arguments, models, self._contents(jobs))

    def _contents(self, jobs: Sequence[Job]) -> dict[str, str]:
        """Digests of what decides a run beside its settings and models."""
        games = [self.archive.game(name) for name in dict.fromkeys(job.game for job in jobs)]
        return {
            "games": digest_of([(game.id, game.md5) for game in games]),
            "prompts": digest_of(self.prompts.texts),
            **{memory: identity_of(memory, self.prompts) for memory in dict.fromkeys(job.cell.memory for job in jobs)},
        }

    async def work(self, run: Run, stage: Stage[T, R]) -> None:
        """Do what the run still owes of a stage, and say where it stands."""
        owed = run.owed(stage.log, stage.items, stage.key)
        shards = cut(owed, stage.group)
        done, of = len(stage.items) - len(owed), len(stage.items)
        dispatch = Dispatch(await self._hired(len(shards)), shards, lambda item: stage.group(item)[0], stage.at_once)
        self.progress(Standing(stage.name, done, of))
        async for found in dispatch.results(stage.do):
            with run.unit():  # what one worker did at once was searched for leaks at once
                for result in found:
                    stage.store(result)
            done += len(found)
            self._meters[run.path].lap()
            self.progress(Standing(stage.name, done, of, dispatch.standing()))

    async def _hired(self, shards: int) -> Sequence[Worker]:
        """Who does so many shards: this process, or others that open what it has open."""
        assert self._opening is not None, "work belongs to a run"
        # What lives in this process alone cannot be opened in another one.
        main = any(job.cell.memory.startswith("__main__:") for job in self._opening.jobs)
        here = self._given is not None or main
        cluster = None if here else self._cluster
        if cluster is not None:
            gpus = any(one.backend == "vllm" for one in (self.config.writer_model, self.config.reads_with))
            count = max(1, min(self.workers.count or cluster.room(gpus), shards))
        else:
            count = 1 if here else processes_for(self.config, self.workers.count, shards)
            if count == 1:
                return [ThisProcess(self.bench, self.counts)]
        if len(self._crew) < count or self._crew[0].opener != self._opening:
            await self._dismiss()
            self._crew = (
                cluster.hire(count, self._opening, gpus)
                if cluster is not None
                else [ProcessWorker(number + 1, self._opening) for number in range(count)]
            )
        return self._crew[:count]

    async def _dismiss(self) -> None:
        crew, self._crew = self._crew, ()
        await asyncio.gather(*(worker.close() for worker in crew))

    def counts(self) -> Counts:
        """What was asked of models so far, and the time that this process took."""
        return sum((one.counts for one in self._spenders()), Counts(cpu=process_time()))

    def _spenders(self) -> list[CachedModel | ProcessWorker | RayWorker]:
        """The models here, and the workers elsewhere with theirs."""
        models = dict.fromkeys(self._given or self._loaded or ())
        return [*(model for model in models if isinstance(model, CachedModel)), *self._crew]

    async def play(self, run: Run, agent: Agent, jobs: Sequence[Job], stage: str) -> None:
        """Play the episodes that the run still owes of these jobs, and store each."""
        key, keep = self.episode_key(agent), partial(save, run)
        await self.work(run, Stage(stage, "episodes", jobs, key, group_of, partial(each, play), keep))

    def episode_key(self, agent: Agent) -> Callable[[Job], str]:
        """The key under which a job's episode is stored."""
        return lambda job: episode_key(job, agent, self.archive.game(job.game).md5)

    def finish(self, run: Run, summary: Mapping[str, Any]) -> None:
        """Write the summary; a run of whose prompts one leaks is marked failed instead."""
        self._meters[run.path].stop()
        refuse_leaks(run)
        run.finish(summary)


async def play(bench: Bench, job: Job) -> Played:
    """The work of `Session.play`."""
    return await play_job(job, bench.agent)


def group_of(job: Job) -> tuple[str, ...]:
    """The walks of one game, memory and budget, of which the shorter are the beginnings of the longer."""
    return job.game, job.cell.memory, str(job.cell.budget)


def place_of(config: Config, verb: str, *asked: object) -> Path:
    """A run directory named by content: the same question has the same place."""
    return Path(config.runs) / f"{verb}-{config.name}-{digest_of(config.digest(), *asked)[:8]}"


def configured(config: Config | str | Path) -> Config:
    """A configuration, or the one of this name or file, with every setting checked and written out."""
    return settled(config if isinstance(config, Config) else load(str(config)))


# ---------------------------------------------------------------- verbs


class Verb(Generic[P, R]):
    """A use case. Called, it runs to the end, in a notebook too; `await verb.aio(…)` is for code that is async."""

    def __init__(self, function: Callable[P, Coroutine[Any, Any, R]]) -> None:
        async def told(*args: P.args, **kwargs: P.kwargs) -> R:
            with in_one_sentence():
                return await function(*args, **kwargs)

        self.aio = wraps(function)(told)
        update_wrapper(self, function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return run_now(self.aio(*args, **kwargs))


def verb(function: Callable[P, Coroutine[Any, Any, R]]) -> Verb[P, R]:
    """Make an async function a verb."""
    return Verb(function)


def run_now(work: Coroutine[Any, Any, R]) -> R:
    """Run to the end from ordinary code. Where an event loop runs already (a notebook), in a thread of its own."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    elsewhere = ThreadPoolExecutor(1, "dssr-verb")
    try:
        return elsewhere.submit(asyncio.run, work).result()
    finally:
        elsewhere.shutdown(wait=False)
