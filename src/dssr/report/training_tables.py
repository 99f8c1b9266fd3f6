"""Tables of training and continuation runs, from the rows those runs stored."""

from collections.abc import Callable, Sequence
from statistics import mean, stdev
from typing import Any, TypeVar

import msgspec

from dssr.errors import StatsError
from dssr.measure.study import same_device
from dssr.record.run import Run
from dssr.report.study_tables import Absent
from dssr.report.tables import Column, Table
from dssr.train.results import UNTRAINED, Standing, best_rounds
from dssr.types import CoverageRow, CreditRow, PairRow, Record, ReturnRow, RoundResult

Row = dict[str, Any]
T = TypeVar("T", bound=Record)
TRAINING_LOGS = ("rounds", "credit", "pairs", "coverage", "returns")
MAKES = {
    "rounds-success": "dssr train",
    "rounds-kappa": "dssr train",
    "rounds-gain": "dssr train",
    "horizon": "dssr train --variant k1",
    "seeds": "dssr train --seeds 3",
    "credit": "dssr train",
    "pairs": "dssr train",
    "coverage": "dssr train",
    "score-return": "dssr continuation",
}
"""Table to the command that stores its rows."""


def is_training(run: Run) -> bool:
    """Whether a run stored rows of training instead of episodes of a grid."""
    return any((run.path / f"{name}.jsonl").exists() for name in TRAINING_LOGS)


def training_tables(runs: Sequence[Run]) -> tuple[list[Table], list[Absent]]:
    """Every table that the stored rows give, and for the others the command that would."""
    if runs:
        same_device(runs)
    rounds = _read(runs, "rounds", RoundResult)
    makers: dict[str, Callable[[], Table]] = {
        "rounds-success": lambda: _rounds(rounds, "success"),
        "rounds-kappa": lambda: _rounds(rounds, "kappa"),
        "rounds-gain": lambda: _gains(rounds),
        "horizon": lambda: _horizon(rounds),
        "seeds": lambda: _seeds(rounds),
        "credit": lambda: _credit(_once(_read(runs, "credit", CreditRow))),
        "pairs": lambda: _pairs(_read(runs, "pairs", PairRow)),
        "coverage": lambda: _coverage(_once(_read(runs, "coverage", CoverageRow))),
        "score-return": lambda: _returns(_read(runs, "returns", ReturnRow)),
    }
    tables: list[Table] = []
    absent: list[Absent] = []
    for name, make in makers.items():
        try:
            table = make()
        except StatsError as error:
            absent.append(Absent(name, str(error)))
            continue
        if table.rows:
            tables.append(table)
        else:
            absent.append(Absent(name, f"no run stored rows for it; `{MAKES[name]}` does."))
    return tables, absent


def _read(runs: Sequence[Run], name: str, kind: type[T]) -> list[T]:
    return [row for run in runs for row in run.read(name, kind)]


def _once(rows: Sequence[T]) -> list[T]:
    """Without repetitions: lines that share candidates each store what these held."""
    return list(dict.fromkeys(rows))


def _rounds(rounds: Sequence[RoundResult], quantity: str) -> Table:
    rows, fillers = _by_filler(_first_seeds(rounds), (quantity,), ("writer", "round"))
    kind: Any = "percent" if quantity == "success" else "nats"
    columns = [Column("writer", "writer"), Column("round", "round", "count"), *_columns(fillers, kind)]
    title = "Success by round, %" if quantity == "success" else "κ by round"
    return Table(f"rounds-{quantity}", title, (*columns, Column("mean", "mean", kind)), tuple(rows))


def _gains(rounds: Sequence[RoundResult]) -> Table:
    """Each round against the untrained writer, success in points and regret in nats."""
    rows: list[Row] = []
    fillers: list[int] = []
    for quantity, shown in (("gain", "success, points"), ("kappa_change", "κ, nats")):
        found, fillers = _by_filler(
            [one for one in _first_seeds(rounds) if one.writer != UNTRAINED],
            (quantity, f"{quantity}_low", f"{quantity}_high"),
            ("writer", "round"),
        )
        rows += [{**_scaled(row, 100.0 if quantity == "gain" else 1.0), "quantity": shown} for row in found]
    head = (Column("quantity", "change of"), Column("writer", "writer"), Column("round", "round", "count"))
    return Table(
        "rounds-gain",
        "Change against the untrained writer, paired by game",
        (*head, *_columns(fillers, "nats"), Column("mean", "mean", "nats")),
        tuple(rows),
    )


def _scaled(row: Row, factor: float) -> Row:
    numbers = {name for name in row if name == "mean" or name.startswith("at_")}
    return {name: value * factor if name in numbers and value is not None else value for name, value in row.items()}


