"""What every command shares: configuration, printing, progress."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from dssr.config import Config
from dssr.types import Tell

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

ConfigOption = Annotated[
    str,
    typer.Option(
        "--config", "-c", help="A shipped configuration (nano, nano-house, scripted, smol, paper) or a TOML file."
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print for programs.")]
OutOption = Annotated[Path | None, typer.Option("--out", "-o", help="Where to write; a new directory.")]
ResumeOption = Annotated[bool, typer.Option("--resume", help="Continue an interrupted run.")]

DEFAULT_CONFIG = "nano"
OFTEN = 20
"""Lines that a stage of long work prints where there is no terminal."""
WIDE = 160
"""Columns of a table that goes to a file or a pipe, where nothing wraps."""

Row = Mapping[str, Any]


def load_config(name: str) -> Config:
    """Read a configuration by name or path, its world's own options checked and written out."""
    from dssr.config import load
    from dssr.worlds.base import settled

    return settled(load(name))


def emit(result: Row | Sequence[Row], as_json: bool, title: str | None = None) -> None:
    """Print a result: JSON for programs, a table (rows) or a list of names (one mapping) for people."""
    if as_json:
        typer.echo(msgspec.json.encode(result).decode())
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(width=None if sys.stdout.isatty() else WIDE)
    if isinstance(result, Mapping):
        table = Table("", "", show_header=False, title=title, box=None)
        for name, value in result.items():
            table.add_row(Text(str(name)), Text(_cell(value)))
    elif not result:
        console.print("nothing to show")
        return
    else:
        columns = list(dict.fromkeys(name for row in result for name in row))
        table = Table(*columns, title=title)
        for row in result:
            table.add_row(*(Text(_cell(row.get(name))) for name in columns))
    console.print(table)


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.3f}"
    if isinstance(value, (list, tuple)):
        return ", ".join(_cell(one) for one in value)
    return str(value)


def say(text: str, as_json: bool = False) -> None:
    """A remark for people; programs do not get it."""
    if not as_json:
        typer.echo(text, err=True)


@contextmanager
def progress(total: int, text: str) -> Iterator[Callable[[int], None]]:
    """Yields `advance(n)`. Shows count and time left on a terminal, and nothing elsewhere."""
    from rich.console import Console

    console = Console(stderr=True)
    with _bars(console) as bars:
        task = bars.add_task(text, total=total)
        yield lambda n: bars.advance(task, n)


@contextmanager
def stages(as_json: bool) -> Iterator[Tell]:
    """Yields `tell(stage, done, of)`: a bar for every stage on a terminal, now and then a line elsewhere."""
    from rich.console import Console

    console = Console(stderr=True)
    last: dict[str, int] = {}
    with _bars(console) as bars:
        tasks: dict[str, Any] = {}

        def tell(stage: str, done: int, of: int) -> None:
            if console.is_terminal:
                if stage not in tasks:
                    tasks[stage] = bars.add_task(stage, total=of, completed=done)
                bars.update(tasks[stage], completed=done)
            elif done == of or done - last.get(stage, 0) >= max(1, of // OFTEN):
                last[stage] = done
                say(f"{stage}: {done} of {of}", as_json)

        yield tell


def _bars(console: "Console") -> "Progress":
    """Bars with count and time, on a terminal only."""
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    return Progress(*columns, console=console, disable=not console.is_terminal)
