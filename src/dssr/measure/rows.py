"""Rows for tables and figures, from stored records alone: plain lists of dictionaries.

A quantity with an interval takes three columns, `x`, `x_low`, `x_high`; all three are None where it has no value.
Success, score and shares are fractions; losses are in nats.

Rows of regret against distance: rewrites since the reveal, and relevance lag.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from dssr.errors import StatsError
from dssr.measure.lag import relevance
from dssr.measure.study import Study
from dssr.stats.bootstrap import Interval, Resampler, align, mean_interval
from dssr.stats.contrasts import binned_contrast, binned_means, change_if_any, difference, over_fillers, slope
from dssr.stats.ranks import spearman_over_cells
from dssr.types import Audit, Cell, Episode

Row = dict[str, Any]
Group = tuple[str, int | None, str]
"""Memory, budget, protocol: what the fillers of a row have in common."""

LOSSES: dict[str, Callable[[Audit], float]] = {
    "delta": lambda audit: audit.delta,
    "beta": lambda audit: audit.beta,
    "kappa": lambda audit: audit.kappa,
}
OUTCOMES: dict[str, Callable[[Episode], float]] = {
    "success": lambda episode: float(episode.outcome == "won"),
    "score": lambda episode: episode.score / episode.max_score,
}


def game_values(study: Study, cell: Cell, quantity: str) -> dict[str, float]:
    """Per game its value in one cell; a failed episode or a missing audit has none."""
    if quantity in OUTCOMES:
        outcome = OUTCOMES[quantity]
        return {game: outcome(e) for game, e in study.episodes[cell].items() if e.outcome != "error"}
    loss = LOSSES[quantity]
    return {game: float(np.mean([loss(audit) for audit in audits])) for game, audits in study.audits[cell].items()}


def groups(study: Study) -> dict[Group, dict[int, Cell]]:
    """The cells that differ only in the length of the walk, by that length."""
    found: dict[Group, dict[int, Cell]] = {}
    for cell in study.cells:
        found.setdefault((cell.memory, cell.budget, cell.protocol), {})[cell.filler] = cell
    return {group: dict(sorted(cells.items())) for group, cells in found.items()}


def cell_rows(study: Study) -> list[Row]:
    """One row per cell of the grid."""
    rows = []
    for cell in study.cells:
        episodes = study.episodes[cell].values()
        audits = [audit for game in study.audits[cell].values() for audit in game]
        covered = [audit.coverage for audit in audits if audit.coverage is not None]
        row: Row = {**_cell(cell), "games": sum(e.outcome != "error" for e in episodes)}
        row["errors"] = sum(e.outcome == "error" for e in episodes)
        for quantity in (*OUTCOMES, *LOSSES):
            row |= columns(quantity, _mean(game_values(study, cell, quantity), study.sampler))
        row |= {"points": len(audits), "coverage": float(np.mean(covered)) if covered else None}
        rows.append(row | _counts(study, episodes))
    return rows


def _counts(study: Study, episodes: Iterable[Episode]) -> Row:
    finished = [episode for episode in episodes if episode.outcome != "error"]
    writes = tokens = cut = decisions = differ = ties = 0
    for episode in finished:
        for step in study.steps(episode.key):
            writes += step.write.tokens > 0
            tokens += step.write.tokens
            cut += step.write.truncated
            if step.decision is not None:
                decisions += 1
                differ += step.decision.tie is not None
                ties += bool(step.decision.tie)
    return {
        "truncated": cut / writes if writes else None,
        "tokens": tokens / writes if writes else None,
        "actions": decisions / len(finished) if finished else None,
        "disagreements": differ,
        "ties": ties,
        "tie_rate": ties / differ if differ else None,
    }


def long_filler_rows(study: Study) -> list[Row]:
    """One value for long walks: each game's mean of its means at the fillers that count as long."""
    fillers = study.config.stats.long_fillers
    rows = []
    for group, cells in groups(study).items():
        if not set(fillers) <= set(cells):
            continue
        row: Row = {**_group(group), "fillers": "/".join(map(str, fillers)), "problem": None}
        for quantity in ("success", *LOSSES):
            try:
                values = over_fillers({filler: game_values(study, cells[filler], quantity) for filler in fillers})
            except StatsError as error:
                values, row["problem"] = {}, str(error)
            row |= columns(quantity, _mean(values, study.sampler))
        rows.append(row)
    return rows


