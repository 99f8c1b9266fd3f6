"""`dssr report · compare · transfer · decompose · export`: what stored runs say, and runs for other programs."""

from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from dssr.cli import options
from dssr.cli.options import display, emit, flag, say, size, tell
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
WORSE = 3
"""Exit code of a comparison in which B is shown to be worse."""


def register(app: typer.Typer) -> None:
    """Add the commands of this file to the program."""
    app.command("report")(report)
    app.command("compare")(compare)
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


def compare(
    a: Annotated[str, typer.Argument(help="The side to keep up with: a run directory, or a memory of the runs --in.")],
    b: Annotated[str, typer.Argument(help="The side that is judged, given alike.")],
    within: Annotated[
        list[Path] | None, typer.Option("--in", help="Run that holds both memories; may be repeated.")
    ] = None,
    memory: Annotated[
        list[str] | None,
        typer.Option("--memory", "-m", help="Of two runs: compare only this memory; may be repeated."),
    ] = None,
    metric: Annotated[
        Literal["success", "delta", "beta", "kappa", "facts"], typer.Option(help="What the verdict is about.")
    ] = "delta",
    tolerance: Annotated[
        float | None,
        typer.Option(help="B is worse if it surely is by more than this; 0.1 nats, or 0 of a share, if left out."),
    ] = None,
    fail_if_worse: Annotated[
        bool, flag("--fail-if-worse", help="Exit with 3 where B is shown to be worse by the metric.")
    ] = False,
    as_markdown: Annotated[bool, flag("--markdown", help="Print Markdown for a pull request.")] = False,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Write the Markdown to this file too.")] = None,
    as_json: options.Json = False,
) -> None:
    """Is B worse than A? Two finished runs of diagnose or audit, or two memories in one, paired by game or log.

    Nothing is run here: measure both sides first, with `dssr diagnose` or `dssr audit`. Two prompts are two runs, each
    with its own `agent.prompts`.
    """
    import msgspec

    from dssr.measure.compare import compare as work
    from dssr.measure.rows import flat
    from dssr.reports.tables import comparison_markdown, comparison_table, terminal

    found = work(a, b, within=within or (), memories=memory or (), metric=metric, tolerance=tolerance)
    worse = found.worse if fail_if_worse else False  # refused before anything is printed
    if out is not None:
        out.write_text(comparison_markdown(found), encoding="utf-8")
    if as_json:
        rows = [{**flat(row), "sentence": row.sentence} for row in found.rows]
        emit({**msgspec.to_builtins(found), "rows": rows, "worse": worse if fail_if_worse else None}, True)
    elif as_markdown:
        tell(comparison_markdown(found), nl=False)
    else:
        display(terminal(comparison_table(found)))
        for row in found.verdicts:
            tell(row.sentence)
    if worse:
        say(f"B is worse by {metric}: exit code {WORSE}")
        raise typer.Exit(WORSE)


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
