"""One trace under audit: a memory rolled over its steps, and the losses of its logged decisions.

A trace is a world that cannot be branched: a memory is rolled over its observations as roll-forward does, and the
reader's loss of the logged action is taken under the state, the full history and the state written in hindsight.

With a rewrite at every K-th step only, or when the context passes a size, the reader sees the last state and the raw
steps since, and the hindsight state is one of the same size written from all up to that rewrite, with the same raw
steps after it. Before the first rewrite nothing is lost, so decisions are drawn from those after it.
"""

import asyncio
import dataclasses
from collections.abc import Iterable, Sequence

import msgspec

from dssr.agent.episode import UNSTORED, Agent
from dssr.agent.kept_prompts import job_digest
from dssr.agent.leaks import Watch
from dssr.agent.memory import FULL, Kit, enforce, identity_of, is_reference, load_memory, load_reference, split_name
from dssr.agent.prompts import Reader, actor_messages, render_history, writer_messages
from dssr.config import Config
from dssr.errors import ConfigError, GameError, ModelError, UsageError
from dssr.measure.audit import ORACLE_STYLE, has_audits, hindsight, oracle_states
from dssr.measure.log_facts import KEPT, TracePoint, rewritten, with_tail
from dssr.measure.log_losses import Control, Judge, LoggedDecision, Loss, Scored, control
from dssr.models.base import Model
from dssr.scale.shards import AT_ONCE
from dssr.seeds import digest_of, seed_of
from dssr.session import Bench
from dssr.traces.facts import past_of, trace_facts
from dssr.traces.trace import Trace, TraceStep, trace_store
from dssr.types import Audit, Cell, Decision, Episode, Job, Options, Played, Record, Search, Step, View, Write

LOGGED = "logged"
"""The memory that is no memory: the states that the agent itself logged."""


ROOM = 1_000_000
"""Characters of the traces that are under way at once."""
LONGEST_TOKEN = 32
"""Characters that a token has at most, on average over a whole history: one longer than this is not even counted."""


