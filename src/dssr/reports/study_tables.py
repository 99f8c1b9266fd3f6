"""The tables of a study: which there are, and why one cannot be made."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from dssr.errors import StatsError
from dssr.measure.comparisons import ContrastRow, ReaderRow, TransferRow, contrast_rows, reader_name, reader_rows
from dssr.measure.lag import chunk_rows, lag_bin_rows, rewrite_contrast_rows, rewrite_rows
from dssr.measure.log_facts import blame_rows, stratum_rows, survival_rows
from dssr.measure.rows import BASE, CellGroup, CellRow, cell_rows, filler_rows, long_fillers, slope_rows
from dssr.measure.sampled import filler_lag_rows, lag_table_rows, tie_rows, word_for_filler
from dssr.measure.study import Study
from dssr.measure.verdicts import answer_rows
from dssr.reports.paper import Setting, published, reader_of
from dssr.reports.recall import recall_table
from dssr.reports.survival import (
    StartRow,
    losses,
    protocol_contrast_rows,
    protocol_rows,
    retention_table,
    shared_point_rows,
    start_rows,
)
from dssr.reports.tables import Column, Kind, Table, cost_table, per_cent
from dssr.stats.bootstrap import Interval
from dssr.types import Protocol, Record

MEMORY, BUDGET = Column("memory", "memory"), Column("budget", "B", "count")
FILLER = Column("filler", "F′", "count")
HEAD = (MEMORY, BUDGET)
LOSSES = (Column("delta", "δ", "nats"), Column("beta", "β", "nats"), Column("kappa", "κ", "nats"))
WILSON = Column("wilson", "Wilson", "percent")
PERCENT = 100
Place = int | str
"""A filler or the name of a bin."""


class AcrossRow(CellGroup, frozen=True):
    """A quantity of one memory and budget, side by side at every filler or in every bin."""

    at: dict[Place, Interval | int | None]
    lagged: Interval | None = None
    """Over the long fillers."""
    slope: Interval | None = None
    """Per step of the filler walk."""


class Absent(Record, frozen=True):
    """A table that the stored records cannot give, and the reason."""

    name: str
    reason: str


def study_tables(
    study: Study,
    against_paper: bool = False,
    transferred: Sequence[TransferRow] = (),
    read: Sequence[ReaderRow] = (),
) -> tuple[list[Table], list[Absent]]:
    """All tables of the study, in the order of the report, and those that are not to be had.

    `transferred` and `read` are the rows of the tables that look at several readers."""
    tables: list[Table] = []
    absent: list[Absent] = []
    makers = MAKERS | {"grid": partial(_grid, against_paper=against_paper)}
    makers |= {TRANSFER: lambda _: transfer_table(transferred), "readers": lambda _: _readers(read, study)}
    for name in makers:
        try:
            table = makers[name](study)
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
        columns.insert(5, Column("paper_success", "paper %", "percent", partial(_published, study, "success")))
        columns.append(Column("paper_kappa", "paper κ", "nats", partial(_published, study, "kappa")))
    if any(row.errors for row in rows):
        columns.insert(4, Column("errors", "failed", "count"))
    if any(row.wilson for row in rows):
        columns.insert(columns.index(LOSSES[0]), WILSON)
    level = per_cent(study.config.stats.level)
    note = (
        f"Means over games with {level} percentile bootstrap intervals, which are too narrow for few games; losses in "
        "nats per audited decision; failed episodes are not losses."
    )
    problems = dict.fromkeys([*(row.problem for row in rows if row.problem), *study.lacking.values()])
    if against_paper and reader_of(study.config) is None:
        note += f" Nothing was published of the reader {study.config.reads_with.path}."
    note = " ".join([note, *problems])
    return _table("grid", f"Grid, {_split(study)} games", columns, rows, study, note)


def _published(study: Study, quantity: str, row: CellRow) -> float | None:
    return published(setting_of(study, row.protocol), row.memory, row.budget, row.filler).get(quantity)


def setting_of(study: Study, protocol: Protocol) -> Setting:
    """What a published value must share with the rows of a study."""
    return Setting(_split(study), protocol, reader_of(study.config))


def _decomposition(study: Study) -> Table:
    rows = answer_rows(study)
    columns = [*HEAD, Column("games", "games", "count"), Column("success", "success %", "percent"), *LOSSES]
    columns.append(Column("contrast", "κ − β", "nats"))
    level = per_cent(study.config.stats.level)
    said = [row.sentence for row in rows if row.cause is None]
    said.append(f"Brackets are {level} t intervals, which hold their level at few games; κ − β says who loses more.")
    if any(row.kappa_first for row in rows):
        columns += [Column("kappa_first", "κ, first sample", "nats"), Column("kappa_mean", "κ, mean sample", "nats")]
        said.append(
            "κ is against the best of the hindsight samples, chosen with the answer in hand; beside it against the "
            "first of them and against their mean, which have no part in that choice."
        )
    columns.append(Column("cause", "who loses it"))
    note = " ".join(said)
    return _table("decomposition", "Decomposition over all fillers: δ = β + κ", columns, rows, study, note)


def _kappa_by_filler(study: Study) -> Table:
    study.need_audits()
    slopes = {_group(row): row.slope for row in slope_rows(study)}
    means = {_group(row): row.kappa for row in filler_rows(study)}
    found = _across([(_group(row), row.filler, row.kappa) for row in cell_rows(study) if row.kappa is not None])
    rows = [
        AcrossRow(one.memory, one.budget, one.protocol, at, means.get(one), slopes.get(one))
        for one, at in found.items()
    ]
    long = "/".join(map(str, long_fillers(study)))
    columns = _places(found, "kappa", "F′ = {}", "nats")
    tail = [Column("lagged", f"F′ {long}", "nats"), Column("slope", "slope per step", "number")]
    return _table("kappa-by-filler", "κ by filler", [*HEAD, *columns, *tail], rows, study)


def _frontier(study: Study) -> Table:
    found = _across([(_group(row), row.filler, row.success) for row in cell_rows(study)])
    columns = [*HEAD, *_places(found, "success", "F′ = {}", "percent")]
    return _table("frontier", "Success by budget and filler, %", columns, _lines(found), study)


def _lag_bins(study: Study) -> Table:
    columns = [*HEAD, Column("threshold", "threshold", "nats"), Column("bin", "ℓ"), Column("points", "points", "count")]
    columns += [Column("kappa", "κ", "nats"), Column("beta", "β", "nats"), Column("nll_full", "NLL(h)", "nats")]
    rows = [row for row in lag_bin_rows(study) if row.points]
    return _table("lag-bins", "κ by measured lag ℓ", columns, rows, study)


def _lag_table(study: Study) -> Table:
    rows = lag_table_rows(study)
    columns = [Column("threshold", "threshold", "nats"), Column("bin", "ℓ"), Column("points", "points", "count")]
    columns += [Column("kappa", "κ", "nats"), Column("beta", "β", "nats"), Column("nll_full", "NLL(h)", "nats")]
    gates = study.config.gates
    note = (
        f"{rows[0].sampled} decisions sampled over {', '.join(gates.formats)} at {gates.budget} tokens, spread over "
        "cells; means over decisions, intervals from resampled games."
    )
    return _table("lag-table", "Losses by measured lag ℓ, formats pooled", columns, rows, study, note)


def _filler_lags(study: Study) -> Table:
    columns = [FILLER, Column("points", "points", "count"), Column("lag", "mean ℓ", "number")]
    columns += [Column("exposed", f"steps that tell the {study.domain.words.task} again %", "percent")]
    _, why = word_for_filler(study)
    return _table("filler-lags", "Is the filler lag?", columns, filler_lag_rows(study), study, why)


def _ties(study: Study) -> Table:
    columns = [
        Column("steps", "steps sampled", "count"),
        Column("of", "of", "count"),
        Column("rate", "ties %", "percent"),
    ]
    note = "Steps where the reader's choice is not the reference action; a tie shortens the optimal plan too."
    return _table("ties", "Choices as good as the reference action", columns, tie_rows(study), study, note)


def _chunks(study: Study) -> Table:
    columns = [Column("threshold", "threshold", "nats"), Column("kind", "needed stretch")]
    columns += [Column("points", "points", "count"), Column("share", "share %", "percent")]
    return _table("lag-kinds", "What decisions hang on", columns, chunk_rows(study), study)


def _rewrites(study: Study) -> Table:
    found = _across([(_group(row), row.bin, row.kappa) for row in rewrite_rows(study)])
    columns = [*HEAD, *_places(found, "kappa", "{}", "nats")]
    return _table(
        "rewrites", f"κ by rewrites since the {study.domain.words.task} was shown", columns, _lines(found), study
    )


def _rewrite_counts(study: Study) -> Table:
    found = _across([(_group(row), row.bin, row.points) for row in rewrite_rows(study)])
    columns = [*HEAD, *_places(found, "points", "{}", "count")]
    title = f"Decisions by rewrites since the {study.domain.words.task} was shown"
    return _table("rewrite-counts", title, columns, _lines(found), study)


def _rewrite_contrasts(study: Study) -> Table:
    rows = [r for name in _others(study) for r in rewrite_contrast_rows(study, name, BASE) if r.games]
    columns = [Column("first", "memory"), BUDGET, Column("bin", "rewrites"), Column("games", "games", "count")]
    columns += [Column("difference", f"κ minus {BASE}'s", "nats"), Column("relative", "relative", "change")]
    return _table("rewrite-contrasts", f"κ against {BASE} by rewrites, paired by game", columns, rows, study)


def _contrasts(study: Study) -> Table:
    rows = contrast_rows(study, BASE) if _others(study) else []
    columns = [*HEAD, Column("filler", "F′"), Column("quantity", "quantity"), Column("games", "games", "count")]
    columns += [Column("difference", "difference", "nats", _in_points), Column("relative", "relative", "change")]
    problems = dict.fromkeys(row.problem for row in rows if row.problem)
    note = " ".join(["Success differences are in points.", *(f"Left blank: {one}" for one in problems)])
    return _table("contrasts", f"Against {BASE}, paired by game", columns, rows, study, note)


def _in_points(row: ContrastRow) -> Interval | None:
    if row.difference is None or row.quantity != "success":
        return row.difference
    return row.difference.times(PERCENT)


def _lag_grid(study: Study) -> Table:
    columns = [*HEAD, FILLER, Column("success", "success %", "percent"), Column("kappa", "κ", "nats")]
    columns += [
        Column("home_games", f"from the {study.domain.words.home}", "count"),
        Column("home", "success %", "percent"),
    ]
    columns += [Column("elsewhere_games", "from elsewhere", "count"), Column("elsewhere", "success %", "percent")]
    if _others(study):
        gains = {
            (r.memory, r.budget, r.filler, r.protocol): r for r in contrast_rows(study, BASE) if r.quantity == "success"
        }
        columns.insert(4, Column("gain", f"gain over {BASE}, points", "nats", partial(_gain, gains)))
    word, why = word_for_filler(study)
    title = f"{word.capitalize()} grid, split by where the task starts"
    return _table("lag-grid", title, columns, start_rows(study), study, why)


def _gain(gains: Mapping[tuple[str, int | None, str, Protocol], ContrastRow], row: StartRow) -> Interval | None:
    found = gains.get((row.memory, row.budget, str(row.filler), row.protocol))
    return _in_points(found) if found else None


def _pilot_contrasts(study: Study) -> Table:
    columns = [*HEAD, Column("contrast", "contrast"), Column("games", "games", "count")]
    columns += [Column("difference", "difference of κ", "nats")]
    rows = protocol_contrast_rows(study)
    problems = dict.fromkeys(row.problem for row in rows if row.problem)
    note = " ".join(f"Left blank: {one}" for one in problems)
    return _table("protocol-contrasts", "Where the filler walk stands, paired by game", columns, rows, study, note)


def _pilot(study: Study) -> Table:
    columns = [*HEAD, Column("condition", "condition"), Column("kappa", "κ", "nats")]
    columns += [Column("difference", "minus the first", "nats")]
    return _table("protocols", "Where the filler walk stands", columns, protocol_rows(study), study)


def _pairs(study: Study) -> Table:
    columns = [Column("game", "game"), BUDGET, FILLER, Column("step", "step", "count"), Column("memory", "memory")]
    columns += [Column("held", f"{study.domain.words.task} kept %", "percent"), Column("state", "state")]
    columns += [Column("choice", "first choice after it"), Column("nll", "NLL of a*", "nats")]
    rows = shared_point_rows(study, BASE)
    return _table("pairs", "Two writers at the same write point", columns, rows, study)


def _losses(study: Study) -> Table:
    fact = study.domain.words.fact
    columns = [MEMORY, BUDGET, FILLER, Column("game", "game"), Column("fact", fact)]
    columns += [Column("step", "step", "count"), Column("rewrites", "rewrite", "count")]
    columns += [Column("before", "state before"), Column("after", "state after")]
    return _table("losses", f"Rewrites that lost a {fact}", columns, losses(study), study)


def _of_logs(study: Study) -> None:
    if not study.is_of_logs:
        raise StatsError("it is about logs; `dssr audit` makes them.")


def _fact_survival(study: Study) -> Table:
    _of_logs(study)
    columns = [*HEAD, Column("facts", "values needed", "count"), Column("verbatim", "held word for word", "count")]
    columns += [Column("paraphrased", "paraphrased", "count"), Column("dropped", "dropped", "count")]
    columns += [Column("by_generation", "held after 1, 2, 3 … rewrites, %")]
    title = "Values that later actions need, through the rewrites"
    return _table("fact-survival", title, columns, survival_rows(study), study)


def _blame(study: Study) -> Table:
    _of_logs(study)
    columns = [*HEAD, Column("trace", "log"), Column("step", "rewrite at step", "count"), Column("dropped", "lost")]
    columns += [Column("needed", "decisions that needed it"), Column("kappa", "κ there", "nats")]
    return _table("blame", "Rewrites that lost what later actions needed", columns, blame_rows(study), study)


def _strata(study: Study) -> Table:
    _of_logs(study)
    columns = [
        *HEAD,
        Column("stratum", "decisions"),
        Column("loss", "loss"),
        Column("points", "points", "count"),
        *LOSSES,
    ]
    columns += [Column("whole_delta", "δ of the whole action", "nats"), Column("whole_kappa", "κ of it", "nats")]
    note = "Only carried values and choices among options count into β and κ; repeats and plain text stand beside."
    rows = stratum_rows(study)
    if any(row.sampling_error for row in rows):
        columns.append(Column("sampling_error", "± of κ from drawing", "nats"))
    return _table("strata", "Losses by kind of decision", columns, rows, study, note)


def _readers(rows: Sequence[ReaderRow], study: Study) -> Table:
    fillers = sorted({filler for row in rows for filler in row.at})
    head = [Column("reader", "reader"), *HEAD, Column("games", "games", "count")]
    won = [Column(f"success_at_{filler}", f"F′ = {filler}", "percent", _at(filler)) for filler in fillers]
    long = "/".join(map(str, long_fillers(study)))
    columns = [*head, *won, Column("kappa", f"κ, F′ {long}", "nats")]
    return Table("readers", f"Success under each reader, {_split(study)} games, %", tuple(columns), tuple(rows))


TRANSFER = "transfer"


def transfer_table(rows: Sequence[TransferRow]) -> Table:
    """Writer × reader."""
    columns = [*HEAD, Column("reader", "reader"), Column("games", "games", "count")]
    columns += [Column("near", "success % short F′", "percent"), Column("success", "success % long F′", "percent")]
    columns += [Column("kappa", "κ long F′", "nats"), Column("gain", f"gain over {BASE}, points", "percent")]
    columns += [Column("kept", "share of the first reader's gain", "percent", _kept)]
    if len({row.protocol for row in rows}) > 1:
        columns.insert(2, Column("protocol", "protocol"))
    problems = dict.fromkeys(row.problem for row in rows if row.problem)
    note = " ".join(f"Left blank: {one}" for one in problems)
    return Table(TRANSFER, "Transfer: the same writers under other readers", tuple(columns), tuple(rows), note)


def _kept(row: TransferRow) -> Interval | float | None:
    if row.kept is None or row.kept_low is None or row.kept_high is None:
        return row.kept
    return Interval(row.kept, row.kept_low, row.kept_high)


MAKERS: dict[str, Callable[[Study], Table]] = {
    "grid": _grid,
    "decomposition": _decomposition,
    "kappa-by-filler": _kappa_by_filler,
    "frontier": _frontier,
    "lag-bins": _lag_bins,
    "lag-table": _lag_table,
    "filler-lags": _filler_lags,
    "lag-kinds": _chunks,
    "ties": _ties,
    "rewrites": _rewrites,
    "rewrite-counts": _rewrite_counts,
    "rewrite-contrasts": _rewrite_contrasts,
    "contrasts": _contrasts,
    "retention": retention_table,
    "recall": recall_table,
    "lag-grid": _lag_grid,
    "protocols": _pilot,
    "protocol-contrasts": _pilot_contrasts,
    "pairs": _pairs,
    "losses": _losses,
    "fact-survival": _fact_survival,
    "blame": _blame,
    "strata": _strata,
    "costs": cost_table,
    "readers": lambda study: _readers(reader_rows({reader_name(study.runs[0]): study}), study),
    TRANSFER: lambda _: transfer_table(()),  # a study alone has one reader
}
EMPTY = {
    "rewrite-contrasts": f"it compares other memories with {BASE}; play both with `dssr diagnose --memory`.",
    "contrasts": f"it compares other memories with {BASE}; play both with `dssr diagnose --memory`.",
    "protocols": "the runs know one protocol; set `kind` under [protocol], `dssr diagnose` again, report both.",
    "protocol-contrasts": "the runs know one protocol; see above.",
    "pairs": f"it needs {BASE} and another written memory on the same games, and steps stored with them.",
    "ties": "the reader chose the reference action at every step.",
    "losses": "no rewrite lost a fact that was still needed.",
    "costs": "the runs were made before costs were stored.",
    "retention": "it follows the facts of a game through the stored steps of written memories.",
    TRANSFER: "it needs diagnoses of the same games and memories under a second reader; give their runs along.",
}


# ---------------------------------------------------------------- shapes


def _table(
    name: str, title: str, columns: Sequence[Column], rows: Sequence[Record], study: Study, note: str = ""
) -> Table:
    """The protocol is a column only when it differs."""
    many = len({cell.protocol for cell in study.cells}) > 1
    if many and any("protocol" in row.__struct_fields__ for row in rows):
        columns = [*columns[:2], Column("protocol", "protocol"), *columns[2:]]
    return Table(name, title, tuple(columns), tuple(rows), note)


def _group(row: CellGroup | CellRow) -> CellGroup:
    return CellGroup(row.memory, row.budget, row.protocol)


Across = dict[CellGroup, dict[Place, Interval | int | None]]


def _across(values: Iterable[tuple[CellGroup, Place, Interval | int | None]]) -> Across:
    """Values side by side: per group, by place."""
    found: Across = {}
    for group, place, value in values:
        found.setdefault(group, {})[place] = value
    return found


def _lines(found: Across) -> list[AcrossRow]:
    return [AcrossRow(group.memory, group.budget, group.protocol, at) for group, at in found.items()]


def _places(found: Across, quantity: str, head: str, kind: Kind) -> list[Column]:
    """One column per place where some group has a value; fillers in order, bins as they came."""
    places = list(dict.fromkeys(place for at in found.values() for place, value in at.items() if value is not None))
    if all(isinstance(place, int) for place in places):
        places.sort(key=int)
    return [Column(f"{quantity}_at_{place}", head.format(place), kind, _at(place)) for place in places]


def _at(place: Place) -> Callable[[AcrossRow | ReaderRow], Interval | int | None]:
    return lambda row: row.at.get(place)


def _others(study: Study) -> list[str]:
    """Memories with a budget to set against the base; none when the base itself is missing."""
    names = list(dict.fromkeys(cell.memory for cell in study.conditions if cell.budget is not None))
    return [name for name in names if name != BASE] if BASE in names else []
