"""Figures as SVG and PNG files, the same picture every time.

`draw_figures` draws a study, `draw_training` the tables of a training.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from math import nan
from pathlib import Path
from typing import Any, TypeVar

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from dssr.errors import StatsError
from dssr.measure.lag import (
    LagBinRow,
    RewriteContrastRow,
    RewriteRow,
    lag_bin_rows,
    rewrite_contrast_rows,
    rewrite_rows,
)
from dssr.measure.rows import BASE, CellRow, cell_rows
from dssr.measure.sampled import LagTableRow, lag_table_rows
from dssr.measure.study import Study
from dssr.reports.survival import SurvivalCurve
from dssr.reports.tables import Table
from dssr.reports.training_tables import REGRET, RoundRow, ScoreRow
from dssr.stats.bootstrap import Interval
from dssr.training.results import CoverageRow, CreditRow
from dssr.types import Record

COLORS = ("#4a4f57", "#b0741a", "#2f86c1", "#0b8f73", "#a8427f", "#5c4fb3", "#c4472b", "#6c7a16", "#12717d", "#8c5a3c")
MARKERS = "osD^vP*X"
BETA, KAPPA = "#2a78b8", "#c8551b"
DOTS_PER_INCH = 150
STYLE = {
    "svg.hashsalt": "dssr",
    "svg.fonttype": "none",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e3e1da",
    "axes.axisbelow": True,
    "legend.frameon": False,
}


def draw_figures(study: Study, curves: Sequence[SurvivalCurve], folder: Path) -> list[Path]:
    """Write every figure that the study has data for; returns the files."""
    cells = cell_rows(study)
    audited = any(study.audits.values())
    since = f"rewrites since the {study.domain.words.task} was shown"
    makers: dict[str, Callable[[], Figure]] = {"success-by-filler": lambda: success_by_filler(cells)}
    if audited:
        makers |= {
            "decomposition": lambda: decomposition(cells),
            "kappa-by-filler": lambda: kappa_by_filler(cells),
            "kappa-by-rewrites": lambda: binned(rewrite_rows(study), since),
            "success-against-delta": lambda: association(cells),
        }
    if audited and study.lags:
        threshold = study.config.measure.lag_threshold
        rows = [row for row in lag_bin_rows(study) if row.threshold == threshold]
        makers["kappa-by-lag"] = lambda: binned(rows, "measured lag ℓ, steps")
        pooled = _or_none(lambda: [row for row in lag_table_rows(study) if row.threshold == threshold])
        if pooled:
            makers["losses-by-lag"] = lambda: losses_by_lag(pooled)
    trained = [row for row in cells if row.kappa is not None and "@" in row.memory]
    if trained:
        base = [row for row in cells if row.kappa is not None and row.memory == BASE]
        makers["kappa-trained"] = lambda: kappa_trained([*base, *trained])
        contrasts = [
            row
            for name in dict.fromkeys(row.memory for row in trained if not _is_seed(row.memory))
            for row in _or_none(partial(rewrite_contrast_rows, study, name, BASE)) or ()
        ]
        if any(row.difference for row in contrasts):
            makers["rewrite-contrasts"] = lambda: rewrite_contrasts(contrasts, since)
    if curves:
        makers["fact-survival"] = lambda: survival(curves, since, study.domain.words.fact)
    return save_figures(makers, folder)


def draw_training(tables: Sequence[Table], folder: Path) -> list[Path]:
    """Success and regret by round, and what candidates keep of the task, where there are rows for them."""
    success, kappa = (_rows(tables, f"rounds-{quantity}", RoundRow) for quantity in ("success", "kappa"))
    coverage = _rows(tables, "coverage", CoverageRow)
    makers: dict[str, Callable[[], Figure]] = {}
    if success:
        makers["rounds"] = lambda: by_round(success, kappa)
    if coverage:
        makers["candidate-coverage"] = lambda: by_distance(coverage)
    credit = [row for row in _rows(tables, "credit", CreditRow) if row.group.startswith("F'=")]
    if credit:
        makers["credit"] = lambda: credit_by_filler(credit)
    horizon = [row for row in _rows(tables, "horizon", RoundRow) if row.quantity == REGRET]
    if horizon:
        makers["horizon"] = lambda: regret_by_variant(horizon)
    scores = _rows(tables, "score-return", ScoreRow)
    if scores:
        makers["score-return"] = lambda: score_return(scores)
    return save_figures(makers, folder) if makers else []


def save_figures(makers: Mapping[str, Callable[[], Figure]], folder: Path) -> list[Path]:
    """Draw each figure and write it in both forms."""
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    with matplotlib.rc_context(STYLE):
        for name, make in makers.items():
            figure = make()
            figure.canvas.draw()  # places everything once; both files then share that layout
            figure.set_layout_engine("none")
            for ending, metadata in (("svg", {"Date": None}), ("png", {"Software": None})):
                files.append(folder / f"{name}.{ending}")
                figure.savefig(files[-1], dpi=DOTS_PER_INCH, metadata=metadata)
    return files


# ---------------------------------------------------------------- of a study


def decomposition(cells: Sequence[CellRow]) -> Figure:
    """Budget loss and regret stacked per cell, the gap as a mark with its interval."""
    audited = [row for row in cells if row.kappa is not None]
    budgets = _budgets(audited)
    count = max(sum(_in_panel(row, b) for row in audited) for b in budgets)
    figure, panels = side_by_side(len(budgets), 0.19 * count + 1.1, sharex=True)
    for panel, budget in zip(panels, budgets, strict=True):
        rows = [row for row in audited if _in_panel(row, budget)][::-1]
        beta, _, _ = _lines([row.beta for row in rows])
        kappa, _, _ = _lines([row.kappa for row in rows])
        delta, low, high = _lines([row.delta for row in rows])
        places = range(len(rows))
        panel.barh(places, beta, color=BETA, height=0.7, label="β")
        # Parts of one sign stack; parts of different sign start at zero, on either side.
        starts = [b if (b >= 0) == (k >= 0) else 0.0 for b, k in zip(beta, kappa, strict=True)]
        panel.barh(places, kappa, left=starts, color=KAPPA, height=0.7, label="κ")
        panel.hlines(places, low, high, color="black", lw=0.8)
        panel.plot(delta, places, "D", color="black", ms=3, label="δ")
        panel.set_yticks(range(len(rows)), [f"{row.memory}  F′={row.filler}" for row in rows])
        panel.axvline(0, color="#8a93a0", lw=0.8)
        panel.set_title(_panel_title(budget), loc="left")
        panel.set_xlabel("nats")
        panel.grid(axis="y", visible=False)
    legend(figure, panels)
    return figure


def success_by_filler(cells: Sequence[CellRow]) -> Figure:
    """Games won against the filler, one line with a band per memory."""
    return _by_filler(cells, lambda row: row.success.times(100) if row.success else None, "games won, %")


def kappa_by_filler(cells: Sequence[CellRow]) -> Figure:
    """Regret against the filler."""
    return _by_filler(cells, lambda row: row.kappa, "κ, nats")


def _by_filler(cells: Sequence[CellRow], value: Callable[[CellRow], Interval | None], label: str) -> Figure:
    known = [row for row in cells if value(row) is not None]
    budgets = _budgets(known)
    figure, panels = side_by_side(len(budgets), 3.1, sharey=True)
    for panel, budget in zip(panels, budgets, strict=True):
        for memory, color, marker in looks(row.memory for row in cells):
            rows = sorted((r for r in known if r.memory == memory and _in_panel(r, budget)), key=lambda r: r.filler)
            _line(panel, [row.filler for row in rows], [value(row) for row in rows], (memory, color, marker))
        panel.set_xlabel("filler steps F′")
        panel.set_title(_panel_title(budget), loc="left")
    panels[0].set_ylabel(label)
    legend(figure, panels)
    return figure


def binned(rows: Sequence[RewriteRow | LagBinRow], name: str) -> Figure:
    """Regret by bins of a distance."""
    bins = list(dict.fromkeys(row.bin for row in rows))
    known = [row for row in rows if row.kappa is not None]
    budgets = _budgets(known)
    figure, panels = side_by_side(len(budgets), 3.1, sharey=True)
    for panel, budget in zip(panels, budgets, strict=True):
        for memory, color, marker in looks(row.memory for row in rows):
            mine = {row.bin: row.kappa for row in known if row.memory == memory and _in_panel(row, budget)}
            if mine:  # every bin has its place, so that no line goes across an empty one
                _line(panel, range(len(bins)), [mine.get(one) for one in bins], (memory, color, marker))
        panel.set_xticks(range(len(bins)), bins, rotation=45)
        panel.set_xlabel(name)
        panel.set_title(_panel_title(budget), loc="left")
    panels[0].set_ylabel("κ, nats")
    legend(figure, panels)
    return figure


def losses_by_lag(rows: Sequence[LagTableRow]) -> Figure:
    """κ, β and the loss with the full history by measured lag, all formats together."""
    figure, (panel,) = side_by_side(1, 3.1)
    for name, color, marker in looks(("κ", "β", "NLL(h)")):
        values = [{"κ": row.kappa, "β": row.beta, "NLL(h)": row.nll_full}[name] for row in rows]
        _line(panel, range(len(rows)), values, (name, color, marker))
    panel.set_xticks(range(len(rows)), [f"{row.bin}\nn = {row.points}" for row in rows])
    panel.set_xlabel("measured lag ℓ, steps")
    panel.set_ylabel("nats")
    legend(figure, [panel])
    return figure


def kappa_trained(rows: Sequence[CellRow]) -> Figure:
    """Regret against the filler before and after training: single seeds thin, a writer's mean over them thick."""
    budgets = _budgets(rows)
    figure, panels = side_by_side(len(budgets), 3.1, sharey=True)
    for panel, budget in zip(panels, budgets, strict=True):
        for writer, color, marker in looks(row.memory.partition("/")[0] for row in rows):
            for memory in dict.fromkeys(row.memory for row in rows if row.memory.partition("/")[0] == writer):
                mine = sorted((r for r in rows if r.memory == memory and _in_panel(r, budget)), key=lambda r: r.filler)
                x, values = [row.filler for row in mine], [row.kappa for row in mine]
                if _is_seed(memory):
                    panel.plot(x, _lines(values)[0], color=color, lw=0.7, alpha=0.7)
                else:
                    _line(panel, x, values, (memory, color, marker), width=2.2)
        panel.set_xlabel("filler steps F′")
        panel.set_title(_panel_title(budget), loc="left")
    panels[0].set_ylabel("κ, nats")
    legend(figure, panels)
    return figure


