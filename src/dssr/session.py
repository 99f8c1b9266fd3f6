"""The one frame of every run: open, owe, work, check for leaks, finish, close.

A session opens what the runs of one configuration share: archive, worlds, prompts, answer cache, models. A verb is the
work inside it:

    async with Session(config, progress) as session:
        with session.run(place, "diagnose", jobs, arguments, resume) as (run, agent):
            await session.work(run, Stage("episodes", "episodes", jobs, key, do, store))
            session.finish(run, summary)

Whatever happens inside, an error or Ctrl-C included, what the session opened is closed again.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial, update_wrapper
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, ParamSpec, TypeVar

from dssr.agent.episode import AT_ONCE, Agent, episode_key, in_order, play_job
from dssr.agent.leaks import refuse_leaks, share
from dssr.agent.memory import Kit, identity_of, is_reference, load_memory, split_name
from dssr.agent.prompts import Prompts, load_prompts
from dssr.agent.reader import Reader
from dssr.agent.store import save
from dssr.config import Config, load
from dssr.errors import ConfigError
from dssr.models.base import Model, Tokenizer
from dssr.models.load import load_models, load_tokenizer
from dssr.record.run import Run, now
from dssr.record.seal import Approval, Evaluation, Seal
from dssr.seeds import digest_of
from dssr.types import Job, Played, Progress, Split
from dssr.worlds.archive import Archive, Worlds
from dssr.worlds.base import settled
from dssr.worlds.make import provided

T = TypeVar("T")
R = TypeVar("R")
P = ParamSpec("P")

TRIAL_BUDGET = 64
"""Tokens of the state with which a memory is built once before anything starts: a misspelt one is told at once."""


def silent(stage: str, done: int, of: int) -> None:
    """Progress that nobody watches."""


@dataclass(frozen=True)
class Stage(Generic[T, R]):
    """Work that a run owes, item by item; an item whose key is in the log is done."""

    name: str
    """As progress shows it."""
    log: str
    items: Sequence[T]
    key: Callable[[T], str]
    do: Callable[[T], Awaitable[R]]
    store: Callable[[R], None]
    """Called in the order of the items, whatever finishes first."""
    at_once: int = AT_ONCE


class Session:
    """What the runs of one configuration share; opened as it is needed, closed at the end of `async with`."""

    def __init__(
        self,
        config: Config,
        progress: Progress = silent,
        archive: Archive | None = None,
        models: tuple[Model, Model] | None = None,
        bare_reader: bool = False,
    ) -> None:
        """`archive` and `models` (writer, reader) may be handed in; then they stay the caller's to close.

        `bare_reader` is for work that measures nothing with the reader: its own training, which starts from the base
        model, and a plan.
        """
        self.config = settled(config)
        self.progress = progress
        self._given = models
        self._bare_reader = bare_reader
        self._loaded: tuple[Model, Model] | None = None
        if archive is not None:
            self.archive = archive

    async def __aenter__(self) -> "Session":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close worlds and models; the session can be used again, and opens them anew."""
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
        return Archive.open(provided(Path(self.config.data) / self.config.games.archive))

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
        writer, reader = self.models
        agent = Agent(
            worlds=self.worlds,
            writer=writer,
            reader=Reader(reader, self.config.agent.reader_adapter, self.prompts.reader),
            prompts=self.prompts,
            max_actions=self.config.protocol.max_actions,
            quotas=share(jobs, self.config.measure.stored_prompts, self.config.seed),
            counted_by=self.tokenizer,
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
        tested = split == "test"
        if tested:
            self.seal.check_approved(self._evaluation(jobs, arguments, {}), models_known=False)
        agent = self._agent(jobs) if tested else self.agent(jobs)
        models = fingerprints(agent, (job.cell.memory for job in jobs))

        def start() -> Run:
            return Run.start(
                place, command=command, config=self.config, models=models, arguments=arguments, resume=resume
            )

        if not tested:
            with start() as run:
                yield run, agent
            return
        with self.seal.open(self._evaluation(jobs, arguments, models), place, resume, start) as run:
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
        games = [self.archive.game(name) for name in dict.fromkeys(job.game for job in jobs)]
        for game in games:
            self.archive.verify(game)
        contents = {
            "games": digest_of([(game.id, game.md5) for game in games]),
            "prompts": digest_of(self.prompts.texts),
            **{memory: identity_of(memory, self.prompts) for memory in dict.fromkeys(job.cell.memory for job in jobs)},
        }
        return Evaluation.of(self.config, arguments, models, contents)

    async def work(self, run: Run, stage: Stage[T, R]) -> None:
        """Do what the run still owes of a stage, and say where it stands."""
        owed = run.owed(stage.log, stage.items, stage.key)
        done, of = len(stage.items) - len(owed), len(stage.items)
        self.progress(stage.name, done, of)
        async for result in in_order((partial(stage.do, item) for item in owed), stage.at_once):
            stage.store(result)
            done += 1
            self.progress(stage.name, done, of)

    async def play(self, run: Run, agent: Agent, jobs: Sequence[Job], stage: str) -> None:
        """Play the episodes that the run still owes of these jobs, and store each."""

        def key(job: Job) -> str:
            return episode_key(job, agent, self.archive.game(job.game).md5)

        async def work(job: Job) -> Played:
            return await play_job(job, agent)

        await self.work(run, Stage(stage, "episodes", jobs, key, work, partial(save, run)))

    def finish(self, run: Run, summary: Mapping[str, Any]) -> None:
        """Search the stored prompts, then write the summary; a run with a leak is marked failed instead."""
        refuse_leaks(run, self.worlds)
        run.finish(summary)


def require_trained_reader(config: Config) -> None:
    """Refuse to measure with a base model where the configuration means a reader that was trained from it."""
    if config.reader.trained and config.agent.reader_adapter is None:
        raise ConfigError(
            f"The configuration {config.name} reads with an adapter of {config.reads_with.path}, and none is named: "
            "make one with `dssr reader train`, put its folder under adapters of that model and its name under "
            "agent.reader_adapter (`dssr train` and `dssr reader accept` take the folder as --adapter), or set "
            "reader.trained = false if these weights are the reader itself."
        )


def fingerprints(agent: Agent, memories: Iterable[str]) -> dict[str, str]:
    """Role to model, for the run's record: the reader, the writer, and the writer under each adapter used."""
    adapters = {adapter for memory in dict.fromkeys(memories) if (adapter := split_name(memory)[1])}
    found = {"reader": agent.reader.fingerprint(), "writer": agent.writer.fingerprint()}
    return found | {f"writer@{adapter}": agent.writer.fingerprint(adapter) for adapter in sorted(adapters)}


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
        self.aio = function
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
    result: list[R] = []
    failure: list[BaseException] = []

    def elsewhere() -> None:
        try:
            result.append(asyncio.run(work))
        except BaseException as error:  # handed to the caller, who is the one to judge it
            failure.append(error)

    thread = threading.Thread(target=elsewhere, name="dssr-verb")
    thread.start()
    thread.join()
    if failure:
        raise failure[0]
    return result[0]
