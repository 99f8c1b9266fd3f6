"""Numbers of one's own: losses of any agent at its decisions become table, answer and page.

One row per decision: `task` (whatever repeats independently: a game, an issue, a user), `memory`, and three losses in
nats of the same reference action by the same reader: under the state (`nll_state`), under the full history
(`nll_full`), and under a state of the same size written in hindsight (`nll_oracle`).
"""

import csv
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dssr.errors import UsageError
from dssr.measure.rows import flat
from dssr.measure.verdicts import Cause, decide
from dssr.record.log import told, write_whole
from dssr.reports.page import LOOKS, badge_of
from dssr.reports.tables import Column, Table, per_cent
from dssr.reports.view import Answer, PageView, PageWords, ViewCell, estimate, render
from dssr.stats.bootstrap import Interval, Resampler
from dssr.types import Record

if TYPE_CHECKING:
    import polars

LOSSES = ("nll_state", "nll_full", "nll_oracle")
COLUMNS = ("task", "memory", *LOSSES)


class OwnRow(Record, frozen=True):
    """One memory over its tasks. Intervals are t intervals; a task's value is the mean over its decisions."""

    memory: str
    tasks: int
    points: int
    """Decisions."""
    delta: Interval
    beta: Interval
    kappa: Interval
    contrast: Interval
    """kappa - beta."""
    cause: Cause
    sentence: str


class Decomposition(Record, frozen=True):
    """What the losses say, one row per memory."""

    rows: tuple[OwnRow, ...]
    level: float

    def frame(self) -> "polars.DataFrame":
        """The rows as a polars data frame; an interval `x` takes `x`, `x_low` and `x_high`."""
        import polars

        return polars.DataFrame([flat(row) for row in self.rows])

    def table(self) -> Table:
        """The rows for people."""
        losses = [Column(name, sign, "nats") for name, sign in SIGNS.items()]
        columns = (
            Column("memory", "memory"),
            Column("tasks", "tasks", "count"),
            Column("points", "decisions", "count"),
        )
        note = f"Means over tasks in nats, with {per_cent(self.level)} t intervals."
        head = "Decomposition: δ = β + κ"
        return Table("decomposition", head, (*columns, *losses, Column("cause", "who loses it")), self.rows, note)

    def page(self, out: str | Path) -> Path:
        """Write the page, and return where it is."""
        place = Path(out) / "index.html"
        with told(f"Cannot write {place}"):
            place.parent.mkdir(parents=True, exist_ok=True)
            write_whole(place, render(self._view()).encode())
        return place

    def _view(self) -> PageView:
        points, tasks = sum(row.points for row in self.rows), max(row.tasks for row in self.rows)
        return PageView(
            title="dssr decompose",
            source="dssr decompose · losses of one's own",
            words=PageWords("task", "fact", "level", "task", "tasks", "tasks done"),
            intervals=f"{per_cent(self.level)} t intervals over tasks: bootstrap-t, no nearer than Student's t",
            level=f"{per_cent(self.level)} t",
            oracle="the state written in hindsight",
            answers=[
                Answer(
                    row.memory,
                    LOOKS[row.cause],
                    badge_of(row.cause, "tasks"),
                    [(row.sentence[0].upper() + row.sentence[1:], False)],
                )
                for row in self.rows
            ],
            cells=[
                ViewCell(
                    memory=row.memory,
                    budget=None,
                    filler=0,
                    protocol="post",
                    games=row.tasks,
                    delta=estimate(row.delta, row.tasks),
                    beta=estimate(row.beta, row.tasks),
                    kappa=estimate(row.kappa, row.tasks),
                    points=row.points,
                )
                for row in self.rows
            ],
            counts=[(f"{len(self.rows)}", "memories"), (f"{tasks:,}", "tasks"), (f"{points:,}", "decisions")],
        )


SIGNS = {"delta": "δ", "beta": "β", "kappa": "κ", "contrast": "κ − β"}


def decompose(rows: Any, *, level: float = 0.95) -> Decomposition:
    """δ = β + κ from losses of one's own: the path of a CSV file, a polars or pandas data frame, or mappings.

    >>> dssr.decompose("rows.csv").rows[0].sentence
    """
    by_memory: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for line, row in enumerate(_read(rows), start=1):
        missing = [name for name in COLUMNS if row.get(name) in (None, "")]
        if missing:
            raise UsageError(f"Row {line} has no {missing[0]}; every row needs {', '.join(COLUMNS)}.")
        state, full, oracle = (_loss(row[name], name, line) for name in LOSSES)
        tasks = by_memory.setdefault(str(row["memory"]), {})
        tasks.setdefault(str(row["task"]), []).append((oracle - full, state - oracle))
    if not by_memory:
        raise UsageError(f"There are no rows to decompose; one per decision is needed, with {', '.join(COLUMNS)}.")
    return Decomposition(tuple(_row(name, tasks, Resampler(level=level)) for name, tasks in by_memory.items()), level)


def _row(memory: str, tasks: Mapping[str, list[tuple[float, float]]], sampler: Resampler) -> OwnRow:
    beta, kappa = np.array([np.mean(tasks[task], axis=0) for task in sorted(tasks)]).T
    found = decide(beta, kappa, sampler)
    losses = (found.delta, found.beta, found.kappa, found.contrast)
    points, sentence = sum(map(len, tasks.values())), found.sentence.replace(" game", " task")
    return OwnRow(memory, len(tasks), points, *losses, found.cause, sentence)


def _read(rows: Any) -> Iterable[Mapping[str, Any]]:
    if isinstance(rows, (str, Path)):
        try:
            with Path(rows).open(newline="", encoding="utf-8-sig") as file:
                return list(csv.DictReader(file))
        except FileNotFoundError as error:
            raise UsageError(f"There is no file {rows}; give a CSV file with {', '.join(COLUMNS)}.") from error
        except (OSError, UnicodeDecodeError, csv.Error) as error:
            raise UsageError(f"{rows} cannot be read as a CSV file: {error}.") from error
    if hasattr(rows, "to_dicts"):  # polars
        return list(rows.to_dicts())
    return list(rows.to_dict("records") if hasattr(rows, "to_dict") else rows)  # pandas, or rows as they are


def _loss(value: Any, name: str, line: int) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number) or number < 0:
        raise UsageError(f"Row {line} has {value!r} as {name}; a loss is a number of nats, 0 or more.")
    return number