def slope_rows(study: Study) -> list[Row]:
    """Regret against the length of the walk, per step."""
    study.need_audits()
    rows = []
    for group, cells in groups(study).items():
        if len(cells) < 2 or group[1] is None:
            continue
        row: Row = {**_group(group), "problem": None}
        try:
            _, values = align({f"filler {length}": game_values(study, cell, "kappa") for length, cell in cells.items()})
            row |= columns("slope", slope(values, np.array(list(cells), dtype=float), study.sampler))
        except StatsError as error:
            row |= columns("slope", None) | {"problem": str(error)}
        rows.append(row)
    return rows


def contrast_rows(study: Study, base: str = "summary") -> list[Row]:
    """Every memory against one of them, paired by game, at each filler and over the long ones."""
    known = groups(study)
    if not any(group[0] == base for group in known):
        raise StatsError(f"no cell has the memory {base!r} to compare with; choose one of the memories in the runs.")
    rows = []
    for (name, budget, protocol), against in known.items():
        if name != base:
            continue
        for (other, size, kind), cells in known.items():
            if other == base or kind != protocol or size not in (budget, None):
                continue
            for quantity in ("success", "kappa") if size is not None else ("success",):
                for filler, first, second in _columns(study, cells, against, quantity):
                    head = {"memory": other, "base": base, "budget": budget, "filler": filler, "protocol": protocol}
                    rows.append({**head, "quantity": quantity, **compared(first, second, other, base, study.sampler)})
    return rows


def _columns(
    study: Study, cells: Mapping[int, Cell], against: Mapping[int, Cell], quantity: str
) -> Iterable[tuple[str, dict[str, float], dict[str, float]]]:
    both = [filler for filler in cells if filler in against]
    found = {f: (game_values(study, cells[f], quantity), game_values(study, against[f], quantity)) for f in both}
    yield from ((str(filler), *pair) for filler, pair in found.items())
    fillers = study.config.stats.long_fillers
    if set(fillers) <= set(both):
        try:
            first, second = (over_fillers({filler: found[filler][side] for filler in fillers}) for side in (0, 1))
        except StatsError:
            return  # the rows of the single fillers say which games are missing
        yield "/".join(map(str, fillers)), first, second


def compared(first: Mapping[str, float], second: Mapping[str, float], name: str, base: str, sampler: Resampler) -> Row:
    """Difference and relative change of two columns, or the sentence why they cannot be compared."""
    row: Row = {**columns("difference", None), **columns("relative", None), "games": None, "problem": None}
    try:
        games, (a, b) = align({name: first, base: second})
        row |= {"games": len(games), **columns("difference", difference(a, b, sampler))}
    except StatsError as error:
        return row | {"problem": str(error)}
    return row | columns("relative", change_if_any(a, b, sampler))


def relation_rows(study: Study) -> list[Row]:
    """Mean gap and success of every audited cell."""
    study.need_audits()
    rows = []
    for cell in study.cells:
        delta, success = (game_values(study, cell, quantity) for quantity in ("delta", "success"))
        if delta and success:
            means = {"delta": float(np.mean(list(delta.values()))), "success": float(np.mean(list(success.values())))}
            rows.append({**_cell(cell), **means})
    return rows


def relation(study: Study) -> Row | None:
    """Rank correlation of mean gap and success over all audited cells; None where there is none to be had."""
    study.need_audits()
    audited = [cell for cell in study.cells if study.audits[cell]]
    both = {f"{q} of {i}": game_values(study, cell, q) for q in ("delta", "success") for i, cell in enumerate(audited)}
    try:
        _, values = align(both)
        half = len(audited)
        return {"cells": half, **columns("rho", spearman_over_cells(values[:half], values[half:], study.sampler))}
    except StatsError:
        return None


def columns(name: str, found: Interval | None) -> Row:
    """The three columns of a quantity."""
    if found is None:
        return dict.fromkeys((name, f"{name}_low", f"{name}_high"))
    return {name: found.estimate, f"{name}_low": found.low, f"{name}_high": found.high}


def _mean(values: Mapping[str, float], sampler: Resampler) -> Interval | None:
    return mean_interval(np.array([values[game] for game in sorted(values)]), sampler) if values else None


def _cell(cell: Cell) -> Row:
    return {"memory": cell.memory, "budget": cell.budget, "filler": cell.filler, "protocol": cell.protocol}


def _group(group: Group) -> Row:
    return dict(zip(("memory", "budget", "protocol"), group, strict=True))


Point = tuple[str, float, float]
"""Game, distance, value."""


