"""The published result tables, for side-by-side reports."""

import json
import re
from collections.abc import Callable
from functools import cache
from importlib import resources

from dssr.errors import UsageError
from dssr.reports.tables import Column, Table
from dssr.types import Record

CellKey = tuple[str, int | None, int]
"""Memory, budget and filler."""
DOUBLE = ("stage2", "stage2kappaB", "test", "seeds", "frontier")
"""Tables whose heading takes two lines."""
BESIDE = {
    "grid": ("stage2full", "stage2kappaB", "test", "testci"),
    "lag-bins": ("ell",),
    "protocols": ("pilot",),
    "frontier": ("frontier",),
    "rewrites": ("rewrites", "rewrites_n"),
    "rewrite-contrasts": ("rewrites_contrast",),
    "lag-grid": ("laggrid_gain",),
    "rounds-success": ("rounds_success",),
    "rounds-kappa": ("rounds_kappa",),
    "seeds": ("seeds",),
    "credit": ("credit",),
}
"""Our table to the published ones of the same kind."""
TITLES = {
    "stage2": "validation grid",
    "stage2full": "validation grid with intervals",
    "stage2kappaB": "κ at the other budgets",
    "test": "test split at B = 128",
    "testci": "test split with intervals",
    "ell": "κ per lag bin",
    "pilot": "protocol pilot",
    "rounds_success": "success by round",
    "rounds_kappa": "κ by round",
    "credit": "credit assignment",
    "seeds": "seeds",
    "frontier": "budget frontier",
    "rewrites": "κ by rewrites",
    "rewrites_n": "points per rewrite bin",
    "rewrites_contrast": "paired contrasts by rewrites",
    "laggrid_gain": "finer lag grid",
}


class PrintedRow(Record, frozen=True):
    """One line of a published table."""

    cells: tuple[str, ...]


@cache
def paper_tables() -> dict[str, list[list[str]]]:
    """All published tables, as printed."""
    text = resources.files("dssr.reports").joinpath("assets").joinpath("paper_tables.json").read_text(encoding="utf-8")
    tables: dict[str, list[list[str]]] = json.loads(text)
    return tables


def paper_table(name: str) -> list[list[str]]:
    """One published table: rows of text, headings first."""
    try:
        return paper_tables()[name]
    except KeyError:
        raise UsageError(
            f"There is no published table {name}; there are {', '.join(sorted(paper_tables()))}."
        ) from None


def as_table(name: str) -> Table:
    """A published table in our own form; headings of two lines are joined."""
    heads, *rows = paper_table(name)
    if name in DOUBLE:
        heads, rows = _joined(heads, rows[0]), rows[1:]
    columns = tuple(Column(f"c{place}", head, value=_cell_at(place)) for place, head in enumerate(heads))
    return Table(f"paper-{name}", f"Published: {TITLES[name]}", columns, tuple(PrintedRow(tuple(row)) for row in rows))


def _cell_at(place: int) -> Callable[[PrintedRow], str]:
    return lambda row: row.cells[place]


def _joined(upper: list[str], lower: list[str]) -> list[str]:
    group, heads = "", []
    for one, other in zip(upper, lower, strict=True):
        group = one or group
        heads.append(f"{group}, F′={other}" if group else other)
    return heads


@cache
def paper_cells() -> dict[CellKey, dict[str, float]]:
    """Published validation values by cell: `success` as a fraction, `kappa` in nats, where they were printed."""
    cells: dict[CellKey, dict[str, float]] = {}
    for name, quantity, budget, first in _BLOCKS:
        heads, *rows = paper_table(name)[1:]
        for row in rows:
            for place in range(first, first + 4):
                value = _number(row[place])
                if value is not None:
                    key = (row[0], None if row[0] == "full" else budget, int(heads[place]))
                    cells.setdefault(key, {})[quantity] = value / 100 if quantity == "success" else value
    _add_short_rows(cells)
    return cells


_BLOCKS = (
    ("stage2", "success", 128, 1),
    ("stage2", "kappa", 128, 5),
    ("stage2", "success", 256, 9),
    ("stage2kappaB", "kappa", 64, 1),
    ("stage2kappaB", "kappa", 256, 5),
)
"""Table, quantity, budget, and the column where four fillers begin."""


def _add_short_rows(cells: dict[CellKey, dict[str, float]]) -> None:
    """Success at the smallest budget stands only in the long form, where one row may serve several budgets."""
    memory = ""
    heads = paper_table("stage2full")[0]
    for row in paper_table("stage2full")[1:]:
        memory = row[0] or memory
        quantity, _, budgets = row[1].partition(", B=")
        if quantity != "success" or "64" not in budgets.split("/"):
            continue
        for head, value in zip(heads[2:], row[2:], strict=True):
            filler = int(head.removeprefix("F'="))
            number = _number(value)
            if number is not None:
                cells.setdefault((memory, 64, filler), {})["success"] = number / 100


def _number(text: str) -> float | None:
    """The estimate of a printed value like `0.85 [0.55, 1.18]`; None for a dash."""
    found = re.match(r"[-+]?\d+(\.\d+)?", text.strip())
    return float(found.group()) if found else None
