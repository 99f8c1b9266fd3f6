"""The published result tables, for side-by-side reports."""

import json
import re
from collections.abc import Callable, Iterable
from functools import cache
from importlib import resources

from dssr.config import Config
from dssr.errors import UsageError
from dssr.reports.tables import Column, Table
from dssr.types import Record, Split

DOUBLE = ("stage2", "stage2kappaB", "test", "seeds", "frontier")
"""Tables whose heading takes two lines."""
BESIDE = {
    "grid": ("stage2full", "stage2kappaB", "test", "testci"),
    "lag-table": ("ell",),
    "protocols": ("pilot",),
    "frontier": ("frontier",),
    "rewrites": ("rewrites",),
    "rewrite-counts": ("rewrites_n",),
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


# ---------------------------------------------------------------- values beside ours

READERS = {"Qwen/Qwen3-4B-Instruct-2507": "R1", "microsoft/Phi-4-mini-instruct": "R2"}
"""Base models of the published readers; both were trained, so only their adapters are those readers."""
PROTOCOL = "post"
"""Where the walk stands in all published tables but the pilot's."""
WRITERS = {
    "dssr@a4": "dssr (A4 r2, 3 seeds)",
    "dssr@main": "dssr main line (r1)",
    "dssr@outcome": "outcome (r3)",
    "dssr@k1": "K=1 (r1)",
    "dssr@k4": "K=4 (r3)",
    "dssr@no-hint": "no-hint (r3)",
}
"""Our name of a trained writer to the published one."""
SPLITS: dict[str, tuple[Split, ...]] = {
    "test": ("test",),
    "testci": ("test",),
    "frontier": ("test",),
    "rewrites": ("valid", "test"),
    "rewrites_n": ("valid", "test"),
    "rewrites_contrast": ("valid", "test"),
}
"""Splits that a published table is about; validation games where nothing is said."""


class Setting(Record, frozen=True):
    """What must be the same before two values may stand beside each other."""

    split: str
    protocol: str
    reader: str | None
    """`R1` or `R2`; None for any other reader, of which nothing was published."""


def reader_of(config: Config) -> str | None:
    """The published reader that a configuration reads with."""
    return READERS.get(config.reads_with.path) if config.agent.reader_adapter else None


def beside(table: str, settings: Iterable[Setting]) -> list[Table]:
    """The published tables of the same kind, split, protocol and reader as one of ours."""
    found = []
    for name in BESIDE.get(table, ()):
        readers = ("R1", "R2") if name == "testci" else ("R1",)
        splits = SPLITS.get(name, ("valid",))
        if any(
            one.reader in readers and one.split in splits and (one.protocol == PROTOCOL or name == "pilot")
            for one in settings
        ):
            found.append(as_table(name))
    return found


def published(setting: Setting, memory: str, budget: int | None, filler: int) -> dict[str, float]:
    """`success` as a fraction and `kappa` in nats, as far as they were printed for exactly this condition."""
    return paper_cells().get((setting, WRITERS.get(memory, memory), budget, filler), {})


CellKey = tuple[Setting, str, int | None, int]
"""Setting, memory, budget and filler."""


@cache
def paper_cells() -> dict[CellKey, dict[str, float]]:
    """Every published value that belongs to one cell."""
    cells: dict[CellKey, dict[str, float]] = {}
    for name, quantity, split, budget, first in _BLOCKS:
        heads, *rows = paper_table(name)[1:]
        for row in rows:
            for place in range(first, first + 4):
                _add(cells, Setting(split, PROTOCOL, "R1"), row[0], budget, int(heads[place]), quantity, row[place])
    _add_short_rows(cells)
    _add_second_reader(cells)
    return cells


def _add(
    cells: dict[CellKey, dict[str, float]],
    setting: Setting,
    memory: str,
    budget: int,
    filler: int,
    quantity: str,
    text: str,
) -> None:
    value = _number(text)
    if value is not None:
        # One table has remarks behind the names of memories that were not trained.
        name = memory if memory in WRITERS.values() else memory.partition(" (")[0]
        key = (setting, name, None if name == "full" else budget, filler)
        cells.setdefault(key, {})[quantity] = value / 100 if quantity == "success" else value


_BLOCKS: tuple[tuple[str, str, Split, int, int], ...] = (
    ("stage2", "success", "valid", 128, 1),
    ("stage2", "kappa", "valid", 128, 5),
    ("stage2", "success", "valid", 256, 9),
    ("stage2kappaB", "kappa", "valid", 64, 1),
    ("stage2kappaB", "kappa", "valid", 256, 5),
    ("test", "success", "test", 128, 1),
    ("test", "kappa", "test", 128, 5),
)
"""Table, quantity, split, budget, and the column where four fillers begin."""


def _add_short_rows(cells: dict[CellKey, dict[str, float]]) -> None:
    """Success at the smallest budget stands only in the long form, where one row may serve several budgets."""
    memory = ""
    heads = paper_table("stage2full")[0]
    for row in paper_table("stage2full")[1:]:
        memory = row[0] or memory
        quantity, _, budgets = row[1].partition(", B=")
        if quantity == "success" and "64" in budgets.split("/"):
            for head, value in zip(heads[2:], row[2:], strict=True):
                filler = int(head.removeprefix("F'="))
                _add(cells, Setting("valid", PROTOCOL, "R1"), memory, 64, filler, "success", value)


def _add_second_reader(cells: dict[CellKey, dict[str, float]]) -> None:
    """Success under R2 stands only in the table with intervals."""
    heads, *rows = paper_table("testci")
    second = next(place for place, row in enumerate(rows) if row[0] == "R_2")
    for row in rows[second:]:
        memory = row[1].replace("dssr seed ", "dssr@a4/s")
        for head, value in zip(heads[2:6], row[2:6], strict=True):
            filler = int(head.removeprefix("F'="))
            _add(cells, Setting("test", PROTOCOL, "R2"), memory, 128, filler, "success", value)


def _number(text: str) -> float | None:
    """The estimate of a printed value like `0.85 [0.55, 1.18]`; None for a dash."""
    found = re.match(r"[-+]?\d+(\.\d+)?", text.strip())
    return float(found.group()) if found else None
