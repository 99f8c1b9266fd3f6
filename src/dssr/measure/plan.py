"""What a diagnosis will take, counted on its own games before it starts.

Phase A is known exactly. Phase B is counted twice: as long as the optimal plan, and as long as it may last. States are
counted as full as their budget allows, so tokens are rather too many than too few. How fast the models are here is
found by timing a few real prompts of the grid, as one batch of each kind.
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from dssr.agent.episode import Agent
from dssr.agent.leaks import unwatched
from dssr.agent.memory import FULL, Kit, Prompted, is_reference
from dssr.agent.prompts import render_history
from dssr.agent.recall import rule_of
from dssr.config import Config
from dssr.errors import ModelError
from dssr.measure.archives import Seen
from dssr.measure.audit import ORACLE_STYLE
from dssr.measure.grid import cells_of, grid_of, jobs_of
from dssr.models.base import Choose, Generate
from dssr.models.load import bare
from dssr.scale.shards import cut, finish
from dssr.session import Session, configured, verb
from dssr.types import LABELS, Cell, Grid, Moment, Record, Split, View
from dssr.worlds.base import WalkStep


class Load(Record, frozen=True):
    """Calls of one kind, if Phase B goes straight (`calls`) and if every episode runs to its limit (`most_calls`)."""

    work: str
    """One of the kinds of work, such as `state writes`."""
    calls: int
    new_calls: int
    """Calls that no other of the same grid repeats; the rest come from the cache."""
    tokens_in: int
    """Tokens are those of the new calls: what the cache answers costs neither time nor money."""
    tokens_out: int
    computed_in: int
    """Of the tokens in, those with which no other prompt begins as well: the rest is computed once by a model that
    keeps beginnings, as the CPU engine and vLLM do. Time follows from these."""
    most_calls: int
    most_tokens_in: int
    most_tokens_out: int
    most_computed_in: int


def scaled(load: Load, scale: float) -> Load:
    """The same work, so many times."""
    numbers = {name: round(value * scale) for name, value in msgspec.structs.asdict(load).items() if name != "work"}
    return Load(load.work, **numbers)


SIZES = tuple(name for name in Load.__struct_fields__ if name != "work")
"""What is counted of every kind of work."""


class Rates(Record, frozen=True):
    """How fast a model is, in tokens per second, and what it costs, per million tokens."""

    read: float | None = None
    """Prompt tokens computed per second."""
    write: float | None = None
    """Generated tokens per second."""
    price_in: float | None = None
    price_out: float | None = None


UNKNOWN = Rates()


class SharedPlan(Record, frozen=True):
    """What a diagnosis takes when several workers share it, each as fast as the rates say."""

    workers: int
    hours: float
    """Of the slowest worker."""
    efficiency: float
    """Share of that time that the workers compute; the rest is waiting for the last shards."""
    useful: int
    """Workers beyond which nothing is gained: the largest shard takes as long as the others' share."""
    bottleneck: str
    """The kind of work that takes longest, and its share of the time."""


class Plan(Record, frozen=True):
    """What a diagnosis will take."""

    episodes: int
    loads: tuple[Load, ...]
    total: dict[str, float | None]
    """Sums over the loads, with hours and cost where rates and prices are known; `most_…` as in `Load`."""
    shared: SharedPlan | None = None
    """Where rates are known."""


@verb
async def plan(
    config: Config | str = "nano",
    memories: Sequence[str] = (),
    budgets: Sequence[int] = (),
    fillers: Sequence[int] = (),
    *,
    games: int | None = None,
    split: Split = "valid",
    lag: bool = False,
    rates: Rates = UNKNOWN,
    calibrate: bool = False,
    workers: int = 1,
) -> Plan:
    """Count the calls and tokens of a diagnosis; with rates or prices, or timed by a few calls, hours or cost too.

    Rates are those of one worker; `workers` share the time.
    """
    settings = configured(config)
    async with Session(settings, bare_reader=True) as session:
        grid = grid_of(settings, session.archive, memories, budgets, fillers, games, split, lag)
        jobs = jobs_of(grid, settings)
        agent = session.agent(jobs)
        loads = plan_grid(grid, settings, agent)
        if calibrate:
            read, write = await measured_rates(grid, settings, agent)
            rates = Rates(read, write, rates.price_in, rates.price_out)
        shared = share_out(shard_hours(grid, settings, agent, rates), loads, rates, workers) if rates.read else None
    return Plan(len(jobs), tuple(loads), totals(loads, rates), shared)


