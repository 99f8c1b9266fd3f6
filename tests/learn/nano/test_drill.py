import random

from dssr.learn.nano.drill import drill, make_kitchen, marks_of


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


def test_marks_follow_the_recipe() -> None:
    """Catches marks that ignore the appliance: they would teach that any cooking will do."""
    (question,) = drill(random.Random(4), 1)
    cooking = next(command for command in question.plan if command.startswith("cook"))
    other = cooking.replace("stove", "?").replace("oven", "stove").replace("?", "oven")
    assert marks_of(cooking, question) == (1.0, 1.0, 1.0)
    assert marks_of(other, question) == (0.0, 1.0, 0.0)
