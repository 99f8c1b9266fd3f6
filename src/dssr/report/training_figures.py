"""Figures of training, drawn from its tables."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from dssr.report.figures import legend, looks, save_figures, side_by_side
from dssr.report.tables import Table


def draw_training(tables: Sequence[Table], folder: Path) -> list[Path]:
    """Success and regret by round, and what candidates keep of the recipe, where there are rows for them."""
    rows = {table.name: [dict(row) for row in table.rows] for table in tables}
    makers: dict[str, Callable[[], Figure]] = {}
    if "rounds-success" in rows:
        makers["rounds"] = lambda: by_round(rows["rounds-success"], rows.get("rounds-kappa", []))
    if "coverage" in rows:
        makers["candidate-coverage"] = lambda: by_distance(rows["coverage"])
    return save_figures(makers, folder) if makers else []


def by_round(success: Sequence[dict[str, Any]], kappa: Sequence[dict[str, Any]]) -> Figure:
    """Means over the fillers; the untrained writer, which has no round, is a dashed line across."""
    shown = [part for part in ((success, 100.0, "success, %"), (kappa, 1.0, "κ, nats")) if part[0]]
    figure, found = side_by_side(len(shown), 2.8)
    for panel, (rows, factor, label) in zip(found, shown, strict=True):
        for name, color, mark in looks(rows, "writer"):
            mine = [row for row in rows if row["writer"] == name]
            values = [factor * row["mean"] for row in mine]
            if mine[0]["round"] is None:
                panel.axhline(values[0], color=color, ls="--", label=name)
            else:
                panel.plot([row["round"] for row in mine], values, color=color, marker=mark, ms=4, label=name)
        panel.set_xticks(sorted({row["round"] for row in rows if row["round"] is not None}))
        panel.set_xlabel("round")
        panel.set_ylabel(label)
    legend(figure, found)
    return figure


def by_distance(rows: Sequence[dict[str, Any]]) -> Figure:
    """Mean coverage of candidates against steps since the reveal."""
    bins = sorted({row["since"] for row in rows}, key=lambda name: int(name.rstrip("+").split("-")[0]))
    figure, found = side_by_side(1, 2.8)
    for name, color, mark in looks(rows, "candidates"):
        kept = {row["since"]: 100 * row["coverage"] for row in rows if row["candidates"] == name}
        places = [place for place, one in enumerate(bins) if one in kept]
        values = [kept[bins[place]] for place in places]
        found[0].plot(places, values, color=color, marker=mark, ms=4, label=name)
    found[0].set_xticks(range(len(bins)), bins)
    found[0].set_xlabel("steps since the recipe was shown")
    found[0].set_ylabel("directives in candidates, %")
    legend(figure, found)
    return figure