# ---------------------------------------------------------------- counting

WORK = ("state writes", "decisions", "recall reads", "oracle writes", "audit reads", "lag reads")


@dataclass
class Count:
    """Calls of one kind of work, and their tokens, as they add up."""

    calls: int = 0
    new_calls: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    computed_in: int = 0

    def add(
        self, calls: int, tokens_in: int, tokens_out: int = 0, new: int | None = None, computed: int | None = None
    ) -> None:
        """Add calls; `new` of them are not repeated elsewhere in the grid, and `computed` of the tokens in begin no
        other prompt, all when they are left out."""
        self.calls += calls
        self.new_calls += calls if new is None else new
        self.tokens_in += tokens_in
        self.tokens_out += tokens_out
        self.computed_in += tokens_in if computed is None else computed


@dataclass(frozen=True)
class Walk:
    """The sizes of one game's Phase A at one filler, in tokens."""

    steps: int
    """Steps of Phase A, step 0 included."""
    shown: int
    """Tokens of all observations."""
    history: int
    """Tokens of the history at the first decision."""
    choice: int
    """Tokens of the first decision's prompt, without the context."""
    frame: int
    """Of them, those that all decisions' prompts begin with."""
    plan: int
    """Actions of the optimal plan."""
    visits: int
    """Stays at one place: the chunks that a lag takes out one by one."""


def plan_grid(grid: Grid, config: Config, agent: Agent) -> list[Load]:
    """The loads of a grid, by kind of work. Refuses a grid whose longest prompt the models cannot take."""
    low, high = ({work: Count() for work in WORK} for _ in range(2))
    frame = frame_of(agent, grid.budgets[0])
    longest = max(grid.fillers)
    for game in grid.games:
        walks = {filler: walk_of(game, config, filler, agent) for filler in grid.fillers}
        _check_length(game, walks[longest], agent, frame)
        for cell in cells_of(grid, config):
            walk = walks[cell.filler]
            shared = config.protocol.kind in ("post", "post-brief") and cell.filler != longest
            for counts, actions in ((low, walk.plan), (high, config.protocol.max_actions)):
                _add_episode(cell, walk, actions, shared, frame, grid.lag, config, counts)
    return [load_of(work, low[work], high[work]) for work in WORK if high[work].calls]


def load_of(work: str, low: Count, high: Count) -> Load:
    """Both counts of one kind of work, in one record."""
    return Load(
        work=work,
        calls=low.calls,
        new_calls=low.new_calls,
        tokens_in=low.tokens_in,
        tokens_out=low.tokens_out,
        computed_in=low.computed_in,
        most_calls=high.calls,
        most_tokens_in=high.tokens_in,
        most_tokens_out=high.tokens_out,
        most_computed_in=high.computed_in,
    )


def totals(loads: list[Load], rates: Rates) -> dict[str, float | None]:
    """Sums over all work, with hours and cost where rates and prices are known."""
    found: dict[str, float | None] = {name: sum(getattr(load, name) for load in loads) for name in SIZES}
    for prefix in ("", "most_"):
        tokens = (found[f"{prefix}tokens_in"] or 0.0, found[f"{prefix}tokens_out"] or 0.0)
        found[f"{prefix}hours"] = found[f"{prefix}cost"] = None
        if rates.read and rates.write:
            found[f"{prefix}hours"] = _hours(found[f"{prefix}computed_in"] or 0.0, tokens[1], rates)
        if rates.price_in is not None and rates.price_out is not None:
            found[f"{prefix}cost"] = (tokens[0] * rates.price_in + tokens[1] * rates.price_out) / 1e6
    return found


def shard_hours(grid: Grid, config: Config, agent: Agent, rates: Rates) -> list[float]:
    """Of every shard of a grid, if Phase B goes straight, in the order in which they are handed out."""
    frame, longest, found = frame_of(agent, grid.budgets[0]), max(grid.fillers), []
    for game in grid.games:
        walks = {filler: walk_of(game, config, filler, agent) for filler in grid.fillers}
        for shard in cut(cells_of(grid, config), lambda cell: (cell.memory, cell.budget)):
            counts = {work: Count() for work in WORK}
            for cell in shard:
                shared = config.protocol.kind in ("post", "post-brief") and cell.filler != longest
                walk = walks[cell.filler]
                _add_episode(cell, walk, walk.plan, shared, frame, grid.lag, config, counts)
            found.append(sum(_hours(one.computed_in, one.tokens_out, rates) for one in counts.values()))
    return found