def rewrite_contrasts(rows: Sequence[RewriteContrastRow], since: str) -> Figure:
    """Where a gain lives: regret minus the base's, bin by bin."""
    bins = list(dict.fromkeys(row.bin for row in rows))
    figure, (panel,) = side_by_side(1, 3.1)
    for name, color, marker in looks(f"{row.first}, B = {row.budget}" for row in rows):
        mine = {row.bin: row.difference for row in rows if f"{row.first}, B = {row.budget}" == name}
        _line(panel, range(len(bins)), [mine.get(one) for one in bins], (name, color, marker))
    panel.axhline(0, color="#8a93a0", lw=0.8)
    panel.set_xticks(range(len(bins)), bins, rotation=45)
    panel.set_xlabel(since)
    panel.set_ylabel(f"κ minus {BASE}'s, nats")
    legend(figure, [panel])
    return figure


def _is_seed(memory: str) -> bool:
    return "/" in memory


def association(cells: Sequence[CellRow]) -> Figure:
    """Success against the gap, one mark per cell."""
    figure, (panel,) = side_by_side(1, 3.4)
    for memory, color, marker in looks(row.memory for row in cells):
        marks = [
            (r.delta.estimate, 100 * r.success.estimate) for r in cells if r.memory == memory and r.delta and r.success
        ]
        if marks:
            gaps, wins = zip(*marks, strict=True)
            panel.plot(gaps, wins, marker, color=color, label=memory, alpha=0.8)
    panel.set_xlabel("sufficiency gap δ, nats")
    panel.set_ylabel("games won, %")
    legend(figure, [panel])
    return figure


