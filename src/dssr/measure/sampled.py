"""Tables over points sampled from all cells together: losses by relevance lag, how often a choice is a tie, and whether
the filler walk is lag.

It is lag where the measured lag rises with it, and it is not where it tells the fact again. A walk that passes by what
must be remembered, or that comes before it is told, makes an episode longer and no fact older. Results along such a
walk are results of filler; to call them lag would claim what was not measured.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import zip_longest
from typing import TypeVar

import numpy as np

from dssr.errors import StatsError
from dssr.measure.lag import relevance
from dssr.measure.study import Study
from dssr.seeds import seed_of
from dssr.stats.bootstrap import Interval, point_mean
from dssr.stats.contrasts import binned_means, point_slope
from dssr.types import Audit, Cell, Lag, Record

T = TypeVar("T")


class LagTableRow(Record, frozen=True):
    """Losses at decisions whose measured lag falls into one bin, all write-time formats together."""

    threshold: float
    """Nats by which leaving a chunk out must raise the loss for the decision to hang on it."""
    bin: str
    """Of the lag, in steps."""
    points: int
    """Decisions in the bin, of those sampled."""
    games: int
    kappa: Interval | None
    beta: Interval | None
    nll_full: Interval | None
    """Loss under the full history."""
    sampled: int
    """Decisions sampled in all, those without a lag included."""


class TieRow(Record, frozen=True):
    """How often a choice other than the reference action is as good: one rate over sampled steps of all cells."""

    steps: int
    """Sampled, of those where the reader's choice was not the reference action."""
    of: int
    """Such steps in all."""
    ties: int
    """Of the sampled, those where the reader's choice shortened the optimal plan too."""
    rate: Interval


class LagPoint(Record, frozen=True):
    """An audited decision whose relevance lag was measured."""

    game: str
    filler: int
    audit: Audit
    lag: Lag


def spread(cells: Iterable[Sequence[T]], most: int, drawn: Callable[[T], tuple[object, ...]]) -> list[T]:
    """Up to `most` items, as evenly over the cells as these allow; within a cell in an order drawn from `drawn`."""
    orders = [sorted(items, key=lambda item: seed_of(*drawn(item))) for items in cells]
    turns = zip_longest(*([(item,) for item in order] for order in orders), fillvalue=())
    return [item for turn in turns for place in turn for item in place][:most]


def format_cells(study: Study) -> list[Cell]:
    """The cells of the write-time formats at the gates' budget, under the main protocol of the runs."""
    gates, kind = study.config.gates, study.config.protocol.kind
    return [
        cell
        for cell in study.cells
        if cell.memory in gates.formats and cell.budget == gates.budget and cell.protocol == kind
    ]


def lag_points(study: Study, cells: Iterable[Cell]) -> dict[Cell, list[LagPoint]]:
    """The audited decisions of these cells that have a measurement of the lag."""
    found: dict[Cell, list[LagPoint]] = {}
    for cell in cells:
        for game, audits in study.audits[cell].items():
            for audit in audits:
                lag = study.lags.get(audit.episode, {}).get(audit.step)
                if lag is not None:
                    found.setdefault(cell, []).append(LagPoint(game, cell.filler, audit, lag))
    return found


def sampled_lags(study: Study) -> list[LagPoint]:
    """The decisions of the pooled table: drawn with the seed of the statistics, spread over the cells."""
    study.need_audits()
    study.need_lags()
    points = lag_points(study, format_cells(study))
    if not points:
        gates = study.config.gates
        raise StatsError(
            f"No relevance lag was measured for {', '.join(gates.formats)} at {gates.budget} tokens; run `dssr lag` on "
            "a diagnosis that has them, or set gates.formats and gates.budget."
        )
    seed = study.config.stats.seed
    return spread(
        points.values(), study.config.measure.lag_points, lambda one: ("lag", seed, one.audit.episode, one.audit.step)
    )


def lag_table_rows(study: Study) -> list[LagTableRow]:
    """Losses by relevance lag over sampled decisions, for the threshold in use and for those that check it."""
    measure, points = study.config.measure, sampled_lags(study)
    values: tuple[Callable[[Audit], float], ...] = (lambda a: a.kappa, lambda a: a.beta, lambda a: a.nll_full)
    rows = []
    for threshold in (measure.lag_threshold, *measure.lag_robustness):
        told = [(one, found.lag) for one in points if (found := relevance(one.lag, threshold))]
        kappa, beta, full = (
            binned_means([(p.game, float(lag), value(p.audit)) for p, lag in told], measure.lag_bins, study.sampler)
            for value in values
        )
        rows += [
            LagTableRow(
                threshold=threshold,
                bin=k.label,
                points=k.points,
                games=k.games,
                kappa=k.interval,
                beta=b.interval,
                nll_full=f.interval,
                sampled=len(points),
            )
            for k, b, f in zip(kappa, beta, full, strict=True)
        ]
    return rows


