"""The whole study in one sequence: from the archive of games to the verdicts on sealed test games.

Each stage is an ordinary verb with ordinary run directories in the study's folder:

    games       the archive
    reader      R1 and R2, where the configuration trains them
    accept      whether they are good enough to measure with
    gates       the gates, written down before there are data
    grid        prompted memories × budgets × fillers
    lag         the write-time formats at the gates' budget, with the measured lag
    pilot       where the filler walk stands: before or after the reveal, with rooms printed again or not
    returns     score against return, under both orders of walk and reveal
    lines       the writer, trained in every way that is compared
    seeds       the selected round, trained with more seeds
    walks       the selected writer on a finer grid of fillers
    power       the least effect that each gate on test games could show, from the spread on validation games
    approval    the runs that may see the test games
    test        the sealed evaluation, under both readers
    verdicts    every gate judged
    report      one page for all of it

`study_plan` says what each will take, counted on a few games before anything starts.
"""

from math import sqrt
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from dssr.agent.episode import Agent
from dssr.agent.memory import FULL
from dssr.config import Config, resolved
from dssr.errors import DssrError, UsageError
from dssr.measure.archives import make_games
from dssr.measure.continuation import continuation
from dssr.measure.gates import Case, approve, checks_of, gates, judge, ledger_of, over_long
from dssr.measure.grid import grid_of, jobs_of
from dssr.measure.plan import Load, Rates, measured_rates, plan_grid, scaled, totals
from dssr.measure.rows import BASE
from dssr.measure.study import Study
from dssr.record.log import write_whole
from dssr.record.run import Run
from dssr.seeds import digest_of
from dssr.session import Session, silent, verb
from dssr.stats.bootstrap import standard_error
from dssr.studies.study import Asked, Done, StageState, StageWork, WholeStudy, under
from dssr.training.forecast import forecast
from dssr.training.line import Line, line_folder
from dssr.training.lines import Lines, span_of, train, train_seeds
from dssr.training.reader import Dagger, note_acceptance, reader_accept, reader_train
from dssr.training.results import RoundResult, best_rounds, selected
from dssr.training.round import adapter_folder
from dssr.training.variants import variant_of
from dssr.types import Progress, Protocol, Record, Workers
from dssr.worlds.archive import MANIFEST

ORDERS: tuple[Protocol, ...] = ("post", "pre")
"""Protocols under which scores are compared with returns."""
LINES = "lines"
"""Folder of the trained lines."""


@verb
async def study(
    config: Config | str = "nano",
    *,
    stage: str | None = None,
    out: str | Path | None = None,
    approval: str | None = None,
    force: bool = False,
    workers: Workers | int | None = None,
    progress: Progress = silent,
) -> list[StageState]:
    """Do all stages that are owed, or up to and including `stage`; one that was interrupted goes on where it was.

    `approval` are the words with which the test games are opened; without them the study stops before. `force` goes on
    with a reader that is not good enough, and says so in every record.
    """
    whole = WholeStudy(STAGES, config, out, approval, force, workers, progress)
    await whole.run(stage)
    return whole.states()


@verb
async def study_states(config: Config | str = "nano", *, out: str | Path | None = None) -> list[StageState]:
    """Where every stage of a study stands."""
    return WholeStudy(STAGES, config, out).states()


# ---------------------------------------------------------------- the stages


async def _games(study: WholeStudy) -> Done:
    folder = Path(study.config.data) / study.config.games.archive
    if not (folder / MANIFEST).exists():
        await make_games.aio(
            study.config,
            resume=folder.exists(),
            workers=study.workers.count if isinstance(study.workers, Workers) else study.workers,
            progress=study.progress,
        )
    archive = Session(study.config).archive
    listed = digest_of(sorted((game.id, game.md5) for game in archive.games()))
    return Done(others={"archive": listed}, facts={"games": len(archive.games())})


async def _reader(study: WholeStudy) -> Done:
    """Readers that the configurations train and do not name yet."""
    runs, facts = [], {}
    for role, config in (("r1", study.config), ("r2", study.second)):
        if config is None or not config.reader.trained or config.agent.reader_adapter is not None:
            continue
        place = study.out / f"reader-{role}"
        dagger = Dagger(config, place)
        if dagger.finished:
            adapter = dagger.adapter(config.reader.iterations)
        else:
            adapter = await reader_train.aio(config, out=place, resume=place.exists(), **study.shared)
        facts[role] = str(adapter.relative_to(study.out))
        runs += sorted(path.parent for path in place.glob("*/summary.json"))
    return Done(runs, facts=facts)


async def _accept(study: WholeStudy) -> Done:
    runs, facts = [], {}
    for role, bare in (("r1", study.config), ("r2", study.second)):
        if bare is None:
            continue
        config, place = study.reading(bare, role), study.out / f"accept-{role}"
        found = await reader_accept.aio(config, out=place, resume=place.exists(), **study.shared)
        if not found.accepted and role == "r1" and not study.force:
            raise UsageError(
                f"The reader wins {100 * found.success:.0f} % of the games with the full history, below the "
                f"{100 * found.threshold:.0f} % asked for: train a better one, or go on with --force, on the record."
            )
        runs.append(place)
        facts[role] = {"success": found.success, "accepted": found.accepted, "forced": study.force}
    return Done(runs, facts=facts)


