"""How fast the models are here: a few real prompts of the grid, timed as one batch of each kind."""

import asyncio
import time

from dssr.agent.base import Kit
from dssr.agent.episode import Desk
from dssr.agent.memory import Prompted
from dssr.config import Config
from dssr.games.options import options_at
from dssr.games.protocol import phase_a
from dssr.measure.audit import ORACLE_STYLE
from dssr.measure.grid import Ask
from dssr.models.base import Choose, Generate, Model
from dssr.models.cached import CachedModel
from dssr.types import LABELS, View

CALLS = 64
"""Of each kind, timed at once: about as many as a study has under way."""


async def rates(ask: Ask, config: Config, desk: Desk) -> tuple[float, float]:
    """Tokens per second read and written by the models themselves, past the cache."""
    budget = ask.budgets[-1]
    kit = Kit(budget, desk.reader.tokenizer, desk.writer, None, 0.0, 0)
    writer = Prompted(kit, desk.prompts.writer(ORACLE_STYLE, budget))
    with desk.worlds.playing(ask.games[0]) as world:
        steps = phase_a(world, config.protocol.kind, max(ask.fillers))
        commands = options_at(steps[-1].node.moment, ask.games[0], len(steps) - 1).commands
        seen = [steps[place % len(steps)].observation for place in range(CALLS)]
        reading = [desk.reader.messages(world.goal, text, steps[-1].observation, commands) for text in seen]
        writing = [writer.messages(View(world.goal, None, text), "") for text in seen]
    reader, model = _bare(desk.reader.model), _bare(desk.writer)
    labels = LABELS[: len(commands)]
    begin = time.perf_counter()
    await asyncio.gather(*(reader.choose(Choose(one, labels, desk.reader.adapter)) for one in reading))
    read = sum(map(reader.prompt_tokens, reading)) / (time.perf_counter() - begin)
    begin = time.perf_counter()
    replies = await asyncio.gather(*(model.generate(Generate(one, budget, 0.0, 0)) for one in writing))
    prompts = sum(map(model.prompt_tokens, writing)) / read
    spent = time.perf_counter() - begin
    # Reading its prompts is part of a write's time; where that was all of it, writing cost next to nothing.
    return read, max(sum(reply.tokens for reply in replies), 1) / max(spent - prompts, 0.05 * spent)


def _bare(model: Model) -> Model:
    return model.model if isinstance(model, CachedModel) else model