def under_way(longest: int) -> int:
    """Items of work that one worker has at once, when the longest trace has so many characters: what is held grows
    with the length of a trace, and must not grow with the number of traces."""
    return max(1, min(AT_ONCE, ROOM // longest))


class LogAsk(Record, frozen=True):
    """What decides the work on every trace of an audit, besides configuration and models."""

    file: str
    """The run's log of traces."""
    schedule: "Schedule"
    kinds: tuple[Loss, ...]
    """Losses that the reader can be asked for."""
    pool: tuple[str, ...]
    """Actions from which distractors are drawn."""
    sensitive: bool = True
    """Whether losses are taken at all."""


class Schedule(Record, frozen=True):
    """When a memory rewrites: at every `every`-th step, or when state and raw steps together pass `over` tokens."""

    every: int = 1
    over: int | None = None

    def check(self) -> None:
        """Refuse what cannot be meant."""
        if self.every < 1 or (self.over is not None and (self.over < 1 or self.every != 1)):
            raise UsageError(
                "Rewrite every 1 or more steps, or over 1 or more tokens, not both: mend --every or --over."
            )


# ---------------------------------------------------------------- rolling a memory over a trace


async def roll(trace: Trace, name: str, job: Job, agent: Agent, schedule: Schedule, watch: Watch) -> list[Write]:
    """What the memory keeps at each step; without a rewrite the state before."""
    budget = job.cell.budget
    if name == FULL:
        return [UNSTORED] * len(trace.steps)
    assert budget is not None, "only full goes without a budget"
    memory = reference = None
    if is_reference(name):
        reference = load_reference(name, budget, agent.tokenizer)
    elif name != LOGGED:
        kit = Kit(budget, agent.tokenizer, agent.writer, None, job.temperature, job.seed)
        memory = load_memory(name, kit, agent.prompts)
    writes: list[Write] = []
    last, state, waiting = -1, "", 0
    for index, step in enumerate(trace.steps):
        waiting += len(agent.tokenizer.encode(block(step))) if schedule.over else 0
        if name == LOGGED:
            reply = step.state
        elif not _due(schedule, index - last, waiting + len(agent.tokenizer.encode(state)) if schedule.over else 0):
            reply = None
        elif reference is not None:
            reply = reference.render(trace.steps[:index], step.action, _no_oracle)
        else:
            assert memory is not None
            with watch.at(index):
                reply = await memory.write(view_between(trace, last, index), state)
        if reply is None:
            writes.append(Write(state, len(agent.tokenizer.encode(state)), 0, False, KEPT))
            continue
        size = len(agent.tokenizer.encode(reply)) if name == LOGGED else 0
        done = Write(reply, size, size, False, None) if name == LOGGED else enforce(reply, budget, agent.tokenizer)
        writes.append(done)
        if reference is None:
            watch.wrote(done.state, name)
        last, state, waiting = index, done.state, 0
    return writes


def _due(schedule: Schedule, since: int, tokens: int) -> bool:
    return tokens > schedule.over if schedule.over is not None else since >= schedule.every


def _no_oracle(long: bool) -> Sequence[str]:
    raise ConfigError("oracle-b needs a world that knows all; a log has none: audit another memory.")


def block(step: TraceStep) -> str:
    """A step as the history shows it."""
    return step.observation if step.action is None else f"> {step.action}\n{step.observation}"


def view_between(trace: Trace, last: int, index: int) -> View:
    """What a writer is given at a rewrite: the steps since the last, as one observation after their first action."""
    first, *rest = trace.steps[last + 1 : index + 1]
    return View(trace.goal, first.action, "\n\n".join((first.observation, *map(block, rest))))


# ---------------------------------------------------------------- auditing one trace


class Auditor:
    """All that the traces of one audit are measured with."""

    def __init__(self, agent: Agent, config: Config, ask: LogAsk) -> None:
        self.config, self.ask, self.schedule = config, ask, ask.schedule
        prompts = agent.prompts.for_logs()
        reader = Reader(agent.reader.model, agent.reader.adapter, prompts.reader)
        self.agents = {"game": agent, "log": dataclasses.replace(agent, prompts=prompts, reader=reader)}
        self.judges = {
            kind: Judge(one, config.traces, ask.kinds, ask.pool, config.seed) for kind, one in self.agents.items()
        }

    def key(self, item: "LogJob", digest: str, kind: str) -> str:
        """Content digest of all that decides the numbers of one trace, given by its own digest, in one cell."""
        agent, name = self.agents[kind], item.job.cell.memory
        writer = identity = None
        if not item.logged:
            identity = identity_of(name, agent.prompts)
            writer = None if is_reference(name) else agent.writer.fingerprint(split_name(name)[1])
        return digest_of(
            msgspec.to_builtins(item), digest, msgspec.to_builtins(self.schedule), self.ask.kinds, self.ask.sensitive,
            writer, agent.writer.fingerprint(), agent.reader.fingerprint(), agent.tokenizer.name, identity,
            agent.prompts.texts,
        )  # fmt: skip

    def eligible(self, trace: Trace, logged: Sequence[bool]) -> list[int]:
        """Decisions that come after the first rewrite of every memory, in a seeded order: free text that needs an
        earlier value first, repeats last. `logged` tells of each memory whether it is the trace's own."""
        firsts = [self.first_rewrite(trace, own) for own in logged]
        if None in firsts and trace.points is None:
            return []
        judge, order = self.judges[trace.kind], {"carried": 0, "plain": 1, "repeat": 2}

        def rank(step: int) -> tuple[int, int]:
            asked, drawn = judge.question(trace, step), seed_of("audit", trace.id, self.config.seed, step)
            return (0 if asked.loss == "label" else order[asked.stratum]), drawn

        known = trace.decisions if trace.points is None else trace.points
        least = max((one for one in firsts if one is not None), default=0) if trace.points is None else 0
        return sorted((step for step in known if step >= least), key=rank)

    def controlled(self, trace: Trace, steps: Iterable[int]) -> list[int]:
        """The decisions on which the reader is tested: they need an earlier value and are no repeats."""
        judge = self.judges[trace.kind]
        found = [step for step in steps if judge.question(trace, step).stratum == "carried"]
        return sorted(found[: self.config.traces.controls])

    def fits(self, trace: Trace, step: int, budget: int) -> str | None:
        """None where the longest prompts of a decision fit the models; else whose do not, and by how much."""
        agent = self.agents[trace.kind]
        asked = self.judges[trace.kind].question(trace, step)
        least, shortest = past_of(trace).begins[step], min(agent.writer, agent.reader.model, key=_context)
        if least > LONGEST_TOKEN * _context(shortest):
            return f"a prompt of {least} characters, far over the {_context(shortest)} tokens of {shortest.name}"
        history = render_history(trace.steps[:step], trace.steps[step].action)
        if asked.options is None:
            reading = actor_messages(agent.prompts.actor, trace.goal, history, asked.observation)
            reply = len(agent.reader.tokenizer.encode(asked.reference))
        else:
            reading = agent.reader.messages(trace.goal, history, asked.observation, asked.options.actions)
            reply = 1
        view = View(trace.goal, None, history)
        writing = writer_messages(agent.prompts.writer(ORACLE_STYLE, budget), view, "")
        model = agent.reader.model
        for who, one, tokens in (
            ("reader", model, model.prompt_tokens(reading) + reply),
            ("writer", agent.writer, agent.writer.prompt_tokens(writing) + budget),
        ):
            if tokens > one.context_length:
                return f"a {who} prompt of {tokens} tokens, over the {one.context_length} of {one.name}"
        return None

    def first_rewrite(self, trace: Trace, logged: bool) -> int | None:
        """The first step at which any memory of the audit has rewritten; None when the trace never gets there."""
        if logged:
            return next((index for index, step in enumerate(trace.steps) if step.state is not None), None)
        if self.schedule.over is None:
            return self.schedule.every - 1 if len(trace.steps) >= self.schedule.every else None
        tokenizer, tokens = self.agents[trace.kind].tokenizer, 0
        for index, step in enumerate(trace.steps):
            tokens += len(tokenizer.encode(block(step)))
            if tokens > self.schedule.over:
                return index
        return None

    async def measured(self, trace: Trace, item: "LogJob") -> "LogAudit":
        """Roll the job's memory over the trace and, where the reader is sensitive, audit its decisions. Failures of a
        model are caught here: they become an outcome, never a loss."""
        agent, job, points = self.agents[trace.kind], item.job, item.points
        name = LOGGED if item.logged else job.cell.memory
        key = self.key(item, digest_of(msgspec.to_builtins(trace)), trace.kind)
        watch, audited = Watch(key, "log", agent.quotas.get(job_digest(job))), Watch(key, "audit")
        writes: list[Write] = []
        found: list[TracePoint] = []
        audits: list[Audit] = []
        error: str | None = None
        try:
            writes = await roll(trace, name, job, agent, self.schedule, watch)
            if self.ask.sensitive and has_audits(job):
                watched = (self._point(trace, job, name, writes, key, step, audited) for step in points)
                pairs = await asyncio.gather(*watched)
                found = [point for point, _ in pairs]
                audits = [audit for _, audit in pairs if audit is not None]
        except (ModelError, GameError) as failure:
            error = str(failure)
        # Searched as the trace that it is: a job on an exported run bears the name of its game.
        here = msgspec.structs.replace(job, game=trace.id)
        searches = [one.search(agent.worlds, here, trace.steps) for one in (watch, audited) if one.used]
        played = self._played(trace, job, key, writes, found, error, watch)
        return LogAudit(played, tuple(audits), tuple(found), tuple(searches))

    async def _point(
        self, trace: Trace, job: Job, name: str, writes: Sequence[Write], key: str, step: int, watch: Watch
    ) -> tuple[TracePoint, Audit | None]:
        judge, budget = self.judges[trace.kind], job.cell.budget
        assert budget is not None
        asked = judge.question(trace, step)
        last, refers = rewritten(writes, step), is_reference(name)
        context = with_tail(trace.steps, writes[step].state, last, step, refers)
        history = render_history(trace.steps[:step], trace.steps[step].action)
        known: dict[str, Scored] = {}

        async def loss(text: str) -> float:
            known[text] = await judge.score(asked, with_tail(trace.steps, text, last, step, reference=False))
            return known[text].nll

        watch.wrote(writes[step].state, name)
        with watch.at(step):
            full = await judge.score(asked, history)
            if last < 0:
                state = best = full
                first = mean = full.nll
                chosen = ""
            else:
                before = history if last == step else render_history(trace.steps[: last + 1], None)
                agent = self.agents[trace.kind]
                samples = await oracle_states(trace.goal, before, budget, job.seed, agent, self.config.measure, watch)
                oracle = await hindsight(samples, loss)
                state, best, chosen = await judge.score(asked, context), known[oracle.state], oracle.state
                first, mean = oracle.first, oracle.mean
        values = tuple(dict.fromkeys(one.text for one in asked.values))
        missing = tuple(value for value in values if value not in context)
        point = TracePoint(key, step, asked.loss, asked.stratum, values, missing, last, state, full, best)
        if not asked.counts:
            return point, None
        return point, Audit(
            episode=key,
            step=step,
            rewrites=self._rewrites(trace, writes, asked),
            nll_state=state.nll,
            nll_full=full.nll,
            nll_oracle=best.nll,
            oracle_state=chosen,
            coverage=None if not values else 1 - len(missing) / len(values),
            nll_first=first,
            nll_mean=mean,
        )

    def _rewrites(self, trace: Trace, writes: Sequence[Write], asked: LoggedDecision) -> int:
        """Rewrites since the first of the values that the action needs was seen; all, where it needs none."""
        wanted = {one.text for one in asked.values}
        seen = [fact.seen for fact in trace_facts(trace) if fact.text in wanted]
        return sum(write.note != KEPT for write in writes[min(seen, default=0) : asked.step + 1])

    def _played(
        self, trace: Trace, job: Job, key: str, writes: Sequence[Write], found: Sequence[TracePoint],
        error: str | None, watch: Watch,
    ) -> Played:  # fmt: skip
        counted = [point for point in found if self.judges[trace.kind].question(trace, point.step).counts]
        hits = [point.state.hit for point in counted if point.state.hit is not None]
        steps = tuple(
            Step(index, "act" if index else "start", index, "", step.action, step.observation, write, _decision(step))
            for index, (step, write) in enumerate(zip(trace.steps, writes, strict=False))
        )
        episode = Episode(
            key=key,
            job=job,
            split="valid",
            level=1,
            outcome="logged" if error is None else "error",
            score=sum(hits),
            max_score=len(hits),
            steps=len(steps),
            reveal=0,
            begin=trace.decisions[0],
            truncations=sum(write.truncated for write in writes),
            error=error,
        )
        return Played(episode, steps, watch.sampler.prompts())


def _context(model: Model) -> int:
    return model.context_length


def _decision(step: TraceStep) -> Decision | None:
    """The logged choice, as an episode shows one; the reader's own probabilities are in `trace_points`."""
    if step.decision is None:
        return None
    reference = step.decision.reference
    options = Options(step.decision.options or (reference,), reference, appended=False, dropped=0)
    return Decision(options, (), reference, reference, None, None)


class LogAudit(Record, frozen=True):
    """One trace in one cell, with all that was measured."""

    played: Played
    audits: tuple[Audit, ...]
    points: tuple[TracePoint, ...]
    searches: tuple[Search, ...]
    """What the leak check found in all prompts."""


# ---------------------------------------------------------------- pieces of work, in whichever process


class LogJob(Record, frozen=True):
    """One trace in one cell, and the decisions to audit."""

    trace: str
    job: Job
    points: tuple[int, ...]
    logged: bool
    """Whether the states are those that the trace itself logged."""


class ControlJob(Record, frozen=True):
    """One decision on which the reader is tested."""

    trace: str
    step: int
    budget: int
    """Tokens of the lines that hold its values, at most."""


async def measure_log(ask: LogAsk, bench: Bench, item: LogJob) -> LogAudit:
    """Roll and audit."""
    auditor = Auditor(bench.agent, bench.config, ask)
    return await auditor.measured(trace_store(ask.file).load(item.trace), item)


async def measure_control(ask: LogAsk, bench: Bench, item: ControlJob) -> tuple[Control, Search]:
    """Test the reader on one decision."""
    trace, watch = trace_store(ask.file).load(item.trace), Watch(f"{item.trace}:{item.step:04d}", "control")
    judge = Auditor(bench.agent, bench.config, ask).judges[trace.kind]
    with watch.at(item.step):
        found = await control(judge, trace, item.step, item.budget)
    job = Job(trace.id, Cell(FULL, None, 0, "post"), bench.config.seed, 0.0, 0.0, "reader")
    return found, watch.search(bench.agent.worlds, job, trace.steps)
