"""A made-up but type-correct run, written through the real `Run`, for tests that need many episodes at once."""

import math
from collections.abc import Iterator
from pathlib import Path
from random import Random

import msgspec

from dssr.config import AgentConfig, Config, MeasureConfig, ModelConfig, StatsConfig
from dssr.record.run import Run
from dssr.seeds import digest_of, rng_of
from dssr.types import (
    Audit,
    Cell,
    Chunk,
    Decision,
    Episode,
    Job,
    Kind,
    Lag,
    Options,
    Protocol,
    Split,
    Step,
    Write,
)
from dssr.worlds.cooking import recipe as words

FOODS = ("carrot", "pork chop", "red onion", "yellow potato", "salmon", "banana", "lettuce")
ROOMS = ("kitchen", "pantry", "garden", "corridor", "livingroom", "bedroom")
VERBS = (("slice", "chop", "dice"), ("fry", "roast", "grill"))
KEEP = {"full": 1.0, "oracle-b": 1.0, "lastk": 0.6, "summary": 0.93, "slots": 0.9, "belief": 0.95, "guide": 0.97}
EXPLORED = 14
NASTY = "</script><script>document.title='broken'</script><img src=x onerror=alert(1)> & \"quoted\" \u2028 é 🍳"
"""Put into one state of every run: a page that trusts its texts breaks on it."""


def make_run(
    path: Path,
    games: int = 4,
    memories: tuple[str, ...] = ("full", "oracle-b", "summary", "guide"),
    budgets: tuple[int, ...] = (64, 128),
    fillers: tuple[int, ...] = (0, 20),
    errors: int = 0,
    audited: bool = True,
    first_game: int = 0,
    level: float = 0.95,
    reader: str | None = None,
    split: Split = "valid",
    lags: bool = False,
    protocol: Protocol = "post",
) -> Path:
    """Write a finished run and return its directory. The first `errors` episodes of the last memory fail."""
    config = Config(name="synthetic", stats=StatsConfig(resamples=500, level=level), measure=MeasureConfig(points=6))
    if reader is not None:
        model = ModelConfig(backend="scripted", path=reader, adapters={"reader": "there"})
        agent = AgentConfig(reader_adapter="reader", budget_tokenizer=config.counts_with)
        config = msgspec.structs.replace(config, reader_model=model, agent=agent)
    names = [f"{split}-6-{number:03d}" for number in range(first_game, first_game + games)]
    left = errors
    with Run.start(
        path, command="diagnose", config=config, models={"writer": "made", "reader": reader or "made"}
    ) as run:
        every = list(_cells(memories, budgets, fillers, protocol))
        for cell in every:
            for game in names:
                failed = left > 0 and cell.memory == memories[-1]
                left -= failed
                _store(run, Job(game, cell, 0, 0.0, 0.0, "reader"), failed, audited, lags)
        run.finish({"episodes": games * len(every)})
    return path


def _cells(
    memories: tuple[str, ...], budgets: tuple[int, ...], fillers: tuple[int, ...], protocol: Protocol
) -> Iterator[Cell]:
    for memory in memories:
        for budget in (None,) if memory == "full" else budgets:
            for filler in fillers:
                yield Cell(memory, budget, filler, protocol)


def _store(run: Run, job: Job, failed: bool, audited: bool, lags: bool) -> None:
    place = () if job.cell.protocol == "post" else (job.cell.protocol,)
    key = digest_of("synthetic", job.game, job.cell.memory, job.cell.budget, job.cell.filler, *place)
    rng, world = rng_of(key), rng_of(job.game)
    directives = [
        f"{world.choice(verbs)} the {food}"
        for food in world.sample(FOODS, 3)
        for verbs in VERBS
        if world.random() < 0.8
    ] or ["slice the carrot"]
    steps, won = _steps(job, directives, rng, world)
    reveal, begin = EXPLORED, EXPLORED + job.cell.filler
    if failed:
        steps = steps[: begin + 2]
    episode = Episode(
        key=key,
        job=job,
        split="test" if job.game.startswith("test") else "valid",
        level=6,
        outcome="error" if failed else "won" if won else "lost",
        score=11 if won else rng.randrange(8),
        max_score=11,
        steps=len(steps),
        reveal=reveal,
        begin=begin,
        truncations=0,
        error="the model answered with nothing" if failed else None,
    )
    run.extend("steps", [(f"{key}:{step.index:04d}", step) for step in steps])
    if audited and not failed and job.cell.memory != "full":
        decided = [step for step in steps if step.decision is not None]
        points = sorted(rng.sample(decided, min(6, len(decided))), key=lambda step: step.index)
        run.extend("audits", [(f"{key}:{s.index:04d}", _audit(key, s, reveal, directives, rng)) for s in points])
        if lags:
            chunks = (Chunk("cookbook", reveal, reveal), Chunk("visit", 0, reveal - 1))
            found = [(s.index, Lag(key, s.index, 0.1, chunks, (1.0 + rng.random(), 0.2))) for s in points]
            run.extend("lags", [(f"{key}:{index:04d}", lag) for index, lag in found])
    run.append("episodes", key, episode)


