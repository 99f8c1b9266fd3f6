"""What commands print: results as tables or JSON, remarks, and progress."""

import logging
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec
import typer

from dssr.models.guard import printable
from dssr.types import Progress

OFTEN = 20
"""Lines that a stage of long work prints where there is no terminal."""
WIDE = 160
"""Columns of a table that goes to a file or a pipe, where nothing wraps."""

Row = Mapping[str, Any]


def emit(result: Row | Sequence[Row], as_json: bool = False, title: str | None = None) -> None:
    """Print a result: JSON for programs, a table (rows) or a list of names (one mapping) for people."""
    if as_json:
        typer.echo(msgspec.json.encode(result).decode())
        return
    from rich.console import Console
    from rich.table import Column, Table
    from rich.text import Text

    console = Console(width=None if sys.stdout.isatty() else WIDE)
    heading = None if title is None else Text(printable(title))  # text, never markup: names are the user's
    if isinstance(result, Mapping):
        table = Table("", "", show_header=False, title=heading, box=None)
        for name, value in result.items():
            table.add_row(Text(str(name)), Text(cell(value)))
    elif not result:
        console.print("nothing to show")
        return
    else:
        columns = list(dict.fromkeys(name for row in result for name in row))
        table = Table(*map(Column, map(Text, columns)), title=heading)
        for row in result:
            table.add_row(*(Text(cell(row.get(name))) for name in columns))
    console.print(table)


def cell(value: object) -> str:
    """A value as a table shows it."""
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.3f}"
    if isinstance(value, (list, tuple)):
        return ", ".join(map(cell, value))
    return printable(str(value))


def with_bounds(row: Row, name: str) -> str:
    """`0.53 [0.40, 0.67]`, or a dash."""
    if row[name] is None:
        return "-"
    return f"{row[name]:.2f} [{row[f'{name}_low']:.2f}, {row[f'{name}_high']:.2f}]"


def say(text: str) -> None:
    """A remark for people, apart from the result."""
    typer.echo(printable(text), err=True)


class _Remarks(logging.Handler):
    """Shows what verbs remark on their way."""

    def emit(self, record: logging.LogRecord) -> None:
        say(record.getMessage())


@contextmanager
def progress(as_json: bool = False) -> Iterator[Progress]:
    """Yields the progress callback: a bar for every stage on a terminal, now and then a line elsewhere.

    Remarks of verbs are shown meanwhile. With JSON asked for, remarks are kept quiet.
    """
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )
    from rich.progress import Progress as Bars

    console = Console(stderr=True)
    counted = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn())
    logger, remarks = logging.getLogger("dssr"), _Remarks()
    logger.setLevel(logging.WARNING if as_json else logging.INFO)
    logger.addHandler(remarks)
    told: dict[str, int] = {}
    with Bars(
        TextColumn("{task.description}", markup=False), *counted, console=console, disable=not console.is_terminal
    ) as bars:
        tasks: dict[str, Any] = {}

        def tell(stage: str, done: int, of: int) -> None:
            if console.is_terminal:
                if stage not in tasks:
                    tasks[stage] = bars.add_task(stage, total=of, completed=done)
                bars.update(tasks[stage], completed=done, total=of)
            elif not as_json and (done == of or done - told.get(stage, 0) >= max(1, of // OFTEN)):
                told[stage] = done
                say(f"{stage}: {done} of {of}")

        try:
            yield tell
        finally:
            logger.removeHandler(remarks)
