"""Rows read from single episodes: two writers at one write point, rewrites that lost something, starts by room."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from dssr.measure.study import Study
from dssr.measure.tables import cell_rows, columns, compared, game_values
from dssr.report.survival import FULL, held, losses, trace
from dssr.stats.bootstrap import mean_interval
from dssr.types import Cell

Row = dict[str, Any]
EXAMPLES = 6
KITCHEN = "kitchen"


def loss_rows(study: Study) -> list[Row]:
    """Examples of lost directives, with the state before and after."""
    return [{**_head(one.cell), **_fields(one)} for one in losses(study, EXAMPLES)]


def _fields(record: Any) -> Row:
    return {name: getattr(record, name) for name in ("game", "directive", "step", "rewrites", "before", "after")}


def pair_rows(study: Study, base: str) -> list[Row]:
    """Where the base had just lost something, what another writer kept of the recipe at the very same write point."""
    rows: list[Row] = []
    for cell in study.cells:
        if cell.memory != base:
            continue
        for other in study.cells:
            if _same_walk(cell, other) and other.memory not in (base, FULL) and len(rows) < 2 * EXAMPLES:
                rows += _pair(study, cell, other)
    return rows


def _same_walk(one: Cell, other: Cell) -> bool:
    return (one.budget, one.filler, one.protocol) == (other.budget, other.filler, other.protocol)


def _pair(study: Study, cell: Cell, other: Cell) -> list[Row]:
    """The first game and step before Phase B where the two states hold different parts of the recipe."""
    for game in study.games:
        episodes = [study.episodes[one].get(game) for one in (cell, other)]
        if any(episode is None or episode.outcome == "error" for episode in episodes):
            continue
        known = [episode for episode in episodes if episode is not None]
        steps = [study.steps(episode.key) for episode in known]
        if not all(steps):
            continue
        traces = [trace(episode, mine) for episode, mine in zip(known, steps, strict=True)]
        for step in range(known[0].reveal, known[0].begin + 1):
            shares = [held(one, step) for one in traces]
            if shares[0] != shares[1]:
                states = [mine[step].write.state for mine in steps]
                return [
                    {"game": game, **_head(one), "step": step, "held": share, "state": state}
                    for one, share, state in zip((cell, other), shares, states, strict=True)
                ]
    return []


def kitchen_rows(study: Study) -> list[Row]:
    """The grid with success split by whether Phase B starts in the kitchen, where nothing needs to be found."""
    rows = []
    for cell, row in zip(study.cells, cell_rows(study), strict=True):
        sides: dict[str, dict[str, float]] = {KITCHEN: {}, "elsewhere": {}}
        for game, won in game_values(study, cell, "success").items():
            episode = study.episodes[cell][game]
            steps = study.steps(episode.key)
            if episode.begin < len(steps):
                sides[KITCHEN if steps[episode.begin].room == KITCHEN else "elsewhere"][game] = won
        for side, values in sides.items():
            row[f"{side}_games"] = len(values)
            row |= columns(side, _mean(study, values))
        rows.append(row)
    return rows


def _mean(study: Study, values: Mapping[str, float]) -> Any:
    return mean_interval(np.array([values[game] for game in sorted(values)]), study.sampler) if values else None


def protocol_rows(study: Study) -> list[Row]:
    """Regret under each protocol and filler, against the first condition of that memory and budget."""
    study.need_audits()
    if len({cell.protocol for cell in study.cells}) < 2:
        return []
    order = {"pre": 0, "brief": 1, "post": 2, "post-brief": 3}
    cells = sorted(
        (c for c in study.cells if study.audits[c]), key=lambda c: (c.filler > 0, order[c.protocol], c.filler)
    )
    first: dict[tuple[str, int | None], Cell] = {}
    rows = []
    for cell in cells:
        base = first.setdefault((cell.memory, cell.budget), cell)
        values, against = (game_values(study, one, "kappa") for one in (cell, base))
        row = {"memory": cell.memory, "budget": cell.budget, "condition": f"{cell.protocol}, {cell.filler} steps"}
        row |= columns("kappa", _mean(study, values)) | columns("difference", None)
        if cell != base:
            found = compared(values, against, "this condition", "the first", study.sampler)
            row |= {key: found[key] for key in ("difference", "difference_low", "difference_high", "problem")}
        rows.append(row)
    memories = list(dict.fromkeys(cell.memory for cell in study.cells))
    return sorted(rows, key=lambda row: (memories.index(row["memory"]), row["budget"] or 0))


def _head(cell: Cell) -> Row:
    return {"memory": cell.memory, "budget": cell.budget, "filler": cell.filler}
