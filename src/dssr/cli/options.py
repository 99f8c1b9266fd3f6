"""What all commands share: their options, each defined once, and what they print: results as tables or JSON, remarks,
and progress.
"""

import logging
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from dssr.models.guard import printable, spelled
from dssr.types import Counts, Progress, Standing, WorkerStanding

if TYPE_CHECKING:
    from rich.console import RenderableType

    from dssr.stats.bootstrap import Unit

# ---------------------------------------------------------------- options

DEFAULT_CONFIG = "nano"


def flag(*names: str, **more: Any) -> Any:
    """An option that is given or not; without this its help would say `<bool>`, as if it took a value."""
    return typer.Option(*names, metavar="", **more)


Config = Annotated[
    str, typer.Option("--config", "-c", help="Name of a shipped configuration (see `dssr doctor`) or a TOML file.")
]
Json = Annotated[bool, flag("--json", help="Print JSON for programs instead of tables.")]
Out = Annotated[
    Path | None, typer.Option("--out", "-o", help="Run directory to make; named after the question if left out.")
]
Folder = Annotated[Path | None, typer.Option("--out", "-o", help="Folder to write; beside the run if left out.")]
Resume = Annotated[bool, flag("--resume", help="Continue work that was interrupted.")]
Run = Annotated[Path, typer.Argument(help="Directory of a run.")]
Runs = Annotated[list[Path], typer.Argument(help="Directories of runs; several are reported as one study.")]

Memories = Annotated[
    list[str] | None,
    typer.Option(
        "--memory",
        "-m",
        help="A format, FORMAT@ADAPTER, FORMAT+recall, or your own module:Class or file.py:Class; may be repeated.",
    ),
]
Memory = Annotated[
    str,
    typer.Option("--memory", "-m", help="A format, FORMAT@ADAPTER, or your own module:Class or path/file.py:Class."),
]
Budgets = Annotated[list[int] | None, typer.Option("--budget", "-b", help="Tokens of a state; may be repeated.")]
Budget = Annotated[
    int | None,
    typer.Option("--budget", "-b", min=1, help="Tokens of a state; the configuration's middle one if left out."),
]
Fillers = Annotated[list[int] | None, typer.Option("--filler", "-f", help="Length of the walk; may be repeated.")]
Filler = Annotated[int, typer.Option("--filler", "-f", min=0, help="Length of the walk.")]
Games = Annotated[int | None, typer.Option("--games", "-g", help="Play at most so many games per level.")]
Lag = Annotated[bool, flag("--lag", help="Measure the relevance lag at audited points too.")]

Adapter = Annotated[
    Path | None, typer.Option("--adapter", help="Folder of the reader's adapter; the configuration's own if left out.")
]
Archive = Annotated[
    Path | None, typer.Option("--archive", help="Folder of the archive; the configuration's own if left out.")
]
Workers = Annotated[
    int | None,
    typer.Option("--workers", "-w", min=1, help="Processes that share the work; as many as it is worth if left out."),
]
Ray = Annotated[
    str | None, typer.Option("--ray", help="Spread the work over this Ray cluster: its address, or `auto`.")
]


# ---------------------------------------------------------------- output

SECONDS = 60.0
"""Between two lines on a stage of long work, where there is no terminal."""
WIDE = 160
"""Columns of a table that goes to a file or a pipe, where nothing wraps."""

Row = Mapping[str, Any]


class Speech:
    """How much this call of the program says."""

    quiet = False
    """No progress, no remarks."""
    debug = False
    """Tracebacks of errors."""


SPEECH = Speech()