def survival(curves: Sequence[SurvivalCurve], since: str, fact: str) -> Figure:
    """Share of the facts that the state holds until the task begins."""
    budgets = _budgets(curves)
    figure, panels = side_by_side(len(budgets), 3.1, sharey=True)
    for panel, budget in zip(panels, budgets, strict=True):
        for memory, color, _ in looks(row.memory for row in curves):
            for row in curves:
                if row.memory == memory and _in_panel(row, budget):
                    panel.plot([100 * share for share in row.share], color=color, label=memory)
        panel.set_xlabel(since)
        panel.set_title(_panel_title(budget), loc="left")
    panels[0].set_ylabel(f"{fact}s in the state, %")
    legend(figure, panels)
    return figure


# ---------------------------------------------------------------- of a training


def by_round(success: Sequence[RoundRow], kappa: Sequence[RoundRow]) -> Figure:
    """Means over the fillers; the untrained writer, which has no round, is a dashed line across."""
    shown = [part for part in ((success, 100.0, "success, %"), (kappa, 1.0, "κ, nats")) if part[0]]
    figure, found = side_by_side(len(shown), 2.8)
    for panel, (rows, factor, label) in zip(found, shown, strict=True):
        for name, color, mark in looks(row.writer for row in rows):
            means = [
                (row.round, factor * row.mean)
                for row in rows
                if row.writer == name and isinstance(row.mean, int | float)
            ]
            if means[0][0] is None:
                panel.axhline(means[0][1], color=color, ls="--", label=name)
            else:
                numbers, values = zip(*means, strict=True)
                panel.plot(numbers, values, color=color, marker=mark, ms=4, label=name)
        panel.set_xticks(sorted({row.round for row in rows if row.round is not None}))
        panel.set_xlabel("round")
        panel.set_ylabel(label)
    legend(figure, found)
    return figure


