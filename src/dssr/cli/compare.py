"""`dssr compare`: two memories or two runs on the same games or logs, and an exit code for automatic checks."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from dssr.cli import options
from dssr.cli.options import display, emit, flag, say, tell

WORSE = 3
"""Exit code where B is shown to be worse."""


def register(app: typer.Typer) -> None:
    """Add the command of this file to the program."""
    app.command("compare")(compare)


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
