"""An episode: Phase A is walked and written down, Phase B is acted from what was written.

`play_job` is the only rollout path: collection and evaluation go through it, and so does `continue_episode`, which
plays on from any step of a logged episode with the logged state or another. `run_jobs` plays many at once. `save` and
`stored` put episodes into a run's logs and read them; an episode's own line comes last: where it stands, its steps and
prompts do too.
"""

import random
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import msgspec

from dssr.agent.kept_prompts import Role, job_digest
from dssr.agent.leaks import Watch, keep_searches, watched
from dssr.agent.memory import (
    FULL,
    ORACLE_B,
    WRITE_SECONDS,
    Kit,
    Memory,
    Plugged,
    Reference,
    enforce,
    identity_of,
    is_reference,
    load_memory,
    load_reference,
    split_name,
)
from dssr.agent.prompts import Prompts, Reader, explore, most_likely, nll_of, render_history
from dssr.agent.recall import Logprobs, Lookback, RecallRules, Situation, rule_of, with_chunk
from dssr.errors import ConfigError, GameError, ModelError, UsageError
from dssr.models.base import Model, Tokenizer
from dssr.record.run import Run
from dssr.scale.shards import AT_ONCE, Dispatch, ThisProcess, each
from dssr.seeds import digest_of, rng_of, seed_of
from dssr.types import Decision, Episode, Job, Moment, Outcome, Played, Recalled, Step, StoredPrompt, View, Write
from dssr.worlds.archive import Worlds
from dssr.worlds.base import Node, WalkStep, World, stepped, walked


@dataclass(frozen=True)
class Agent:
    """What the episodes of a run share."""

    worlds: Worlds
    writer: Model
    reader: Reader
    prompts: Prompts
    max_actions: int
    """Of Phase B; an episode that needs more ends as `limit`."""
    quotas: Mapping[str, Mapping[Role, int]] = field(default_factory=dict)
    """Prompts to keep verbatim, by job digest; see `kept_prompts.share`."""
    counted_by: Tokenizer | None = None
    """The tokenizer that counts budgets; the reader's own when None."""
    write_seconds: float = WRITE_SECONDS
    """Most that one write of a user's memory may take."""
    recall: RecallRules = field(default_factory=RecallRules)
    """For readers that may look back."""

    def __post_init__(self) -> None:
        """Nothing that an agent's models are sent escapes the leak check."""
        object.__setattr__(self, "writer", watched(self.writer, "writer"))
        reader = self.reader
        object.__setattr__(self, "reader", Reader(watched(reader.model, "reader"), reader.adapter, reader.instruction))

    @property
    def tokenizer(self) -> Tokenizer:
        """Counts and cuts every state. A second reader reads states cut by the first one's, or they would differ."""
        return self.counted_by or self.reader.tokenizer


@dataclass(frozen=True)
class Resume:
    """Where to continue a logged episode: after the steps of `past`, with `write` instead of a new one."""

    past: tuple[Step, ...] = ()
    write: Write | None = None


FROM_START = Resume()


# ---------------------------------------------------------------- playing


async def play_job(job: Job, agent: Agent, resume: Resume = FROM_START) -> Played:
    """One episode. Model and game failures are caught here: they become an outcome, never a loss."""
    rollout = Rollout(job, agent, resume, "episode" if resume is FROM_START else "continuation")
    error: str | None = None
    try:
        with agent.worlds.playing(job.game) as world:
            outcome = await rollout.play(world)
        await rollout.ask_again()
    except (ModelError, GameError) as failure:
        outcome, error = "error", str(failure)
    search = rollout.watch.search(agent.worlds, job, rollout.trail)
    return Played(rollout.episode(outcome, error), tuple(rollout.steps), rollout.watch.sampler.prompts(), search)


async def run_jobs(jobs: Iterable[Job], agent: Agent, limit: int = AT_ONCE) -> AsyncIterator[Played]:
    """Play many episodes. Results come in the order of the jobs."""
    shards = [(job,) for job in jobs]
    dispatch = Dispatch([ThisProcess(agent)], shards, lambda job: job.game, limit)
    async for found in dispatch.results(partial(each, _play)):
        for played in found:
            yield played


