"""Small logs, and models that read them by simple rules."""

import asyncio
from collections.abc import Sequence
from typing import Any

from dssr.agent.memory import Kit
from dssr.config import AgentConfig, Config, MeasureConfig, ModelConfig, StatsConfig
from dssr.measure.log_audit import Schedule
from dssr.measure.logs import Sources, _asked, audit_logs
from dssr.measure.study import Study
from dssr.models.base import Choose, Chosen, Generate, Generated, Likelihood, Model, TokenScores
from dssr.models.scripted import ScriptedModel
from dssr.seeds import rng_of
from dssr.session import Session
from dssr.traces.trace import Redactor, Trace, TraceArchive, TraceDecision, TraceStep
from dssr.types import View

CONFIG = Config(
    name="logs",
    cache_gib=0,
    writer_model=ModelConfig(backend="scripted", path="scripted", context_length=65536),
    agent=AgentConfig(budgets=(400,)),
    measure=MeasureConfig(points=6, oracle_samples=2),
    stats=StatsConfig(resamples=500),
)


def made_trace(number: int, seen: int, tidy: int, used: int, steps: int = 12) -> Trace:
    """A log in which step `seen` shows a file, step `tidy` asks to clear up, and the decision of step `used` needs the
    file and nothing else does."""
    rng = rng_of("log", number)
    value = f"src/part_{rng.randrange(1000, 9999)}/mod_{rng.randrange(100, 999)}.py"
    found: list[TraceStep] = []
    for index in range(steps):
        text = f"Nothing new at this stop, number {rng.randrange(10)}."
        if index == seen:
            text = f"The broken file is {value} and no other."
        if index == tidy:
            text = "Please tidy up."
        action = None if index == 0 else f"look around {index}"
        then = f"open {value}" if index == used else f"look around {index + 1}"
        if index == used + 1:
            action = f"open {value}"
        found.append(TraceStep(action, text, TraceDecision(then) if index < steps - 1 else None))
    return Trace(f"log-{number}", "Mend what is broken.", tuple(found))


class Hoarder:
    """A memory that keeps every line it saw."""

    def __init__(self, kit: Kit) -> None:
        self.kit = kit

    async def write(self, view: View, previous: str) -> str:
        return "\n".join(line for line in (previous, f"> {view.last_action}", view.observation) if line)


class Tidier(Hoarder):
    """The same, but it forgets every file when it is asked to tidy up."""

    async def write(self, view: View, previous: str) -> str:
        kept = await super().write(view, previous)
        if "tidy up" not in view.observation:
            return kept
        return "\n".join(line for line in kept.split("\n") if ".py" not in line)


class Copyist(ScriptedModel):
    """Writes down all that it is shown, and finds likely what stands in its prompt, give or take some noise."""

    def __init__(self, noise: float = 0.0, blind: bool = False) -> None:
        super().__init__(1.0, 65536)
        self.noise, self.blind = noise, blind
        self.seen: list[str] = []

    def fingerprint(self, adapter: str | None = None) -> str:
        return f"copyist {self.noise} {self.blind}"

    async def generate(self, request: Generate) -> Generated:
        text = request.messages[-1].content
        self.seen.append(text)
        kept = text.partition("New observation:\n")[2]
        return Generated(kept, len(self.tokenizer.encode(kept)))

    async def choose(self, request: Choose) -> Chosen:
        self.seen.append(request.messages[-1].content)
        return await super().choose(request)

    async def likelihood(self, request: Likelihood) -> TokenScores:
        text = request.messages[-1].content
        self.seen.append(text)
        rng = rng_of("noise", text, request.reply)
        if self.blind:
            before, _, rest = text.partition("<CONTEXT>")
            blinded = before + rest.partition("</CONTEXT>")[2]
            request = Likelihood((*request.messages[:-1], type(request.messages[-1])("user", blinded)), request.reply)
        plain = await super().likelihood(request)
        shaken = tuple(min(-0.001, value + self.noise * rng.gauss(0, 1)) for value in plain.logprobs)
        return TokenScores(plain.starts, shaken, plain.best)


def run_audit(
    traces: Any, folder: Any, model: Model, memories: Sequence[str], budgets: Sequence[int] = (400,), **ask: Any
) -> Study:
    """An audit with a model of one's own."""
    schedule = Schedule(ask.pop("every", 1), ask.pop("over", None))
    sources = Sources(traces, Redactor(ask.pop("redact", ())))
    config = ask.pop("config", CONFIG)
    settings, grid = _asked(
        sources, config, memories, budgets, schedule, ask.pop("loss", None), ask.pop("fitting", False)
    )

    async def go() -> None:
        async with Session(
            settings, archive=TraceArchive(sources.outline.digests, folder), models=(model, model)
        ) as session:
            await audit_logs(session, sources, grid, folder, **ask)

    asyncio.run(go())
    return Study.load([folder])
