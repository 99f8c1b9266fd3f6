"""What the whole study will take, counted on a few games before anything starts."""

from pathlib import Path

import msgspec

from dssr.agent.episode import Agent
from dssr.agent.memory import FULL
from dssr.config import Config
from dssr.measure.plan import Load, Rates, grid_of, jobs_of, measured_rates, plan_grid, totals
from dssr.measure.rows import BASE
from dssr.session import Session, verb
from dssr.studies.stages import LINES, METHOD, STAGES
from dssr.studies.study import Asked, WholeStudy
from dssr.training.forecast import forecast
from dssr.training.line import Line, line_folder
from dssr.training.lines import span_of
from dssr.training.variants import variant_of
from dssr.types import Record

FEW = 2
"""Games per level on which a plan is counted."""
STEP_BYTES, CALL_BYTES = 2_600, 700
"""Disk of one step of an episode, and of one stored answer."""
STEPS = 45
"""Steps of an episode, for the disk alone."""


class StagePlan(Record, frozen=True):
    """What a stage will take."""

    stage: str
    episodes: int
    calls: int
    tokens_in: int
    tokens_out: int
    hours: float | None
    """On one worker; None where no rate is known."""
    gib: float
    """Disk for runs and stored answers."""


@verb
async def study_plan(
    config: Config | str = "nano", *, out: str | Path | None = None, calibrate: bool = True
) -> list[StagePlan]:
    """What every stage will take, counted on a few games of the archive; with `calibrate`, hours from timed calls."""
    return await planned(WholeStudy(STAGES, config, out), calibrate)


async def planned(study: WholeStudy, calibrate: bool) -> list[StagePlan]:
    """Every stage, counted on a few games; nothing is played and test games stay shut."""
    async with Session(study.config, bare_reader=True) as session:
        agent = session.agent()
        few = grid_of(study.config, session.archive, [BASE], [study.config.gates.budget], games=FEW)
        rates = Rates(*await measured_rates(few, study.config, agent)) if calibrate else Rates()
        found = []
        for name, asked in _expected(study).items():
            loads: list[Load] = []
            episodes = 0
            for one in asked:
                grid = grid_of(one.config, session.archive, one.memories, one.budgets, one.fillers, FEW, lag=one.lag)
                of = _games_of(session, one)
                scale = of / len(grid.games)
                loads += [_scaled(load, scale) for load in plan_grid(grid, one.config, agent)]
                episodes += round(len(jobs_of(grid, one.config)) * scale)
            found.append(_stage_plan(name, episodes, loads, rates))
        found.append(_lines(study, agent, rates))
    order = list(study.stages)
    return sorted(found, key=lambda one: order.index(one.stage))


def _expected(study: WholeStudy) -> dict[str, list[Asked]]:
    """The diagnoses of every stage; a writer that is not trained yet costs what the untrained one costs."""
    gates, sizes, fillers = study.config.gates, study.config.study, study.config.protocol.fillers
    seeds, wide = study.config.writer.seeds, sizes.wide_test_games
    writers = seeds + len([name for name in study.variants if name not in METHOD])
    judged = Asked("test", study.config, (FULL, *gates.formats, "guide"), (gates.budget,), fillers, split="test")
    trained = [Asked("test", study.config, (BASE,), (gates.budget,), fillers, split="test")] * writers
    frontier = tuple(size for size in study.config.agent.budgets if size != gates.budget)
    edge = [Asked("frontier", study.config, (BASE,), frontier, fillers, wide, "test")] * (2 + seeds if frontier else 0)
    other = [Asked("r2", study.config, (BASE,), (gates.budget,), fillers, split="test")] * (2 + seeds)
    walks = [Asked("walks", study.config, (BASE,), (gates.budget,), sizes.walks, sizes.walk_games)] * (1 + seeds)
    accept = [Asked("accept", study.config, (FULL,), (gates.budget,), (0,))] * (2 if study.second else 1)
    return {
        "accept": accept,
        "grid": [study.grid()],
        "lag": [study.lag()],
        "pilot": study.pilot(),
        "walks": walks,
        "test": [judged, *trained, *(edge if frontier else []), *(other if study.second else [])],
    }


def _games_of(session: Session, asked: Asked) -> int:
    per_level = [len(session.archive.games(asked.split, level)) for level in asked.config.games.levels]
    return sum(min(count, asked.games or count) for count in per_level)


def _lines(study: WholeStudy, agent: Agent, rates: Rates) -> StagePlan:
    """The main line's rounds, and of every other variant what its way of training adds."""
    hours = 0.0
    loads: list[Load] = []
    for name in study.variants:
        line = Line(study.config, name, 0, line_folder(study.out / LINES, name, 0))
        span = span_of(None, study.config, variant_of(name, study.config.writer).first)
        found = forecast(line, span, agent, (rates.read or 1.0, rates.write or 1.0))
        hours += found.hours
        loads += found.loads
    plan = _stage_plan("lines", 0, loads, Rates())
    return msgspec.structs.replace(plan, hours=hours if rates.read else None)


def _scaled(load: Load, scale: float) -> Load:
    numbers = {name: round(value * scale) for name, value in msgspec.structs.asdict(load).items() if name != "work"}
    return Load(load.work, **numbers)


def _stage_plan(name: str, episodes: int, loads: list[Load], rates: Rates) -> StagePlan:
    total = totals(loads, rates)
    calls = round(total["new_calls"] or 0)
    return StagePlan(
        stage=name,
        episodes=episodes,
        calls=calls,
        tokens_in=round(total["tokens_in"] or 0),
        tokens_out=round(total["tokens_out"] or 0),
        hours=total["hours"],
        gib=(episodes * STEPS * STEP_BYTES + calls * CALL_BYTES) / 2**30,
    )
