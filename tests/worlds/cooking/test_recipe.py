"""What counts as holding a directive, on states as writers make them."""

import pytest

from dssr.worlds.cooking.recipe import Directive

CARROT, PORK = Directive("dice", "carrot"), Directive("fry", "pork chop")


@pytest.mark.parametrize(
    "state",
    [
        "Recipe: dice the carrot, fry the pork chop.",
        "dice and roast the carrot",
        "Dice, roast some carrots; eat",
        "carrot: dice, roast",
        "carrot (dice, roast), pork chop (fry)",
        "- carrot -> dice",
        "Room: kitchen\nThe carrot: on counter, kitchen; dice, roast\nThe knife: on table",
        "The carrot must be diced. [certain]",
        "carrot needs to be roasted and diced",
        "Recipe wants diced carrot",
        "I am dicing the carrot",
    ],
)
def test_held(state: str) -> None:
    """Ways in which writers keep a directive; a rule that misses one calls kept facts lost."""
    assert CARROT.held_in(state)


@pytest.mark.parametrize(
    "state",
    [
        "",
        "carrot on the table; dice the potato",
        "You carry the diced carrot.",
        "carrot (roast), potato (dice)",
        "carrot: roast, potato: dice",
        "carrot: in the fridge; dice the potato",
        "use the carrot",
        "The carrot is in the fridge. Dice it.",
        "dice the potato, fry the carrot",
    ],
)
def test_not_held(state: str) -> None:
    """A verb elsewhere, a finished action or another food is not the directive; counting it hides a loss."""
    assert not CARROT.held_in(state)


def test_a_food_named_after_a_verb() -> None:
    """`pork chop` is no order to chop: neither for itself nor for what follows."""
    assert PORK.held_in("fry the pork chop")
    assert not Directive("chop", "carrot").held_in("take the pork chop the carrot")
    assert not Directive("chop", "pork chop").held_in("pork chop: in the fridge")


def test_carried_out() -> None:
    """Cooking verbs are carried out with the appliance that makes them true."""
    assert CARROT.done_by("dice carrot with knife")
    assert PORK.done_by("cook pork chop with stove")
    assert not PORK.done_by("cook pork chop with oven")
    assert not PORK.done_by(None)
