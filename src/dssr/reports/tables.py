"""A table and its four ways onto a page: terminal, Markdown, LaTeX, CSV."""

import csv
import io
from collections.abc import Callable, Sequence
from typing import Any, Literal

import rich.table
from rich.text import Text

from dssr.measure.rows import columns, flat, interval_fields
from dssr.models.guard import printable
from dssr.stats.bootstrap import Interval
from dssr.types import Record

Kind = Literal["text", "count", "percent", "nats", "change", "number"]
"""How a value is written: `percent` is a fraction times 100, `nats` has two decimals, `change` is a signed per cent."""
Value = str | int | float | Interval | None


class Column(Record, frozen=True):
    """One column of a table: what it is called, and what it shows of a row."""

    key: str
    """Name in files; the field of the rows, unless `value` reads something else."""
    head: str
    """Heading for people."""
    kind: Kind = "text"
    value: Callable[[Any], Value] | None = None
    """What is shown of a row, where that is no field of it."""

    def of(self, row: Record) -> Value:
        """What a row has in this column."""
        if self.value is not None:
            return self.value(row)
        found: Value = getattr(row, self.key)
        return found

    def has_interval(self, rows: Sequence[Record]) -> bool:
        """Whether this is a quantity with bounds, even if no row has a value."""
        if self.value is None and any(self.key in interval_fields(type(row)) for row in rows):
            return True
        return any(isinstance(self.of(row), Interval) for row in rows)


class Table(Record, frozen=True):
    """Rows of one kind and what is shown of them."""

    name: str
    """Short, used for file names; no two tables of a report share it."""
    title: str
    columns: tuple[Column, ...]
    rows: tuple[Record, ...]
    note: str = ""

    def plain(self) -> list[dict[str, Any]]:
        """The rows for programs: all their fields, and what the columns show, unrounded."""
        wide = {column.key for column in self.columns if column.has_interval(self.rows)}
        return [flat(row) | self._shown(row, wide) for row in self.rows]

    def _shown(self, row: Record, wide: set[str]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for column in self.columns:
            value = column.of(row)
            if column.key in wide and (value is None or isinstance(value, Interval)):
                found |= columns(column.key, value)
            else:
                found[column.key] = value
        return found


def cell_text(row: Record, column: Column) -> str:
    """A value as people read it, with its interval if that says something."""
    value = column.of(row)
    if value is None:
        return "–"
    if isinstance(value, Interval):
        text, *ends = (_number(one, column.kind) for one in (value.estimate, value.low, value.high))
        return text if ends == [text, text] else f"{text} [{', '.join(ends)}]"
    if column.kind in ("text", "count") or isinstance(value, str):
        return str(value)
    return _number(value, column.kind)


def _number(value: float, kind: Kind) -> str:
    if kind == "percent":
        text = f"{100 * value:.1f}"
        return "100" if text == "100.0" else "0" if text == "0.0" else text
    if kind == "change":
        return f"{100 * value:+.0f} %"
    text = f"{value:.4f}" if kind == "number" else f"{value:.2f}"
    return text.lstrip("-") if float(text) == 0 else text


def terminal(table: Table) -> rich.table.Table:
    """For a rich console; repeated leading values are left blank, as in print. Names are text, never markup."""
    shown = rich.table.Table(
        title=Text(table.title),
        caption=Text(table.note) if table.note else None,
        title_justify="left",
        caption_justify="left",
    )
    for column in table.columns:
        shown.add_column(Text(column.head), justify="left" if column.kind == "text" else "right")
    for cells in _thinned(table):
        shown.add_row(*(Text(printable(cell)) for cell in cells))
    return shown


def markdown(table: Table) -> str:
    """A section with a pipe table."""
    heads = [column.head for column in table.columns]
    rules = ["---" if column.kind == "text" else "---:" for column in table.columns]
    body = [[cell_text(row, column) for column in table.columns] for row in table.rows]
    lines = ["| " + " | ".join(_piped(cell) for cell in line) + " |" for line in (heads, rules, *body)]
    note = f"\n\n{table.note}" if table.note else ""
    return f"### {table.title}\n\n" + "\n".join(lines) + note + "\n"


def _piped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").replace("\n", "<br>")


def latex(table: Table) -> str:
    """A booktabs table, ready for \\input."""
    places = "".join("l" if column.kind == "text" else "r" for column in table.columns)
    heads = " & ".join(_escaped(column.head) for column in table.columns)
    body = [" & ".join(_escaped(cell) for cell in cells) + r" \\" for cells in _thinned(table)]
    caption = _escaped(f"{table.title}. {table.note}".strip())
    top = [r"\begin{table}", r"\centering", rf"\caption{{{caption}}}", rf"\label{{tab:{table.name}}}"]
    grid = [rf"\begin{{tabular}}{{{places}}}", r"\toprule", heads + r" \\", r"\midrule", *body, r"\bottomrule"]
    return "\n".join([*top, *grid, r"\end{tabular}", r"\end{table}"]) + "\n"


LATEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "δ": r"$\delta$",
    "β": r"$\beta$",
    "κ": r"$\kappa$",
    "ρ": r"$\rho$",
    "ℓ": r"$\ell$",
    "′": r"$'$",
    "−": "$-$",
    "≥": r"$\geq$",
    "–": "--",
    "→": r"$\rightarrow$",
    "\n": " ",
}


def _escaped(text: str) -> str:
    return "".join(LATEX.get(letter, letter) for letter in text)


def to_csv(table: Table) -> str:
    """Unrounded values; an interval takes two more columns."""
    keys: list[str] = []
    for column in table.columns:
        wide = column.has_interval(table.rows)
        keys += columns(column.key, None) if wide else [column.key]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([inert_cell(key) for key in keys])
    writer.writerows([["" if row.get(key) is None else inert_cell(row[key]) for key in keys] for row in table.plain()])
    return out.getvalue()


FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""What makes a spreadsheet compute a cell rather than show it."""


def inert_cell(value: Any) -> Any:
    """A value for a CSV file: text that a spreadsheet would run gets a single quote before it; numbers stay."""
    if not isinstance(value, str) or not value.startswith(FORMULA):
        return value
    try:
        float(value)
    except ValueError:
        return f"'{value}"
    return value


def per_cent(level: float) -> str:
    """The level of intervals as people write it."""
    return f"{100 * level:g} %"


def _thinned(table: Table) -> list[list[str]]:
    """Cells as text; a memory or budget equal to the one above is left blank when all before it are equal too."""
    lines: list[list[str]] = []
    before: Sequence[str] = ()
    for row in table.rows:
        cells = [cell_text(row, column) for column in table.columns]
        same = 0
        while same < len(before) and table.columns[same].key in LEADING and cells[same] == before[same]:
            same += 1
        lines.append([""] * same + cells[same:])
        before = cells
    return lines


LEADING = ("memory", "writer", "first", "second", "base", "candidates", "game", "split")
"""Columns that name what a block of rows is about."""
