"""A table and its four ways onto a page: terminal, Markdown, LaTeX, CSV."""

import csv
import io
import unicodedata
from collections.abc import Callable, Sequence
from typing import Any, Literal

from dssr.measure.rows import columns, flat, interval_fields
from dssr.models.guard import printable
from dssr.reports.terminal import Fitted
from dssr.stats.bootstrap import Interval, Unit, written
from dssr.types import Record

Kind = Literal["text", "count"] | Unit
"""How a value is written."""
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
    kind_of: Callable[[Any], Kind] | None = None
    """How a value is written, where rows differ in it."""

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
    kind = column.kind if column.kind_of is None else column.kind_of(row)
    if kind == "text" or kind == "count" or isinstance(value, str):
        return value.text() if isinstance(value, Interval) else str(value)
    return value.text(kind) if isinstance(value, Interval) else written(value, kind)


def terminal(table: Table) -> Fitted:
    """For a rich console; repeated leading values are left blank, as in print. Names are text, never markup."""
    keys = [column.key for column in table.columns]
    return Fitted(
        [printable(column.head) for column in table.columns],
        [[printable(cell) for cell in cells] for cells in _thinned(table)],
        names=max(1, next((n for n, key in enumerate(keys) if key not in (*LEADING, *CONDITIONS)), len(keys))),
        title=printable(table.title),
        caption=printable(table.note),
        right=[column.kind != "text" for column in table.columns],
    )


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


LONG_TABLE, LONG_TEXT = 40, 40
"""Rows from which a table may break over pages, and characters from which a text may break over lines, in LaTeX."""


def latex(table: Table) -> str:
    """A booktabs table, ready for \\input; it asks for the packages booktabs, graphicx, longtable and array."""
    lines = _thinned(table)
    places = "".join(_place(column, [cells[n] for cells in lines]) for n, column in enumerate(table.columns))
    heads = " & ".join(latex_text(column.head) for column in table.columns)
    body = [" & ".join(latex_text(cell) for cell in cells) + r" \\" for cells in lines]
    caption = latex_text(f"{table.title}. {table.note}".strip())
    label = rf"\caption{{{caption}}}\label{{tab:{table.name}}}"
    if len(lines) > LONG_TABLE:
        top = [
            r"{\scriptsize\setlength{\tabcolsep}{2pt}",
            rf"\begin{{longtable}}{{{places}}}",
            label + r"\\",
            r"\toprule",
        ]
        grid = [*top, heads + r" \\", r"\midrule\endhead", *body, r"\bottomrule", r"\end{longtable}}"]
        return "\n".join(grid) + "\n"
    fit = r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%"
    top = [r"\begin{table}", r"\centering", label, fit, rf"\begin{{tabular}}{{{places}}}", r"\toprule", heads + r" \\"]
    return "\n".join([*top, r"\midrule", *body, r"\bottomrule", r"\end{tabular}}", r"\end{table}"]) + "\n"


def _place(column: Column, cells: Sequence[str]) -> str:
    if column.kind != "text":
        return "r"
    return r"p{5cm}" if max(map(len, cells), default=0) > LONG_TEXT else "l"


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
    "≤": r"$\leq$",
    "<": "$<$",
    ">": "$>$",
    "|": r"\textbar{}",
    '"': "''",
    "±": r"$\pm$",
    "×": r"$\times$",
    "÷": r"$\div$",
    "–": "--",
    "→": r"$\rightarrow$",
    "\n": " ",
}


def latex_text(text: str) -> str:
    """Any text as LaTeX that prints it; letters that its usual fonts lack are spelt as near as ASCII can."""
    return "".join(LATEX.get(letter) or _plain(letter) for letter in text)


def _plain(letter: str) -> str:
    if " " <= letter <= "~" or "\u00c0" <= letter <= "\u017f":
        return letter
    near = unicodedata.normalize("NFKD", letter).encode("ascii", "ignore").decode()
    return "".join(LATEX.get(one, one) for one in near if " " <= one <= "~") or ("?" if letter.isprintable() else " ")


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
CONDITIONS = ("budget", "filler", "protocol", "bin", "metric")
"""Columns that, with those, name one row."""
