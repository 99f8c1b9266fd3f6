"""A table and its four ways onto a page: terminal, Markdown, LaTeX, CSV."""

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import rich.table
from rich.text import Text

from dssr.types import Record

Kind = Literal["text", "count", "percent", "nats", "change", "number"]
"""How a value is written: `percent` is a fraction times 100, `nats` has two decimals, `change` is a signed per cent."""
Row = Mapping[str, Any]


class Column(Record, frozen=True):
    key: str
    """Name in the rows; `key_low` and `key_high` beside it make an interval."""
    head: str
    kind: Kind = "text"


class Table(Record, frozen=True):
    name: str
    """Short, used for file names."""
    title: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    note: str = ""


def cell_text(row: Row, column: Column) -> str:
    """A value as people read it, with its interval if it has one that says something."""
    value = row.get(column.key)
    if value is None:
        return "–"
    if column.kind in ("text", "count") or isinstance(value, str):
        return str(value)
    text = _number(value, column.kind)
    low, high = row.get(f"{column.key}_low"), row.get(f"{column.key}_high")
    if low is None or high is None:
        return text
    ends = [_number(low, column.kind), _number(high, column.kind)]
    return text if ends == [text, text] else f"{text} [{', '.join(ends)}]"


def _number(value: float, kind: Kind) -> str:
    if kind == "percent":
        text = f"{100 * value:.1f}"
        return "100" if text == "100.0" else "0" if text == "0.0" else text
    if kind == "change":
        return f"{100 * value:+.0f} %"
    text = f"{value:.4f}" if kind == "number" else f"{value:.2f}"
    return text.lstrip("-") if float(text) == 0 else text


def terminal(table: Table) -> rich.table.Table:
    """For a rich console; repeated leading values are left blank, as in print."""
    shown = rich.table.Table(
        title=table.title, caption=table.note or None, title_justify="left", caption_justify="left"
    )
    for column in table.columns:
        shown.add_column(column.head, justify="left" if column.kind == "text" else "right")
    for cells in _thinned(table):
        shown.add_row(*(Text(cell) for cell in cells))
    return shown


def markdown(table: Table) -> str:
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
        ends = [f"{column.key}_low", f"{column.key}_high"]
        keys += [column.key, *(end for end in ends if any(end in row for row in table.rows))]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(keys)
    writer.writerows([["" if row.get(key) is None else row[key] for key in keys] for row in table.rows])
    return out.getvalue()


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
