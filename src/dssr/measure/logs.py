"""`dssr.audit`: roll memories over logged episodes and say what loses what the logged actions need, budget or writer.

First comes a control: a reader that does not respond to what it is shown gets no beta and no kappa. Which rewrite lost
which fact needs no reader and is always told.
"""

import logging
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property, partial
from pathlib import Path

import msgspec

from dssr.agent.episode import save, stored
from dssr.agent.leaks import Watch, keep_searches
from dssr.agent.memory import FULL
from dssr.agent.recall import rule_of
from dssr.config import Config, GamesConfig
from dssr.errors import SealError, UsageError
from dssr.measure.audit import audited_steps, has_audits
from dssr.measure.log_audit import (
    LOGGED,
    Auditor,
    ControlJob,
    LogAsk,
    LogAudit,
    LogJob,
    Schedule,
    measure_control,
    measure_log,
    under_way,
)
from dssr.measure.log_facts import log_summary
from dssr.measure.log_losses import Control, Loss, able, sensitivity
from dssr.measure.plan import UNKNOWN, Count, Plan, Rates, frame_of, load_of, totals
from dssr.measure.study import Study
from dssr.record.run import Run
from dssr.scale.shards import each
from dssr.seeds import digest_of
from dssr.session import Session, Stage, configured, place_of, silent, verb
from dssr.traces.importers import open_traces
from dssr.traces.trace import WORLD, Redactor, Trace, TraceArchive, TraceDecision, TraceStep, require_good, trace_store
from dssr.types import Audit, Cell, Episode, Job, Progress, Record, Search, Step

POOL, POOL_CHARACTERS = 2000, 4_000_000
"""Actions of all logs from which distractors are drawn, and their characters, at most."""
DEFAULT_CONFIG = "smol"
"""For logs; a run is audited under its own configuration."""
Source = str | Path | Trace

log = logging.getLogger("dssr")

# ---------------------------------------------------------------- where traces come from


def run_traces(run: Run) -> Iterator[Trace]:
    """The episodes of a run as traces, with the states they logged: a run is a log too. Those without a budget have no
    state, and failed ones no end."""
    archive = Session(run.config).archive
    audited: dict[str, list[int]] = {}
    for one in run.read("audits", Audit):
        audited.setdefault(one.episode, []).append(one.step)
    goals: dict[str, str] = {}
    names: dict[str, int] = {}
    for played in stored(run):
        episode, cell = played.episode, played.episode.job.cell
        if episode.split == "test":
            raise SealError(f"{run.path} holds sealed test games, which only an approved evaluation may measure.")
        if episode.error is not None or not has_audits(episode.job):
            continue
        if episode.job.game not in goals:
            world = archive.world(episode.job.game)
            goals[episode.job.game] = world.goal
            world.close()
        drawn = audited_steps(played.steps, episode.job, run.config.measure.points)
        name = "/".join(map(str, (episode.job.game, cell.memory, cell.budget, cell.filler, cell.protocol)))
        names[name] = names.get(name, 0) + 1
        yield Trace(
            id=name if names[name] == 1 else f"{name}#{names[name]}",
            goal=goals[episode.job.game],
            steps=tuple(_logged(step, episode) for step in played.steps),
            kind="game",
            agent="dssr",
            budget=cell.budget,
            points=tuple(sorted(audited.get(episode.key, drawn))),
            cell=cell,
        )


def _logged(step: Step, episode: Episode) -> TraceStep:
    written = step.index < episode.begin or step.decision is not None
    options = None if step.decision is None else step.decision.options
    return TraceStep(
        action=step.action,
        observation=step.observation,
        decision=None if options is None else TraceDecision(options.reference, options.actions),
        state=step.write.state if written else None,
    )


