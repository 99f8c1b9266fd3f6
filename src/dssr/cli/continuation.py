"""`dssr continuation`: does a state's score foretell how the game ends?"""

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
from dssr.cli.diagnose import GamesOption, with_bounds
from dssr.config import Config

if TYPE_CHECKING:
    from dssr.measure.grid import Grid
    from dssr.models.base import Model
    from dssr.record.run import Run
    from dssr.worlds.archive import Archive

PointsOption = Annotated[int | None, typer.Option("--points", "-p", help="Write points; the configuration's if unset.")]
SplitOption = Annotated[str, typer.Option("--split", help="train or valid.")]


def register(app: typer.Typer) -> None:
    app.command("continuation")(continuation)


def continuation(
    config: ConfigOption = DEFAULT_CONFIG,
    split: SplitOption = "valid",
    points: PointsOption = None,
    games: GamesOption = None,
    out: OutOption = None,
    resume: ResumeOption = False,
    as_json: JsonOption = False,
) -> None:
    """Play candidates of logged write points to the end, and correlate their scores with their returns."""
    from dssr.measure.continuation import continuation_grid
    from dssr.measure.grid import open_archive
    from dssr.models.load import load_models
    from dssr.seeds import digest_of

    settings = load_config(config)
    archive = open_archive(settings)
    ask = continuation_grid(settings, archive, split, games)
    count = settings.continuation.points if points is None else points
    name = f"continuation-{settings.name}-{digest_of(settings.digest(), ask.split, ask.games, count)[:8]}"
    place = out or Path(settings.runs) / name
    run, summary = run_continuation(settings, ask, archive, load_models(settings), count, place, resume, as_json)
    if as_json:
        emit({"run": str(run.path), **summary}, True)
    else:
        show(run, summary)


def run_continuation(
    settings: Config,
    ask: "Grid",
    archive: "Archive",
    models: "tuple[Model, Model]",
    points: int,
    place: Path,
    resume: bool = False,
    quiet: bool = False,
) -> "tuple[Run, dict[str, Any]]":
    """Play, check that logs are reproduced, try candidates, check for leaks, summarise."""
    from dssr.agent.leaks import refuse_leaks
    from dssr.measure.continuation import Continuation, check_size, continuation_jobs
    from dssr.measure.grid import arguments_of, fingerprints, open_agent
    from dssr.record.run import Run

    check_size(settings, points)
    jobs = continuation_jobs(ask, settings)
    with open_agent(settings, archive, models, jobs) as agent:
        prints, arguments = fingerprints(ask, agent), arguments_of(ask) | {"points": points}
        say(
            f"{len(jobs)} trajectories, then {points} points x {settings.continuation.candidates} candidates, "
            f"each played to the end; into {place}",
            quiet,
        )
        with Run.start(
            place, command="continuation", config=settings, models=prints, arguments=arguments, resume=resume
        ) as run:
            study = Continuation(run, settings, jobs, points, agent)

            async def go() -> None:
                try:
                    with progress(len(jobs), "trajectories") as advance:
                        await study.play(advance)
                    with progress(len(study.points), "points reproduced") as advance:
                        await study.check(advance)
                    with progress(len(study.points), "points continued") as advance:
                        await study.judge(advance)
                finally:
                    for model in dict.fromkeys(models):
                        await model.close()

            asyncio.run(go())
            refuse_leaks(run, agent.worlds)
            summary = study.rows()
            run.finish(summary)
    return run, summary


def show(run: "Run", summary: dict[str, Any]) -> None:
    """One line per score, for people."""
    counts = {"points": "points", "without_variance": "same return", "unranked": "same score"}
    emit(
        [
            {"score": row["score"], "ρ with return": with_bounds(row, "rho")}
            | {shown: row[name] for name, shown in counts.items()}
            for row in summary["returns"]
        ],
        False,
    )
    typer.echo(f"{summary['without_variance']} of {summary['points']} points end alike whatever is written there.")
    if summary["unmeasured"]:
        typer.echo(f"No point tells candidates apart both by their return and by {', '.join(summary['unmeasured'])}.")
    if summary["points"] < summary["asked"]:
        typer.echo(f"{summary['asked']} points were asked for; the trajectories have no more.")
    if summary["errors"] or summary["troubles"]:
        typer.echo(f"{summary['errors']} trajectories and {summary['troubles']} points failed; none counts.")
    typer.echo(f"run: {run.path}")