async def _play(agent: Agent, job: Job) -> Played:
    return await play_job(job, agent)


def episode_key(job: Job, agent: Agent, md5: str, resume: Resume = FROM_START) -> str:
    """Content digest of everything that decides how the episode goes."""
    _, adapter = split_name(job.cell.memory)
    return digest_of(
        msgspec.to_builtins(job),
        md5,
        agent.max_actions,
        None if is_reference(job.cell.memory) else agent.writer.fingerprint(adapter),
        None if job.driver == "reference" else agent.reader.fingerprint(),
        agent.tokenizer.name,
        agent.reader.instruction,
        identity_of(job.cell.memory, agent.prompts),
        msgspec.to_builtins((resume.past, resume.write)),
        *([msgspec.to_builtins(agent.recall)] if rule_of(job.cell.memory) else []),
    )


# ---------------------------------------------------------------- continuing


async def continue_episode(
    episode: Episode, steps: Sequence[Step], index: int, agent: Agent, state: str | None = None
) -> Played:
    """Play on from step `index`, its state replaced by `state` if one is given.

    Without one the continuation starts from what was logged, and comes out as it was logged.
    """
    if not 0 <= index < len(steps):
        raise UsageError(f"Episode {episode.key} has steps 0 to {len(steps) - 1}; {index} is none of them.")
    write = steps[index].write
    if state is not None:
        budget = episode.job.cell.budget
        if budget is None:
            raise UsageError("The memory full has no state that could be replaced; continue another format.")
        write = enforce(state, budget, agent.tokenizer)
    return await play_job(episode.job, agent, Resume(tuple(steps[:index]), write))


def first_difference(logged: Sequence[Step], played: Sequence[Step]) -> int | None:
    """The first step at which two records of an episode differ; None when they are the same."""
    for place, (old, new) in enumerate(zip(logged, played, strict=False)):
        if old != new:
            return place
    return None if len(logged) == len(played) else min(len(logged), len(played))


# ---------------------------------------------------------------- one episode under way

UNSTORED = Write(state="", tokens=0, raw_tokens=0, truncated=False, note="the context is the history itself")
OVER = Write(state="", tokens=0, raw_tokens=0, truncated=False, note="the episode is over")