class Sources:
    """The traces that were asked for, read again and again, one at a time."""

    def __init__(self, sources: Source | Sequence[Source], redactor: Redactor) -> None:
        several = [sources] if isinstance(sources, str | Path | Trace) else list(sources)
        if not several:
            raise UsageError("No log was given; name at least one trace file or run directory.")
        self.sources, self.redactor = several, redactor

    def __iter__(self) -> Iterator[Trace]:
        for source in self.sources:
            if isinstance(source, Trace):
                yield require_good(self.redactor.trace(source), "Python")
            elif (Path(source) / "run.json").exists():
                yield from map(self.redactor.trace, run_traces(Run.open(source)))
            else:
                yield from (require_good(trace, source) for trace in open_traces(Path(source), self.redactor))

    @cached_property
    def outline(self) -> "Outline":
        """What is known before any model is loaded, from one pass over all."""
        digests: dict[str, str] = {}
        pool: dict[str, None] = {}
        kinds: set[str] = set()
        states, longest, room = True, 1, POOL_CHARACTERS
        for trace in self:
            if trace.id in digests:
                raise UsageError(f"Two logs are called {trace.id!r}; rename one, since results are told apart by name.")
            digests[trace.id] = digest_of(msgspec.to_builtins(trace))
            kinds.add("run" if trace.cell else trace.kind)
            states = states and any(step.state is not None for step in trace.steps)
            longest = max(longest, trace.characters)
            for action in trace.actions[: max(0, POOL - len(pool))]:
                if action not in pool and len(action) <= room:
                    pool[action] = None
                    room -= len(action)
        return Outline(digests, tuple(pool), frozenset(kinds), states, longest)

    @property
    def beside(self) -> Path | None:
        """Where the audit of one run goes; None for other sources."""
        one = self.sources[0]
        if len(self.sources) > 1 or isinstance(one, Trace) or not (Path(one) / "run.json").exists():
            return None
        return Path(one).with_name(f"{Path(one).resolve().name}-audit")

    @property
    def config(self) -> Config | None:
        """Of the first run among them; None when there is none."""
        runs = [one for one in self.sources if isinstance(one, str | Path) and (Path(one) / "run.json").exists()]
        return Run.open(runs[0]).config if runs else None


class Outline(Record, frozen=True):
    """The traces of an audit, before it starts."""

    digests: dict[str, str]
    """By id, in order."""
    pool: tuple[str, ...]
    """Some of their actions."""
    kinds: frozenset[str]
    """`log`, `game` or `run`."""
    states: bool
    """Whether every one of them logged states."""
    longest: int
    """Characters of the longest."""


# ---------------------------------------------------------------- the verb


class LogGrid(Record, frozen=True):
    """What an audit of logs was asked for beyond its configuration."""

    memories: tuple[str, ...]
    budgets: tuple[int, ...]
    schedule: Schedule
    loss: Loss | None
    """None: by what the reader's model can give."""
    fitting: bool
    """Leave out decisions whose history does not fit the models, instead of refusing the audit."""


@verb
async def audit(
    traces: Source | Sequence[Source],
    config: Config | str | None = None,
    memories: Sequence[str] = (),
    budgets: Sequence[int] = (),
    *,
    every: int = 1,
    over: int | None = None,
    loss: Loss | None = None,
    fitting: bool = False,
    redact: Sequence[str] = (),
    out: str | Path | None = None,
    resume: bool = False,
    workers: int | None = None,
    progress: Progress = silent,
) -> Study:
    """Roll memories over logged episodes, and say what loses what their actions need: the budget or the writer.

    `traces` are trace files, logs of other programs, run directories or `Trace` objects. The memory `logged` stands for
    the states that the agent itself kept; it is the default where every log has some, else `summary` is. A rewrite
    comes at every step, every `every` steps, or when the context passes `over` tokens. `redact` lists texts, or
    patterns between slashes, that nobody gets to see. `workers` are processes that share the work, as many as it is
    worth if left out.
    """
    sources = Sources(traces, Redactor(redact))
    settings, grid = _asked(sources, config, memories, budgets, Schedule(every, over), loss, fitting)
    named = place_of(settings, "audit", sources.outline.digests, msgspec.to_builtins(grid))
    place = Path(out) if out else sources.beside or named
    archive = TraceArchive(sources.outline.digests, place)
    async with Session(settings, progress, archive, workers=workers) as session:
        await audit_logs(session, sources, grid, place, resume)
    return Study.load([place])


def _asked(
    sources: Sources,
    config: Config | str | None,
    memories: Sequence[str],
    budgets: Sequence[int],
    schedule: Schedule,
    loss: Loss | None,
    fitting: bool,
) -> tuple[Config, LogGrid]:
    """The settings of an audit, with what is not given filled in, and what cannot be meant refused."""
    schedule.check()
    given = configured(config if config is not None else sources.config or DEFAULT_CONFIG)
    outline = sources.outline
    # A reader of logs is the bare model: what was trained on games is asked about games alone.
    bare = msgspec.structs.replace(given.reader, trained=False) if "log" in outline.kinds else given.reader
    settings = msgspec.structs.replace(given, games=GamesConfig(world=WORLD), reader=bare)
    chosen = tuple(dict.fromkeys(memories)) or ((LOGGED,) if outline.states else ("summary",))
    if "oracle-b" in chosen:
        raise UsageError("oracle-b needs a world that knows all, and a log has none; audit another memory.")
    if LOGGED in chosen and not outline.states:
        raise UsageError("Not every log holds states of its own agent, so `logged` cannot be audited; name a memory.")
    if any(map(rule_of, chosen)):
        raise UsageError("The reader of a log cannot look back; audit the memory without +recall or +unsure.")
    sizes = tuple(dict.fromkeys(budgets)) or given.agent.budgets
    if any(size < 1 for size in sizes):
        raise UsageError("A budget must be at least 1 token.")
    return settings, LogGrid(chosen, sizes, schedule, loss, fitting)


