"""What a diagnosis will take, counted on its own games before it starts.

Phase A is known exactly. Phase B is counted twice: as long as the optimal plan, and as long as it may last.
States are counted as full as their budget allows, so tokens are rather too many than too few.
"""

from dataclasses import dataclass

from dssr.agent.base import Kit
from dssr.agent.episode import Desk
from dssr.agent.memory import Prompted
from dssr.agent.reference import FULL, is_reference
from dssr.config import Config
from dssr.errors import ModelError
from dssr.games.history import render_history
from dssr.games.options import options_at
from dssr.games.protocol import PhaseStep, phase_a
from dssr.measure.audit import ORACLE_STYLE
from dssr.measure.grid import Ask, cells_of
from dssr.types import Cell, Moment, Record, View


class Load(Record, frozen=True):
    """Calls of one kind, if Phase B goes straight (`calls`) and if every episode runs to its limit (`most_calls`)."""

    work: str
    calls: int
    new_calls: int
    """Calls that no other of the same grid repeats; the rest come from the cache."""
    tokens_in: int
    """Tokens are those of the new calls: what the cache answers costs neither time nor money."""
    tokens_out: int
    most_calls: int
    most_tokens_in: int
    most_tokens_out: int


class Rates(Record, frozen=True):
    """How fast a model is, in tokens per second, and what it costs, per million tokens."""

    read: float | None = None
    write: float | None = None
    price_in: float | None = None
    price_out: float | None = None


@dataclass
class Count:
    calls: int = 0
    new_calls: int = 0
    tokens_in: int = 0
    tokens_out: int = 0

    def add(self, calls: int, tokens_in: int, tokens_out: int = 0, new: int | None = None) -> None:
        self.calls += calls
        self.new_calls += calls if new is None else new
        self.tokens_in += tokens_in
        self.tokens_out += tokens_out


WORK = ("state writes", "decisions", "oracle writes", "audit reads", "lag reads")


@dataclass(frozen=True)
class Walk:
    """The sizes of one game's Phase A at one filler, in tokens."""

    steps: int
    shown: int
    """Tokens of all observations."""
    history: int
    """Tokens of the history at the first decision."""
    choice: int
    """Tokens of the first decision's prompt, without the context."""
    plan: int
    """Actions of the optimal plan."""
    visits: int


def plan(ask: Ask, config: Config, desk: Desk) -> list[Load]:
    """The loads of a grid, by kind of work. Refuses a grid whose longest prompt the models cannot take."""
    low, high = ({work: Count() for work in WORK} for _ in range(2))
    frame = frame_of(desk, ask.budgets[0])
    longest = max(ask.fillers)
    for game in ask.games:
        walks = {filler: walk_of(game, config, filler, desk) for filler in ask.fillers}
        _check_length(game, walks[longest], desk, frame)
        for cell in cells_of(ask, config):
            walk = walks[cell.filler]
            shared = config.protocol.kind in ("post", "post-brief") and cell.filler != longest
            for counts, actions in ((low, walk.plan), (high, config.protocol.max_actions)):
                _cell(cell, walk, actions, shared, frame, ask.lag, config, counts)
    return [load_of(work, low[work], high[work]) for work in WORK if high[work].calls]


def totals(loads: list[Load], rates: Rates) -> dict[str, float | None]:
    """Sums over all work, with hours and cost where rates and prices are known."""
    fields = ("calls", "new_calls", "tokens_in", "tokens_out", "most_calls", "most_tokens_in", "most_tokens_out")
    found: dict[str, float | None] = {name: sum(getattr(load, name) for load in loads) for name in fields}
    for prefix in ("", "most_"):
        tokens = (found[f"{prefix}tokens_in"] or 0.0, found[f"{prefix}tokens_out"] or 0.0)
        found[f"{prefix}hours"] = found[f"{prefix}cost"] = None
        if rates.read and rates.write:
            found[f"{prefix}hours"] = (tokens[0] / rates.read + tokens[1] / rates.write) / 3600
        if rates.price_in is not None and rates.price_out is not None:
            found[f"{prefix}cost"] = (tokens[0] * rates.price_in + tokens[1] * rates.price_out) / 1e6
    return found


