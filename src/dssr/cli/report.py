"""`dssr report · transfer · decompose · export`: tables, figures and the page, and runs for other programs."""

from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from dssr.cli import options
from dssr.cli.options import display, emit, say, size, tell
from dssr.models.guard import printable

if TYPE_CHECKING:
    from dssr.reports.write import Report


class Form(str, Enum):
    """What a report can be made as; `terminal` prints every table."""

    page = "page"
    markdown = "markdown"
    latex = "latex"
    csv = "csv"
    figures = "figures"
    terminal = "terminal"


FormatOption = Annotated[
    list[Form] | None, typer.Option("--format", help="What to make; may be repeated, everything if left out.")
]
Against = Annotated[Literal["paper"] | None, typer.Option("--against", help="Put the published values beside ours.")]
ExportFolder = Annotated[Path, typer.Option("--out", "-o", help="Folder for the files.")]
FIRST = ("grid", "decomposition", "rounds-success", "rounds-kappa", "rounds-gain")
"""Tables printed when nothing was said about the format."""


def register(app: typer.Typer) -> None:
    """Add the commands of this file to the program."""
    app.command("report")(report)
    app.command("transfer")(transfer)
    app.command("decompose")(decompose)
    group = typer.Typer(help="Write a run as Inspect logs, Parquet or CSV.", no_args_is_help=True)
    for command in (inspect, parquet, csv):
        group.command(command.__name__)(command)
    app.add_typer(group, name="export")


def report(
    runs: options.Runs,
    out: options.Folder = None,
    format: FormatOption = None,  # noqa: A002
    against: Against = None,
    as_json: options.Json = False,
) -> None:
    """Make tables, figures and one self-contained page from stored runs."""
    from dssr.reports.write import FORMS
    from dssr.reports.write import report as work

    asked = None if format is None else {form.value for form in format}
    forms = [form for form in FORMS if asked is None or form in asked]
    made = work(runs, out=out, forms=forms, against=against)
    if as_json:
        _print_json(made)
    else:
        _print(made, asked is not None and "terminal" in asked)


def _print_json(made: "Report") -> None:
    shown = {
        "answers": [{"memory": one.name, "badge": one.badge, "text": one.text} for one in made.answers],
        "tables": {table.name: table.plain() for table in made.tables},
        "absent": made.absent,
        "files": made.files,
    }
    emit(shown, True)


def _print(made: "Report", everything: bool) -> None:
    from rich.text import Text

    from dssr.reports.tables import terminal

    for table in made.tables:
        if everything or table.name in FIRST:
            display(terminal(table))
    for one in made.answers:
        # Assembled, not marked up: a memory may be called `[/bold]`.
        display(Text.assemble((printable(one.name), "bold"), f": {printable(f'{one.badge}. {one.text}')}"))
    for gone in made.absent if everything else ():
        say(f"no table {gone.name}: {gone.reason}")
    if made.page is not None:
        tell(f"page: {made.page}")
    elif made.files:
        tell(f"{len(made.files)} files in {Path(made.files[0]).parent}")


def transfer(runs: options.Runs, as_json: options.Json = False) -> None:
    """Compare diagnoses of the same games under different readers: the first run's is the one to keep up with."""
    from dssr.measure.comparisons import transfer as work
    from dssr.measure.rows import flat
    from dssr.reports.study_tables import transfer_table
    from dssr.reports.tables import terminal

    rows = work(runs)
    if as_json:
        emit([flat(row) for row in rows], True)
    else:
        display(terminal(transfer_table(rows)))


def decompose(
    rows: Annotated[Path, typer.Argument(help="CSV file: task, memory, nll_state, nll_full, nll_oracle per decision.")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder for the page; none is made if left out.")
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Say who loses, the budget or the writer, from losses of your own: table, answer, page."""
    from dssr.measure.rows import flat
    from dssr.reports.decompose import decompose as work
    from dssr.reports.tables import terminal

    found = work(rows)
    page = None if out is None else found.page(out)
    if as_json:
        emit({"memories": [flat(row) for row in found.rows], "page": None if page is None else str(page)}, True)
        return
    display(terminal(found.table()))
    for row in found.rows:
        tell(f"{row.memory}: {row.sentence}")
    if page is not None:
        tell(f"page: {page}")


def inspect(run: options.Run, out: ExportFolder, as_json: options.Json = False) -> None:
    """Write one Inspect log per cell; look at them with `inspect view --log-dir OUT`."""
    _export(run, "inspect", out, as_json)


def parquet(run: options.Run, out: ExportFolder, as_json: options.Json = False) -> None:
    """Write every record, one Parquet file per log."""
    _export(run, "parquet", out, as_json)


def csv(run: options.Run, out: ExportFolder, as_json: options.Json = False) -> None:
    """Write every record, one CSV file per log."""
    _export(run, "csv", out, as_json)


def _export(run: Path, form: Literal["inspect", "parquet", "csv"], out: Path, as_json: bool) -> None:
    from dssr.reports.write import export

    files = [(str(file), file.stat().st_size) for file in export(run, form, out=out)]
    if as_json:
        emit([{"file": file, "bytes": count} for file, count in files], True)
    else:
        emit([{"file": file, "size": size(count)} for file, count in files])