class Rollout:
    """One episode under way."""

    def __init__(self, job: Job, agent: Agent, resume: Resume, what: str) -> None:
        self.job, self.agent, self.resume = job, agent, resume
        self.game = agent.worlds.archive.game(job.game)
        self.key = episode_key(job, agent, self.game.md5, resume)
        self.watch = Watch(self.key, what, agent.quotas.get(job_digest(job)))
        self.steps: list[Step] = []
        self.trail: list[WalkStep] = []
        self.goal = ""
        self.reveal = self.begin = -1
        self.score = self.max_score = 0
        self.memory, self.reference = self._prepare()

    async def play(self, world: World) -> Outcome:
        """Walk Phase A, then act until the game or the limit of actions ends it; everything goes into `steps`."""
        walk = await walked(world, self.job.cell.protocol, self.job.cell.filler)
        self.goal, self.begin = world.goal, len(walk) - 1
        self.reveal = next(index for index, here in enumerate(walk) if here.kind == "reveal")
        for here in walk[:-1]:
            self._log(here, await self._write(world, here), None)
        here = walk[-1]
        for _ in range(self.agent.max_actions):
            if ended(here.node.moment):
                break
            write = await self._write(world, here)
            decision = await self._decide(world, here, write)
            self._log(here, write, decision)
            here = await _act(world, here, decision.action)
        self._log(here, OVER, None)
        return ended(here.node.moment) or "limit"

    async def ask_again(self) -> None:
        """Ask a memory of the user's own once more for one of its states. A fresh object with the same view and the
        same previous state must give it; else something besides the text crosses steps."""
        if not isinstance(self.memory, Plugged) or self.resume.past or self.resume.write is not None:
            return
        step = self.steps[seed_of(self.job.seed, self.key, "again") % (len(self.steps) - 1)]
        previous = self.steps[step.index - 1].write.state if step.index else ""
        with self.watch.at(step.index):
            reply = await self.memory.write(View(self.goal, step.action, step.observation), previous)
        assert self.job.cell.budget is not None
        if enforce(reply, self.job.cell.budget, self.agent.tokenizer).state != step.write.state:
            raise ModelError(
                f"The memory {self.memory.name} writes another state when it is asked again with the same view and "
                "previous state: something besides its text crosses steps (a class attribute, a file, a clock, chance "
                "without a seed)."
            )

    def episode(self, outcome: Outcome, error: str | None) -> Episode:
        """The record of what was played so far, with how it ended."""
        return Episode(
            key=self.key,
            job=self.job,
            split=self.game.split,
            level=self.game.level,
            outcome=outcome,
            score=self.score,
            max_score=self.max_score,
            steps=len(self.steps),
            reveal=self.reveal,
            begin=self.begin,
            truncations=sum(step.write.truncated for step in self.steps),
            error=error,
        )

    def _prepare(self) -> tuple[Memory | None, Reference | None]:
        """The memory that writes, or the reference that is rendered: an episode has one of the two."""
        name, budget = self.job.cell.memory, self.job.cell.budget
        if is_reference(name):
            return None, load_reference(name, budget, self.agent.tokenizer)
        if budget is None:
            raise ConfigError(f"The memory {name} needs a budget; only full goes without.")
        kit = Kit(
            budget=budget,
            tokenizer=self.agent.tokenizer,
            model=self.agent.writer,
            adapter=None,
            temperature=self.job.temperature,
            seed=self.job.seed,
            seconds=self.agent.write_seconds,
        )
        return load_memory(name, kit, self.agent.prompts), None

    async def _write(self, world: World, here: WalkStep) -> Write:
        """The state at this step, in the memory's own words unless it is rendered from the record."""
        self.trail.append(here)
        with self.watch.at(len(self.steps)):
            write = await self._written(world, here)
        if self.memory is not None or self.job.cell.memory == ORACLE_B:
            self.watch.wrote(write.state, self.job.cell.memory)
        return write

    async def _written(self, world: World, here: WalkStep) -> Write:
        index, past = len(self.steps), self.resume.past
        if index < len(past):
            return past[index].write
        if index == len(past) and self.resume.write is not None:
            return self.resume.write
        if self.job.cell.memory == FULL:
            return UNSTORED
        assert self.job.cell.budget is not None
        return enforce(await self._reply(world, here), self.job.cell.budget, self.agent.tokenizer)

    async def _reply(self, world: World, here: WalkStep) -> str:
        if self.memory is None:
            assert self.reference is not None
            oracle = partial(world.oracle_lines, here.node)
            return self.reference.render(tuple(self.steps), here.action, oracle)
        previous = self.steps[-1].write.state if self.steps else ""
        return await self.memory.write(View(self.goal, here.action, here.observation), previous)

    async def _decide(self, world: World, here: WalkStep, write: Write) -> Decision:
        index = len(self.steps)
        if index < len(self.resume.past) and (logged := self.resume.past[index].decision):
            return logged
        options = world.options(here.node, index)
        if self.job.driver == "reference":
            return Decision(options, (), options.reference, options.reference, None, None)
        context = context_of(self.job.cell.memory, tuple(self.steps), here.action, write)
        asked = Situation(self.goal, context, here.observation, options)
        with self.watch.at(index):
            logprobs = await self.agent.reader.score(self.goal, context, here.observation, options.actions)
            recall, logprobs = await self._look_back(asked, logprobs)
        best = most_likely(logprobs, options.actions)
        return Decision(
            options=options,
            logprobs=logprobs,
            action=explore(options.actions, best, self.job.epsilon, self._rng(index)),
            argmax=best,
            nll=nll_of(logprobs, options),
            tie=None if best == options.reference else await shortens(world, here.node, best),
            recall=recall,
        )

    async def _look_back(self, asked: Situation, plain: Logprobs) -> tuple[Recalled | None, Logprobs]:
        """What the reader sees again for this decision, if anything, and its choice then."""
        rule, agent = rule_of(self.job.cell.memory), self.agent
        if rule is None:
            return None, plain
        back = Lookback(rule, agent.recall, agent.reader, agent.tokenizer, agent.worlds.domain.words)
        return await back.look(asked, plain, self.steps, self.reveal) or (None, plain)

    def _rng(self, index: int) -> random.Random:
        return rng_of("explore", self.job.seed, self.job.game, msgspec.to_builtins(self.job.cell), index)

    def _log(self, here: WalkStep, write: Write, decision: Decision | None) -> None:
        moment = here.node.moment
        self.score, self.max_score = moment.score, moment.max_score
        self.steps.append(
            Step(
                index=len(self.steps),
                kind=here.kind,
                visit=here.visit,
                place=moment.place,
                action=here.action,
                observation=here.observation,
                write=write,
                decision=decision,
            )
        )


