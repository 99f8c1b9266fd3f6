"""Tables of training and continuation runs, from the rows those runs stored."""

from collections.abc import Callable, Iterable, Sequence
from statistics import mean, stdev
from typing import TypeVar

import msgspec

from dssr.errors import StatsError
from dssr.measure.continuation import ReturnRow
from dssr.measure.study import same_device
from dssr.record.run import Run
from dssr.reports.study_tables import Absent
from dssr.reports.tables import Column, Kind, Table
from dssr.stats.bootstrap import Interval, Unit, written
from dssr.training.reader_points import ReaderAccuracy
from dssr.training.results import UNTRAINED, CoverageRow, CreditRow, PairRow, RoundResult, ValidatedRound, best_rounds
from dssr.types import Record

T = TypeVar("T", bound=Record)
TRAINING_LOGS = ("rounds", "credit", "pairs", "coverage", "returns", "reader_accuracy", "reader_curve")
MAKES = {
    "rounds-success": "dssr train",
    "rounds-kappa": "dssr train",
    "rounds-gain": "dssr train",
    "horizon": "dssr train --variant k1",
    "seeds": "dssr train --seeds 3",
    "credit": "dssr train",
    "pair-gaps": "dssr train",
    "coverage": "dssr train",
    "score-return": "dssr continuation",
    "reader": "dssr reader train",
    "reader-curve": "dssr reader curve",
}
"""Table to the command that stores its rows."""
PERCENT = 100.0
Number = float | Interval | None


class RoundRow(Record, frozen=True):
    """One writer after one round, or over its seeds, side by side at every filler."""

    writer: str
    round: int | None
    """None for the untrained writer."""
    seed: int | str | None
    """None where the table has one seed only."""
    at: dict[int, Number | str]
    """By filler."""
    mean: float | str | None
    """Over the fillers."""
    quantity: str = ""
    """In a table of several."""


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
        "pair-gaps": lambda: _pairs(_read(runs, "pairs", PairRow)),
        "coverage": lambda: _coverage(_once(_read(runs, "coverage", CoverageRow))),
        "score-return": lambda: _returns(runs),
        "reader": lambda: _reader(
            "reader", "Reader at held-out points", _read(runs, "reader_accuracy", ReaderAccuracy)
        ),
        "reader-curve": lambda: _reader(
            "reader-curve", "Learning curve of the reader", _read(runs, "reader_curve", ReaderAccuracy)
        ),
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
    success = quantity == "success"
    first = _first_seeds(rounds)
    rows = _side_by_side(first, lambda one: one.success if success else one.kappa, _by_round)
    kind: Kind = "percent" if success else "nats"
    title = "Success by round, %" if success else "κ by round"
    head = (Column("writer", "writer"), Column("round", "round", "count"))
    return Table(f"rounds-{quantity}", title, (*head, *_columns(first, kind)), tuple(rows))


def _gains(rounds: Sequence[RoundResult]) -> Table:
    """Each round against the untrained writer, success in points and regret in nats."""
    trained = [one for one in _first_seeds(rounds) if one.writer != UNTRAINED]
    gains = _side_by_side(trained, lambda one: one.gain_interval, _by_round)
    changes = _side_by_side(trained, lambda one: one.kappa_interval, _by_round)
    rows = [_named(row, "success, points", PERCENT) for row in gains]
    rows += [_named(row, REGRET, 1.0) for row in changes]
    head = (Column("quantity", "change of"), Column("writer", "writer"), Column("round", "round", "count"))
    title = "Change against the untrained writer, paired by game"
    return Table("rounds-gain", title, (*head, *_columns(trained)), tuple(rows))


def _named(row: RoundRow, quantity: str, factor: float) -> RoundRow:
    at = {filler: _times(value, factor) for filler, value in row.at.items()}
    mean = row.mean * factor if isinstance(row.mean, int | float) else row.mean
    return RoundRow(row.writer, row.round, row.seed, dict(at), mean, quantity)