def _first_seeds(rounds: Sequence[RoundResult]) -> list[RoundResult]:
    """The rows of each writer's first seed; later seeds have a table of their own."""
    first: dict[str, int] = {}
    for row in rounds:
        first[row.writer] = min(row.seed, first.get(row.writer, row.seed))
    return [row for row in rounds if row.seed == first[row.writer]]


def _by_filler(
    rounds: Sequence[RoundResult], quantities: tuple[str, ...], keys: tuple[str, ...]
) -> tuple[list[Row], list[int]]:
    """One row per group with a column for each filler; further quantities are the ends of the first one's interval."""
    groups: dict[tuple[Any, ...], Row] = {}
    for one in rounds:
        group = groups.setdefault(tuple(getattr(one, key) for key in keys), {key: getattr(one, key) for key in keys})
        for quantity, end in zip(quantities, ("", "_low", "_high"), strict=False):
            group[f"at_{one.filler}{end}"] = getattr(one, quantity)
    fillers = sorted({one.filler for one in rounds})
    for group in groups.values():
        known = [value for filler in fillers if (value := group.get(f"at_{filler}")) is not None]
        group["mean"] = mean(known) if known else None
        if group.get("writer") == UNTRAINED:
            group |= dict.fromkeys(("round",) if "round" in keys else ())
    return [row for row in groups.values() if row["mean"] is not None], fillers


def _columns(fillers: Sequence[int], kind: Any) -> list[Column]:
    return [Column(f"at_{filler}", f"F′ = {filler}", kind) for filler in fillers]


def _horizon(rounds: Sequence[RoundResult]) -> Table:
    """The best round of each variant: training on nearer or farther targets, and the other variants beside it."""
    best = best_rounds(rounds)
    kept = [one for one in rounds if one.writer in best and (one.seed, one.round) == _place(best[one.writer])]
    rows, fillers = _by_filler(kept, ("success",), ("writer", "round"))
    columns = (Column("writer", "writer"), Column("round", "best round", "count"), *_columns(fillers, "percent"))
    title = "Variants at their best round, success %"
    shown = tuple(rows) if len(best) > 1 else ()
    return Table("horizon", title, (*columns, Column("mean", "mean", "percent")), shown)


def _place(standing: Standing) -> tuple[int, int]:
    return standing.seed, standing.round


def _seeds(rounds: Sequence[RoundResult]) -> Table:
    """Writers trained with several seeds, at the round selected on the first, and the untrained writer."""
    best = best_rounds(rounds)
    many = [name for name in best if len({one.seed for one in rounds if one.writer == name}) > 1]
    chosen = [one for one in rounds if one.writer in many and one.round == best[one.writer].round]
    rows, fillers = _by_filler(chosen, ("success",), ("writer", "seed"))
    for writer in many:
        mine = [row for row in rows if row["writer"] == writer]
        values = {f"at_{f}": [row[f"at_{f}"] for row in mine if row.get(f"at_{f}") is not None] for f in fillers}
        values["mean"] = [row["mean"] for row in mine]
        rows.append({"writer": writer, "seed": "mean ± sd"} | {key: _spread(found) for key, found in values.items()})
    if many:
        before = [one for one in _first_seeds(rounds) if one.writer == UNTRAINED]
        rows += _by_filler(before, ("success",), ("writer",))[0]
    columns = (Column("writer", "writer"), Column("seed", "seed"), *_columns(fillers, "percent"))
    title = "Seeds of the selected round, success %"
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


def _pairs(rows: Sequence[PairRow]) -> Table:
    columns = (
        Column("candidates", "candidates"),
        Column("points", "points", "count"),
        Column("qualifying", "points with a pair", "percent"),
        Column("pairs", "pairs", "count"),
        Column("lower", "gap, lower quartile", "nats"),
        Column("median", "median", "nats"),
        Column("upper", "upper quartile", "nats"),
        Column("largest", "largest", "nats"),
        Column("commands", "hold a command", "percent"),
        Column("commands_best", "of the best", "percent"),
    )
    return Table("pairs", "Pairs and gaps, shares in %", columns, tuple(msgspec.to_builtins(row) for row in rows))


def _coverage(rows: Sequence[CoverageRow]) -> Table:
    columns = (
        Column("candidates", "candidates"),
        Column("since", "steps since the reveal"),
        Column("points", "points", "count"),
        Column("coverage", "facts kept", "percent"),
    )
    title = "What candidates keep of the task, %"
    return Table("coverage", title, columns, tuple(msgspec.to_builtins(row) for row in rows))


def _returns(rows: Sequence[ReturnRow]) -> Table:
    columns = (
        Column("score", "score"),
        Column("rho", "ρ with return", "nats"),
        Column("points", "points", "count"),
        Column("without_variance", "points without variance", "count"),
        Column("unranked", "points with one score for all", "count"),
    )
    return Table("score-return", "Score against return", columns, tuple(msgspec.to_builtins(row) for row in rows))