def share_out(shards: Sequence[float], loads: Sequence[Load], rates: Rates, workers: int) -> SharedPlan:
    """The shards handed out one by one to whoever is free."""
    total, last = sum(shards), finish(shards, workers)
    hours = {load.work: _hours(load.computed_in, load.tokens_out, rates) for load in loads}
    most = max(hours, key=hours.__getitem__)
    return SharedPlan(
        workers=workers,
        hours=last,
        efficiency=total / (workers * last) if last else 1.0,
        useful=max(1, int(total / max(shards))) if total else 1,
        bottleneck=f"{most}, {100 * hours[most] / max(sum(hours.values()), 1e-12):.0f} % of the time",
    )


def _hours(computed_in: float, tokens_out: float, rates: Rates) -> float:
    return (computed_in / (rates.read or 1.0) + tokens_out / (rates.write or 1.0)) / 3600


def _add_episode(
    cell: Cell, walk: Walk, actions: int, shared: bool, frame: int, lag: bool, config: Config, counts: dict[str, Count]
) -> None:
    """Add one episode. `shared`: a longer walk of the same grid already writes this Phase A."""
    budget = cell.budget or 0
    observation = walk.shown // walk.steps
    later = actions * observation
    history = walk.history + later // 2
    once = later if shared else walk.history + later
    """Of the history, what no other episode's begins with."""
    asked = walk.choice - walk.frame
    if not is_reference(cell.memory):
        writes, new = walk.steps - 1 + actions, actions if shared else walk.steps - 1 + actions
        seen = later + (0 if shared else walk.shown)
        counts["state writes"].add(writes, new * (frame + budget) + seen, new * budget, new, new * budget + seen)
    if cell.memory == FULL:
        counts["decisions"].add(actions, actions * (walk.choice + history), computed=actions * asked + once)
        return
    counts["decisions"].add(actions, actions * (walk.choice + budget), computed=actions * (asked + budget))
    if rule := rule_of(cell.memory):
        # Which decisions are in doubt is not known before: all of them could be.
        reads = actions * (1 + config.agent.recall_tries) if rule == "unsure" else actions + config.agent.recalls
        context = budget + history // max(walk.visits, 1)
        counts["recall reads"].add(reads, reads * (walk.choice + context), computed=reads * (asked + context))
    points, samples = min(config.measure.points, actions), config.measure.oracle_samples
    oracle = points * samples
    counts["oracle writes"].add(oracle, oracle * (frame + history), oracle * budget, computed=once)
    reads = points * (1 + samples)
    states = oracle * budget
    counts["audit reads"].add(
        reads, reads * walk.choice + points * history + states, computed=reads * asked + once + states
    )
    if lag:  # what stands before the chunk is shared: half of a history, on average
        chunks = points * (walk.visits + actions // (2 * config.measure.block) + 1)
        counts["lag reads"].add(chunks, chunks * (walk.choice + history), computed=chunks * (asked + history // 2))


def walk_of(game: str, config: Config, filler: int, agent: Agent) -> Walk:
    """Phase A of a game, walked once."""
    with agent.worlds.playing(game) as world:
        steps = world.walk(config.protocol.kind, filler)
        moment, index = steps[-1].node.moment, len(steps) - 1
        actions = world.options(steps[-1].node, index).actions
        choice = agent.reader.messages(world.goal, "", steps[-1].observation, actions)
        bare_choice = agent.reader.messages(world.goal, "", "", ())
    return Walk(
        steps=len(steps),
        shown=sum(_tokens(step.observation, agent) for step in steps),
        history=_tokens(_history(steps), agent),
        choice=agent.reader.model.prompt_tokens(choice),
        frame=agent.reader.model.prompt_tokens(bare_choice),
        plan=_actions(moment, config),
        visits=steps[-1].visit + 1,
    )


def frame_of(agent: Agent, budget: int) -> int:
    """Tokens of a writer's prompt besides state and observation."""
    kit = Kit(budget, agent.tokenizer, agent.writer, None, 0.0, 0)
    empty = Prompted(kit, agent.prompts.writer(ORACLE_STYLE, budget)).messages(View("", None, ""), "")
    return agent.writer.prompt_tokens(empty)


def _check_length(game: str, walk: Walk, agent: Agent, frame: int) -> None:
    for who, model, tokens in (
        ("reader", agent.reader.model, walk.choice + walk.history),
        ("writer", agent.writer, frame + walk.history),
    ):
        if tokens > model.context_length:
            raise ModelError(
                f"The history of {game} makes a {who} prompt of {tokens} tokens, over the {model.context_length} that "
                "the model takes; use shorter fillers, smaller games or a model with a longer context."
            )


def _history(steps: tuple[WalkStep, ...]) -> str:
    """As the reader would be shown it at the first decision."""
    return render_history([Seen(step.action, step.observation) for step in steps[:-1]], steps[-1].action)


def _actions(moment: Moment, config: Config) -> int:
    return min(len(moment.privileged.policy), config.protocol.max_actions)


def _tokens(text: str, agent: Agent) -> int:
    return len(agent.reader.tokenizer.encode(text))


# ---------------------------------------------------------------- timing

CALLS = 64
"""Of each kind, timed at once: about as many as a study has under way, unless it has fewer episodes."""


_RATES: dict[tuple[str, str, int], tuple[float, float]] = {}
"""By writer, reader and budget: a study trains many lines one after the other, and each says what it will take."""


async def measured_rates(grid: Grid, config: Config, agent: Agent) -> tuple[float, float]:
    """Tokens per second computed of prompts and written by the models themselves, past the cache; timed once in a
    process."""
    budget = grid.budgets[-1]
    asked = (agent.writer.fingerprint(), agent.reader.fingerprint(), budget)
    if asked in _RATES:
        return _RATES[asked]
    kit = Kit(budget, agent.tokenizer, agent.writer, None, 0.0, 0)
    writer = Prompted(kit, agent.prompts.writer(ORACLE_STYLE, budget))
    calls = min(CALLS, len(jobs_of(grid, config)))
    with agent.worlds.playing(grid.games[0]) as world:
        steps = world.walk(config.protocol.kind, max(grid.fillers))
        actions = world.options(steps[-1].node, len(steps) - 1).actions
        seen = [steps[place % len(steps)].observation for place in range(calls)]
        reading = [agent.reader.messages(world.goal, text, steps[-1].observation, actions) for text in seen]
        writing = [writer.messages(View(world.goal, None, text), "") for text in seen]
    reader, model = bare(unwatched(agent.reader.model)), bare(unwatched(agent.writer))
    labels = LABELS[: len(actions)]
    # Other programs on the machine must not count: what computes in this process is timed by its processor seconds.
    here = all(one.backend in ("hf", "scripted") for one in (config.writer_model, config.reads_with))
    clock = time.process_time if here else time.perf_counter
    begin = clock()
    await asyncio.gather(*(reader.choose(Choose(one, labels, agent.reader.adapter)) for one in reading))
    frame = reader.prompt_tokens(agent.reader.messages(world.goal, "", "", ()))
    read = (sum(reader.prompt_tokens(one) - frame for one in reading) + frame) / (clock() - begin)
    begin = clock()
    replies = await asyncio.gather(*(model.generate(Generate(one, budget, 0.0, 0)) for one in writing))
    frame = frame_of(agent, budget)
    prompts = (sum(model.prompt_tokens(one) - frame for one in writing) + frame) / read
    spent = clock() - begin
    # Reading its prompts is part of a write's time; where that was all of it, writing cost next to nothing.
    _RATES[asked] = read, max(sum(reply.tokens for reply in replies), 1) / max(spent - prompts, 0.05 * spent)
    return _RATES[asked]


def duration(hours: float) -> str:
    """A time as people say it: seconds, minutes or hours."""
    seconds = round(3600 * hours)
    if seconds < 100:
        return "1 second" if seconds == 1 else f"{seconds} seconds"
    return f"{seconds / 60:.0f} minutes" if seconds < 100 * 60 else f"{hours:.1f} hours"
