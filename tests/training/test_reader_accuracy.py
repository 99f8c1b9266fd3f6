"""Loss and top-1 accuracy at held-out points, against logits that are known."""

import math
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from dssr.stats.bootstrap import Resampler
from dssr.training.reader_fit import Prompt, PromptTree, Questions, evaluate, is_right
from dssr.training.reader_points import (
    HeldOut,
    PointAnswer,
    ReaderAccuracy,
    ReaderPoint,
    card_accuracies,
    variant_accuracies,
)
from dssr.types import Options


def point(game: str, memory: str, budget: int | None, step: int = 0) -> ReaderPoint:
    options = Options(actions=("go north", "go south"), reference="go north", appended=False, dropped=0)
    return ReaderPoint(
        game=game, episode="e", step=step, memory=memory, budget=budget, goal="g", context="c", observation="o",
        options=options,
    )  # fmt: skip


class Asked(Questions):
    """Prompts written down by hand, in one tree."""

    def __init__(self, prompts: Sequence[Prompt]) -> None:
        self.prompts = prompts

    def trees(self, points: Sequence[ReaderPoint]) -> list[PromptTree]:
        tree = PromptTree()
        tree.add(self.prompts)
        return [tree]


class Known:
    """A model whose logits at the end of a prompt are looked up by the prompt's last token."""

    def __init__(self, logits: dict[int, list[float]]) -> None:
        self.logits = logits

    def parameters(self) -> Any:
        yield torch.zeros(1)

    def __call__(self, input_ids: torch.Tensor, logits_to_keep: torch.Tensor, **rest: Any) -> Any:
        ends = [int(input_ids[0, place]) for place in logits_to_keep]
        return SimpleNamespace(logits=torch.tensor([[self.logits[end] for end in ends]]))


def test_three_points_with_known_logits() -> None:
    """Catches an argmax over the whole vocabulary, answers given to the wrong point (the tree puts longer prompts
    first, the points come shortest first), and a mean that mixes variants.

    Labels are tokens 0, 1, 2; token 3 is no label. Logits are log-probabilities, so losses are their negatives.
    Point 0, full, shows 0 and 1, right is 0: p = (0.3, 0.1, 0.2, 0.4). Of those shown 0 is likeliest: right.
    Point 1, summary, shows 0 and 1, right is 1: p = (0.2, 0.1, 0.6, 0.1). 2 is not shown, 0 wins: wrong.
    Point 2, summary, shows 0, 1, 2, right is 2: p = (0.1, 0.1, 0.5, 0.3): right.
    All: 2 of 3, loss (ln 1/0.3 + ln 1/0.1 + ln 1/0.5) / 3; full 1 of 1; summary 1 of 2.
    """
    points = [point("a", "full", None), point("a", "summary", 64, 1), point("b", "summary", 64, 2)]
    prompts = [
        Prompt((9, 10), 0, (0, 1), 0),
        Prompt((9, 9, 11), 1, (0, 1), 1),
        Prompt((9, 9, 9, 12), 2, (0, 1, 2), 2),
    ]
    shares = {10: (0.3, 0.1, 0.2, 0.4), 11: (0.2, 0.1, 0.6, 0.1), 12: (0.1, 0.1, 0.5, 0.3)}
    model = Known({end: [math.log(p) for p in row] for end, row in shares.items()})
    found = evaluate(model, Asked(prompts), HeldOut(points, Resampler(100)))
    assert found["held_out_accuracy"] == pytest.approx(2 / 3)
    assert found["held_out_loss"] == pytest.approx(-(math.log(0.3) + math.log(0.1) + math.log(0.5)) / 3)
    everything, full, summary = found["held_out"]
    assert [row["memory"] for row in found["held_out"]] == ["all", "full", "summary"]
    assert (everything["points"], everything["games"]) == (3, 2)
    assert (full["budget"], full["points"], full["accuracy"]) == (None, 1, 1.0)
    assert full["loss"] == pytest.approx(-math.log(0.3))
    assert (summary["budget"], summary["points"], summary["games"], summary["accuracy"]) == (64, 2, 2, 0.5)
    assert summary["loss"] == pytest.approx(-(math.log(0.1) + math.log(0.5)) / 2)


def test_no_held_out_point_gives_no_row() -> None:
    """Catches a mean of nothing where a study has a single training game."""
    assert evaluate(Known({}), Asked([]), HeldOut([], Resampler(100))) == {}


def test_equal_logits_are_answered_as_the_reader_acts() -> None:
    """Catches a tie counted as right: the reader takes the first option shown."""
    assert is_right(torch.zeros(4), Prompt((9,), 2, (2, 0)))
    assert not is_right(torch.zeros(4), Prompt((9,), 0, (2, 0)))


def test_accuracy_is_over_points_and_its_interval_over_games() -> None:
    """Catches a mean of game means, and an interval that takes the points of one game for independent.

    Game a: 5 points, all right. Game b: 1 point, wrong. Over points 5/6, over games it would be 1/2. Of two games drawn
    with replacement, both may be a (accuracy 1) or both b (0), each a quarter of the time: the interval is [0, 1].
    """
    answers = [PointAnswer(point("a", "full", None, step), 0.1, True) for step in range(5)]
    answers.append(PointAnswer(point("b", "full", None), 0.7, False))
    everything, _ = variant_accuracies(answers, Resampler(1000))
    assert everything["accuracy"] == pytest.approx(5 / 6)
    assert everything["loss"] == pytest.approx(0.2)
    assert (everything["accuracy_low"], everything["accuracy_high"]) == (0.0, 1.0)


def test_a_card_gives_the_rows_of_the_base_and_of_the_end() -> None:
    """Catches a checkpoint in the middle taken for the trained reader, and a card of before that no longer opens."""
    row = {"memory": "all", "budget": None, "points": 6, "games": 2, "accuracy_low": 0.0, "accuracy_high": 1.0}
    curve = [
        {"step": step, "of": 50, "held_out_loss": 1.0, "held_out": [{**row, "loss": 1.0, "accuracy": step / 50}]}
        for step in (0, 25, 50)
    ]
    rows = card_accuracies({"points": 12, "curve": curve}, 2)
    assert [(one.iteration, one.trained, one.accuracy) for one in rows] == [(2, 0, 0.0), (2, 12, 1.0)]
    assert all(isinstance(one, ReaderAccuracy) for one in rows)
    before = [{"step": 0, "of": 50, "held_out_loss": 1.0}, {"step": 50, "of": 50, "loss": 1.0, "held_out_loss": 0.5}]
    assert card_accuracies({"points": 12, "curve": before}, 2) == []
