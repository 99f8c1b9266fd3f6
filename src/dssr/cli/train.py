"""`dssr reader train | accept | curve · train · continuation`: a reader to measure with, a writer to train with it."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
import typer

from dssr.cli import options
from dssr.cli.options import emit, flag, progress, tell, with_bounds
from dssr.errors import UsageError
from dssr.types import Workers

if TYPE_CHECKING:
    from dssr.training.lines import LineResult, SeedsResult

Variant = Annotated[
    str | None,
    typer.Option(
        "--variant",
        help="dssr, k1, k4, no-hint, outcome or a4; dssr first, since the others learn from it. "
        "With --seeds the selected one if left out.",
    ),
]
Rounds = Annotated[
    str | None, typer.Option("--rounds", help="A round or a range such as 0-3; all of the configuration if left out.")
]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Seed of collection, candidates and training.")]
Seeds = Annotated[
    int | None,
    typer.Option(
        "--seeds", min=2, help="Train the selected round again from the same pairs, for so many seeds in all."
    ),
]
StudyFolder = Annotated[
    Path | None, typer.Option("--out", "-o", help="Folder of the study: every variant and seed is a line inside it.")
]
Force = Annotated[bool, flag("--force", help="Use a reader that was not accepted; it is recorded.")]
Points = Annotated[
    int | None, typer.Option("--points", "-p", help="Number of write points; the configuration's if left out.")
]
CurvePoints = Annotated[
    list[int] | None,
    typer.Option("--points", "-p", help="Points per iteration; may be repeated. Thirds of the stored ones if unset."),
]
Training = Annotated[
    Path | None, typer.Option("--training", help="Folder of a finished `dssr reader train`; the configuration's own.")
]
SplitOption = Annotated[Literal["train", "valid"], typer.Option("--split", help="Which games.")]


def register(app: typer.Typer) -> None:
    """Add the commands of this file to the program."""
    group = typer.Typer(help="Train the reader, and accept it or not.", no_args_is_help=True)
    group.command("train")(reader_train)
    group.command("accept")(reader_accept)
    group.command("curve")(reader_curve)
    app.add_typer(group, name="reader")
    app.command("train")(train)
    app.command("continuation")(continuation)


def reader_train(
    config: options.Config = options.DEFAULT_CONFIG,
    out: options.Out = None,
    resume: options.Resume = False,
    workers: options.Workers = None,
    ray: options.Ray = None,
    as_json: options.Json = False,
) -> None:
    """Clone the reference action over the context mixture, then DAgger."""
    from dssr.training.reader import ACCURACY
    from dssr.training.reader import reader_train as work

    with progress(as_json) as told:
        adapter = work(config, out=out, resume=resume, workers=Workers(workers, ray), progress=told)
    place = adapter.parents[1] / ACCURACY
    measured = place.exists()  # not where a configuration holds no game out
    emit({"adapter": str(adapter), "accuracy": str(place) if measured else None}, as_json)
    if measured and not as_json:
        tell(f"accuracy at held-out decision points: dssr report {place}")


def reader_accept(
    config: options.Config = options.DEFAULT_CONFIG,
    adapter: options.Adapter = None,
    out: options.Out = None,
    resume: options.Resume = False,
    workers: options.Workers = None,
    ray: options.Ray = None,
    as_json: options.Json = False,
) -> None:
    """Play validation games with the full history and no filler; exit 1 if the reader is not good enough."""
    from dssr.training.reader import reader_accept as work

    with progress(as_json) as told:
        found = work(config, adapter=adapter, out=out, resume=resume, workers=Workers(workers, ray), progress=told)
    emit({**msgspec.to_builtins(found), "accepted": found.accepted}, as_json)
    if not found.accepted:
        raise typer.Exit(1)


def reader_curve(
    config: options.Config = options.DEFAULT_CONFIG,
    points: CurvePoints = None,
    training: Training = None,
    out: options.Out = None,
    resume: options.Resume = False,
    workers: options.Workers = None,
    ray: options.Ray = None,
    as_json: options.Json = False,
) -> None:
    """Train the final reader again on smaller samples, and show loss and accuracy on held-out games."""
    from dssr.training.reader import curve_rows
    from dssr.training.reader import reader_curve as work

    with progress(as_json) as told:
        run = work(
            config,
            points=points,
            training=training,
            out=out,
            resume=resume,
            workers=Workers(workers, ray),
            progress=told,
        )
    rows: list[dict[str, Any]] = [msgspec.to_builtins(row) for row in curve_rows(run)]
    if as_json:
        emit({"run": str(run.path), "curve": rows}, True)
        return
    emit(
        [
            {"points learnt from": row["trained"], "loss": row["loss"], "accuracy": with_bounds(row, "accuracy")}
            | {"held-out points": row["points"], "games": row["games"]}
            for row in rows
        ]
    )
    tell(f"run: {run.path}; by context variant: dssr report {run.path}")


def train(
    config: options.Config = options.DEFAULT_CONFIG,
    variant: Variant = None,
    rounds: Rounds = None,
    seed: Seed = 0,
    seeds: Seeds = None,
    adapter: options.Adapter = None,
    out: StudyFolder = None,
    force: Force = False,
    resume: options.Resume = False,
    workers: options.Workers = None,
    ray: options.Ray = None,
    as_json: options.Json = False,
) -> None:
    """Train the writer: collect, try candidates, score them by the reader's later loss, fine-tune, validate."""
    from dssr.training.lines import train as work
    from dssr.training.lines import train_seeds

    common: dict[str, Any] = {"seed": seed, "adapter": adapter, "out": out, "force": force, "resume": resume}
    common["workers"] = Workers(workers, ray)
    if seeds is not None and rounds is not None:
        raise UsageError("--seeds trains the selected round again; leave --rounds out.")
    with progress(as_json) as told:
        if seeds is None:
            line = work(config, variant or "dssr", rounds=rounds, progress=told, **common)
        else:
            found = train_seeds(config, variant, seeds=seeds, progress=told, **common)
    if seeds is None:
        show_line(line, as_json)
    else:
        show_seeds(found, as_json)


