"""Recipes and privileged facts, on real games and on the names TextWorld gives things."""

from itertools import pairwise

import pytest

from dssr.worlds.archive import Archive
from dssr.worlds.base import follow
from dssr.worlds.cooking.recipe import (
    OPPOSITE,
    Directive,
    directives,
    exits,
    holder,
    ingredients,
    is_carried,
    player_room,
    remaining,
    room_of,
    rooms,
    route,
    states,
    tools,
)

RECIPE = """Recipe #1
---------
Gather all following ingredients and follow the directions to prepare this tasty meal.

Ingredients:
block of cheese
  red tuna
  salt

Directions:
slice the block of cheese
  grill the block of cheese
  dice the red tuna
  fry the red tuna
  prepare meal"""


def test_recipe_parts() -> None:
    """Catches a directive lost to indentation, `prepare meal` taken for one, or a wrong tool."""
    assert ingredients(RECIPE) == ("block of cheese", "red tuna", "salt")
    assert directives(RECIPE) == (
        Directive("slice", "block of cheese"),
        Directive("grill", "block of cheese"),
        Directive("dice", "red tuna"),
        Directive("fry", "red tuna"),
    )
    assert tools(RECIPE) == ("knife", "BBQ", "stove")


@pytest.mark.parametrize("name", ["valid-6-000", "valid-9-000", "valid-12-000", "train-1-000"])
def test_needed_things_exist_under_these_names(archive: Archive, name: str) -> None:
    """Catches a tool or ingredient named otherwise in the game than in our tables, such as the BBQ."""
    privileged = archive.world(name).start().moment.privileged
    for thing in (*ingredients(privileged.task), *tools(privileged.task)):
        assert thing in privileged.entities
        assert room_of(privileged.facts, thing) in rooms(privileged.facts)


@pytest.mark.parametrize("name", ["valid-6-000", "valid-12-000"])
def test_the_reference_policy_empties_the_list_of_directives(archive: Archive, name: str) -> None:
    """Catches states read wrongly: each directive must go away with exactly the command that does it."""
    world = archive.world(name)
    nodes = follow(world, world.start())
    recipe = nodes[0].moment.privileged.task
    assert remaining(nodes[0].moment.privileged.facts, recipe) == directives(recipe)
    for before, after in pairwise(nodes):
        gone = set(remaining(before.moment.privileged.facts, recipe))
        gone -= set(remaining(after.moment.privileged.facts, recipe))
        command = after.actions[-1]
        works = command.startswith(("cook ", "slice ", "chop ", "dice "))
        assert len(gone) == int(works), command
        assert all(one.ingredient in command for one in gone)
        if command.startswith("take "):
            thing = command.removeprefix("take ").partition(" from ")[0]
            place = command.partition(" from ")[2] or before.moment.place
            assert holder(before.moment.privileged.facts, thing) == place
            assert is_carried(after.moment.privileged.facts, thing)
            assert room_of(after.moment.privileged.facts, thing) == after.moment.place
    assert remaining(nodes[-3].moment.privileged.facts, recipe) == ()
    assert is_carried(nodes[-2].moment.privileged.facts, "meal")
    assert "edible" in states(nodes[-2].moment.privileged.facts, "meal")


@pytest.mark.parametrize("name", ["valid-6-000", "valid-9-000", "valid-12-000"])
def test_routes_lead_where_they_say(archive: Archive, name: str) -> None:
    """Catches directions turned round: every route is walked in the real game, doors opened on the way."""
    world = archive.world(name)
    start = world.start()
    facts = start.moment.privileged.facts
    for goal in rooms(facts):
        node = start
        for direction in route(facts, player_room(facts), goal):
            way = next(
                one for one in exits(node.moment.privileged.facts, node.moment.place) if one.direction == direction
            )
            if way.closed:
                node = world.step(node, f"open {way.door}")
            node = world.step(node, f"go {direction}")
            assert node.moment.place == way.room
        assert node.moment.place == goal


def test_exits_are_symmetric(archive: Archive) -> None:
    """Catches a door or neighbour seen from one side only."""
    facts = archive.world("valid-12-000").start().moment.privileged.facts
    ways = {(room, way.direction, way.room, way.door) for room in rooms(facts) for way in exits(facts, room)}
    assert {(there, OPPOSITE[direction], room, door) for room, direction, there, door in ways} == ways
    assert any(door for *_, door in ways)
