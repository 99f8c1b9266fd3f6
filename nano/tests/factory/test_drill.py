import random

from dssr.worlds.cooking.recipe import COOKS
from dssr_nano.factory.drill import IN_KITCHENS, directives, drill, make_kitchen, marks_of
from dssr_nano.factory.hints import thing_of


def test_following_the_plan_makes_the_meal() -> None:
    """Catches a plan that cannot be carried out or does not shrink by one with each step."""
    for seed in range(30):
        kitchen = make_kitchen(random.Random(seed), plain=seed % 2 == 0)
        left = len(kitchen.plan())
        assert left == 12
        while kitchen.plan() != ["eat meal"]:
            kitchen.play(kitchen.plan()[0])
            left -= 1
            assert len(kitchen.plan()) == left


def test_right_command_is_offered_once() -> None:
    """Catches questions without their answer, or with two."""
    for seed in range(30):
        for question in drill(random.Random(seed), 6):
            assert question.commands.count(question.plan[0]) == 1
            assert len(question.commands) == len(set(question.commands)) <= 80


def test_the_bbq_is_there_only_where_it_is_wanted() -> None:
    """Catches drills that never grill, and a BBQ in those of a kitchen: readers of 6 rooms would meet other rows."""
    asked = {
        cooks: [question for seed in range(10) for question in drill(random.Random(seed), 6, cooks=cooks)]
        for cooks in (IN_KITCHENS, COOKS)
    }
    offered = {
        cooks: any("BBQ" in command for one in found for command in one.commands) for cooks, found in asked.items()
    }
    assert offered == {IN_KITCHENS: False, COOKS: True}
    assert any(question.plan[0].endswith(" with BBQ") for question in asked[COOKS])


def test_marks_follow_the_recipe() -> None:
    """Catches marks that ignore the appliance: they would teach that any cooking will do."""
    (question,) = drill(random.Random(4), 1)
    asked = directives(question.context, map(thing_of, question.commands))
    cooking = next(command for command in question.plan if command.startswith("cook"))
    other = cooking.replace("stove", "?").replace("oven", "stove").replace("?", "oven")
    right, wrong = marks_of(cooking, asked, True), marks_of(other, asked, False)
    assert right[:3] == (1.0, 1.0, 1.0)
    assert wrong[:3] == (0.0, 1.0, 0.0)
    assert right[3:] == wrong[3:]
    assert sum(right[3:6]) == 1.0
    assert sum(right[6:]) == 2.0


def test_directives_are_read_from_every_kind_of_context() -> None:
    """Catches a reply of the game taken for a directive, a name that begins another one, and lines of facts."""
    foods = ("red", "red potato", "salt")
    state = "Recipe: fry the red potato, dice the salt. You slice the red potato."
    assert directives(state, foods) == [("fry", "red potato"), ("dice", "salt")]
    assert directives("recipe: fry the red [certain]\nThe salt: on counter, kitchen; slice, roast", foods) == [
        ("fry", "red"),
        ("slice", "salt"),
        ("roast", "salt"),
    ]
