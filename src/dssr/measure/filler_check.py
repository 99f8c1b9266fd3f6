"""Is the filler walk lag? It is where the measured lag rises with it, and it is not where it tells the fact again.

A walk that passes by what must be remembered, or that comes before it is told, makes an episode longer and no fact
older. Results along such a walk are results of filler; to call them lag would claim what was not measured.
"""

from collections.abc import Iterable

import numpy as np

from dssr.errors import StatsError
from dssr.measure.lag import relevance
from dssr.measure.sampled import LagPoint, format_cells, lag_points
from dssr.measure.study import Study
from dssr.stats.bootstrap import Interval, point_mean
from dssr.stats.contrasts import point_slope
from dssr.types import Cell, Record


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
        slope = f"{self.slope.estimate:.2f} [{self.slope.low:.2f}, {self.slope.high:.2f}]"
        shown = (
            "" if self.exposed is None else f"; {100 * self.exposed.estimate:.0f} % of its steps tell the fact again"
        )
        if self.is_lag:
            return f"The filler is lag: measured ℓ rises by {slope} steps per step of the walk{shown}."
        return (
            f"The filler is not lag here: measured ℓ does not rise with it (slope {slope}{shown}), so these results "
            "speak of filler only."
        )


def filler_check(study: Study) -> FillerCheck:
    """Whether the measured lag rises with the walk, over the write-time formats at the gates' budget."""
    points = _points(study)
    fillers = np.array([one.filler for one, _ in points], dtype=np.float64)
    if len(set(fillers.tolist())) < 2:
        raise StatsError("Whether the filler is lag cannot be told from one filler; run `dssr lag` on two or more.")
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