def by_distance(rows: Sequence[CoverageRow]) -> Figure:
    """Mean coverage of candidates against steps since the reveal."""
    bins = sorted({row.since for row in rows}, key=lambda name: int(name.rstrip("+").split("-")[0]))
    figure, found = side_by_side(1, 2.8)
    parts: tuple[tuple[str, str, Callable[[CoverageRow], float | None]], ...] = (
        ("all", "-", lambda row: row.coverage),
        ("best", "--", lambda row: row.coverage_best),
        ("worst", ":", lambda row: row.coverage_worst),
    )
    for name, color, mark in looks(row.candidates for row in rows):
        for part, dashes, value in parts:
            kept = {row.since: value(row) for row in rows if row.candidates == name}
            # NaN: no line across an empty bin
            values = [nan if (share := kept.get(one)) is None else 100 * share for one in bins]
            found[0].plot(range(len(bins)), values, dashes, color=color, marker=mark, ms=4, label=f"{name}, {part}")
    found[0].set_xticks(range(len(bins)), bins)
    found[0].set_xlabel("steps since the reveal")
    found[0].set_ylabel("facts held by candidates, %")
    legend(figure, found)
    return figure


def credit_by_filler(rows: Sequence[CreditRow]) -> Figure:
    """Share of write points where no candidate holds anything of the task, by the walk before them."""
    figure, (panel,) = side_by_side(1, 2.8)
    for name, color, mark in looks(row.candidates for row in rows):
        mine = sorted((int(row.group.partition("=")[2]), 100 * row.all_zero) for row in rows if row.candidates == name)
        panel.plot(*zip(*mine, strict=True), color=color, marker=mark, ms=4, label=name)
    panel.set_xlabel("filler steps F′")
    panel.set_ylabel("no candidate holds any, %")
    legend(figure, [panel])
    return figure


def regret_by_variant(rows: Sequence[RoundRow]) -> Figure:
    """Regret against the filler, each variant at its best round."""
    figure, (panel,) = side_by_side(1, 2.8)
    for name, color, mark in looks(row.writer for row in rows):
        at = next(row.at for row in rows if row.writer == name)
        known = sorted((filler, value) for filler, value in at.items() if isinstance(value, int | float))
        panel.plot(*zip(*known, strict=True), color=color, marker=mark, ms=4, label=name)
    panel.set_xlabel("filler steps F′")
    panel.set_ylabel("κ, nats")
    legend(figure, [panel])
    return figure