async def audit_logs(session: Session, sources: Sources, grid: LogGrid, place: Path, resume: bool = False) -> Run:
    """Audit logs into one run; whoever needs an audit inside another use case calls this."""
    outline, config = sources.outline, session.config
    jobs = [_job(name, memory, budget, config) for name in outline.digests for memory, budget in _cells(grid)]
    arguments = {**msgspec.json.decode(msgspec.json.encode(grid)), "traces": outline.digests}
    with session.run(place, "audit", jobs, arguments, resume) as (run, agent):
        for trace in sources:
            run.append("traces", trace.id, trace)
        with Watch("", "probe").at(0):
            kinds = (grid.loss,) if grid.loss else await able(agent.reader)
        ask = LogAsk(str(run.path / "traces.jsonl"), grid.schedule, kinds, outline.pool)
        auditor = Auditor(agent, config, ask)
        items, controls, left_out = _work(outline, auditor, grid)
        tests = Stage(
            "control", "controls", controls, _control_key, lambda one: (one.trace,),
            partial(each, partial(measure_control, ask)), partial(_store_control, run), under_way(outline.longest),
        )  # fmt: skip
        await session.work(run, tests)
        verdict = sensitivity(list(run.read("controls", Control)), config.traces)
        log.info("%s", verdict.sentence)
        # The reader of a dssr run was measured by playing: its run is audited whatever the control says of it.
        ask = msgspec.structs.replace(ask, sensitive=verdict.sensitive or outline.kinds == {"run"})
        judged = Auditor(agent, config, ask)

        def key(item: LogJob) -> str:
            return judged.key(item, outline.digests[item.trace], trace_store(ask.file).load(item.trace).kind)

        work = partial(each, partial(measure_log, ask))
        stage = Stage(
            "episodes", "episodes", items, key, lambda one: (one.trace,), work, partial(_store, run),
            under_way(outline.longest),
        )  # fmt: skip
        await session.work(run, stage)
        counts = {"traces": len(outline.digests), "losses": list(kinds), "left_out": left_out}
        session.finish(run, log_summary(run, verdict, counts))
    return Run.open(place)


def _cells(grid: LogGrid) -> Iterable[tuple[str, int | None]]:
    """Memories that are rolled, with their budgets; the whole history has none."""
    for memory in grid.memories:
        if memory != LOGGED:
            yield from ((memory, budget) for budget in ((None,) if memory == FULL else grid.budgets))


def _job(name: str, memory: str, budget: int | None, config: Config) -> Job:
    return Job(name, Cell(memory, budget, 0, "post"), config.seed, config.agent.temperature, 0.0, "reader")


def _work(outline: Outline, auditor: Auditor, grid: LogGrid) -> tuple[list[LogJob], list[ControlJob], int]:
    """Every trace in every cell with the decisions to audit; the decisions of the control; and how many decisions were
    left out because they do not fit."""
    items: list[LogJob] = []
    controls: list[ControlJob] = []
    config, load = auditor.config, trace_store(auditor.ask.file).load
    size = _logged_size(outline, auditor) if LOGGED in grid.memories else 0
    left_out = 0
    for name in outline.digests:
        trace = load(name)
        ranked = auditor.eligible(trace, [memory == LOGGED for memory in grid.memories])
        widest = max((*grid.budgets, size))
        most = len(ranked) if trace.points is not None else config.measure.points
        good: tuple[int, ...] = ()
        tested: list[int] = []
        for step in ranked:
            wanted = len(good) < most or step in auditor.controlled(trace, [step])
            if wanted and not _refused(auditor, trace, step, widest, grid.fitting):
                good = (*good, step) if len(good) < most else good
                tested.append(step)
            left_out += wanted and step not in tested
        good = tuple(sorted(good))
        controls += [ControlJob(name, step, widest) for step in auditor.controlled(trace, tested)]
        for memory, budget in _cells(grid):
            items.append(LogJob(name, _job(name, memory, budget, config), good, logged=False))
        if LOGGED in grid.memories:
            cell = trace.cell or Cell(LOGGED, trace.budget or size, 0, "post")
            game = name.partition("/")[0] if trace.cell else name
            job = Job(game, cell, config.seed, config.agent.temperature, 0.0, "reader")
            items.append(LogJob(name, job, good, logged=True))
    if not any(item.points for item in items):
        log.warning("No decision can be audited: none comes after a rewrite and fits the models; facts alone are told.")
    return items, controls, left_out


def _logged_size(outline: Outline, auditor: Auditor) -> int:
    """Tokens of the longest state that any of the logs holds: the budget its agent took."""
    encode = auditor.agents["log"].tokenizer.encode
    load = trace_store(auditor.ask.file).load
    states = (step.state for name in outline.digests for step in load(name).steps)
    return max(len(encode(state)) for state in states if state is not None)