def _times(value: Number | str, factor: float) -> Number | str:
    if isinstance(value, Interval):
        return value.times(factor)
    return value * factor if isinstance(value, int | float) else value


def _first_seeds(rounds: Sequence[RoundResult]) -> list[RoundResult]:
    """The rows of each writer's first seed; later seeds have a table of their own."""
    first: dict[str, int] = {}
    for row in rounds:
        first[row.writer] = min(row.seed, first.get(row.writer, row.seed))
    return [row for row in rounds if row.seed == first[row.writer]]


Line = tuple[str, int | None, int | None]
"""Writer, round and seed; None for what the rows of a table do not tell apart."""


def _by_round(one: RoundResult) -> Line:
    return one.writer, None if one.writer == UNTRAINED else one.round, None


def _side_by_side(
    rounds: Sequence[RoundResult], value: Callable[[RoundResult], Number], line: Callable[[RoundResult], Line]
) -> list[RoundRow]:
    """One row per line with a value at each filler; lines without any value are left out."""
    found: dict[Line, dict[int, Number | str]] = {}
    for one in rounds:
        found.setdefault(line(one), {})[one.filler] = value(one)
    return [RoundRow(*key, at, mean(known)) for key, at in found.items() if (known := _estimates(at.values()))]


def _estimates(values: Iterable[Number | str]) -> list[float]:
    found = [value.estimate if isinstance(value, Interval) else value for value in values]
    return [value for value in found if isinstance(value, int | float)]


def _columns(rounds: Sequence[RoundResult], kind: Kind | None = None) -> list[Column]:
    """A column for every filler of the rounds, and their mean; without a kind, rows say what they are of."""
    fillers = sorted({one.filler for one in rounds})
    how, by_row = kind or "nats", None if kind else _kind_of
    columns = [Column(f"at_{filler}", f"F′ = {filler}", how, _at(filler), by_row) for filler in fillers]
    return [*columns, Column("mean", "mean", how, kind_of=by_row)]


def _kind_of(row: RoundRow) -> Kind:
    return "nats" if row.quantity == REGRET else "points"


def _at(filler: int) -> Callable[[RoundRow], Number | str]:
    return lambda row: row.at.get(filler)


def _horizon(rounds: Sequence[RoundResult]) -> Table:
    """The best round of each variant: training on nearer or farther targets, and the other variants beside it."""
    best = best_rounds(rounds)
    kept = [one for one in rounds if one.writer in best and (one.seed, one.round) == _place(best[one.writer])]
    rows: list[RoundRow] = []
    if len(best) > 1:
        rows = [_named(row, "success, %", PERCENT) for row in _side_by_side(kept, lambda one: one.success, _by_round)]
        rows += [_named(row, REGRET, 1.0) for row in _side_by_side(kept, lambda one: one.kappa, _by_round)]
    head = (Column("quantity", "quantity"), Column("writer", "writer"), Column("round", "best round", "count"))
    return Table("horizon", "Variants at their best round", (*head, *_columns(kept)), tuple(rows))


def _place(standing: ValidatedRound) -> tuple[int, int]:
    return standing.seed, standing.round


def _seeds(rounds: Sequence[RoundResult]) -> Table:
    """Writers trained with several seeds, at the round selected on the first, and the untrained writer."""
    best = best_rounds(rounds)
    many = [name for name in best if len({one.seed for one in rounds if one.writer == name}) > 1]
    chosen = [one for one in rounds if one.writer in many and one.round == best[one.writer].round]
    before = [one for one in _first_seeds(rounds) if one.writer == UNTRAINED]
    found: list[RoundRow] = []
    for quantity, factor, value in SHOWN if many else ():
        rows = _side_by_side(chosen, value, lambda one: (one.writer, None, one.seed))
        rows = [_named(row, quantity, factor) for row in rows]
        pooled = [_over_seeds(writer, [row for row in rows if row.writer == writer]) for writer in many]
        found += [*rows, *(row for row in pooled if row.mean is not None)]
        found += [_named(row, quantity, factor) for row in _side_by_side(before, value, _by_round)]
    head = (Column("quantity", "quantity"), Column("writer", "writer"), Column("seed", "seed"))
    return Table("seeds", "Seeds of the selected round", (*head, *_columns(chosen)), tuple(found))


