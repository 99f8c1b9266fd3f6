"""The answer in one sentence per memory: was the state too small, or did the writer choose badly?

The rule, which docs/method.md states in words: every claim is that an interval lies wholly on one side of a number, and
no claim is made of fewer than `LEAST_GAMES` games. What is not claimed is "not shown", never "not so". Intervals here
are t intervals, which hold their level at few games, not the percentile intervals of the method's tables. How often the
rule is wrong when the truth is known is measured by `benchmarks/intervals.py`.

The numbers here choose words, not measurements; so they stand beside the words, and not in the configuration.
"""

from collections.abc import Mapping
from typing import Literal

import numpy as np

from dssr.errors import StatsError
from dssr.measure.rows import CellGroup, Quantity, game_values, groups
from dssr.measure.study import Study
from dssr.stats.bootstrap import Array, Interval, Resampler, align, t_intervals, wilson
from dssr.stats.contrasts import over_fillers
from dssr.types import Cell, Record

LEAST_GAMES = 6
"""Fewer games get no answer."""
LEAST_EFFECT = 0.1
"""Nats a decision: a loss, or a difference of two, is claimed when it is surely above this, and a loss is called little
when it is surely below."""
LEAST_FOR_LITTLE = 30
"""Games before a loss is called little: one that strikes a few games in a hundred hides from fewer."""

Cause = Literal["writer", "budget", "both", "lost", "little", "unclear", "few"]
CAUSES: dict[Cause, str] = {
    "writer": "the writer's choices lose more than the budget does",
    "budget": "the budget loses more than the writer's choices do",
    "both": "the writer's choices and the budget both lose; which of them loses more is not shown",
    "lost": "something is lost; whether by the writer's choices or by the budget is not shown",
    "little": f"little is lost: the interval of δ ends below {LEAST_EFFECT:g} nats a decision",
    "unclear": "these games cannot tell whether anything is lost, or by whom",
    "few": f"too few games for an answer, which takes {LEAST_GAMES}",
}
Claim = Literal["writer", "budget", "lost", "writer more", "budget more", "little"]


class AnswerRow(CellGroup, frozen=True):
    """A memory at one budget, over all fillers, on the games that have every value. Intervals are t intervals."""

    games: int | None
    """With a value at every filler; None where games are missing."""
    success: Interval | None
    delta: Interval | None
    beta: Interval | None
    kappa: Interval | None
    contrast: Interval | None
    """kappa - beta, game by game: which of the two loses more."""
    cause: Cause | None
    """Who loses what decisions need; None where games are missing."""
    sentence: str
    """The answer in words, or why there is none."""
    kappa_first: Interval | None = None
    """Regret against the first hindsight sample instead of the best; None in runs of before."""
    kappa_mean: Interval | None = None
    """Regret against the mean over the hindsight samples."""


def answer_rows(study: Study) -> list[AnswerRow]:
    """One row per memory and budget."""
    study.need_audits()
    return [_answer(study, group, cells) for group, cells in groups(study).items() if group.budget is not None]


def _answer(study: Study, group: CellGroup, cells: Mapping[int, Cell]) -> AnswerRow:
    quantities: tuple[Quantity, ...] = ("success", "beta", "kappa")
    told = not study.is_of_logs or any(game_values(study, cell, "success") for cell in cells.values())
    if not told:  # sampled choices tell no success of their own
        quantities = ("delta", "beta", "kappa")
    named = f"{group.memory}, {group.budget} tokens"
    head = (group.memory, group.budget, group.protocol)
    try:
        _, (first, beta, kappa) = align({quantity: _values(study, cells, quantity) for quantity in quantities})
    except StatsError as error:
        return AnswerRow(*head, None, None, None, None, None, None, None, f"{named}: no answer. {error}")
    found = decide(beta, kappa, study.sampler)
    others = (_over_all(study, cells, quantity) for quantity in BESIDE)
    won = share_interval(first, study.sampler) if told else None
    sentence, numbers = f"{named}: {found.sentence}", (found.delta, found.beta, found.kappa, found.contrast)
    return AnswerRow(*head, found.games, won, *numbers, found.cause, sentence, *others)