def rewrite_rows(study: Study) -> list[Row]:
    """Regret by writes since the reveal, all fillers together."""
    study.need_audits()
    edges = study.config.measure.rewrite_bins
    rows = []
    for group, cells in _audited(study):
        for found in binned_means(_rewrites(study, cells), edges, study.sampler):
            head = {**_group(group), "bin": found.label, "points": found.points, "games": found.games}
            rows.append({**head, **columns("kappa", found.interval)})
    return rows


def rewrite_contrast_rows(study: Study, first: str, second: str) -> list[Row]:
    """The same for two memories, paired by game within each bin; `difference` is first minus second."""
    study.need_audits()
    edges = study.config.measure.rewrite_bins
    known = dict(_audited(study))
    rows = []
    for (memory, budget, protocol), cells in known.items():
        other = known.get((second, budget, protocol))
        if memory != first or other is None:
            continue
        for found in binned_contrast(_rewrites(study, cells), _rewrites(study, other), edges, study.sampler):
            row: Row = {"first": first, "second": second, "budget": budget, "protocol": protocol, "bin": found.label}
            row |= {"games": found.games, "left_out": list(found.left_out), **columns("difference", found.interval)}
            rows.append(row | columns("relative", found.relative))
    return rows


def lag_bin_rows(study: Study) -> list[Row]:
    """Regret by relevance lag, for the threshold in use and for those that check it."""
    study.need_audits()
    study.need_lags()
    measure = study.config.measure
    rows = []
    for group, cells in _audited(study):
        for threshold in (measure.lag_threshold, *measure.lag_robustness):
            kappa, beta, loss = (
                binned_means(_lagged(study, cells, threshold, value), measure.lag_bins, study.sampler)
                for value in (lambda a: a.kappa, lambda a: a.beta, lambda a: a.nll_full)
            )
            for one, two, three in zip(kappa, beta, loss, strict=True):
                head = {**_group(group), "threshold": threshold, "bin": one.label}
                row = {**head, "points": one.points, "games": one.games, **columns("kappa", one.interval)}
                full = three.interval.estimate if three.interval else None
                rows.append({**row, **columns("beta", two.interval), "nll_full": full})
    return rows


def chunk_rows(study: Study) -> list[Row]:
    """Which kind of chunk decisions hang on."""
    study.need_lags()
    measure = study.config.measure
    lags = [lag for steps in study.lags.values() for lag in steps.values()]
    kinds = [kind.name for kind in study.domain.words.chunks]
    rows = []
    for threshold in (measure.lag_threshold, *measure.lag_robustness):
        found = Counter(one.kind if (one := relevance(lag, threshold)) else "undefined" for lag in lags)
        for kind in (*kinds, "undefined"):
            share = found[kind] / len(lags)
            rows.append({"threshold": threshold, "kind": kind, "points": found[kind], "share": share})
    return rows


def split_by_lag(study: Study, cells: Iterable[Cell], split: int) -> tuple[dict[str, float], dict[str, float]]:
    """Per game the mean regret at lags from `split` on, and at shorter ones; games that have both."""
    points = _lagged(study, cells, study.config.measure.lag_threshold, lambda audit: audit.kappa)
    sides: tuple[dict[str, list[float]], dict[str, list[float]]] = ({}, {})
    for game, lag, value in points:
        sides[lag < split].setdefault(game, []).append(value)
    both = sorted(sides[0].keys() & sides[1].keys())
    long, short = ({game: float(np.mean(side[game])) for game in both} for side in sides)
    return long, short


def _rewrites(study: Study, cells: Iterable[Cell]) -> list[Point]:
    return [
        (game, float(audit.rewrites), audit.kappa)
        for cell in cells
        for game, audits in study.audits[cell].items()
        for audit in audits
    ]


def _lagged(study: Study, cells: Iterable[Cell], threshold: float, value: Callable[[Audit], float]) -> list[Point]:
    points = []
    for cell in cells:
        for game, audits in study.audits[cell].items():
            for audit in audits:
                lag = study.lags.get(audit.episode, {}).get(audit.step)
                found = relevance(lag, threshold) if lag else None
                if found:
                    points.append((game, float(found.lag), value(audit)))
    return points


def _audited(study: Study) -> Iterable[tuple[Group, list[Cell]]]:
    for group, cells in groups(study).items():
        audited = [cell for cell in cells.values() if study.audits[cell]]
        if audited:
            yield group, audited