def _cell(
    cell: Cell, walk: Walk, actions: int, shared: bool, frame: int, lag: bool, config: Config, counts: dict[str, Count]
) -> None:
    """Add one episode. `shared`: a longer walk of the same grid already writes this Phase A."""
    budget = cell.budget or 0
    observation = walk.shown // walk.steps
    history = walk.history + actions * observation // 2
    if not is_reference(cell.memory):
        writes, new = walk.steps - 1 + actions, actions if shared else walk.steps - 1 + actions
        tokens = new * (frame + budget) + actions * observation + (0 if shared else walk.shown)
        counts["state writes"].add(writes, tokens, new * budget, new)
    context = history if cell.memory == FULL else budget
    counts["decisions"].add(actions, actions * (walk.choice + context))
    if cell.memory == FULL:
        return
    points, samples = min(config.measure.points, actions), config.measure.oracle_samples
    oracle = points * samples
    counts["oracle writes"].add(oracle, oracle * (frame + history), oracle * budget)
    reads = points * (1 + samples)
    counts["audit reads"].add(reads, reads * walk.choice + points * history + oracle * budget)
    if lag:
        chunks = points * (walk.visits + actions // (2 * config.measure.block) + 1)
        counts["lag reads"].add(chunks, chunks * (walk.choice + history))


def walk_of(game: str, config: Config, filler: int, desk: Desk) -> Walk:
    """Phase A of a game, walked once."""
    with desk.worlds.playing(game) as world:
        steps = phase_a(world, config.protocol.kind, filler)
        moment, index = steps[-1].node.moment, len(steps) - 1
        commands = options_at(moment, game, index).commands
        choice = desk.reader.messages(world.goal, "", steps[-1].observation, commands)
    return Walk(
        steps=len(steps),
        shown=sum(_tokens(step.observation, desk) for step in steps),
        history=_tokens(_history(steps), desk),
        choice=desk.reader.model.prompt_tokens(choice),
        plan=_actions(moment, config),
        visits=steps[-1].visit + 1,
    )


def _history(steps: tuple[PhaseStep, ...]) -> str:
    """As the reader would be shown it at the first decision."""
    return render_history([_Happened(step.command, step.observation) for step in steps[:-1]], steps[-1].command)


@dataclass(frozen=True)
class _Happened:
    action: str | None
    observation: str


def _actions(moment: Moment, config: Config) -> int:
    return min(len(moment.privileged.policy), config.protocol.max_actions)


def _tokens(text: str, desk: Desk) -> int:
    return len(desk.reader.tokenizer.encode(text))


def frame_of(desk: Desk, budget: int) -> int:
    """Tokens of a writer's prompt besides state and observation."""
    kit = Kit(budget, desk.reader.tokenizer, desk.writer, None, 0.0, 0)
    empty = Prompted(kit, desk.prompts.writer(ORACLE_STYLE, budget)).messages(View("", None, ""), "")
    return desk.writer.prompt_tokens(empty)


def _check_length(game: str, walk: Walk, desk: Desk, frame: int) -> None:
    for who, model, tokens in (
        ("reader", desk.reader.model, walk.choice + walk.history),
        ("writer", desk.writer, frame + walk.history),
    ):
        if tokens > model.context_length:
            raise ModelError(
                f"The history of {game} makes a {who} prompt of {tokens} tokens, over the {model.context_length} that "
                "the model takes; use shorter fillers, smaller games or a model with a longer context."
            )


def load_of(work: str, low: Count, high: Count) -> Load:
    """Both counts of one kind of work, in one record."""
    return Load(
        work=work,
        calls=low.calls,
        new_calls=low.new_calls,
        tokens_in=low.tokens_in,
        tokens_out=low.tokens_out,
        most_calls=high.calls,
        most_tokens_in=high.tokens_in,
        most_tokens_out=high.tokens_out,
    )
