"""`dssr diagnose`: play and audit a grid, and say whether the budget or the writer loses what matters."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dssr.cli.common import (
    DEFAULT_CONFIG,
    ConfigOption,
    JsonOption,
    OutOption,
    ResumeOption,
    emit,
    load_config,
    progress,
    say,
)
from dssr.config import Config
from dssr.errors import ModelError, RecordError, UsageError

if TYPE_CHECKING:
    from dssr.measure.grid import Grid
    from dssr.models.base import Model
    from dssr.record.run import Run
    from dssr.worlds.archive import Archive

MemoryOption = Annotated[
    list[str] | None, typer.Option("--memory", "-m", help="A format or package.module:Class; may be repeated.")
]
BudgetOption = Annotated[list[int] | None, typer.Option("--budget", "-b", help="Tokens of a state; may be repeated.")]
FillerOption = Annotated[list[int] | None, typer.Option("--filler", "-f", help="Length of the walk; may be repeated.")]
GamesOption = Annotated[int | None, typer.Option("--games", "-g", help="At most so many games per level.")]
SplitOption = Annotated[str, typer.Option("--split", help="train, valid, or the sealed test.")]
LagOption = Annotated[bool, typer.Option("--lag", help="Measure the relevance lag at audited points too.")]


def register(app: typer.Typer) -> None:
    app.command("diagnose")(diagnose)


def diagnose(
    config: ConfigOption = DEFAULT_CONFIG,
    memory: MemoryOption = None,
    budget: BudgetOption = None,
    filler: FillerOption = None,
    games: GamesOption = None,
    split: SplitOption = "valid",
    lag: LagOption = False,
    out: OutOption = None,
    resume: ResumeOption = False,
    as_json: JsonOption = False,
) -> None:
    """Play and audit memories × budgets × fillers, and say what loses: the budget or the writer."""
    from dssr.measure.grid import open_archive
    from dssr.models.load import load_models

    settings = load_config(config)
    archive = open_archive(settings)
    ask = ask_for(settings, archive, memory, budget, filler, games, split, lag)
    place = out or default_place(settings, ask)
    if split == "test":
        open_seal(settings, place, resume)
        archive.unseal()
    run, summary = run_diagnosis(settings, ask, archive, load_models(settings), place, resume, as_json)
    if as_json:
        emit({"run": str(run.path), **summary}, True)
    else:
        show(run, summary)
    if summary["errors"] == summary["episodes"]:
        raise ModelError(f"Every episode failed, so {run.path} measures nothing; its episodes.jsonl says why.")


def ask_for(
    settings: Config,
    archive: "Archive",
    memory: list[str] | None,
    budget: list[int] | None,
    filler: list[int] | None,
    games: int | None,
    split: str,
    lag: bool,
) -> "Grid":
    """The grid asked for on the command line."""
    from dssr.measure.grid import grid_of

    if split not in ("train", "valid", "test"):
        raise UsageError(f"There is no split {split!r}; use train, valid or test.")
    return grid_of(settings, archive, memory or (), budget or (), filler or (), games, split, lag)  # type: ignore[arg-type]


def default_place(settings: Config, ask: "Grid") -> Path:
    """A directory named by content: the same question has the same place."""
    import msgspec

    from dssr.seeds import digest_of

    return (
        Path(settings.runs) / f"diagnose-{settings.name}-{digest_of(settings.digest(), msgspec.to_builtins(ask))[:8]}"
    )


def open_seal(settings: Config, place: Path, resume: bool) -> None:
    """Break the seal on the test split for this run, unless the run could not start anyway."""
    from dssr.cli.gates import now, seal_of

    if place.exists() and not resume:
        raise RecordError(f"{place} exists; choose another directory, or continue it with --resume.")
    seal_of(settings).open(place, now())


def run_diagnosis(
    settings: Config,
    ask: "Grid",
    archive: "Archive",
    models: "tuple[Model, Model]",
    place: Path,
    resume: bool = False,
    quiet: bool = False,
) -> "tuple[Run, dict[str, Any]]":
    """Plan, play, audit, check for leaks, summarise."""
    from dssr.agent.leaks import refuse_leaks
    from dssr.measure.diagnose import diagnose as work
    from dssr.measure.diagnose import summary_of
    from dssr.measure.grid import arguments_of, fingerprints, jobs_of, open_agent
    from dssr.measure.plan import Rates, plan, totals
    from dssr.record.run import Run

    jobs = jobs_of(ask, settings)
    with open_agent(settings, archive, models, jobs) as agent:
        expected = totals(plan(ask, settings, agent), Rates())
        say(
            f"{len(jobs)} episodes, {expected['calls']:,} to {expected['most_calls']:,} model calls, "
            f"{expected['tokens_in']:,} tokens to read or more; into {place}",
            quiet,
        )
        prints = fingerprints(ask, agent)
        with (
            Run.start(
                place, command="diagnose", config=settings, models=prints, arguments=arguments_of(ask), resume=resume
            ) as run,
            progress(len(jobs), "episodes") as advance,
        ):

            async def go() -> None:
                try:
                    await work(run, jobs, agent, settings.measure, ask.lag, advance)
                finally:
                    for model in dict.fromkeys(models):
                        await model.close()

            asyncio.run(go())
            refuse_leaks(run, agent.worlds)
            summary = summary_of(run)
            run.finish(summary)
    return run, summary


def show(run: "Run", summary: dict[str, Any]) -> None:
    """The grid and the answers, for people."""
    quantities = {"success": "success", "delta": "δ", "beta": "β", "kappa": "κ"}
    names = {"memory": "memory", "budget": "B", "filler": "F'", "games": "games"}
    emit(
        [
            {shown: row[name] for name, shown in names.items()}
            | {shown: with_bounds(row, name) for name, shown in quantities.items()}
            for row in summary["cells"]
        ],
        False,
    )
    for row in summary["answers"]:
        typer.echo(row["sentence"])
    if summary["errors"] or summary["problems"]:
        typer.echo(f"{summary['errors']} episodes failed and {summary['problems']} could not be audited; none counts.")
    typer.echo(f"run: {run.path}")


def with_bounds(row: dict[str, Any], name: str) -> str:
    """`0.53 [0.40, 0.67]`, or a dash."""
    if row[name] is None:
        return "-"
    return f"{row[name]:.2f} [{row[f'{name}_low']:.2f}, {row[f'{name}_high']:.2f}]"