REGRET = "κ, nats"
SHOWN: tuple[tuple[str, float, Callable[[RoundResult], Number]], ...] = (
    ("success, %", PERCENT, lambda one: one.success),
    (REGRET, 1.0, lambda one: one.kappa),
)
"""Quantity, the factor it is shown with, and where it stands."""


def _over_seeds(writer: str, rows: Sequence[RoundRow]) -> RoundRow:
    fillers = sorted({filler for row in rows for filler in row.at})
    quantity = rows[0].quantity if rows else ""
    kind: Unit = "nats" if quantity == REGRET else "points"
    at: dict[int, Number | str] = {f: _spread(_estimates(row.at.get(f) for row in rows), kind) for f in fillers}
    return RoundRow(writer, None, "mean ± sd", at, _spread(_estimates(row.mean for row in rows), kind), quantity)


def _spread(values: Sequence[float], kind: Unit) -> str | None:
    return f"{written(mean(values), kind)} ± {written(stdev(values), kind)}" if len(values) > 1 else None


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
    return Table("credit", "Credit assignment", tuple(columns), tuple(rows))


def _pairs(rows: Sequence[PairRow]) -> Table:
    columns = (
        Column("candidates", "candidates"),
        Column("group", "group"),
        Column("points", "points", "count"),
        Column("qualifying", "points with a pair", "percent"),
        Column("pairs", "pairs", "count"),
        Column("lower", "gap, lower quartile", "nats"),
        Column("median", "median", "nats"),
        Column("upper", "upper quartile", "nats"),
        Column("largest", "largest", "nats"),
        Column("alike", "points with one score for all", "percent"),
        Column("actions", "hold an action", "percent"),
        Column("actions_best", "of the best", "percent"),
    )
    return Table("pair-gaps", "Pairs and gaps, shares in %", columns, tuple(rows))


def _coverage(rows: Sequence[CoverageRow]) -> Table:
    columns = (
        Column("candidates", "candidates"),
        Column("since", "steps since the reveal"),
        Column("points", "points", "count"),
        Column("coverage", "facts kept", "percent"),
        Column("coverage_best", "of the best", "percent"),
        Column("coverage_worst", "of the worst", "percent"),
    )
    title = "What candidates keep of the task, %"
    return Table("coverage", title, columns, tuple(rows))


class ScoreRow(ReturnRow, frozen=True):
    """A stored row with the place of the walk in its run."""

    protocol: str = ""


def _returns(runs: Sequence[Run]) -> Table:
    rows = [
        ScoreRow(**msgspec.structs.asdict(row), protocol=run.config.protocol.kind)
        for run in runs
        for row in run.read("returns", ReturnRow)
    ]
    columns = (
        Column("protocol", "protocol"),
        Column("score", "score"),
        Column("of", "with"),
        Column("rho", "ρ", "nats", lambda row: row.rho_interval),
        Column("points", "points", "count"),
        Column("without_variance", "points without variance", "count"),
        Column("unranked", "points with one score for all", "count"),
    )
    return Table("score-return", "Score against return", columns, tuple(rows))


def _reader(name: str, title: str, rows: Sequence[ReaderAccuracy]) -> Table:
    columns = (
        Column("iteration", "iteration"),
        Column("trained", "points learnt from"),
        Column("memory", "context"),
        Column("budget", "budget", "count"),
        Column("points", "held-out points", "count"),
        Column("games", "games", "count"),
        Column("loss", "loss", "nats"),
        Column("accuracy", "top-1, %", "percent", lambda row: row.interval),
    )
    return Table(name, title, columns, tuple(rows))
