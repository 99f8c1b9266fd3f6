"""Hints in a house: where a direction leads, and what is to be fetched."""

import pytest
from tokenizers import Tokenizer

from dssr.agent.prompts import load_prompts
from dssr_nano import weights
from dssr_nano.factory.drill import ReaderQuestion
from dssr_nano.factory.encoder import PromptEncoder
from dssr_nano.factory.grow import extend_tokenizer
from dssr_nano.factory.hints import AIM, ENTRY, GOAL, HAVE, HERE, PLACE, ROOM, THERE, UNDO
from dssr_nano.factory.reader_examples import encode_question, room_of
from dssr_nano.factory.transcripts import TranscriptStep

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
def encoder() -> PromptEncoder:
    tokenizer = Tokenizer.from_file(str(weights("reader") / "tokenizer.json"))
    return PromptEncoder(extend_tokenizer(tokenizer), load_prompts())


def told(
    encoder: PromptEncoder, observation: str, plan: tuple[str, ...], context: str = HISTORY, room: str = ""
) -> dict[str, list[tuple[str, set[str]]]]:
    """By kind: texts that end at the source and at the targets."""
    question = ReaderQuestion(context, observation, COMMANDS, plan, room)
    asked = encode_question(encoder, "You are hungry!", question, COMMANDS, house=True)

    def text(place: int) -> str:
        return encoder.tokenizer.decode(asked.ids[max(0, place - 8) : place + 1])

    found: dict[str, list[tuple[str, set[str]]]] = {}
    for hint in asked.hints:
        found.setdefault(hint.kind, []).append((text(hint.source), set(map(text, hint.targets))))
    return found


def test_a_direction_leads_to_the_rooms_it_reached(encoder: PromptEncoder) -> None:
    """Catches a way of another room taken for one of this, and a way never walked from here that is told all the
    same: south of the backyard lies the garden, which was left northwards only."""
    hints = told(encoder, "-= Backyard =-\nA BBQ.\n\nYou are carrying nothing.", ("go south", "take red potato"))
    entered = {source for source, _ in hints[ENTRY]}
    assert entered == {source for source, _ in hints[ROOM] if source.endswith("=-\n")}
    assert sum(source.endswith("=-\n") for source, _ in hints[ROOM]) == 5
    ((source, targets),) = hints[THERE]
    assert source.endswith("go east\n")
    assert all(target.endswith("> go east\n-= Kitchen =-\n") for target in targets)
    assert all(target.endswith("-= Backyard =-\n") for _, targets in hints[HERE] for target in targets)


def test_a_written_map_is_read_both_ways(encoder: PromptEncoder) -> None:
    """Catches ways of other rooms, and those that the state tells from their other end: it keeps one of the two."""
    state = "You are in the backyard. From the kitchen: west to the backyard. From the backyard: south to the garden."
    hints = told(encoder, "You are carrying nothing.", ("go south", "take red potato"), state)
    there = {source.split("go ")[-1].strip(): targets for source, targets in hints[THERE]}
    assert {way: {text.split()[-1] for text in targets} for way, targets in there.items()} == {
        "east": {"backyard"},
        "south": {"garden"},
    }
    assert [{text.split()[-1] for text in targets} for _, targets in hints[ROOM]] == [{"kitchen"}, {"backyard"}]
    assert all(text.endswith("are in the backyard") for _, targets in hints[HERE] for text in targets)


@pytest.mark.parametrize(
    ("context", "found"),
    [
        (HISTORY, {"east": "-= Backyard =-\n", "south": "> go north\n-= Backyard =-\n"}),
        ("You are in the backyard. From the kitchen: west to the backyard.", {"east": " west to the backyard"}),
    ],
)
def test_the_way_back_is_where_one_came_in(encoder: PromptEncoder, context: str, found: dict[str, str]) -> None:
    """Catches a way taken for its opposite, and ways that lead into another room than this."""
    hints = told(encoder, "-= Backyard =-\nA BBQ.", ("go south", "take red potato"), context)
    assert len(hints[UNDO]) == 3
    for source, targets in hints[UNDO]:
        expected = found.get(source.split("go ")[-1].strip(), source)
        assert all(text.endswith(expected) for text in targets)
        assert not any(text.endswith("> go north\n-= Backyard =-\n") for text in targets if "east" in source[-5:])


def test_the_next_deed_says_what_is_to_be_fetched(encoder: PromptEncoder) -> None:
    """Catches goals that are not those of the plan, and a food that is looked for where it was never seen."""
    seen = "-= Backyard =-\nA BBQ.\n\nYou are carrying nothing."
    hints = told(encoder, seen, ("go south", "take red potato"))
    assert len(hints[GOAL]) == 3
    assert all(text.endswith("the red potato") for _, targets in hints[GOAL] for text in targets)
    assert all(targets == {source} for source, targets in hints[HAVE])
    assert all(text.endswith("There is a red potato") for _, targets in hints[PLACE] for text in targets)
    (room,) = (targets for source, targets in hints[ROOM] if source.endswith("potato"))
    assert all(text.endswith("-= Garden =-\n") for text in room)
    carried = told(
        encoder, "-= Garden =-\n\nYou are carrying: a raw red potato.", ("go north", "cook red potato with BBQ")
    )
    assert all(text.endswith("raw red potato") for _, targets in carried[HAVE] for text in targets)


@pytest.mark.parametrize(
    ("context", "ends"),
    [(HISTORY, "-= Garden =-\n"), ("You are in the backyard. In the garden: a red potato.", " In the garden")],
)
def test_the_room_of_the_next_deed_is_aimed_at(encoder: PromptEncoder, context: str, ends: str) -> None:
    """Catches another room than that of the deed, and headings that a written state does not have."""
    hints = told(encoder, "You are carrying nothing.", ("go south", "take red potato"), context, "garden")
    assert len(hints[AIM]) == 3
    assert all(text.endswith(ends) for _, targets in hints[AIM] for text in targets)


def test_oracle_lines_tell_that_room() -> None:
    """Catches the next way taken for the first, and a way told while there is something to do here."""
    lines = ("Room: kitchen", "The knife: garden", "Way to garden: east, south", "Way to pantry: north")
    there = TranscriptStep("go north", "", "act", ("go east",), ("go east", "go south", "take knife"), (lines, ()))
    here = TranscriptStep("go north", "", "act", ("drop salt",), ("drop salt", "go east"), (lines, ()))
    assert [room_of(there), room_of(here)] == ["garden", "kitchen"]


def test_nothing_of_it_is_told_elsewhere(encoder: PromptEncoder) -> None:
    """Catches house hints in the rows of other networks: a rebuild of these would meet other data."""
    question = ReaderQuestion(HISTORY, "You are carrying nothing.", COMMANDS, ("go south", "take red potato"))
    kinds = {hint.kind for hint in encode_question(encoder, "You are hungry!", question, COMMANDS).hints}
    assert not kinds & {ROOM, THERE, UNDO, GOAL, HAVE, PLACE, AIM}