def score_return(rows: Sequence[ScoreRow]) -> Figure:
    """Rank correlation of each score with what it is set against, with its interval, one panel per protocol."""
    kinds = list(dict.fromkeys(row.protocol for row in rows))
    figure, panels = side_by_side(len(kinds), 3.0, sharey=True)
    for panel, kind in zip(panels, kinds, strict=True):
        mine = [row for row in rows if row.protocol == kind]
        names = [row.score if row.of == "return" else f"{row.score} with {row.of}" for row in mine]
        middle, low, high = _lines([row.rho_interval for row in mine])
        panel.vlines(range(len(mine)), low, high, color=KAPPA, lw=1.2)
        panel.plot(range(len(mine)), middle, "o", color=KAPPA, ms=4)
        panel.axhline(0, color="#8a93a0", lw=0.8)
        panel.set_xticks(range(len(mine)), names, rotation=45)
        panel.set_title(kind, loc="left")
    panels[0].set_ylabel("ρ within write points")
    return figure


T = TypeVar("T", bound=Record)


def _or_none(make: Callable[[], list[T]]) -> list[T] | None:
    """Rows, or None where the table says why there are none."""
    try:
        return make()
    except StatsError:
        return None


def _rows(tables: Sequence[Table], name: str, kind: type[T]) -> list[T]:
    return [row for table in tables if table.name == name for row in table.rows if isinstance(row, kind)]


# ---------------------------------------------------------------- parts

Placed = CellRow | RewriteRow | LagBinRow | SurvivalCurve
"""Rows that have a memory and a budget, and so a line and a panel."""
Look = tuple[str, str, str]
"""Name, colour and mark of a line."""


def side_by_side(count: int, height: float, sharex: bool = False, sharey: bool = False) -> tuple[Figure, list[Axes]]:
    """A figure with panels side by side."""
    figure = Figure(figsize=(max(4.6, 3.4 * count), height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, list(figure.subplots(1, count, squeeze=False, sharex=sharex, sharey=sharey)[0])


def looks(names: Iterable[str]) -> list[Look]:
    """Every name once, with its colour and mark."""
    found = enumerate(dict.fromkeys(names))
    return [(name, COLORS[n % len(COLORS)], MARKERS[n % len(MARKERS)]) for n, name in found]


def legend(figure: Figure, panels: Sequence[Axes]) -> None:
    """One legend for all panels, beside them."""
    found: dict[str, Any] = {}
    for panel in panels:
        for handle, label in zip(*panel.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    figure.legend(list(found.values()), list(found), loc="outside right upper")


def _lines(values: Iterable[Interval | None]) -> tuple[list[float], list[float], list[float]]:
    """Estimates, lower and upper bounds; NaN, which leaves a gap, where there is none."""
    found: list[tuple[float, float, float]] = []
    for one in values:
        ends = (one.low, one.high) if one and one.bounded else (nan, nan)
        found.append((one.estimate if one else nan, *ends))
    return [one[0] for one in found], [one[1] for one in found], [one[2] for one in found]


def _line(
    panel: Axes, x: Sequence[float], values: Sequence[Interval | None], look: Look, width: float | None = None
) -> None:
    if x:
        name, color, marker = look
        middle, low, high = _lines(values)
        panel.plot(x, middle, marker=marker, color=color, label=name, ms=4, lw=width)
        panel.fill_between(x, low, high, color=color, alpha=0.12, lw=0)


def _budgets(rows: Sequence[Placed]) -> list[int | None]:
    found: list[int | None] = []
    found += sorted({row.budget for row in rows if row.budget is not None})
    return found or [None]


def _in_panel(row: Placed, budget: int | None) -> bool:
    return row.budget in (budget, None)


def _panel_title(budget: int | None) -> str:
    return "no budget" if budget is None else f"B = {budget}"
