"""`dssr demo · diagnose · evaluate · plan · lag · audit`: is it the budget or the writer that loses what matters?"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from dssr.cli import options
from dssr.cli.show import emit, progress, say, with_bounds
from dssr.errors import ModelError, UsageError
from dssr.types import Split

if TYPE_CHECKING:
    from dssr.measure.study import Study

SplitOption = Annotated[Split, typer.Option("--split", help="Which games; test is sealed, see `dssr evaluate`.")]
PlannedSplit = Annotated[Literal["train", "valid"], typer.Option("--split", help="Which games.")]
Rate = Annotated[float | None, typer.Option(min=0.001, help="Tokens per second.")]
Price = Annotated[float | None, typer.Option(min=0, help="Cost per million tokens.")]
Calibrate = Annotated[
    bool, typer.Option("--calibrate", help="Load the model and time a few calls instead of giving rates.")
]
DEMO_MEMORIES = ("full", "summary", "guide")
DEMO_FILLERS = (0, 20)


def register(app: typer.Typer) -> None:
    """Add the commands of this file to the program."""
    for command in (demo, diagnose, evaluate, plan, lag, audit):
        app.command(command.__name__)(command)


def demo(
    config: options.Config = options.DEFAULT_CONFIG,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the demo's run and report.")] = Path("runs/demo"),
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
            study = dssr.diagnose(*asked, lag=True, out=place, resume=place.exists(), progress=told)
    show(study)
    made = report(study, out=out / f"{settings.name}-report", forms=["page"])
    typer.echo(f"page: {made.page}  (open it in a browser)")


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
    as_json: options.Json = False,
) -> None:
    """Play and audit memories × budgets × fillers, and say what loses: the budget or the writer."""
    from dssr.measure.diagnose import diagnose as work

    with progress(as_json) as told:
        asked = (config, memory or (), budget or (), filler or ())
        study = work(*asked, games=games, split=split, lag=lag, out=out, resume=resume, progress=told)
    show(study, as_json)


def evaluate(
    config: options.Config = options.DEFAULT_CONFIG,
    memory: options.Memories = None,
    budget: options.Budgets = None,
    filler: options.Fillers = None,
    lag: options.Lag = False,
    out: options.Out = None,
    resume: options.Resume = False,
    as_json: options.Json = False,
) -> None:
    """Diagnose on the test games, which open once for each run approved with `dssr gates approve`."""
    diagnose(config, memory, budget, filler, None, "test", lag, out, resume, as_json)


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
    as_json: options.Json = False,
) -> None:
    """Count the calls and tokens of a diagnosis; with rates or prices also hours or cost."""
    import msgspec

    from dssr.measure.plan import Rates
    from dssr.measure.plan import plan as count

    if (read_rate is None) != (write_rate is None) or (price_in is None) != (price_out is None):
        raise UsageError("Rates and prices come in pairs: give both --read-rate and --write-rate, or both prices.")
    asked = (config, memory or (), budget or (), filler or ())
    rates = Rates(read_rate, write_rate, price_in, price_out)
    found = count(*asked, games=games, split=split, lag=lag, rates=rates, calibrate=calibrate)
    rows, total = [msgspec.to_builtins(load) for load in found.loads], found.total
    if as_json:
        emit({"episodes": found.episodes, "work": rows, "total": total}, True)
        return
    emit([*rows, {"work": "total", **{name: total[name] for name in rows[0] if name != "work"}}])
    typer.echo(f"{found.episodes} episodes; the second figures are for episodes that all run to their limit.")
    for name, unit in (("hours", "hours"), ("cost", "in the currency of the prices")):
        if total[name] is not None:
            typer.echo(f"{name}: {total[name]:.3g} to {total[f'most_{name}']:.3g} {unit}")


def lag(
    run: options.Run, out: options.Out = None, resume: options.Resume = False, as_json: options.Json = False
) -> None:
    """Leave one chunk of history out at a time, and find how long ago each decision's fact was seen.

    A finished run is never changed: the lags go into a run of their own, by default RUN-lag.
    """
    from dssr.measure.episodes import lag as work

    with progress(as_json) as told:
        study = work(run, out=out, resume=resume, progress=told)
    made = study.runs[-1]
    summary = made.summary or {}
    if as_json:
        emit({"run": str(made.path), **summary}, True)
        return
    emit(summary["chunks"], title="the chunk that decisions hang on")
    emit(summary["bins"], title="regret by relevance lag")
    typer.echo(f"run: {made.path}")


def audit(
    run: options.Run, out: options.Out = None, resume: options.Resume = False, as_json: options.Json = False
) -> None:
    """Audit stored episodes that nobody audited when they were played, such as those of a training round.

    A finished run is never changed: the audits go into a run of their own, by default RUN-audit.
    """
    from dssr.measure.episodes import audit as work

    with progress(as_json) as told:
        study = work(run, out=out, resume=resume, progress=told)
    made = study.runs[-1]
    emit({"run": str(made.path), **(made.summary or {})}, as_json)


def show(study: "Study", as_json: bool = False) -> None:
    """The grid and the answers of a diagnosis; a diagnosis in which nothing worked is an error."""
    run = study.runs[0]
    summary: dict[str, Any] = run.summary or {}
    if as_json:
        emit({"run": str(run.path), **summary}, True)
    else:
        quantities = {"success": "success", "delta": "δ", "beta": "β", "kappa": "κ"}
        names = {"memory": "memory", "budget": "B", "filler": "F'", "games": "games"}
        emit(
            [
                {shown: row[name] for name, shown in names.items()}
                | {shown: with_bounds(row, name) for name, shown in quantities.items()}
                for row in summary["cells"]
            ]
        )
        for row in summary["answers"]:
            typer.echo(row["sentence"])
        if summary["errors"] or summary["problems"]:
            failed = f"{summary['errors']} episodes failed and {summary['problems']} could not be audited"
            typer.echo(f"{failed}; none counts.")
        typer.echo(f"run: {run.path}")
    if summary["errors"] == summary["episodes"]:
        raise ModelError(f"Every episode failed, so {run.path} measures nothing; its episodes.jsonl says why.")