def _refused(auditor: Auditor, trace: Trace, step: int, budget: int, fitting: bool) -> bool:
    """Whether a decision does not fit; an error unless such ones are to be left out."""
    trouble = auditor.fits(trace, step, budget)
    if trouble is not None and not fitting:
        raise UsageError(
            f"The history of {trace.id} at step {step} makes {trouble}; use a model with a longer context, or leave "
            "such decisions out with --fitting."
        )
    return trouble is not None


def _control_key(item: ControlJob) -> str:
    return f"{item.trace}:{item.step:04d}"


def _store_control(run: Run, done: tuple[Control, Search]) -> None:
    found, search = done
    key = f"{found.trace}:{found.step:04d}"
    keep_searches(run, key, [search])
    run.append("controls", key, found)


def _store(run: Run, found: LogAudit) -> None:
    """Append what was measured; the episode's own line goes last and makes it count."""
    key = found.played.episode.key
    if found.audits:
        run.extend("audits", [(f"{key}:{one.step:04d}", one) for one in found.audits])
    if found.points:
        run.extend("trace_points", [(f"{key}:{one.step:04d}", one) for one in found.points])
    keep_searches(run, key, found.searches)
    save(run, found.played)


# ---------------------------------------------------------------- what it will take


@verb
async def plan_audit(
    traces: Source | Sequence[Source],
    config: Config | str | None = None,
    memories: Sequence[str] = (),
    budgets: Sequence[int] = (),
    *,
    every: int = 1,
    over: int | None = None,
    fitting: bool = False,
    redact: Sequence[str] = (),
    rates: Rates = UNKNOWN,
) -> Plan:
    """Count the calls and tokens of an audit before it starts, states as full as their budget allows."""
    sources = Sources(traces, Redactor(redact))
    settings, grid = _asked(sources, config, memories, budgets, Schedule(every, over), None, fitting)
    counts = {work: Count() for work in ("state writes", "control reads", "oracle writes", "audit reads")}
    async with Session(settings, archive=TraceArchive(sources.outline.digests, Path()), bare_reader=True) as session:
        agent = session.agent()
        auditor = Auditor(agent, settings, LogAsk("", grid.schedule, ("label", "text"), sources.outline.pool))
        for trace in sources:
            _count(trace, auditor, grid, counts)
    loads = [load_of(work, count, count) for work, count in counts.items() if count.calls]
    return Plan(
        len(sources.outline.digests) * (len(list(_cells(grid))) + (LOGGED in grid.memories)),
        tuple(loads),
        totals(loads, rates),
    )


def _count(trace: Trace, auditor: Auditor, grid: LogGrid, counts: dict[str, Count]) -> None:
    """Add what one trace takes."""
    agent, measure = auditor.agents[trace.kind], auditor.config.measure

    def tokens(text: str) -> int:
        return len(agent.tokenizer.encode(text))

    frame = frame_of(agent, grid.budgets[0]) + tokens(trace.goal)
    shown = sum(tokens(step.observation) + tokens(step.action or "") for step in trace.steps)
    ranked = auditor.eligible(trace, [memory == LOGGED for memory in grid.memories])
    points = ranked if trace.points is not None else ranked[: measure.points]
    controls = auditor.controlled(trace, ranked)

    def past(step: int) -> int:
        return tokens("".join(f"{one.action or ''}{one.observation}" for one in trace.steps[:step]))

    history = {step: past(step) for step in {*points, *controls}}
    ask = tokens(agent.prompts.actor) + tokens(trace.goal) + shown // len(trace.steps)
    counts["control reads"].add(4 * len(controls), sum(4 * ask + history[step] for step in controls))
    samples = measure.oracle_samples
    known: set[int] = set()
    for memory, budget in [*_cells(grid), *([(LOGGED, grid.budgets[-1])] if LOGGED in grid.memories else [])]:
        if budget is None:
            continue
        rewrites = (
            len(trace.steps) // grid.schedule.every if grid.schedule.over is None else shown // grid.schedule.over
        )
        if memory not in (LOGGED, "lastk", "mask"):
            counts["state writes"].add(rewrites, rewrites * (frame + budget) + shown, rewrites * budget)
        whole = sum(history[step] for step in points)
        writes, reads = len(points) * samples, len(points) * (1 + samples)
        # Memories of one budget share their hindsight states and the loss of the full history.
        again = budget in known
        known.add(budget)
        counts["oracle writes"].add(
            writes,
            0 if again else samples * (whole + len(points) * frame),
            0 if again else writes * budget,
            new=0 if again else writes,
        )
        shared = 0 if again else reads * ask + whole + writes * budget
        new = len(points) if again else len(points) + reads
        counts["audit reads"].add(len(points) + reads, shared + len(points) * (ask + budget), new=new)