BESIDE: tuple[Quantity, ...] = ("kappa_first", "kappa_mean")


def _values(study: Study, cells: Mapping[int, Cell], quantity: Quantity) -> dict[str, float]:
    return over_fillers({filler: game_values(study, cell, quantity) for filler, cell in cells.items()})


def _over_all(study: Study, cells: Mapping[int, Cell], quantity: Quantity) -> Interval | None:
    """Over all fillers; None where games lack it, as all do in runs of before."""
    try:
        values = _values(study, cells, quantity)
    except StatsError:
        return None
    return t_intervals(np.array([list(values.values())]), study.sampler)[0] if values else None


def share_interval(values: Array, sampler: Resampler) -> Interval:
    """Of a share: Wilson's where every game is a yes or a no, else a t interval that ends at 0 and 1."""
    if np.isin(values, (0.0, 1.0)).all():
        return wilson(int(values.sum()), len(values), sampler)
    (found,) = t_intervals(values[None], sampler)
    return Interval(found.estimate, max(0.0, found.low), min(1.0, found.high)) if found.bounded else found


# ---------------------------------------------------------------- the rule


class Judgement(Record, frozen=True):
    """What the rule says of one set of games."""

    games: int
    delta: Interval
    beta: Interval
    kappa: Interval
    contrast: Interval
    """kappa - beta."""

    @property
    def claims(self) -> frozenset[Claim]:
        """All that is said to be so."""
        if self.games < LEAST_GAMES:
            return frozenset()
        delta, beta, kappa = self.delta, self.beta, self.kappa
        said: dict[Claim, bool] = {
            "lost": delta.low > LEAST_EFFECT,
            "writer": kappa.low > LEAST_EFFECT,
            # Where a memory keeps what states written in hindsight lack, kappa is below zero and cancels beta: the
            # budget is blamed only if something is lost in the end.
            "budget": beta.low > LEAST_EFFECT and delta.low > 0,
            "writer more": self.contrast.low > LEAST_EFFECT and kappa.low > LEAST_EFFECT,
            "budget more": self.contrast.high < -LEAST_EFFECT and beta.low > LEAST_EFFECT and delta.low > 0,
            "little": delta.high < LEAST_EFFECT and self.games >= LEAST_FOR_LITTLE,
        }
        return frozenset(claim for claim, so in said.items() if so)

    @property
    def cause(self) -> Cause:
        """The claims in one word."""
        if self.games < LEAST_GAMES:
            return "few"
        claims = self.claims
        if "writer more" in claims:
            return "writer"
        if "budget more" in claims:
            return "budget"
        if {"writer", "budget"} <= claims:
            return "both"
        return "lost" if "lost" in claims else "little" if "little" in claims else "unclear"

    @property
    def sentence(self) -> str:
        """The numbers, and the claims in words."""
        cause = self.cause
        return (
            f"budget loss β = {self.beta.text()}, write-time regret κ = {self.kappa.text()}, κ − β = "
            f"{self.contrast.text()} over "
            f"{self.games} {'game' if self.games == 1 else 'games'}: {self._words(cause)}."
        )

    def _words(self, cause: Cause) -> str:
        """The answer, and what is to be said of the part that loses less."""
        words, claims = CAUSES[cause], self.claims
        if cause == "writer":
            return f"{words}; {'the budget loses too' if 'budget' in claims else 'a loss by the budget is not shown'}"
        if cause == "budget":
            return f"{words}; {'they lose too' if 'writer' in claims else 'a loss by them is not shown'}"
        if cause == "lost" and "writer" in claims:
            return "the writer's choices lose; whether they lose more than the budget is not shown"
        if cause == "lost" and "budget" in claims:
            return "the budget loses; whether it loses more than the writer's choices is not shown"
        return words


def decide(beta: Array, kappa: Array, sampler: Resampler) -> Judgement:
    """The rule on per-game values of both parts."""
    return Judgement(len(kappa), *t_intervals(np.stack([beta + kappa, beta, kappa, kappa - beta]), sampler))
