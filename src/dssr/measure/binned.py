"""Rows of regret against distance: rewrites since the reveal, and relevance lag."""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from dssr.measure.lag import relevance
from dssr.measure.study import Study
from dssr.measure.tables import Group, Row, columns, groups
from dssr.stats.bins import binned_contrast, binned_means
from dssr.types import Audit, Cell

Point = tuple[str, float, float]
"""Game, distance, value."""


def rewrite_rows(study: Study) -> list[Row]:
    """Regret by writes since the reveal, all fillers together."""
    study.need_audits()
    edges = study.config.measure.rewrite_bins
    rows = []
    for group, cells in _audited(study):
        for found in binned_means(_rewrites(study, cells), edges, study.sampler):
            head = {**_named(group), "bin": found.label, "points": found.points, "games": found.games}
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
                head = {**_named(group), "threshold": threshold, "bin": one.label}
                row = {**head, "points": one.points, "games": one.games, **columns("kappa", one.interval)}
                full = three.interval.estimate if three.interval else None
                rows.append({**row, **columns("beta", two.interval), "nll_full": full})
    return rows


def chunk_rows(study: Study) -> list[Row]:
    """Which kind of chunk decisions hang on."""
    study.need_lags()
    measure = study.config.measure
    lags = [lag for steps in study.lags.values() for lag in steps.values()]
    rows = []
    for threshold in (measure.lag_threshold, *measure.lag_robustness):
        found = Counter(one.kind if (one := relevance(lag, threshold)) else "undefined" for lag in lags)
        for kind in ("cookbook", "visit", "block", "undefined"):
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


def _named(group: Group) -> dict[str, Any]:
    return dict(zip(("memory", "budget", "protocol"), group, strict=True))
