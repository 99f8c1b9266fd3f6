"""`dssr report`: tables, figures and the page, from stored runs alone."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dssr.cli.common import JsonOption, say
from dssr.errors import UsageError

if TYPE_CHECKING:
    from dssr.report.write import Report

RunsArgument = Annotated[list[Path], typer.Argument(help="Run directories; several are reported as one study.")]
FolderOption = Annotated[
    Path | None, typer.Option("--out", "-o", help="Folder of the report; beside the run if left out.")
]
FormatOption = Annotated[
    list[str] | None,
    typer.Option("--format", "-f", help="page, markdown, latex, csv, figures or terminal; repeat it. All if left out."),
]
AgainstOption = Annotated[str | None, typer.Option("--against", help="`paper` puts the published values beside ours.")]
FIRST = ("grid", "decomposition", "rounds-success", "rounds-kappa", "rounds-gain")
"""Tables printed when nothing was said about the format."""


def report(
    runs: RunsArgument,
    out: FolderOption = None,
    format: FormatOption = None,  # noqa: A002
    against: AgainstOption = None,
    json: JsonOption = False,
) -> None:
    """Tables, figures and one self-contained page from stored runs."""
    from dssr.report.write import FORMS, make_report

    if against not in (None, "paper"):
        raise UsageError(f"--against knows `paper` only, not {against!r}.")
    asked = format or [*FORMS]
    unknown = [one for one in asked if one not in (*FORMS, "terminal")]
    if unknown:
        raise UsageError(f"there is no format {unknown[0]!r}; choose from {', '.join(FORMS)} and terminal.")
    folder = out or runs[0].parent / f"{runs[0].resolve().name}-report"
    made = make_report(runs, folder, [form for form in FORMS if form in asked], against == "paper")
    if json:
        _print_json(made)
    else:
        _print(made, format is not None and "terminal" in format)


def _print_json(made: "Report") -> None:
    import msgspec

    shown = {
        "answers": [{"memory": one.name, "badge": one.badge, "text": one.text} for one in made.answers],
        "tables": {table.name: table.plain() for table in made.tables},
        "absent": made.absent,
        "files": made.files,
    }
    typer.echo(msgspec.json.encode(shown).decode())


def _print(made: "Report", everything: bool) -> None:
    from rich.console import Console

    from dssr.report.tables import terminal

    console = Console()
    for table in made.tables:
        if everything or table.name in FIRST:
            console.print(terminal(table))
    for one in made.answers:
        console.print(f"[bold]{one.name}[/bold]: {one.badge}. {one.text}", highlight=False)
    for gone in made.absent if everything else ():
        say(f"no table {gone.name}: {gone.reason}")
    page = next((file for file in made.files if file.endswith("index.html")), None)
    if page is not None:
        typer.echo(f"page: {page}")
    elif made.files:
        typer.echo(f"{len(made.files)} files in {Path(made.files[0]).parent}")


def register(app: typer.Typer) -> None:
    app.command("report")(report)
