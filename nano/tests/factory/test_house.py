"""Looks in a house: where a direction leads, and what is to be fetched."""

import pytest
from tokenizers import Tokenizer

from dssr.agent.prompts import load_prompts
from dssr_nano import WEIGHTS as NANO
from dssr_nano.factory.corpus import Seen
from dssr_nano.factory.drill import Question
from dssr_nano.factory.grow import extended
from dssr_nano.factory.looks import AIM, ENTRY, GOAL, HAVE, HERE, PLACE, ROOM, THERE, UNDO
from dssr_nano.factory.questions import ask, room_of
from dssr_nano.factory.scribe import Scribe

NOTHING = "\n\nYou are carrying nothing.\n\n"
HISTORY = (
    f"-= Garden =-\nThere is a red potato on the floor.{NOTHING}> go north\n-= Backyard =-\nA BBQ.{NOTHING}"
    f"> go east\n-= Kitchen =-\nA stove.{NOTHING}> go west\n-= Backyard =-\nA BBQ.{NOTHING}"
    f"> go east\n-= Kitchen =-\nA stove.{NOTHING}"
    "> examine cookbook\nIngredients:\nred potato\n\nDirections:\nslice the red potato\n  grill the red potato\n"
    f"  prepare meal{NOTHING}> go west"
)
COMMANDS = ("go east", "go south", "go north", "examine cookbook")


@pytest.fixture(scope="module")
def scribe() -> Scribe:
    return Scribe(extended(Tokenizer.from_file(str(NANO / "reader" / "tokenizer.json"))), load_prompts())


def told(
    scribe: Scribe, observation: str, plan: tuple[str, ...], context: str = HISTORY, room: str = ""
) -> dict[str, list[tuple[str, set[str]]]]:
    """By kind: texts that end at the source and at the targets."""
    question = Question(context, observation, COMMANDS, plan, room)
    asked = ask(scribe, "You are hungry!", question, COMMANDS, house=True)

    def text(place: int) -> str:
        return scribe.tokenizer.decode(asked.ids[max(0, place - 8) : place + 1])

    found: dict[str, list[tuple[str, set[str]]]] = {}
    for look in asked.looks:
        found.setdefault(look.kind, []).append((text(look.source), set(map(text, look.targets))))
    return found


def test_a_direction_leads_to_the_rooms_it_reached(scribe: Scribe) -> None:
    """Catches a way of another room taken for one of this, and a way never walked from here that is told all the
    same: south of the backyard lies the garden, which was left northwards only."""
    looks = told(scribe, "-= Backyard =-\nA BBQ.\n\nYou are carrying nothing.", ("go south", "take red potato"))
    entered = {source for source, _ in looks[ENTRY]}
    assert entered == {source for source, _ in looks[ROOM] if source.endswith("=-\n")}
    assert sum(source.endswith("=-\n") for source, _ in looks[ROOM]) == 5
    ((source, targets),) = looks[THERE]
    assert source.endswith("go east\n")
    assert all(target.endswith("> go east\n-= Kitchen =-\n") for target in targets)
    assert all(target.endswith("-= Backyard =-\n") for _, targets in looks[HERE] for target in targets)


def test_a_written_map_is_read_both_ways(scribe: Scribe) -> None:
    """Catches ways of other rooms, and those that the state tells from their other end: it keeps one of the two."""
    state = "You are in the backyard. From the kitchen: west to the backyard. From the backyard: south to the garden."
    looks = told(scribe, "You are carrying nothing.", ("go south", "take red potato"), state)
    there = {source.split("go ")[-1].strip(): targets for source, targets in looks[THERE]}
    assert {way: {text.split()[-1] for text in targets} for way, targets in there.items()} == {
        "east": {"backyard"},
        "south": {"garden"},
    }
    assert [{text.split()[-1] for text in targets} for _, targets in looks[ROOM]] == [{"kitchen"}, {"backyard"}]
    assert all(text.endswith("are in the backyard") for _, targets in looks[HERE] for text in targets)


@pytest.mark.parametrize(
    ("context", "found"),
    [
        (HISTORY, {"east": "-= Backyard =-\n", "south": "> go north\n-= Backyard =-\n"}),
        ("You are in the backyard. From the kitchen: west to the backyard.", {"east": " west to the backyard"}),
    ],
)
def test_the_way_back_is_where_one_came_in(scribe: Scribe, context: str, found: dict[str, str]) -> None:
    """Catches a way taken for its opposite, and ways that lead into another room than this."""
    looks = told(scribe, "-= Backyard =-\nA BBQ.", ("go south", "take red potato"), context)
    assert len(looks[UNDO]) == 3
    for source, targets in looks[UNDO]:
        expected = found.get(source.split("go ")[-1].strip(), source)
        assert all(text.endswith(expected) for text in targets)
        assert not any(text.endswith("> go north\n-= Backyard =-\n") for text in targets if "east" in source[-5:])


def test_the_next_deed_says_what_is_to_be_fetched(scribe: Scribe) -> None:
    """Catches goals that are not those of the plan, and a food that is looked for where it was never seen."""
    seen = "-= Backyard =-\nA BBQ.\n\nYou are carrying nothing."
    looks = told(scribe, seen, ("go south", "take red potato"))
    assert len(looks[GOAL]) == 3
    assert all(text.endswith("the red potato") for _, targets in looks[GOAL] for text in targets)
    assert all(targets == {source} for source, targets in looks[HAVE])
    assert all(text.endswith("There is a red potato") for _, targets in looks[PLACE] for text in targets)
    (room,) = (targets for source, targets in looks[ROOM] if source.endswith("potato"))
    assert all(text.endswith("-= Garden =-\n") for text in room)
    carried = told(
        scribe, "-= Garden =-\n\nYou are carrying: a raw red potato.", ("go north", "cook red potato with BBQ")
    )
    assert all(text.endswith("raw red potato") for _, targets in carried[HAVE] for text in targets)


@pytest.mark.parametrize(
    ("context", "ends"),
    [(HISTORY, "-= Garden =-\n"), ("You are in the backyard. In the garden: a red potato.", " In the garden")],
)
def test_the_room_of_the_next_deed_is_aimed_at(scribe: Scribe, context: str, ends: str) -> None:
    """Catches another room than that of the deed, and headings that a written state does not have."""
    looks = told(scribe, "You are carrying nothing.", ("go south", "take red potato"), context, "garden")
    assert len(looks[AIM]) == 3
    assert all(text.endswith(ends) for _, targets in looks[AIM] for text in targets)


def test_oracle_lines_tell_that_room() -> None:
    """Catches the next way taken for the first, and a way told while there is something to do here."""
    lines = ("Room: kitchen", "The knife: garden", "Way to garden: east, south", "Way to pantry: north")
    there = Seen("go north", "", "act", ("go east",), ("go east", "go south", "take knife"), (lines, ()))
    here = Seen("go north", "", "act", ("drop salt",), ("drop salt", "go east"), (lines, ()))
    assert [room_of(there), room_of(here)] == ["garden", "kitchen"]


def test_nothing_of_it_is_told_elsewhere(scribe: Scribe) -> None:
    """Catches house looks in the rows of other networks: a rebuild of these would meet other data."""
    question = Question(HISTORY, "You are carrying nothing.", COMMANDS, ("go south", "take red potato"))
    kinds = {look.kind for look in ask(scribe, "You are hungry!", question, COMMANDS).looks}
    assert not kinds & {ROOM, THERE, UNDO, GOAL, HAVE, PLACE, AIM}
