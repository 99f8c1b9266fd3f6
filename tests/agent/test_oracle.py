"""`oracle-b` along oracle trajectories: the lines that matter are there at every budget."""

from functools import partial

import pytest

from dssr.agent.memory import OracleB
from dssr.models.scripted.model import WordTokenizer
from dssr.types import Moment
from dssr.worlds.archive import Worlds
from dssr.worlds.base import follow
from dssr.worlds.cooking.recipe import core_things, oracle_lines

GAMES = ("train-1-000", "valid-6-000", "valid-6-001", "valid-9-000", "valid-12-000")


def decision_points(worlds: Worlds, game: str) -> list[Moment]:
    with worlds.playing(game) as world:
        start = world.walk("post", 0)[-1].node
        return [node.moment for node in follow(world, start) if node.moment.privileged.policy]


@pytest.mark.parametrize("budget", [64, 128, 256])
@pytest.mark.parametrize("game", GAMES)
def test_core_lines_at_every_decision_point(worlds: Worlds, game: str, budget: int) -> None:
    """Catches a line dropped before its turn, cut in half, or missing for something the recipe still needs."""
    tokenizer = WordTokenizer()
    for moment in decision_points(worlds, game):
        text = OracleB(budget, tokenizer).render((), None, partial(oracle_lines, moment.privileged))
        assert len(tokenizer.encode(text)) <= budget
        lines = text.split("\n")
        long, short = (oracle_lines(moment.privileged, long=form) for form in (True, False))
        assert lines in (long, short[: len(lines)])
        core = 1 if long[0].startswith("The meal") else 1 + len(core_things(moment.privileged))
        assert len(lines) >= core, f"{budget} tokens: {text!r}"


@pytest.mark.parametrize("game", GAMES)
def test_what_is_done_disappears(worlds: Worlds, game: str) -> None:
    """Catches verbs that stay after they were done, and a meal that is not announced."""
    points = [moment.privileged for moment in decision_points(worlds, game)]
    todo = [sum(len(verbs) for verbs in core_things(one).values()) for one in points]
    before_meal = [count for count, one in zip(todo, points, strict=True) if one.policy != ("eat meal",)]
    assert before_meal == sorted(before_meal, reverse=True)
    assert before_meal[0] > 0
    assert oracle_lines(points[-1], long=True) == ["The meal: carried; eat"]
    assert oracle_lines(points[-2], long=True)[0].startswith("Room: ")


def test_ways_lead_where_they_say(worlds: Worlds) -> None:
    """Catches a direction read the wrong way round: the ways are walked in the real game."""
    with worlds.playing("valid-12-000") as world:
        node = world.walk("post", 20)[-1].node
        ways = [line for line in oracle_lines(node.moment.privileged, long=True) if line.startswith("Way to ")]
        assert ways
        for line in ways:
            room, _, moves = line.removeprefix("Way to ").partition(": ")
            there = node
            for move in moves.split(", "):
                there = world.step(there, move if move.startswith("open ") else f"go {move}")
            assert there.moment.place == room


def test_length_is_about_what_the_paper_reports(worlds: Worlds) -> None:
    """Catches a verbose form: about 47 tokens on average over 6-, 9- and 12-room games."""
    lengths = [
        len(
            WordTokenizer().encode(
                OracleB(256, WordTokenizer()).render((), None, partial(oracle_lines, moment.privileged))
            )
        )
        for game in GAMES[1:]
        for moment in decision_points(worlds, game)
    ]
    assert 25 < sum(lengths) / len(lengths) < 70