def _audit(key: str, step: Step, reveal: int, directives: list[str], rng: Random) -> Audit:
    kept = sum(one in step.write.state for one in directives) / len(directives)
    assert step.decision is not None
    assert step.decision.nll is not None
    full = abs(rng.gauss(0.1, 0.05))
    return Audit(
        episode=key,
        step=step.index,
        rewrites=step.index - reveal,
        nll_state=step.decision.nll,
        nll_full=full,
        nll_oracle=full + abs(rng.gauss(0.2, 0.15)),
        oracle_state="Recipe: " + "; ".join(directives),
        coverage=kept,
    )


def _steps(job: Job, directives: list[str], rng: Random, world: Random) -> tuple[list[Step], bool]:
    steps: list[Step] = []
    held: list[str] = []
    walk = [world.choice(ROOMS) for _ in range(EXPLORED + 60)]
    begin = EXPLORED + job.cell.filler
    keep = 1 - (1 - KEEP.get(job.cell.memory, 0.9)) * (128 / (job.cell.budget or 128))
    todo = list(directives)
    won, actions = True, len(directives) + 4
    for index in range(begin + actions + 1):
        kind: Kind = (
            "start" if index == 0 else "explore" if index < EXPLORED else "reveal" if index == EXPLORED else "filler"
        )
        kind = "act" if index > begin else kind
        room = "kitchen" if index in (EXPLORED, begin) else walk[index % len(walk)]
        seen = _observation(room, directives if index == EXPLORED else None)
        held = list(directives) if index == EXPLORED else [one for one in held if rng.random() < keep]
        last = index == begin + actions
        write = (
            _write(job.cell.memory, room, held, index, rng)
            if not last
            else Write("", 0, 0, False, "the episode is over")
        )
        decision = None
        if index >= begin and not last:
            reference = _command(todo.pop(0)) if todo else "prepare meal"
            decision = _decision(
                reference, sum(one in write.state for one in directives) / len(directives), job, index, rng
            )
            won = won and decision.action == reference
        action = None if index == 0 else steps[-1].decision.action if steps[-1].decision else f"go to {room}"
        steps.append(Step(index, kind, index, room, action, seen, write, decision))
    return steps, won


def _command(directive: str) -> str:
    verb, _, food = directive.partition(" the ")
    return f"{words.VERBS[verb].command} {food} with {words.VERBS[verb].tool}"


def _observation(room: str, recipe: list[str] | None) -> str:
    if recipe is None:
        return f"-= {room.title()} =-\nYou see a table, a shelf and an exit to the north.\n\nYou carry nothing."
    listed = "".join(f"\n  {one}" for one in recipe)
    foods = "".join(f"\n  {one}" for one in dict.fromkeys(line.partition(" the ")[2] for line in recipe))
    return f"You open the cookbook.\n\nIngredients:{foods}\n\nDirections:{listed}\n  prepare meal\n\nYou carry nothing."


def _write(memory: str, room: str, held: list[str], index: int, rng: Random) -> Write:
    if memory == "full":
        return Write("", 0, 0, False, "the context is the history itself")
    rumour = rng.choice(("The fridge is open.", "A knife lies on the counter.", "The door to the garden is closed."))
    nasty = f" {NASTY}" if index == 3 else ""
    recipe = f" Recipe: {'; '.join(held)}." if held else ""
    state = f"At step {index} in the {room}.{recipe} {rumour} North lies the corridor, east the pantry.{nasty}"
    return Write(state, len(state.split()), len(state.split()) + rng.randrange(9), False, None)


def _decision(reference: str, kept: float, job: Job, index: int, rng: Random) -> Decision:
    others = ["go north", "take knife", "open fridge", "drop knife", "go east"]
    commands = [reference, *others]
    rng.shuffle(commands)
    strength = 3.5 if job.cell.memory == "full" else 4 * kept - 0.3
    weights = [
        math.exp(strength + rng.gauss(0, 0.4)) if one == reference else math.exp(rng.gauss(0, 0.6)) for one in commands
    ]
    total = sum(weights)
    logprobs = tuple(math.log(one / total) for one in weights)
    best = commands[max(range(len(commands)), key=logprobs.__getitem__)]
    return Decision(
        options=Options(tuple(commands), reference, False, 0),
        logprobs=logprobs,
        action=best,
        argmax=best,
        nll=-logprobs[commands.index(reference)],
        tie=None if best == reference else False,
    )
