"""The choice put before the reader."""

import msgspec
import pytest

from dssr.errors import GameError
from dssr.types import Moment
from dssr.worlds.archive import Archive
from dssr.worlds.cooking.world import options_at


@pytest.fixture
def moment(archive: Archive) -> Moment:
    world = archive.world("train-6-000")
    return world.walk("post", 0)[-1].node.moment


def with_commands(moment: Moment, admissible: tuple[str, ...], policy: tuple[str, ...]) -> Moment:
    privileged = msgspec.structs.replace(moment.privileged, policy=policy)
    return msgspec.structs.replace(moment, admissible=admissible, privileged=privileged)


def test_hidden_commands_are_left_out_and_nothing_else(moment: Moment) -> None:
    """Catches a filter that shows a re-printing command or hides a real one."""
    options = options_at(moment, "g", 3)
    hidden = set(moment.admissible) - set(options.actions)
    assert {command.split(" ")[0] for command in hidden} <= {"look", "inventory", "examine", "close", "put", "insert"}
    assert {"look", "inventory"} <= hidden
    assert "examine cookbook" in options.actions
    assert options.reference == moment.privileged.policy[0]
    assert (options.appended, options.dropped) == (False, 0)


def test_order_depends_on_game_and_step_alone(moment: Moment) -> None:
    """Catches a shuffle seeded by anything else, or none at all."""
    orders = {(game, step): options_at(moment, game, step).actions for game in "ab" for step in (1, 2)}
    assert len(set(orders.values())) == 4
    assert options_at(moment, "a", 1).actions == orders["a", 1]
    assert all(sorted(order) == sorted(orders["a", 1]) for order in orders.values())


def test_a_missing_reference_is_appended_and_told(moment: Moment) -> None:
    """Catches a reference action that the reader could never choose."""
    options = options_at(with_commands(moment, ("go north", "look"), ("take key from box", "go north")), "g", 0)
    assert sorted(options.actions) == ["go north", "take key from box"]
    assert options.appended


@pytest.mark.parametrize("place", [0, 30, 79])
def test_at_most_52_with_the_reference_among_them(moment: Moment, place: int) -> None:
    """Catches a label beyond `z`, and a reference cut off with the rest."""
    many = tuple(f"take thing {number:02d}" for number in range(80))
    whole = options_at(with_commands(moment, many, (many[place],)), "g", 0)
    assert len(whole.actions) == len(set(whole.actions)) == 52
    assert whole.reference in whole.actions
    assert (whole.dropped, whole.appended) == (28, False)


def test_no_policy_is_an_error(moment: Moment) -> None:
    """Catches options made up for a game that is over."""
    with pytest.raises(GameError, match="no reference action"):
        options_at(with_commands(moment, ("look",), ()), "g", 0)
