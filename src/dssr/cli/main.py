"""`dssr`: one place that knows all commands and turns errors into exit codes.

0 done, 1 the work failed, 2 bad usage or input, 130 interrupted.
"""

import importlib
import sys
import traceback
from importlib.metadata import entry_points
from typing import Annotated

import typer

import dssr
from dssr.cli import show, start
from dssr.errors import DssrError, in_one_sentence
from dssr.models.guard import printable

COMMANDS = "dssr.commands"
"""Entry points of this group are `register(app)` functions of other packages."""
AREAS = ("diagnose", "traces", "episodes", "games", "train", "study", "gates", "report", "doctor")
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
    debug: Annotated[bool, typer.Option("--debug", help="Print the traceback of an error too.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print results only, no progress or remarks.")] = False,
) -> None:
    """Measure and reduce write-time regret in constant-context LLM agents."""
    show.SPEECH.debug, show.SPEECH.quiet = debug, quiet


def run() -> int:
    """One command, and its exit code; an error that a user can cause is one sentence, not a traceback."""
    sys.path.insert(0, "")  # memories of one's own lie in the current folder
    try:
        with in_one_sentence():
            build()()
    except DssrError as error:
        if show.SPEECH.debug:
            traceback.print_exc()
        typer.echo(printable(f"dssr: {error}"), err=True)
        return error.exit_code
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else 0 if ended.code is None else 1
    return 0


def hint(words: list[str]) -> str:
    """What to do after an interrupt of this command."""
    command = typer.main.get_command(build())
    path: list[str] = []
    for word in words:
        if word in getattr(command, "commands", {}):
            command = command.commands[word]  # type: ignore[attr-defined]
            path.append(word)
    if path == ["demo"]:
        return "what was finished is kept, give the same command again to go on."
    if any(option.name == "resume" for option in command.params):
        return "what was finished is kept, go on with the same command and --resume."
    return "nothing was changed; give the same command again."


main = start
"""Where installed scripts of before look for it."""

if __name__ == "__main__":
    start()