async def _gates(study: WholeStudy) -> Done:
    entries = await gates.aio(study.config, write=True)
    return Done(others={"gates": digest_of([entry.text for entry in entries if entry.kind == "gate"])})


async def _grid(study: WholeStudy) -> Done:
    return Done([await study.diagnosed(study.grid())])


async def _lag(study: WholeStudy) -> Done:
    return Done([await study.diagnosed(one) for one in study.lag()])


async def _pilot(study: WholeStudy) -> Done:
    return Done([await study.diagnosed(one) for one in study.pilot()])


async def _returns(study: WholeStudy) -> Done:
    runs = []
    for kind in ORDERS:
        place = study.out / f"returns-{kind}"
        if not (place / "summary.json").exists():
            config = under(study.first, kind)
            await continuation.aio(config, out=place, resume=place.exists(), **study.shared)
        runs.append(place)
    return Done(runs)


async def _lines(study: WholeStudy) -> Done:
    runs, facts = [], {}
    note_acceptance(study.first, Run.open(study.out / "accept-r1"))  # in a study moved here it is not known yet
    for name in study.variants:
        place = line_folder(study.out / LINES, name, 0)
        if not (place / "summary.json").exists():
            await train.aio(
                study.first,
                name,
                out=study.out / LINES,
                force=study.force,
                resume=True,
                workers=study.workers,
                progress=study.progress,
            )
        runs.append(place)
        facts[name] = (Run.open(place).summary or {})["ended"]
    return Done(runs, facts=facts)


async def _seeds(study: WholeStudy) -> Done:
    """Select a round of the lines that are up for it, train it with more seeds, and name what goes to test."""
    lines = Lines(study.first, study.out / LINES, study.force, True, study.progress, study.workers)
    rows: list[RoundResult] = [row for name in study.variants for row in lines.results(name, 0)]
    best, titles = best_rounds(rows), {variant_of(name, study.config.writer).title: name for name in study.variants}
    chosen = selected([row for row in rows if titles.get(row.writer) in study.selectable])
    name = titles[chosen.writer]
    made = await train_seeds.aio(
        study.first,
        name,
        seeds=study.config.writer.seeds,
        out=study.out / LINES,
        force=study.force,
        resume=True,
        workers=study.workers,
        progress=study.progress,
    )
    place = line_folder(study.out / LINES, name, 0)
    adapters = {
        f"{name}/s{extra}": study.inside(adapter_folder(place, chosen.round, extra))
        for extra in range(study.config.writer.seeds)
    }
    for title, found in best.items():
        other = titles[title]
        if other != name:
            folder = adapter_folder(line_folder(study.out / LINES, other, 0), found.round)
            adapters[other] = study.inside(folder)
    one_target = f"k{study.config.writer.targets[0]}"
    wanted = {"outcome": "outcome", "one_target": one_target, "no_hint": "no-hint"}
    roles = {role: study.memory(other) for role, other in wanted.items() if other in adapters}
    facts = {
        "selected": msgspec.to_builtins(chosen),
        "adapters": adapters,
        "roles": {"dssr": study.memory(name), **roles},
        "rest": [other for other in adapters if "/" not in other and other not in wanted.values()],
        "seeds": made.memories,
    }
    return Done([Path(one) for one in made.lines[1:]], facts=facts)


async def _walks(study: WholeStudy) -> Done:
    return Done([await study.diagnosed(study.walks())])


async def _power(study: WholeStudy) -> Done:
    """What the gates on test games can detect: the spread of the finer grid, scaled to the number of test games."""
    seen = Study.load([study.out / "walks"])
    levels, archive = study.config.games.levels, Session(study.config).archive
    tested = sum(len(archive.games("test", level)) for level in levels)
    shrunk = sqrt(len(seen.games) / tested)
    dssr, long = study.roles["dssr"], over_long(seen, study.roles["dssr"], "success")
    base = over_long(seen, BASE, "success")
    columns = np.array([[values[game] for game in seen.games] for values in (long, base)])
    spread = standard_error(columns[0] - columns[1])
    least = seen.sampler.detectable(spread) if spread else None
    found: dict[str, Any] = {"games": tested, f"success({dssr}) - success({BASE})": least}
    try:
        found |= {check.what: check.detectable for check in checks_of("G2b", Case(seen, dssr=dssr)).checks}
    except DssrError as trouble:
        found["G2b"] = str(trouble)
    scaled = {what: value * shrunk if isinstance(value, float) else value for what, value in found.items()}
    return Done(facts={**scaled, "validation_games": len(seen.games)})


