"""The tables of a study: which there are, and why one cannot be made."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from dssr.errors import StatsError
from dssr.measure.answers import answer_rows
from dssr.measure.rows import (
    cell_rows,
    chunk_rows,
    contrast_rows,
    lag_bin_rows,
    long_filler_rows,
    rewrite_contrast_rows,
    rewrite_rows,
    slope_rows,
)
from dssr.measure.study import Study
from dssr.report.paper import paper_cells
from dssr.report.survival import loss_rows, pair_rows, protocol_rows, start_rows
from dssr.report.tables import Column, Table
from dssr.types import Record

Row = dict[str, Any]
MEMORY, BUDGET = Column("memory", "memory"), Column("budget", "B", "count")
FILLER = Column("filler", "F′", "count")
HEAD = (MEMORY, BUDGET)
LOSSES = (Column("delta", "δ", "nats"), Column("beta", "β", "nats"), Column("kappa", "κ", "nats"))
BASE = "summary"
"""What other memories are compared with when it was played."""


class Absent(Record, frozen=True):
    """A table that the stored records cannot give, and the reason."""

    name: str
    reason: str


def study_tables(study: Study, against_paper: bool = False) -> tuple[list[Table], list[Absent]]:
    """All tables of the study, in the order of the report, and those that are not to be had."""
    tables: list[Table] = []
    absent: list[Absent] = []
    for name, make in MAKERS.items():
        try:
            table = _grid(study, against_paper) if name == "grid" else make(study)
        except StatsError as error:
            absent.append(Absent(name, str(error)))
            continue
        if table.rows:
            tables.append(table)
        else:
            absent.append(Absent(name, EMPTY.get(name, "the runs hold nothing for it.")))
    return tables, absent


def _split(study: Study) -> str:
    splits = sorted({episode.split for games in study.episodes.values() for episode in games.values()})
    return "/".join(splits)


def _grid(study: Study, against_paper: bool = False) -> Table:
    rows = cell_rows(study)
    columns = [*HEAD, FILLER, Column("games", "games", "count"), Column("success", "success %", "percent"), *LOSSES]
    if against_paper:
        known = paper_cells()
        for row in rows:
            found = known.get((row["memory"], row["budget"], row["filler"]), {})
            row |= {"paper_success": found.get("success"), "paper_kappa": found.get("kappa")}
        columns.insert(5, Column("paper_success", "paper %", "percent"))
        columns.append(Column("paper_kappa", "paper κ", "nats"))
    if any(row["errors"] for row in rows):
        columns.insert(4, Column("errors", "failed", "count"))
    note = "Means over games with 95 % intervals; losses in nats per audited decision; failed episodes are not losses."
    return _table("grid", f"Grid, {_split(study)} games", columns, rows, note, study)


def _decomposition(study: Study) -> Table:
    rows = answer_rows(study)
    columns = [*HEAD, Column("success", "success %", "percent"), *LOSSES, Column("cause", "who loses it")]
    note = " ".join(row["sentence"] for row in rows if row["cause"] is None)
    return _table("decomposition", "Decomposition over all fillers: δ = β + κ", columns, rows, note, study)


def _kappa_by_filler(study: Study) -> Table:
    study.need_audits()
    slopes = {(row["memory"], row["budget"], row["protocol"]): row for row in slope_rows(study)}
    means = {(row["memory"], row["budget"], row["protocol"]): row for row in long_filler_rows(study)}
    audited = [row for row in cell_rows(study) if row["kappa"] is not None]
    rows, columns = _pivot(audited, ("memory", "budget", "protocol"), "filler", "kappa", "F′ = {}")
    for row in rows:
        key = (row["memory"], row["budget"], row["protocol"])
        _copy(slopes.get(key, {}), "slope", row, "slope")
        _copy(means.get(key, {}), "kappa", row, "lagged")
    lagged = "/".join(map(str, study.config.stats.long_fillers))
    tail = [Column("lagged", f"F′ {lagged}", "nats"), Column("slope", "slope per step", "number")]
    return _table("kappa-by-filler", "κ by filler", [*HEAD, *columns, *tail], rows, "", study)


def _frontier(study: Study) -> Table:
    rows, columns = _pivot(
        cell_rows(study), ("memory", "budget", "protocol"), "filler", "success", "F′ = {}", "percent"
    )
    return _table("frontier", "Success by budget and filler, %", [*HEAD, *columns], rows, "", study)


def _lag_bins(study: Study) -> Table:
    columns = [*HEAD, Column("threshold", "threshold", "nats"), Column("bin", "ℓ"), Column("points", "points", "count")]
    columns += [Column("kappa", "κ", "nats"), Column("beta", "β", "nats"), Column("nll_full", "NLL(h)", "nats")]
    rows = [row for row in lag_bin_rows(study) if row["points"]]
    return _table("lag-bins", "κ by measured lag ℓ", columns, rows, "", study)


def _chunks(study: Study) -> Table:
    columns = [Column("threshold", "threshold", "nats"), Column("kind", "needed stretch")]
    columns += [Column("points", "points", "count"), Column("share", "share %", "percent")]
    return _table("lag-kinds", "What decisions hang on", columns, chunk_rows(study), "", study)


def _rewrites(study: Study) -> Table:
    rows, columns = _pivot(rewrite_rows(study), ("memory", "budget", "protocol"), "bin", "kappa", "{}")
    return _table(
        "rewrites", f"κ by rewrites since the {study.domain.words.task} was shown", [*HEAD, *columns], rows, "", study
    )


def _rewrite_contrasts(study: Study) -> Table:
    rows = [r for name in _others(study) for r in rewrite_contrast_rows(study, name, BASE) if r["games"]]
    columns = [Column("first", "memory"), BUDGET, Column("bin", "rewrites"), Column("games", "games", "count")]
    columns += [Column("difference", f"κ minus {BASE}'s", "nats"), Column("relative", "relative", "change")]
    return _table("rewrite-contrasts", f"κ against {BASE} by rewrites, paired by game", columns, rows, "", study)


def _contrasts(study: Study) -> Table:
    rows = contrast_rows(study, BASE) if _others(study) else []
    for row in rows:
        scale = 100 if row["quantity"] == "success" else 1
        for key in ("difference", "difference_low", "difference_high"):
            row[key] = None if row[key] is None else scale * row[key]
    columns = [*HEAD, Column("filler", "F′"), Column("quantity", "quantity"), Column("games", "games", "count")]
    columns += [Column("difference", "difference", "nats"), Column("relative", "relative", "change")]
    problems = dict.fromkeys(row["problem"] for row in rows if row["problem"])
    note = " ".join(["Success differences are in points.", *(f"Left blank: {one}." for one in problems)])
    return _table("contrasts", f"Against {BASE}, paired by game", columns, rows, note, study)


def _lag_grid(study: Study) -> Table:
    columns = [*HEAD, FILLER, Column("success", "success %", "percent"), Column("kappa", "κ", "nats")]
    columns += [
        Column("home_games", f"from the {study.domain.words.home}", "count"),
        Column("home", "success %", "percent"),
    ]
    columns += [Column("elsewhere_games", "from elsewhere", "count"), Column("elsewhere", "success %", "percent")]
    return _table("lag-grid", "Lag grid, split by where the task starts", columns, start_rows(study), "", study)


def _pilot(study: Study) -> Table:
    columns = [*HEAD, Column("condition", "condition"), Column("kappa", "κ", "nats")]
    columns += [Column("difference", "minus the first", "nats")]
    return _table("protocols", "Where the filler walk stands", columns, protocol_rows(study), "", study)


def _pairs(study: Study) -> Table:
    columns = [Column("game", "game"), BUDGET, FILLER, Column("step", "step", "count"), Column("memory", "memory")]
    columns += [Column("held", f"{study.domain.words.task} kept %", "percent"), Column("state", "state")]
    return _table("pairs", "Two writers at the same write point", columns, pair_rows(study, BASE), "", study)


def _losses(study: Study) -> Table:
    fact = study.domain.words.fact
    columns = [MEMORY, BUDGET, FILLER, Column("game", "game"), Column("fact", fact)]
    columns += [Column("step", "step", "count"), Column("rewrites", "rewrite", "count")]
    columns += [Column("before", "state before"), Column("after", "state after")]
    return _table("losses", f"Rewrites that lost a {fact}", columns, loss_rows(study), "", study)


MAKERS: dict[str, Callable[[Study], Table]] = {
    "grid": _grid,
    "decomposition": _decomposition,
    "kappa-by-filler": _kappa_by_filler,
    "frontier": _frontier,
    "lag-bins": _lag_bins,
    "lag-kinds": _chunks,
    "rewrites": _rewrites,
    "rewrite-contrasts": _rewrite_contrasts,
    "contrasts": _contrasts,
    "lag-grid": _lag_grid,
    "protocols": _pilot,
    "pairs": _pairs,
    "losses": _losses,
}
EMPTY = {
    "rewrite-contrasts": f"it compares other memories with {BASE}; play both with `dssr diagnose --memory`.",
    "contrasts": f"it compares other memories with {BASE}; play both with `dssr diagnose --memory`.",
    "protocols": "the runs know one protocol; set `kind` under [protocol], `dssr diagnose` again, report both.",
    "pairs": f"it needs {BASE} and another written memory on the same games, and steps stored with them.",
    "losses": "no rewrite lost a fact that was still needed.",
}


# ---------------------------------------------------------------- shapes


def _table(name: str, title: str, columns: Sequence[Column], rows: Iterable[Row], note: str, study: Study) -> Table:
    """The protocol is a column only when it differs."""
    many = len({cell.protocol for cell in study.cells}) > 1
    kept = tuple(rows)
    if many and any("protocol" in row for row in kept):
        columns = [*columns[:2], Column("protocol", "protocol"), *columns[2:]]
    return Table(name, title, tuple(columns), kept, note)


def _pivot(
    rows: Sequence[Row], keys: Sequence[str], across: str, value: str, head: str, kind: Any = "nats"
) -> tuple[list[Row], list[Column]]:
    """One row per group, one column per value of `across`."""
    found: dict[tuple[Any, ...], Row] = {}
    places = list(dict.fromkeys(row[across] for row in rows if row[value] is not None))
    if all(isinstance(place, int) for place in places):
        places.sort()
    for row in rows:
        group = found.setdefault(tuple(row[key] for key in keys), {key: row[key] for key in keys})
        _copy(row, value, group, f"{value}_at_{row[across]}")
    return list(found.values()), [Column(f"{value}_at_{place}", head.format(place), kind) for place in places]


def _copy(source: Row, name: str, target: Row, new: str) -> None:
    for end in ("", "_low", "_high"):
        target[f"{new}{end}"] = source.get(f"{name}{end}")


def _others(study: Study) -> list[str]:
    """Memories with a budget to set against the base; none when the base itself is missing."""
    names = list(dict.fromkeys(cell.memory for cell in study.cells if cell.budget is not None))
    return [name for name in names if name != BASE] if BASE in names else []
