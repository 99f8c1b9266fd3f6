"""The scripted model reads TextWorld's prose without error."""

from tests.models.scripted.conftest import Walk

from dssr.models.scripted.claims import FLOOR, Claim, exits, look, replay, things, update

WAYS = {f"{direction}_of": direction for direction in ("north", "south", "east", "west")}


def test_claims_of_a_whole_history_are_the_true_facts(walks: dict[str, Walk]) -> None:
    """Catches any sentence of TextWorld's grammar that is misread: places, links and open things must all agree.

    The facts come from the game engine, not from the text, so agreement over six games cannot be luck.
    """
    for walk in walks.values():
        claims, facts = replay([], walk.history), walk.facts
        rooms = {fact.args[0]: fact.args[1] for fact in facts if fact.name == "at"}
        doors = {fact.args[1] for fact in facts if fact.name == "link"}
        pairs = [fact.args for fact in facts if fact.name in ("in", "on") and fact.args[1] in rooms]
        held = {(thing, holder, rooms[holder]) for thing, holder in pairs}
        assert {(c.args[0], c.args[2], c.args[3]) for c in claims if c.kind == "at" and c.args[2] != FLOOR} == held
        standing = {(name, room) for name, room in rooms.items() if name != "P" and name not in doors}
        on_floor = {(c.args[0], c.args[3]) for c in claims if c.kind == "at" and c.args[2] == FLOOR}
        assert on_floor | {(c.args[0], c.args[1]) for c in claims if c.kind == "fixture"} == standing
        links = {(f.args[1], WAYS[f.name], f.args[0]) for f in facts if f.name in WAYS}
        assert {(room, direction, way.args[2]) for (room, direction), way in exits(claims).items()} == links
        opened = {c.args[0] for c in claims if c.kind == "fixture" and c.args[2] == "open"}
        opened |= {c.args[3] for c in claims if c.kind == "exit" and c.args[4] == "open"}
        assert opened == {fact.args[0] for fact in facts if fact.name == "open"}
        assert Claim("here", ("kitchen",)) in claims


def test_recipe_is_read_whole(walks: dict[str, Walk]) -> None:
    """Catches a lost ingredient or directive of the cookbook."""
    for walk in walks.values():
        lines = walk.recipe.partition("Directions:")[2].splitlines()
        wanted = {line.strip() for line in lines if " the " in line}
        assert {" the ".join(claim.args) for claim in replay([], walk.history) if claim.kind == "do"} == wanted


def test_lists_split_into_things_and_preparations() -> None:
    """Catches names cut at `of` or `and`, and preparation words that stay in the name."""
    found = things("a sliced roasted block of cheese, some salt, a raw pork chop and a knife, so there's that")
    assert [tuple(item) for item in found] == [
        ("block of cheese", "sliced roasted"),
        ("salt", ""),
        ("pork chop", "raw"),
        ("knife", ""),
    ]


def test_acting_moves_and_changes_things() -> None:
    """Catches stale claims: a taken thing still on its shelf, a finished directive still to do."""
    claims = [
        Claim("here", ("attic",)),
        Claim("at", ("blue fruit", "on", "shelf", "attic", "")),
        Claim("need", ("blue fruit",)),
        Claim("do", ("slice", "blue fruit")),
    ]
    taken = update(claims, "take blue fruit from shelf", look("You take it.\n\nYou are carrying: a blue fruit."))
    assert Claim("carry", ("blue fruit", "")) in taken
    assert not [claim for claim in taken if claim.kind == "at"]
    assert Claim("do", ("slice", "blue fruit")) in taken
    cut = update(taken, "slice blue fruit with knife", look("Done.\n\nYou are carrying: a sliced blue fruit."))
    assert not [claim for claim in cut if claim.kind in ("do", "need")]
    dropped = update(cut, "drop blue fruit", look("You drop it.\n\nYou are carrying nothing."))
    assert Claim("at", ("blue fruit", "on", FLOOR, "attic", "sliced")) in dropped


def test_every_exit_is_seen_before_it_is_walked(walks: dict[str, Walk]) -> None:
    """Catches an exit sentence that is not understood; walking would hide it, so each room is read by itself."""
    for walk in walks.values():
        ways = {(f.args[1], WAYS[f.name]) for f in walk.facts if f.name in WAYS}
        for step in walk.steps:
            sight = look(step.observation)
            if sight.room is not None:
                assert {direction for direction, _, _ in sight.exits} == {d for room, d in ways if room == sight.room}