def continuation(
    config: options.Config = options.DEFAULT_CONFIG,
    split: SplitOption = "valid",
    points: Points = None,
    games: options.Games = None,
    out: options.Out = None,
    resume: options.Resume = False,
    workers: options.Workers = None,
    ray: options.Ray = None,
    as_json: options.Json = False,
) -> None:
    """Play candidates of logged write points to the end, and correlate their scores with their returns."""
    from dssr.measure.continuation import continuation as work

    with progress(as_json) as told:
        study = work(
            config,
            split=split,
            points=points,
            games=games,
            out=out,
            resume=resume,
            workers=Workers(workers, ray),
            progress=told,
        )
    run = study.runs[0]
    summary = run.summary or {}
    if as_json:
        emit({"run": str(run.path), **summary}, True)
        return
    counts = {"points": "points", "without_variance": "same return", "unranked": "same score"}
    emit(
        [
            {"score": row["score"], "ρ with return": with_bounds(row, "rho")}
            | {shown: row[name] for name, shown in counts.items()}
            for row in summary["returns"]
        ]
    )
    tell(f"{summary['without_variance']} of {summary['points']} points end alike whatever is written there.")
    if summary["unmeasured"]:
        tell(f"No point tells candidates apart both by their return and by {', '.join(summary['unmeasured'])}.")
    if summary["points"] < summary["asked"]:
        tell(f"{summary['asked']} points were asked for; the trajectories have no more.")
    if summary["troubles"] or summary["errors"]:
        tell(f"{summary['errors']} trajectories and {summary['troubles']} points failed; none counts.")
    tell(f"run: {run.path}")


def show_line(result: "LineResult", as_json: bool) -> None:
    """The rounds of one line."""
    if as_json:
        emit(msgspec.to_builtins(result), True)
        return
    rows = result.rounds
    emit([printable(row) for row in rows if "success" in row])
    emit(changes(rows), title="against the untrained writer, paired by game")
    if rows[-1]["ended"]:
        tell(rows[-1]["ended"])
    elif not result.finished:
        tell("Later rounds: the same command with --resume and a longer --rounds.")
    tell(f"line: {result.line}; tables: dssr report {result.line}")


def show_seeds(found: "SeedsResult", as_json: bool) -> None:
    """One row per seed and filler."""
    rows = [
        {"seed": row.seed, "F'": row.filler, "success": row.success, "kappa": row.kappa, "games": row.games}
        for row in found.seeds
    ]
    if as_json:
        emit({**msgspec.to_builtins(found), "seeds": rows}, True)
        return
    emit(rows)
    tell(f"tables: dssr report {' '.join(found.lines)}")
    tell(f"measure: dssr diagnose --config {found.config} {' '.join(f'-m {one}' for one in found.memories)}")


def printable(row: dict[str, Any]) -> dict[str, Any]:
    """A round's row as one line of a table: pairs, then success and kappa per filler with their means."""
    shown: dict[str, Any] = {"round": row["round"], "points": row.get("points"), "pairs": row.get("pairs")}
    shown["median gap"] = row.get("median")
    return shown | {name: value for name, value in row.items() if name.startswith(("success", "kappa"))}


def changes(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Success and kappa minus the untrained writer's, by round, with intervals."""
    found: dict[tuple[int, str], dict[str, Any]] = {}
    for row in rows:
        for one in row.get("against_untrained", ()):
            line = found.setdefault((row["round"], one["filler"]), {"round": row["round"], "F'": one["filler"]})
            line |= {"games": one["games"], one["quantity"]: with_bounds(one, "difference")}
    return list(found.values())