def emit(
    result: Row | Sequence[Row],
    as_json: bool = False,
    title: str | None = None,
    names: int = 1,
) -> None:
    """Print a result: JSON for programs, a table (rows) or a list of names (one mapping) for people. The first `names`
    columns say what a row is about."""
    if as_json:
        tell(spelled(msgspec.json.encode(result).decode()))
        return
    from rich.table import Table
    from rich.text import Text

    from dssr.reports.terminal import Fitted

    if isinstance(result, Mapping):
        heading = None if title is None else Text(printable(title))  # text, never markup: names are the user's
        table = Table("", "", show_header=False, title=heading, box=None)
        for name, value in result.items():
            table.add_row(Text(head(name)), Text(cell(value), overflow="fold"))
        display(table)
    elif not result:
        display("nothing to show")
    else:
        keys = list(dict.fromkeys(name for row in result for name in row))
        rows = [[cell(row.get(name)) for name in keys] for row in result]
        display(Fitted(list(map(head, keys)), rows, names, None if title is None else printable(title)))


def display(renderable: "RenderableType") -> None:
    """Print for people: as wide as the terminal is, or wide where there is none."""
    from rich.console import Console

    Console(width=None if sys.stdout.isatty() else WIDE).print(renderable)


HEADS = {
    "beta": "β",
    "bin": "lag, steps",
    "by_generation": "held after each rewrite, %",
    "composed": "excused: composed of what was shown",
    "guessed": "excused: a single guess",
    "budget": "B",
    "delta": "δ",
    "filler": "F'",
    "kappa": "κ",
    "most_calls": "most calls",
    "most_tokens_in": "most tokens read",
    "most_tokens_out": "most tokens written",
    "needed": "needed at step",
    "phase_a_error": "± of phase A",
    "phase_a_steps": "steps of phase A",
    "phase_b_error": "± of phase B",
    "phase_b_steps": "steps of phase B",
    "nll_full": "loss with the full history",
    "tokens_in": "tokens read",
    "tokens_out": "tokens written",
}
"""What people call the fields of records, where that is not their name."""


def head(name: str) -> str:
    """A field's name as a heading."""
    return HEADS.get(name, printable(name.replace("_", " ")))


def cell(value: object) -> str:
    """A value as a table shows it."""
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.3f}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}" if abs(value) >= 10_000 else str(value)
    if isinstance(value, (list, tuple)):
        return ", ".join(map(cell, value))
    if isinstance(value, dict) and value.keys() == {"estimate", "low", "high"}:
        from dssr.stats.bootstrap import Interval

        return Interval.stored(**value).text()
    return printable(str(value))


def size(count: int) -> str:
    """Bytes as people say them."""
    for unit in ("bytes", "KiB", "MiB"):
        if count < 1024:
            return f"{count} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1024  # type: ignore[assignment]
    return f"{count:.1f} GiB"


def with_bounds(row: Row, name: str, unit: "Unit" = "nats") -> str:
    """`0.53 [0.40, 0.67]`, or a dash."""
    from dssr.stats.bootstrap import Interval

    if row[name] is None:
        return "-"
    return Interval.stored(row[name], row[f"{name}_low"], row[f"{name}_high"]).text(unit)


def tell(text: str, err: bool = False, nl: bool = True) -> None:
    """Print words, among which may be those of models, servers and logs: whatever a terminal would obey is left out."""
    typer.echo(printable(text), err=err, nl=nl)


def say(text: str) -> None:
    """A remark for people, apart from the result."""
    if not SPEECH.quiet:
        tell(text, err=True)


class _Remarks(logging.Handler):
    """Shows what verbs remark on their way."""

    def emit(self, record: logging.LogRecord) -> None:
        say(record.getMessage())


COLUMNS = ("worker", "done", "under way", "a minute", "cache hits", "tokens/s")
"""Of the table of workers."""
ALL = "all"


