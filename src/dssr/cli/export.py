"""`dssr export`: a run for other programs."""

from pathlib import Path
from typing import Annotated

import typer

from dssr.cli.common import JsonOption, emit

RunArgument = Annotated[Path, typer.Argument(help="Run directory.")]
FolderOption = Annotated[Path, typer.Option("--out", "-o", help="Folder for the files.")]

export_app = typer.Typer(help="Write a run as Inspect logs, Parquet or CSV.", no_args_is_help=True)


@export_app.command("inspect")
def inspect(run: RunArgument, out: FolderOption, json: JsonOption = False) -> None:
    """One Inspect log per cell; look at them with `inspect view --log-dir OUT`."""
    from dssr.record.run import Run
    from dssr.report.export import export_inspect

    _tell(export_inspect(Run.open(run), out), json)


@export_app.command("parquet")
def parquet(run: RunArgument, out: FolderOption, json: JsonOption = False) -> None:
    """Every record, one Parquet file per log."""
    _flat(run, out, "parquet", json)


@export_app.command("csv")
def csv(run: RunArgument, out: FolderOption, json: JsonOption = False) -> None:
    """Every record, one CSV file per log."""
    _flat(run, out, "csv", json)


def _flat(run: Path, out: Path, ending: str, json: bool) -> None:
    from dssr.record.run import Run
    from dssr.report.export import export_flat

    _tell(export_flat(Run.open(run), out, ending), json)


def _tell(files: list[Path], json: bool) -> None:
    emit([{"file": str(file), "bytes": file.stat().st_size} for file in files], json)


def register(app: typer.Typer) -> None:
    app.add_typer(export_app, name="export")
