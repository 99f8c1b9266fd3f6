"""Runs made of numbers: a test says what each game of each cell was worth, and gets a finished run of that."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from dssr.config import Config
from dssr.record.run import Run
from dssr.seeds import digest_of
from dssr.types import Audit, Cell, Chunk, Decision, Episode, Job, Kind, Lag, Options, Outcome, Record, Step, Write

REVEAL = 2
RECIPE = "You open the cookbook.\n\nIngredients:\n  carrot\n\nDirections:\n  slice the carrot\n  prepare meal"


class Point(Record, frozen=True):
    """One audited decision."""

    kappa: float
    rewrites: int = 0
    beta: float = 0.0
    full: float = 0.0
    lag: int | None = None
    """Of a decision whose lag was measured; 0 is one that hangs on nothing."""


class Result(Record, frozen=True):
    """What one game of one cell was worth."""

    won: bool | None = False
    """None for an episode that broke."""
    points: tuple[Point, ...] = ()
    walk: tuple[str, ...] = ()
    """Observations of the filler walk."""
    states: tuple[str, ...] = ()
    """What the writer wrote at the reveal, at each step of the walk and at the first decision."""
    ties: tuple[bool, ...] = ()
    """Decisions where the reader did not choose the reference action, and whether its choice was as good."""


def won(games: int, of: int) -> dict[str, Result]:
    """So many games won, the first ones."""
    return {f"valid-6-{number:03d}": Result(number < games) for number in range(of)}


def make_run(path: Path, config: Config, cells: Mapping[Cell, Mapping[str, Result]]) -> Run:
    """Write the run and open it for reading."""
    with Run.start(path, command="diagnose", config=config, models={}) as run:
        for cell, games in cells.items():
            for game, found in games.items():
                _store(run, Job(game, cell, 0, 0.0, 0.0, "reader"), found)
        run.finish({})
    return Run.open(path)


def _store(run: Run, job: Job, found: Result) -> None:
    key = digest_of(job)
    begin = REVEAL + 1 + len(found.walk)
    seen: list[tuple[Kind, str]] = [("start", "Here."), ("explore", "There."), ("reveal", RECIPE)]
    seen += [("filler", text) for text in found.walk]
    steps = [_step(index, kind, text, None) for index, (kind, text) in enumerate(seen)]
    steps += [_step(begin + place, "act", "Here.", tie) for place, tie in enumerate(found.ties or (None,))]
    steps = [
        msgspec.structs.replace(step, write=Write(state, 64, 64, False, None))
        for step, state in zip(steps, ("", "", *found.states, *[""] * len(steps)), strict=False)
    ]
    run.extend("steps", [(f"{key}:{step.index:04d}", step) for step in steps])
    for place, point in enumerate(found.points):
        step = 100 + place
        oracle = point.full + point.beta
        audit = Audit(key, step, point.rewrites, oracle + point.kappa, point.full, oracle, "", None)
        run.append("audits", f"{key}:{step:04d}", audit)
        if point.lag is not None:
            last = step - point.lag
            run.append(
                "lags", f"{key}:{step:04d}", Lag(key, step, 0.0, (Chunk("visit", 0, last),), (float(point.lag > 0),))
            )
    outcome: Outcome = "error" if found.won is None else "won" if found.won else "lost"
    error = "It broke." if outcome == "error" else None
    run.append("episodes", key, Episode(key, job, "valid", 6, outcome, 11, 11, len(steps), REVEAL, begin, 0, error))


def _step(index: int, kind: Kind, text: str, tie: bool | None) -> Step:
    options = Options(("go north", "go south"), "go north", False, 0)
    chosen = "go north" if tie is None else "go south"
    decision = Decision(options, (-1.0, -0.5), chosen, chosen, 1.0, tie) if kind == "act" else None
    return Step(index, kind, index, "kitchen", None, text, Write("", 0, 0, False, None), decision)


def cells(memory: str, fillers: Sequence[int], budget: int | None = 128) -> list[Cell]:
    """The cells of a memory under the main protocol."""
    return [Cell(memory, budget, filler, "post") for filler in fillers]
