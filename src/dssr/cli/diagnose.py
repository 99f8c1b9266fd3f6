"""`dssr demo · diagnose · evaluate · plan · lag`: is it the budget or the writer that loses what matters?"""

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from dssr.cli import options
from dssr.cli.options import emit, flag, progress, say, tell, with_bounds
from dssr.errors import ModelError, UsageError
from dssr.types import Split, Workers

if TYPE_CHECKING:
    from dssr.measure.study import Study
    from dssr.record.run import Run

SplitOption = Annotated[Split, typer.Option("--split", help="Which games; test is sealed, see `dssr evaluate`.")]
PlannedSplit = Annotated[Literal["train", "valid"], typer.Option("--split", help="Which games.")]
Rate = Annotated[float | None, typer.Option(min=0.001, help="Tokens per second.")]
Price = Annotated[float | None, typer.Option(min=0, help="Cost per million tokens.")]
Calibrate = Annotated[bool, flag("--calibrate", help="Load the model and time a few calls instead of giving rates.")]
DEMO_MEMORIES = ("full", "summary", "guide")
DEMO_FILLERS = (0, 20)
MOST_CAUSES = 8
"""Different failures that are told in full."""


def register(app: typer.Typer) -> None:
    """Add the commands of this file to the program."""
    for command in (demo, diagnose, evaluate, plan, lag):
        app.command(command.__name__)(command)