async def _act(world: World, here: WalkStep, action: str) -> WalkStep:
    node = await stepped(world, here.node, action)
    moved = node.moment.place != here.node.moment.place
    return WalkStep("act", action, node.moment.observation, here.visit + moved, node)


def context_of(memory: str, history: Sequence[Step], last_action: str | None, write: Write) -> str:
    """What the reader sees of the past. Only `full` is not stored: it is its own history."""
    return render_history(history, last_action) if memory == FULL else write.state


def context_at(memory: str, steps: Sequence[Step], index: int) -> str:
    """The reader's context at a logged step, with what it saw again there."""
    step = steps[index]
    context = context_of(memory, steps[:index], step.action, step.write)
    seen = step.decision.recall if step.decision else None
    return with_chunk(context, steps, seen.chunk) if seen else context


def ended(moment: Moment) -> Outcome | None:
    """How the game ended at this moment; None while it goes on."""
    if moment.won:
        return "won"
    if moment.lost:
        return "lost"
    return None if moment.privileged.policy else "unwinnable"


async def shortens(world: World, node: Node, action: str) -> bool:
    """Whether an action is as good as the reference: the optimal plan is shorter after it, by one or by more, since a
    planner may find a better plan from another position."""
    after = (await stepped(world, node, action)).moment
    left = len(after.privileged.policy)
    return (after.won or left > 0) and left < len(node.moment.privileged.policy)


def fingerprints(agent: Agent, memories: Iterable[str]) -> dict[str, str]:
    """Role to model, for the run's record: the reader, the writer, and the writer under each adapter used."""
    adapters = {adapter for memory in dict.fromkeys(memories) if (adapter := split_name(memory)[1])}
    found = {"reader": agent.reader.fingerprint(), "writer": agent.writer.fingerprint()}
    return found | {f"writer@{adapter}": agent.writer.fingerprint(adapter) for adapter in sorted(adapters)}


# ---------------------------------------------------------------- stored episodes


def save(run: Run, played: Played) -> None:
    """Append one episode. Appending it again changes nothing."""
    key = played.episode.key
    run.extend("steps", [(f"{key}:{step.index:04d}", step) for step in played.steps])
    run.extend("prompts", [(f"{key}:{place:04d}", prompt) for place, prompt in enumerate(played.prompts)])
    keep_searches(run, key, [played.search] if played.search else [])
    run.append("episodes", key, played.episode)


def stored(run: Run) -> Iterator[Played]:
    """The finished episodes of a run, with their steps and prompts."""
    steps: dict[str, list[Step]] = {}
    for key, step in run.read_keyed("steps", Step):
        steps.setdefault(key.partition(":")[0], []).append(step)
    prompts: dict[str, list[StoredPrompt]] = {}
    for prompt in run.read("prompts", StoredPrompt):
        prompts.setdefault(prompt.episode, []).append(prompt)
    for episode in run.read("episodes", Episode):
        yield Played(episode, tuple(steps.pop(episode.key, ())), tuple(prompts.pop(episode.key, ())))


def find(run: Run, name: str) -> Played:
    """The one episode whose key begins with `name`."""
    found = [played for played in stored(run) if played.episode.key.startswith(name)]
    if len(found) != 1:
        keys = ", ".join(played.episode.key[:12] for played in (found or list(stored(run)))[:4])
        if not found:
            raise UsageError(f"No episode of {run.path} has a key that begins with {name!r}; its keys are {keys}, …")
        raise UsageError(f"{len(found)} keys of {run.path} begin with {name!r}; give more of one: {keys}.")
    return found[0]
