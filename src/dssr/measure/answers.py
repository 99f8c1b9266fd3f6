"""The answer in one sentence per memory: was the state too small, or did the writer choose badly?

The two numbers here choose words, not measurements; so they stand beside the words, and not in the configuration.
"""

from collections.abc import Mapping
from typing import Literal

from dssr.errors import StatsError
from dssr.measure.rows import CellGroup, Quantity, game_values, groups, mean_of
from dssr.measure.study import Study
from dssr.stats.bootstrap import Interval, align, mean_intervals
from dssr.stats.contrasts import over_fillers
from dssr.types import Cell

NEGLIGIBLE = 0.05
"""Nats; a loss surely below this is called none."""
OUTWEIGHS = 2.0
"""Of two losses, one this many times the other is the main one."""

Cause = Literal["writer", "budget", "both", "neither", "unclear"]
CAUSES: dict[Cause, str] = {
    "writer": "the writer, not the budget, loses what decisions need",
    "budget": "the budget, not the writer, loses what decisions need",
    "both": "both the budget and the writer lose what decisions need, {more} more",
    "neither": "nothing that decisions need is lost",
    "unclear": "too few games to tell whether anything is lost",
}


class AnswerRow(CellGroup, frozen=True):
    """A memory at one budget, over all fillers, on the games that have every value."""

    success: Interval | None
    delta: Interval | None
    beta: Interval | None
    kappa: Interval | None
    cause: Cause | None
    """Who loses what decisions need; None where games are missing."""
    sentence: str
    """The answer in words, or why there is none."""
    kappa_first: Interval | None = None
    """Regret against the first hindsight sample instead of the best; None in runs of before."""
    kappa_mean: Interval | None = None
    """Regret against the mean over the hindsight samples."""

    @property
    def main_cause(self) -> Literal["writer", "budget"] | None:
        """Where both lose: the one that outweighs the other, if one does."""
        if self.cause != "both" or self.kappa is None or self.beta is None:
            return None
        if self.kappa.estimate >= OUTWEIGHS * self.beta.estimate:
            return "writer"
        return "budget" if self.beta.estimate >= OUTWEIGHS * self.kappa.estimate else None


def answer_rows(study: Study) -> list[AnswerRow]:
    """One row per memory and budget."""
    study.need_audits()
    return [_answer(study, group, cells) for group, cells in groups(study).items() if group.budget is not None]


def _answer(study: Study, group: CellGroup, cells: Mapping[int, Cell]) -> AnswerRow:
    quantities: tuple[Quantity, ...] = ("success", "delta", "beta", "kappa")
    named = f"{group.memory}, {group.budget} tokens"
    try:
        _, values = align(
            {
                quantity: over_fillers({filler: game_values(study, cell, quantity) for filler, cell in cells.items()})
                for quantity in quantities
            }
        )
        success, delta, beta, kappa = mean_intervals(values, study.sampler)
    except StatsError as error:
        sentence = f"{named}: no answer. {error}"
        return AnswerRow(group.memory, group.budget, group.protocol, None, None, None, None, None, sentence)
    cause = cause_of(delta, beta, kappa)
    more = "the writer" if kappa.estimate > beta.estimate else "the budget"
    sentence = (
        f"{named}: budget loss β = {_shown(beta)}, write-time regret κ = {_shown(kappa)}: "
        f"{CAUSES[cause].format(more=more)}."
    )
    numbers = (success, delta, beta, kappa, cause, sentence)
    others = (_over_all(study, cells, quantity) for quantity in BESIDE)
    return AnswerRow(group.memory, group.budget, group.protocol, *numbers, *others)


BESIDE: tuple[Quantity, ...] = ("kappa_first", "kappa_mean")


def _over_all(study: Study, cells: Mapping[int, Cell], quantity: Quantity) -> Interval | None:
    """Over all fillers; None where games lack it, as all do in runs of before."""
    try:
        return mean_of(over_fillers({f: game_values(study, c, quantity) for f, c in cells.items()}), study.sampler)
    except StatsError:
        return None


def cause_of(delta: Interval, beta: Interval, kappa: Interval) -> Cause:
    """Who loses: whoever's interval lies above zero. Where a memory keeps what states written in hindsight lack, κ is
    below zero and cancels β: then the budget is blamed only if something is lost in the end."""
    if delta.high < NEGLIGIBLE or max(kappa.high, beta.high) < NEGLIGIBLE:
        return "neither"
    if kappa.low > 0:
        return "both" if beta.low > 0 else "writer"
    return "budget" if beta.low > 0 and delta.low > 0 else "unclear"


def _shown(found: Interval) -> str:
    return f"{found.estimate:.2f} [{found.low:.2f}, {found.high:.2f}]"
