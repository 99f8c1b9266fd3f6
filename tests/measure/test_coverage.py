"""What counts as holding a directive, on hand-made and on real states."""

from typing import Any

import pytest

from dssr.worlds.cooking.coverage import carries_out, command_fraction, coverage, directives_shown, holds, survival
from dssr.worlds.cooking.facts import Directive

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
    assert holds(state, CARROT)


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
    assert not holds(state, CARROT)


def test_a_food_named_after_a_verb() -> None:
    """`pork chop` is no order to chop: neither for itself nor for what follows."""
    assert holds("fry the pork chop", PORK)
    assert not holds("take the pork chop the carrot", Directive("chop", "carrot"))
    assert not holds("pork chop: in the fridge", Directive("chop", "pork chop"))


def test_coverage_is_a_share() -> None:
    """One of two is a half; a recipe without directives has no coverage, not a zero."""
    assert coverage("dice the carrot", (CARROT, PORK)) == 0.5
    assert coverage("anything", ()) is None


def test_carried_out() -> None:
    """Cooking verbs are carried out with the appliance that makes them true."""
    assert carries_out("dice carrot with knife", CARROT)
    assert carries_out("cook pork chop with stove", PORK)
    assert not carries_out("cook pork chop with oven", PORK)
    assert not carries_out(None, PORK)


def test_command_fraction() -> None:
    """Words inside a command written out count once, other words do not."""
    assert command_fraction("now go north and eat", ["go north", "north"]) == pytest.approx(2 / 5)
    assert command_fraction("", ["go north"]) == 0
    assert command_fraction("north go", ["go north"]) == 0


def test_real_states(lab: Any) -> None:
    """On a real six-room game: the state written at the reveal by a writer that forgets nothing holds the whole
    recipe in every format, and so does `oracle-b`; `lastk` sees only the walk after ten steps and holds nothing."""
    kept = lab.play("valid-6-000", "summary", 256, 10, retention=1.0)
    wanted = directives_shown(kept.steps, kept.episode.reveal)
    assert len(wanted) >= 3
    assert coverage(kept.steps[kept.episode.reveal].write.state, wanted) == 1
    for memory in ("belief", "slots", "guide", "oracle-b"):
        played = lab.play("valid-6-000", memory, 256, 0, retention=1.0)
        assert coverage(played.steps[played.episode.begin].write.state, wanted) == 1, memory
    gone = lab.play("valid-6-000", "lastk", 64, 10)
    assert coverage(gone.steps[gone.episode.begin].write.state, wanted) == 0


def test_survival_names_the_losing_rewrite(lab: Any) -> None:
    """A forgetful writer loses directives one by one: each loss is at the step where the state before held it and
    the state of the step does not, and never after the directive was carried out."""
    done = lab.play("valid-6-000", "summary", 128, 10, retention=0.7)
    rows = survival(done.steps, done.episode.reveal)
    lost = [row for row in rows if row["lost"]]
    assert lost
    for row in lost:
        verb, _, ingredient = row["directive"].partition(" the ")
        directive = Directive(verb, ingredient)
        assert holds(done.steps[row["step"] - 1].write.state, directive)
        assert not holds(done.steps[row["step"]].write.state, directive)
        assert not any(carries_out(step.action, directive) for step in done.steps[: row["step"] + 1])
