"""Tables of training and continuation runs, from the rows those runs stored."""

from collections.abc import Callable, Sequence
from statistics import mean, stdev
from typing import Any, TypeVar

import msgspec

from dssr.record.run import Run
from dssr.report.kinds import Absent
from dssr.report.tables import Column, Table
from dssr.types import CreditRow, Record, ReturnRow, RoundResult

Row = dict[str, Any]
T = TypeVar("T", bound=Record)
LOGS = ("rounds", "credit", "returns")
MAKES = {
    "rounds-success": "dssr train",
    "rounds-kappa": "dssr train",
    "horizon": "dssr train --variant K=1",
    "seeds": "dssr train --seeds 3",
    "credit": "dssr train",
    "score-return": "dssr continuation",
}
"""Table to the command that stores its rows."""


def is_training(run: Run) -> bool:
    """Whether a run stored rows of training instead of episodes of a grid."""
    return any((run.path / f"{name}.jsonl").exists() for name in LOGS)


def training_tables(runs: Sequence[Run]) -> tuple[list[Table], list[Absent]]:
    """Every table that the stored rows give, and for the others the command that would."""
    rounds = _read(runs, "rounds", RoundResult)
    credit = _read(runs, "credit", CreditRow)
    returns = _read(runs, "returns", ReturnRow)
    makers: dict[str, Callable[[], Table]] = {
        "rounds-success": lambda: _rounds(rounds, "success"),
        "rounds-kappa": lambda: _rounds(rounds, "kappa"),
        "horizon": lambda: _horizon(rounds),
        "seeds": lambda: _seeds(rounds),
        "credit": lambda: _credit(credit),
        "score-return": lambda: _returns(returns),
    }
    tables = [make() for make in makers.values()]
    absent = [Absent(t.name, f"no run stored rows for it; `{MAKES[t.name]}` does.") for t in tables if not t.rows]
    return [table for table in tables if table.rows], absent


def _read(runs: Sequence[Run], name: str, kind: type[T]) -> list[T]:
    return [row for run in runs for row in run.read(name, kind)]


def _rounds(rounds: Sequence[RoundResult], quantity: str) -> Table:
    first = min((row.seed for row in rounds), default=0)
    rows, fillers = _by_filler([row for row in rounds if row.seed == first], quantity, ("writer", "round"))
    kind: Any = "percent" if quantity == "success" else "nats"
    columns = [Column("writer", "writer"), Column("round", "round", "count"), *_columns(fillers, kind)]
    title = "Success by round, %" if quantity == "success" else "κ by round"
    return Table(f"rounds-{quantity}", title, (*columns, Column("mean", "mean", kind)), tuple(rows))


def _by_filler(rounds: Sequence[RoundResult], quantity: str, keys: tuple[str, ...]) -> tuple[list[Row], list[int]]:
    groups: dict[tuple[Any, ...], Row] = {}
    for one in rounds:
        group = groups.setdefault(tuple(getattr(one, key) for key in keys), {key: getattr(one, key) for key in keys})
        group[f"at_{one.filler}"] = getattr(one, quantity)
    for group in groups.values():
        known = [value for key, value in group.items() if key.startswith("at_") and value is not None]
        group["mean"] = mean(known) if known else None
    rows = [row for row in groups.values() if row["mean"] is not None]
    return rows, sorted({one.filler for one in rounds})


def _columns(fillers: Sequence[int], kind: Any) -> list[Column]:
    return [Column(f"at_{filler}", f"F′ = {filler}", kind) for filler in fillers]


def _horizon(rounds: Sequence[RoundResult]) -> Table:
    """The best round of each variant: training on nearer or farther targets, and the other variants beside it."""
    rows, fillers = _by_filler(rounds, "success", ("writer", "round", "seed"))
    best: dict[str, Row] = {}
    for row in rows:
        if row["writer"] not in best or row["mean"] > best[row["writer"]]["mean"]:
            best[row["writer"]] = row
    columns = (Column("writer", "writer"), Column("round", "best round", "count"), *_columns(fillers, "percent"))
    kept = tuple(best.values()) if len(best) > 1 else ()
    return Table(
        "horizon", "Variants at their best round, success %", (*columns, Column("mean", "mean", "percent")), kept
    )


def _seeds(rounds: Sequence[RoundResult]) -> Table:
    many = {one.writer for one in rounds if len({r.seed for r in rounds if r.writer == one.writer}) > 1}
    last = {w: max(one.round for one in rounds if one.writer == w) for w in many}
    chosen = [one for one in rounds if one.writer in many and one.round == last[one.writer]]
    rows, fillers = _by_filler(chosen, "success", ("writer", "seed"))
    for writer in sorted(many):
        mine = [row for row in rows if row["writer"] == writer]
        values = {f"at_{f}": [row[f"at_{f}"] for row in mine if row.get(f"at_{f}") is not None] for f in fillers}
        values["mean"] = [row["mean"] for row in mine]
        rows.append({"writer": writer, "seed": "mean ± sd"} | {key: _spread(found) for key, found in values.items()})
    columns = (Column("writer", "writer"), Column("seed", "seed"), *_columns(fillers, "percent"))
    title = "Seeds of the last round, success %"
    return Table("seeds", title, (*columns, Column("mean", "mean", "percent")), tuple(rows))


def _spread(values: Sequence[float]) -> str | None:
    return f"{100 * mean(values):.1f} ± {100 * stdev(values):.1f}" if len(values) > 1 else None


def _credit(rows: Sequence[CreditRow]) -> Table:
    heads = {
        "coverage_all": "kept, all",
        "coverage_best": "kept, best",
        "coverage_worst": "kept, worst",
        "all_zero": "none keeps any",
        "differ": "differ",
        "best_above": "best above worst",
        "best_below": "best below worst",
    }
    columns = [Column("candidates", "candidates"), Column("group", "group"), Column("points", "points", "count")]
    columns += [Column(key, head, "nats") for key, head in heads.items()]
    return Table("credit", "Credit assignment", tuple(columns), tuple(msgspec.to_builtins(row) for row in rows))


def _returns(rows: Sequence[ReturnRow]) -> Table:
    columns = (
        Column("score", "score"),
        Column("rho", "ρ with return", "nats"),
        Column("points", "points", "count"),
        Column("without_variance", "points without variance", "count"),
    )
    return Table("score-return", "Score against return", columns, tuple(msgspec.to_builtins(row) for row in rows))
