"""The explorer and the protocols on real games of 6, 9 and 12 rooms."""

import gc
import weakref
from itertools import pairwise

import pytest

from dssr.errors import GameError
from dssr.types import Protocol
from dssr.worlds.archive import Archive
from dssr.worlds.base import WalkStep, World
from dssr.worlds.cooking.recipe import player_room, rooms, route
from dssr.worlds.cooking.world import unseen

SIZES = ("valid-6-000", "valid-9-000", "valid-12-000")


@pytest.fixture(params=SIZES)
def world(request: pytest.FixtureRequest, archive: Archive) -> World:
    return archive.world(request.param)


def commands(steps: tuple[WalkStep, ...]) -> list[str | None]:
    return [step.action for step in steps]


def test_exploration_reaches_and_opens_everything(world: World) -> None:
    """Catches a room, container or door left out, a forbidden command, or an end away from the start."""
    steps = world.walk("post", 0)
    explored = [step for step in steps if step.kind in ("start", "explore")]
    facts = steps[-1].node.moment.privileged.facts
    assert {step.node.moment.place for step in explored} == set(rooms(facts))
    assert len(rooms(facts)) == world.game.level
    assert not [fact for fact in facts if fact.name == "closed"]
    assert [fact for fact in facts if fact.name == "open"]
    verbs = {(step.action or "").split(" ")[0] for step in explored[1:]}
    assert verbs == {"go", "open"}
    assert "closed" in {fact.name for fact in steps[0].node.moment.privileged.facts}


def test_exploration_ends_in_the_start_room_and_reveal_is_the_shortest_way(world: World) -> None:
    """Catches an explorer that stops where it is, and a detour on the way to the cookbook."""
    steps = world.walk("post", 0)
    facts = steps[0].node.moment.privileged.facts
    kitchen_last = next(place for place, step in enumerate(steps) if step.kind == "reveal")
    assert kitchen_last == len(steps) - 1
    way = len(route(facts, player_room(facts), "kitchen"))
    home = steps[kitchen_last - 1 - way]
    assert home.node.moment.place == steps[0].node.moment.place
    assert [step.action for step in steps].count("examine cookbook") == 1
    assert steps[-1].node.moment.privileged.task in steps[-1].observation


def test_first_visit_opens_containers_then_doors_then_leaves_in_order(world: World) -> None:
    """Catches a changed order of opening or of exits, which would change every trace."""
    order = {"north": 0, "south": 1, "east": 2, "west": 3}
    first_exits: dict[str, list[int]] = {}
    known: set[tuple[str, str]] = set()
    previous = world.walk("post", 0)[0].node
    opened: dict[str, list[bool]] = {}
    left: set[str] = set()
    for step in world.walk("post", 0)[1:]:
        room, command = previous.moment.place, step.action or ""
        if command.startswith("open "):
            assert room not in left, "opened something on a later visit"
            opened.setdefault(room, []).append(command.endswith(" door"))
        elif command.startswith("go ") and step.kind == "explore":
            left.add(room)
            there = step.node.moment.place
            if (room, there) not in known:
                first_exits.setdefault(room, []).append(order[command.split(" ")[1]])
            known |= {(room, there), (there, room)}
        previous = step.node
    assert all(kinds == sorted(kinds) for kinds in opened.values())
    assert all(exits == sorted(exits) for exits in first_exits.values())


def test_walks_are_nested_prefixes(world: World) -> None:
    """Catches a walk whose beginning depends on its length: shared prefixes are what makes lags comparable."""
    traces = [world.walk("post", filler) for filler in (0, 10, 20, 40)]
    for shorter, longer in pairwise(traces):
        assert longer[: len(shorter)] == shorter
    assert [len(trace) - len(traces[0]) for trace in traces] == [0, 10, 20, 40]
    walk = traces[-1][len(traces[0]) :]
    assert {step.kind for step in walk} == {"filler"}
    assert all((step.action or "").startswith("go ") for step in walk)


def test_two_runs_give_identical_traces(archive: Archive, fresh_archive: Archive) -> None:
    """Catches anything not decided by the game alone: one world has stored steps, the other has none."""
    game = archive.game("train-6-000")
    told = [
        [(step.kind, step.action, step.observation, step.visit) for step in world.walk("post", 20)]
        for world in (archive.world(game), fresh_archive.world(game))
    ]
    assert told[0] == told[1]


def test_a_trace_is_computed_once_and_goes_with_its_world(archive: Archive) -> None:
    """Catches a trace computed for every format, and one that keeps its world in memory for ever."""
    world = archive.world("train-6-000")
    assert world.walk("post", 10) is world.walk("post", 10)
    gone = weakref.ref(world)
    world.close()
    del world
    gc.collect()
    assert gone() is None


def test_visits_count_room_changes(world: World) -> None:
    """Catches a visit number that misses a room change, or grows without one."""
    steps = world.walk("post", 10)
    for before, after in pairwise(steps):
        moved = before.node.moment.place != after.node.moment.place
        assert after.visit - before.visit == int(moved)


@pytest.mark.parametrize(("protocol", "reveal_last"), [("pre", True), ("brief", True), ("post", False)])
def test_the_walk_stands_where_the_protocol_says(archive: Archive, protocol: Protocol, reveal_last: bool) -> None:
    """Catches a walk on the wrong side of the reveal."""
    world = archive.world("train-6-001")
    kinds = [step.kind for step in world.walk(protocol, 10)]
    assert kinds.count("filler") == 10
    assert kinds.count("reveal") == 1
    assert (kinds[-1] == "reveal") == reveal_last
    assert (kinds.index("filler") < kinds.index("reveal")) == reveal_last


@pytest.mark.parametrize(("protocol", "full"), [("brief", "pre"), ("post-brief", "post")])
def test_brief_walks_show_only_header_and_inventory(archive: Archive, protocol: Protocol, full: Protocol) -> None:
    """Catches room contents that leak into a brief walk, and a brief protocol that plays other commands."""
    world = archive.world("train-6-001")
    short, long = world.walk(protocol, 10), world.walk(full, 10)
    assert commands(short) == commands(long)
    for brief, whole in zip(short, long, strict=True):
        if brief.kind == "filler":
            header = next(line for line in whole.observation.splitlines() if line.startswith("-= "))
            assert brief.observation == f"{header}\n\nYou are carrying nothing."
        else:
            assert brief.observation == whole.observation


def test_a_walk_needs_a_second_room(archive: Archive) -> None:
    """Catches an endless or empty walk in a game without exits."""
    world = archive.world("train-1-000")
    assert world.walk("post", 0)[-1].kind == "reveal"
    with pytest.raises(GameError, match="one room"):
        world.walk("post", 1)


def test_every_game_is_valid(archive: Archive) -> None:
    """Catches a game whose Phase A does not show what Phase B needs, or which the reference policy loses."""
    for game in (*archive.games("train"), *archive.games("valid")):
        world = archive.world(game)
        assert world.faults(50) == (), game.id
        world.close()


def test_the_validity_check_notices_what_is_missing(world: World) -> None:
    """Catches a check that cannot fail: without the rooms that show them, things must be reported."""
    steps = world.walk("post", 0)
    assert unseen(steps) == ()
    kept = tuple(step for step in steps if step.node.moment.place != "kitchen" or step.kind == "reveal")
    assert "stove" in unseen(kept) or "oven" in unseen(kept) or "knife" in unseen(kept)
    assert "pantry" in unseen(tuple(step for step in steps if step.node.moment.place != "pantry"))