def demo(
    config: options.Config = "demo",
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the demo's run and report.")] = Path("runs"),
    workers: options.Workers = None,
    ray: options.Ray = None,
) -> None:
    """Diagnose three memories with two fillers on the six games that are shipped, and write the page."""
    import msgspec

    import dssr
    from dssr.measure.study import Study
    from dssr.reports.write import report

    settings = msgspec.structs.replace(dssr.load(config), games=dssr.load("demo").games)
    place = out / settings.name
    budget = settings.agent.budgets[len(settings.agent.budgets) // 2]
    if (place / "summary.json").exists():
        say(f"{place} is there already; showing it again (delete it to run anew)")
        study = Study.load([place])
    else:
        with progress() as told:
            asked = (settings, DEMO_MEMORIES, [budget], DEMO_FILLERS)
            study = dssr.diagnose(
                *asked, lag=True, out=place, resume=place.exists(), workers=Workers(workers, ray), progress=told
            )
    show(study)
    made = report(study, out=out / f"{settings.name}-report", forms=["page"])
    tell(f"page: {made.page}  (open it in a browser)")


def diagnose(
    config: options.Config = options.DEFAULT_CONFIG,
    memory: options.Memories = None,
    budget: options.Budgets = None,
    filler: options.Fillers = None,
    games: options.Games = None,
    split: SplitOption = "valid",
    lag: options.Lag = False,
    out: options.Out = None,
    resume: options.Resume = False,
    workers: options.Workers = None,
    ray: options.Ray = None,
    as_json: options.Json = False,
) -> None:
    """Play and audit memories × budgets × fillers, and say what loses: the budget or the writer."""
    from dssr.measure.diagnose import diagnose as work

    with progress(as_json) as told:
        asked = (config, memory or (), budget or (), filler or ())
        study = work(
            *asked,
            games=games,
            split=split,
            lag=lag,
            out=out,
            resume=resume,
            workers=Workers(workers, ray),
            progress=told,
        )
    show(study, as_json)


def evaluate(
    config: options.Config = options.DEFAULT_CONFIG,
    memory: options.Memories = None,
    budget: options.Budgets = None,
    filler: options.Fillers = None,
    lag: options.Lag = False,
    out: options.Out = None,
    resume: options.Resume = False,
    workers: options.Workers = None,
    ray: options.Ray = None,
    as_json: options.Json = False,
) -> None:
    """Diagnose on the test games, which open once for each run approved with `dssr gates approve`."""
    diagnose(config, memory, budget, filler, None, "test", lag, out, resume, workers, ray, as_json)


def plan(
    config: options.Config = options.DEFAULT_CONFIG,
    memory: options.Memories = None,
    budget: options.Budgets = None,
    filler: options.Fillers = None,
    games: options.Games = None,
    split: PlannedSplit = "valid",
    lag: options.Lag = False,
    read_rate: Rate = None,
    write_rate: Rate = None,
    price_in: Price = None,
    price_out: Price = None,
    calibrate: Calibrate = False,
    workers: options.Workers = None,
    as_json: options.Json = False,
) -> None:
    """Count the calls and tokens of a diagnosis; with rates or prices also hours or cost, for so many workers."""
    import msgspec

    from dssr.measure.plan import Rates, duration
    from dssr.measure.plan import plan as count

    if (read_rate is None) != (write_rate is None) or (price_in is None) != (price_out is None):
        raise UsageError("Rates and prices come in pairs: give both --read-rate and --write-rate, or both prices.")
    asked = (config, memory or (), budget or (), filler or ())
    rates = Rates(read_rate, write_rate, price_in, price_out)
    found = count(*asked, games=games, split=split, lag=lag, rates=rates, calibrate=calibrate, workers=workers or 1)
    rows, total = [msgspec.to_builtins(load) for load in found.loads], found.total
    timed = ("hours", "most_hours")  # told below, in units that people use
    if as_json:
        shared = msgspec.to_builtins(found.shared)
        emit({"episodes": found.episodes, "work": rows, "total": total, "shared": shared}, True)
        return
    lines = [*rows, {"work": "total", **{name: total[name] for name in rows[0] if name != "work"}}]
    emit([{name: value for name, value in line.items() if name not in timed} for line in lines])
    tell(f"{found.episodes} episodes; “most” is for episodes that all run to their limit.")
    if total["hours"] is not None and total["most_hours"] is not None:
        tell(f"time: {duration(total['hours'])} to {duration(total['most_hours'])}")
    if found.shared is not None:
        one = found.shared
        sharing = "1 worker" if one.workers == 1 else f"{one.workers} workers"
        tell(
            f"with {sharing}: {duration(one.hours)}, {100 * one.efficiency:.0f} % of it computing; longest are "
            f"{one.bottleneck}; more than {one.useful} would wait for the largest shard"
        )
    if total["cost"] is not None:
        tell(f"cost: {total['cost']:.2f} to {total['most_cost']:.2f} in the currency of the prices")


def lag(
    run: options.Run,
    out: options.Out = None,
    resume: options.Resume = False,
    workers: options.Workers = None,
    ray: options.Ray = None,
    as_json: options.Json = False,
) -> None:
    """Leave one chunk of history out at a time, and find how long ago each decision's fact was seen.

    A finished run is never changed: the lags go into a run of their own, by default RUN-lag.
    """
    from dssr.measure.diagnose import lag as work

    with progress(as_json) as told:
        study = work(run, out=out, resume=resume, workers=Workers(workers, ray), progress=told)
    made = study.runs[-1]
    summary = made.summary or {}
    if as_json:
        emit({"run": str(made.path), **summary}, True)
        return
    threshold = made.config.measure.lag_threshold
    emit(at_threshold(summary["chunks"], threshold), title="the chunk that decisions hang on")
    emit(at_threshold(summary["bins"], threshold), title="regret by relevance lag", names=3)
    tell(f"A decision hangs on a chunk whose removal costs it {threshold:g} nats or more.")
    tell(f"run: {made.path}; at other thresholds too: dssr report {run} {made.path}")


def at_threshold(rows: list[dict[str, Any]], threshold: float) -> list[dict[str, Any]]:
    """The rows of one threshold; what all rows have in common, and shares as fractions, are for programs."""
    kept = [{name: value for name, value in row.items() if name != "threshold"} for row in rows]
    kept = [row for row, whole in zip(kept, rows, strict=True) if whole["threshold"] == threshold]
    if len({row.get("protocol") for row in kept}) == 1:
        kept = [{name: value for name, value in row.items() if name != "protocol"} for row in kept]
    return [row | {"share": f"{100 * row['share']:.1f} %"} if "share" in row else row for row in kept]


def show(study: "Study", as_json: bool = False) -> None:
    """The grid and the answers of a diagnosis; a diagnosis in which nothing worked is an error."""
    run = study.runs[0]
    summary: dict[str, Any] = run.summary or {}
    if as_json:
        emit({"run": str(run.path), **summary}, True)
    else:
        losses = {"delta": "δ", "beta": "β", "kappa": "κ"}
        names = {"memory": "memory", "budget": "B", "filler": "F'", "games": "games"}
        emit(
            [
                {shown: row[name] for name, shown in names.items()}
                | {"success %": with_bounds(row, "success", "percent")}
                | {shown: with_bounds(row, name) for name, shown in losses.items()}
                for row in summary["cells"]
            ],
            names=3,
        )
        for row in summary["answers"]:
            tell(row["sentence"])
        for cause, count in causes(run):
            tell(f"{count} × {cause}")
        tell(f"run: {run.path}; page and tables: dssr report {run.path}; its episodes: dssr episodes {run.path}")
    if summary["errors"] == summary["episodes"]:
        raise ModelError(f"Every episode failed, so {run.path} measures nothing.")
    if summary["errors"] or summary["problems"]:
        raise ModelError(
            f"{summary['errors']} of {summary['episodes']} episodes failed and {summary['problems']} could not be "
            "audited; none of them counts."
        )


def causes(run: "Run") -> list[tuple[str, int]]:
    """What failed episodes and measurements said, the most frequent first."""
    from dssr.measure.study import Problem
    from dssr.types import Episode

    said = [episode.error for episode in run.read("episodes", Episode) if episode.error is not None]
    return Counter([*said, *(problem.error for problem in run.read("problems", Problem))]).most_common(MOST_CAUSES)
