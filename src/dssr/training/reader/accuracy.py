"""How well a reader answers at decision points of held-out games: loss and top-1 accuracy, per context variant.

Both are means over decision points. Their games are what is resampled, since the points of one game resemble each
other.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dssr.stats.bootstrap import Interval, Resampler
from dssr.stats.contrasts import ratio
from dssr.training.reader.points import ReaderPoint
from dssr.types import Record

Row = dict[str, Any]
"""Fields of a `ReaderAccuracy` that do not say which reader it was."""
ALL = "all"
"""Name of the row over all context variants."""


class ReaderAccuracy(Record, frozen=True):
    """One reader on the held-out points of one context variant; logs `reader_accuracy` and `reader_curve`."""

    iteration: int
    """Of DAgger."""
    trained: int
    """Points it was trained on, of all iterations so far; 0 for the bare base."""
    memory: str
    """`all` for the row over every variant."""
    budget: int | None
    points: int
    """Held out, on which it was asked."""
    games: int
    """They come from."""
    loss: float
    """Cross-entropy of the reference action's label over the full vocabulary: what training lowers."""
    accuracy: float
    """Share of points where the likeliest of the labels shown is that of the reference action."""
    accuracy_low: float | None
    """None where all points are of one game."""
    accuracy_high: float | None

    @property
    def key(self) -> str:
        """One per reader and context variant."""
        return f"{self.iteration}:{self.trained}:{self.memory}:{self.budget}"

    @property
    def interval(self) -> Interval:
        """Accuracy with its interval over games."""
        return Interval.stored(self.accuracy, self.accuracy_low, self.accuracy_high)


@dataclass(frozen=True)
class PointAnswer:
    """What a reader made of one point."""

    point: ReaderPoint
    loss: float
    right: bool
    """Whether its likeliest option is the reference action."""


@dataclass(frozen=True)
class HeldOut:
    """The points a reader is watched on, and how their games are resampled."""

    points: Sequence[ReaderPoint]
    sampler: Resampler


def variant_accuracies(answers: Sequence[PointAnswer], sampler: Resampler) -> list[Row]:
    """All points first, then each context variant in order of name and budget; nothing where there is no answer."""
    if not answers:
        return []
    variants: dict[tuple[str, int | None], list[PointAnswer]] = defaultdict(list)
    for answer in answers:
        variants[answer.point.memory, answer.point.budget].append(answer)
    rows = [_accuracy(ALL, None, answers, sampler)]
    for memory, budget in sorted(variants, key=lambda variant: (variant[0], variant[1] or 0)):
        rows.append(_accuracy(memory, budget, variants[memory, budget], sampler))
    return rows


def _accuracy(memory: str, budget: int | None, answers: Sequence[PointAnswer], sampler: Resampler) -> Row:
    by_game: dict[str, list[bool]] = defaultdict(list)
    for answer in answers:
        by_game[answer.point.game].append(answer.right)
    rights = [by_game[game] for game in sorted(by_game)]
    # A mean over points of resampled games: right answers over answers, both summed over the games drawn.
    top = np.array([sum(right) for right in rights], dtype=np.float64)
    found = ratio(top, np.array([len(right) for right in rights], dtype=np.float64), sampler)
    return {
        "memory": memory,
        "budget": budget,
        "points": len(answers),
        "games": len(rights),
        "loss": sum(answer.loss for answer in answers) / len(answers),
        "accuracy": found.estimate,
        **dict(zip(("accuracy_low", "accuracy_high"), found.ends, strict=True)),
    }


def card_accuracies(card: Mapping[str, Any], iteration: int) -> list[ReaderAccuracy]:
    """What the card of a trained reader says of the bare base and of the end of training.

    Empty when no game was held out, and for a card of before accuracy was measured.
    """
    curve = [row for row in card.get("curve", ()) if "held_out" in row]
    ends = [(0, row) for row in curve[:1] if row["step"] == 0]
    ends += [(card["points"], row) for row in curve[-1:] if row["step"] == row["of"]]
    return [ReaderAccuracy(iteration, trained, **one) for trained, row in ends for one in row["held_out"]]