async def _approval(study: WholeStudy) -> Done:
    """The list of the runs that may see the test games, closed by the first of them."""
    if study.approval is None:
        runs = "; ".join(f"{one.name}: {', '.join(one.memories)}" for one in study.tests())
        raise UsageError(
            f"Everything before the test games is done. They open once, for these runs ({runs}): say who opens them "
            "and why with --approve TEXT, and start again."
        )
    made = []
    for one in study.tests():
        write_whole(study.out / f"{one.name}.toml", resolved(one.config).encode())
        asked = (study.approval, one.config, one.memories, one.budgets, one.fillers)
        made.append(await approve.aio(*asked, games=one.games))
    return Done(others={one.name: digest_of(msgspec.to_builtins(one.run)) for one in made})


async def _test(study: WholeStudy) -> Done:
    return Done([await study.diagnosed(one) for one in study.tests()])


async def _verdicts(study: WholeStudy) -> Done:
    """Every gate on its runs; one that cannot be judged says why, and the others go on."""
    grid, test = study.out / "grid", study.out / "test"
    lag = [study.out / one.name for one in study.lag()]
    second = [study.out / "test-r2"] if study.second else []
    on: dict[str, list[Path]] = {"G0": lag, "G1a": lag, "G1b": [grid], "G1c": [study.out / f"returns-{ORDERS[0]}"]}
    on |= {gate: [test] for gate in ("G2a", "G2b", "G2c", "G2d", "G2e", "plain")}
    facts: dict[str, Any] = {}
    judged = {entry.gate for entry in ledger_of(study.config).entries() if entry.kind == "verdict"}
    for gate, runs in on.items():
        if gate in judged:
            continue
        try:
            found = await judge.aio(gate, runs, study.config, roles=study.roles, second=second if gate == "G2d" else ())
            facts[gate] = "vacuous" if found.vacuous else found.passed
        except DssrError as error:
            facts[gate] = str(error)
    return Done(others={"ledger": digest_of([entry.text for entry in ledger_of(study.config).entries()])}, facts=facts)


async def _report(study: WholeStudy) -> Done:
    """The page of the whole study, from the stored runs and the ledger alone."""
    from dssr.reports.study_page import StudySources, study_report

    runs = {
        "reader": ["reader"],
        "valid": ["grid", "lag"],
        "pilot": ["pilot"],
        "continuation": ["returns"],
        "writer": ["lines", "seeds"],
        "lag-grid": ["walks"],
        "test": ["test"],
    }
    made = {part: [path for stage in stages for path in study.runs_of(stage)] for part, stages in runs.items()}
    # One table has one set of games and each cell once: the frontier has the gates' budget too, and memories that no
    # gate looks at may have fewer games.
    fewer, opened = study.config.study.wide_test_games, made.pop("test")
    apart = ["test-frontier"] if fewer is None or fewer >= study.config.games.test else ["test-wide", "test-frontier"]
    made["test"] = [path for path in opened if Path(path).name not in apart]
    made |= {name: [path for path in opened if Path(path).name == name] for name in apart}
    if study.config.study.format_games != study.config.study.wide_games:
        made |= {stage: study.runs_of(name) for stage, name in (("valid", "grid"), ("lag", "lag"))}
    sources = StudySources(study.config.name, made, str(ledger_of(study.config).path), study.roles)
    study_report(sources, study.out / "report")
    return Done(facts={"page": "report/index.html"})


STAGES: dict[str, StageWork] = {
    "games": _games,
    "reader": _reader,
    "accept": _accept,
    "gates": _gates,
    "grid": _grid,
    "lag": _lag,
    "pilot": _pilot,
    "returns": _returns,
    "lines": _lines,
    "seeds": _seeds,
    "walks": _walks,
    "power": _power,
    "approval": _approval,
    "test": _test,
    "verdicts": _verdicts,
    "report": _report,
}


# ---------------------------------------------------------------- what it will take

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
                loads += [scaled(load, scale) for load in plan_grid(grid, one.config, agent)]
                episodes += round(len(jobs_of(grid, one.config)) * scale)
            found.append(_stage_plan(name, episodes, loads, rates))
        found.append(_plan_of_lines(study, agent, rates))
    order = list(study.stages)
    return sorted(found, key=lambda one: order.index(one.stage))


def _expected(study: WholeStudy) -> dict[str, list[Asked]]:
    """The diagnoses of every stage; a writer that is not trained yet costs what the untrained one costs."""
    gates, sizes, fillers = study.config.gates, study.config.study, study.config.protocol.fillers
    seeds, wide = study.config.writer.seeds, sizes.wide_test_games
    writers = seeds + len(study.variants) - 1
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
        "lag": study.lag(),
        "pilot": study.pilot(),
        "walks": walks,
        "test": [judged, *trained, *(edge if frontier else []), *(other if study.second else [])],
    }


def _games_of(session: Session, asked: Asked) -> int:
    per_level = [len(session.archive.games(asked.split, level)) for level in asked.config.games.levels]
    return sum(min(count, asked.games or count) for count in per_level)


def _plan_of_lines(study: WholeStudy, agent: Agent, rates: Rates) -> StagePlan:
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
