"""`dssr`: one place that knows all commands and turns errors into exit codes.

0 done, 1 the work failed, 2 bad usage or input, 130 interrupted.
"""

import importlib
import sys
from importlib.metadata import entry_points
from typing import Annotated

import typer

import dssr
from dssr.errors import DssrError
from dssr.models.guard import printable

COMMANDS = "dssr.commands"
"""Entry points of this group are `register(app)` functions of other packages."""
INTERRUPTED = 130
"""The exit code typer gives to Ctrl-C."""
AREAS = ("diagnose", "episodes", "games", "train", "gates", "report", "doctor")
"""Modules of this folder, in the order of the help text; each has `register(app)`."""


def build() -> typer.Typer:
    """The whole command line."""
    app = typer.Typer(
        name="dssr",
        help="Measure and reduce write-time regret in constant-context LLM agents.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
    )
    app.callback()(common)
    for area in AREAS:
        importlib.import_module(f"dssr.cli.{area}").register(app)
    for plugged in entry_points(group=COMMANDS):
        plugged.load()(app)
    return app


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(dssr.__version__)
        raise typer.Exit


def common(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Measure and reduce write-time regret in constant-context LLM agents."""


def main() -> None:
    """Run a command; an error that a user can cause is one sentence, not a traceback."""
    sys.path.insert(0, "")  # memories of one's own lie in the current folder
    try:
        build()()
    except DssrError as error:
        typer.echo(printable(f"dssr: {error}"), err=True)
        sys.exit(error.exit_code)
    except SystemExit as ended:
        if ended.code == INTERRUPTED:
            typer.echo(
                "dssr: interrupted; what was finished is kept, go on with the same command and --resume.", err=True
            )
        raise


if __name__ == "__main__":
    main()