class Pace:
    """How fast a stage goes, from its first word to its latest."""

    def __init__(self, first: Standing) -> None:
        self.first = self.last = first
        self.begin = self.now = time.monotonic()

    def tell(self, standing: Standing) -> None:
        """Take in where the stage stands."""
        if not self.first.workers and standing.workers:  # the work begins here: what came before was opening
            self.first, self.begin = msgspec.structs.replace(standing, done=self.first.done), time.monotonic()
        self.last, self.now = standing, time.monotonic()

    @property
    def minutes(self) -> float:
        """Since the stage began."""
        return max(self.now - self.begin, 1e-3) / 60

    @property
    def rate(self) -> float:
        """Items a minute."""
        return (self.last.done - self.first.done) / self.minutes

    def row(self, worker: WorkerStanding) -> tuple[str, ...]:
        """A worker as the table shows it."""
        before = sum((one.counts for one in self.first.workers if worker.name in (one.name, ALL)), Counts())
        counts = worker.counts
        rate, tokens = worker.done / self.minutes, (counts.written - before.written) / self.minutes / 60
        hits = f"{100 * counts.hits / counts.calls:.0f} %" if counts.calls else "-"
        return worker.name, str(worker.done), str(worker.under_way), f"{rate:.3g}", hits, f"{tokens:,.0f}"

    @property
    def total(self) -> WorkerStanding:
        """All workers as one."""
        workers = self.last.workers
        counts = sum((one.counts for one in workers), Counts())
        return WorkerStanding(ALL, sum(one.done for one in workers), sum(one.under_way for one in workers), counts)

    def line(self) -> str:
        """One line for a log."""
        from dssr.measure.plan import duration

        here, parts = self.last, [f"{self.last.stage}: {self.last.done} of {self.last.of}"]
        if self.rate > 0 and here.done < here.of:
            parts += [f"{self.rate:.3g} a minute", f"about {duration((here.of - here.done) / self.rate / 60)} left"]
        if here.workers and here.done < here.of:
            _, _, under_way, _, hits, tokens = self.row(self.total)
            parts += [f"{len(here.workers)} workers" if len(here.workers) > 1 else "1 worker", f"{under_way} under way"]
            parts += [f"{hits} from the cache", f"{tokens} tokens a second"]
        return ", ".join(parts)


@contextmanager
def progress(as_json: bool = False) -> Iterator[Progress]:
    """Yields the progress callback: bars and a table of the workers on a terminal, a line a minute elsewhere.

    Remarks of verbs are shown meanwhile. With JSON asked for, remarks are kept quiet.
    """
    from rich.console import Console, RenderableType
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars
    from rich.table import Table

    paces: dict[str, Pace] = {}
    latest: list[Pace] = []

    class Live(Bars):
        def get_renderables(self) -> Iterator[RenderableType]:
            yield self.make_tasks_table(self.tasks)
            if latest and latest[0].last.workers:
                pace = latest[0]
                workers = pace.last.workers
                table = Table(
                    "worker", "done", "under way", "a minute", "cache hits", "tokens/s", box=None, padding=(0, 2)
                )
                for worker in (*workers, *((pace.total,) if len(workers) > 1 else ())):
                    table.add_row(*pace.row(worker))
                yield table

    console = Console(stderr=True, quiet=SPEECH.quiet)
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn())
    rate = TextColumn("{task.fields[rate]} a minute")
    logger, remarks = logging.getLogger("dssr"), _Remarks()
    logger.setLevel(logging.WARNING if as_json else logging.INFO)
    logger.addHandler(remarks)
    said: dict[str, float] = {}
    with Live(
        *(TextColumn("{task.description}", markup=False), *columns, rate),
        console=console,
        disable=not console.is_terminal,
        transient=False,
    ) as bars:
        tasks: dict[str, Any] = {}

        def tell(standing: Standing) -> None:
            stage, done, of = standing.stage, standing.done, standing.of
            if stage not in paces or standing.done < paces[stage].last.done:  # another run of a command with several
                paces[stage] = Pace(standing)
                said.pop(stage, None)
            pace = paces[stage]
            pace.tell(standing)
            latest[:] = [pace]
            if console.is_terminal:
                if stage not in tasks:
                    tasks[stage] = bars.add_task(stage, total=of, completed=done, rate="-")
                bars.update(tasks[stage], completed=done, total=of, rate=f"{pace.rate:.3g}")
            elif not as_json and (done == of or pace.now - said.setdefault(stage, pace.begin) >= SECONDS):
                said[stage] = pace.now
                say(pace.line())

        try:
            yield tell
        finally:
            latest.clear()
            logger.removeHandler(remarks)
