"""Scores of candidates against the returns they led to, from the logs of a continuation run."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from dssr.errors import StatsError
from dssr.record.run import Run
from dssr.stats.bootstrap import Array, Resampler
from dssr.stats.ranks import within_point
from dssr.types import Candidate, Episode, ReturnRow

RETURN = "return"


@dataclass(frozen=True)
class Returns:
    """One row per write point, one column per candidate."""

    games: tuple[str, ...]
    """The game of each point: points of one game are resampled together."""
    returns: Array
    scores: Mapping[str, Array]
    """By name, in the order in which candidates store them: `S1`, …, `W1`, …"""

    @classmethod
    def read(cls, run: Run) -> "Returns":
        """All points of a run whose candidates were continued, in the order of its log."""
        games = {episode.key: episode.job.game for episode in run.read("episodes", Episode)}
        points: dict[str, list[Candidate]] = {}
        for candidate in run.read("candidates", Candidate):
            if RETURN in candidate.scores:
                points.setdefault(candidate.point, []).append(candidate)
        if not points:
            raise StatsError(f"{run.path} holds no continued candidates; `dssr continuation` makes them.")
        names = list(next(iter(points.values()))[0].scores)
        table = {name: np.array([[one.scores[name] for one in group] for group in points.values()]) for name in names}
        returns = table.pop(RETURN)
        return cls(tuple(games[key.partition(":")[0]] for key in points), returns, table)

    @property
    def varied(self) -> int:
        """Points at which the return depends on the candidate."""
        return int((np.ptp(self.returns, axis=1) > 0).sum())


def return_rows(found: Returns, sampler: Resampler) -> list[ReturnRow]:
    """One row per score. A score without a single point where it and the return both vary has no row."""
    moved = np.ptp(found.returns, axis=1) > 0
    rows = []
    for name, scores in found.scores.items():
        ranked = moved & (np.ptp(scores, axis=1) > 0)
        if not ranked.any():
            continue
        rho = within_point(scores, found.returns, found.games, sampler).interval
        rows.append(
            ReturnRow(
                score=name,
                rho=rho.estimate,
                rho_low=rho.low,
                rho_high=rho.high,
                points=int(ranked.sum()),
                without_variance=int((~moved).sum()),
                unranked=int((moved & ~ranked).sum()),
            )
        )
    return rows