def tie_rows(study: Study) -> list[TieRow]:
    """The pooled rate of ties, as a list of one row, or of none where the reader always chose the reference action."""
    steps: dict[Cell, list[tuple[str, str, int, bool]]] = {}
    for cell in study.cells:
        for game, episode in study.episodes[cell].items():
            for step in study.steps(episode.key) if episode.outcome != "error" else ():
                if step.decision is not None and step.decision.tie is not None:
                    steps.setdefault(cell, []).append((game, episode.key, step.index, step.decision.tie))
    seed, most = study.config.stats.seed, study.config.measure.tie_steps
    every = spread(steps.values(), most, lambda one: ("ties", seed, one[1], one[2]))
    if not every:
        return []
    tied = np.array([float(one[3]) for one in every])
    rate = point_mean(tied, [one[0] for one in every], study.sampler)
    return [TieRow(len(every), sum(map(len, steps.values())), int(tied.sum()), rate)]


# ---------------------------------------------------------------- is the filler lag?


class FillerLagRow(Record, frozen=True):
    """What one length of the filler walk did to the relevance lag."""

    filler: int
    points: int
    """Decisions with a measured lag, at the threshold in use."""
    lag: Interval | None
    """Mean relevance lag, in steps."""
    filler_steps: int
    """Steps of the walks."""
    exposed: float | None
    """Share of these whose observation tells again a fact that the reveal told; None without a walk."""


class FillerCheck(Record, frozen=True):
    """Whether the filler of a study may be called lag."""

    slope: Interval
    """Steps of relevance lag per step of the walk, least squares over decisions; games are resampled."""
    exposed: Interval | None
    """Share of filler steps that tell a fact again; None without a walk."""
    is_lag: bool
    """The interval of the slope lies above zero."""

    @property
    def sentence(self) -> str:
        """The answer in words."""
        slope = self.slope.text()
        shown = (
            "" if self.exposed is None else f"; {100 * self.exposed.estimate:.0f} % of its steps tell the fact again"
        )
        if self.is_lag:
            return f"The filler is lag: measured ℓ rises by {slope} steps per step of the walk{shown}."
        return (
            f"That the filler is lag is not shown here: a rise of measured ℓ with it was not found (slope {slope}"
            f"{shown}), so these results speak of filler only."
        )


def filler_check(study: Study) -> FillerCheck:
    """Whether the measured lag rises with the walk, over the write-time formats at the gates' budget."""
    points = _points(study)
    fillers = np.array([one.filler for one, _ in points], dtype=np.float64)
    if len(set(fillers.tolist())) < 2:
        where = f"all of them at filler {fillers[0]:g}" if len(points) else "at no filler"
        raise StatsError(
            f"Whether the filler is lag cannot be told: {len(points)} decision points have a lag, {where}; it takes "
            "points of two fillers or more, and `dssr lag` measures them."
        )
    slope = point_slope(fillers, np.array([lag for _, lag in points]), [one.game for one, _ in points], study.sampler)
    walks = _exposures(study, format_cells(study))
    steps = [(game, told) for (_, game), marks in walks.items() for told in marks]
    shown = point_mean(np.array([told for _, told in steps]), [g for g, _ in steps], study.sampler) if steps else None
    return FillerCheck(slope, shown, slope.estimate > 0 and slope.low > 0)


def filler_lag_rows(study: Study) -> list[FillerLagRow]:
    """One row per filler."""
    points, cells = _points(study), format_cells(study)
    walks = _exposures(study, cells)
    rows = []
    for filler in sorted({cell.filler for cell in cells}):
        mine = [(one.game, lag) for one, lag in points if one.filler == filler]
        lag = point_mean(np.array([lag for _, lag in mine]), [g for g, _ in mine], study.sampler) if mine else None
        told = [mark for (length, _), marks in walks.items() if length == filler for mark in marks]
        rows.append(FillerLagRow(filler, len(mine), lag, len(told), float(np.mean(told)) if told else None))
    return rows


def word_for_filler(study: Study) -> tuple[str, str]:
    """`lag` where that was shown, else `filler`; and the sentence that says why."""
    try:
        found = filler_check(study)
    except StatsError as error:
        return "filler", f"Whether the filler is lag was not measured. {error}"
    return ("lag" if found.is_lag else "filler"), found.sentence


def _points(study: Study) -> list[tuple[LagPoint, float]]:
    study.need_audits()
    study.need_lags()
    threshold = study.config.measure.lag_threshold
    cells = lag_points(study, format_cells(study)).values()
    found = [(one, rel.lag) for points in cells for one in points if (rel := relevance(one.lag, threshold))]
    if not found:
        gates = study.config.gates
        raise StatsError(
            f"No decision of {', '.join(gates.formats)} at {gates.budget} tokens hangs on a chunk of its history, so "
            "there is no relevance lag; run `dssr lag` on a diagnosis that has them."
        )
    return [(one, float(lag)) for one, lag in found]


def _exposures(study: Study, cells: Iterable[Cell]) -> dict[tuple[int, str], list[float]]:
    """Per filler and game, for each step of the walk whether its observation tells a fact again. All memories walk the
    same way, so one episode per game and filler is looked at."""
    found: dict[tuple[int, str], list[float]] = {}
    for cell in cells:
        for game, episode in study.episodes[cell].items():
            if (cell.filler, game) in found or episode.outcome == "error":
                continue
            steps = study.steps(episode.key)
            facts = study.domain.facts(steps, episode.reveal)
            found[cell.filler, game] = [
                float(any(fact.held_in(step.observation) for fact in facts)) for step in steps if step.kind == "filler"
            ]
    return found
