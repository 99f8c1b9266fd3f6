import random

import pytest
import torch

from dssr_nano import weights
from dssr_nano.factory.drill import ReaderQuestion, drill
from dssr_nano.factory.encoder import PromptEncoder
from dssr_nano.factory.hints import AGAIN, BACK, ENTRY, FETCH, HELD, HERE, HOME, LINE, MATCH, WAY, WORD
from dssr_nano.factory.losses import hint_loss
from dssr_nano.factory.mixture import load_encoder
from dssr_nano.factory.network import Network, Shape
from dssr_nano.factory.reader_examples import encode_question, pick_options, tree_of
from dssr_nano.factory.tree import lay_out

GOAL = "You are hungry!"
FACTS = "Room: kitchen\nThe red potato: on counter, kitchen; slice, fry\nThe knife: carried"


@pytest.fixture(scope="module")
def encoder() -> PromptEncoder:
    """With the tokenizer of the shipped model, in which words are tokens."""
    return load_encoder(str(weights("reader")))


def named(
    encoder: PromptEncoder, question: ReaderQuestion, commands: tuple[str, ...]
) -> list[tuple[str, str, set[str]]]:
    """Hints as text: (kind, text up to the source, texts up to the targets)."""
    asked = encode_question(encoder, GOAL, question, commands)

    def text(place: int) -> str:
        return encoder.tokenizer.decode(asked.ids[max(0, place - 12) : place + 1])

    return [(hint.kind, text(hint.source), {text(target) for target in hint.targets}) for hint in asked.hints]


def test_looks_lead_to_the_recipe_and_to_what_is_held(encoder: PromptEncoder) -> None:
    """Catches hints that are one token off, take a game's reply for a directive, or mix up two foods."""
    recipe = "Directions:\nslice the red potato\n  fry the red potato\n  fry the red apple\n  prepare meal"
    observation = "You take the red potato.\n\nYou are carrying: a raw red potato."
    commands = ("cook red potato with stove", "take red apple from counter", "go north")
    question = ReaderQuestion(recipe, observation, commands, ("cook red potato with stove",))
    hints = named(encoder, question, commands)
    matches = [(source, targets) for kind, source, targets in hints if kind == MATCH]
    assert [source.endswith(("cook red potato", "take red apple")) for source, _ in matches] == [True, True]
    (first, second) = (targets for _, targets in matches)
    assert len(first) == 2
    assert all(text.endswith(("slice the red potato", "fry the red potato")) for text in first)
    assert len(second) == 1
    assert all(text.endswith("fry the red apple") for text in second)
    (held,) = (targets for kind, _, targets in hints if kind == HELD)
    assert {text[-16:] for text in held} == {"e the red potato", "a raw red potato"}
    assert sum(kind == LINE for kind, _, _ in hints) == 3
    assert all(text.endswith("cook red potato with stove\n") for kind, _, ts in hints if kind == FETCH for text in ts)


def test_a_line_of_facts_leads_back_to_its_name(encoder: PromptEncoder) -> None:
    """Catches `oracle-b` contexts without hints: their verbs stand after the name."""
    commands = ("cook red potato with stove", "go north")
    hints = named(encoder, ReaderQuestion(FACTS, "You are carrying nothing.", commands, commands[:1]), commands)
    (targets,) = (targets for kind, _, targets in hints if kind == MATCH)
    assert {text.rsplit(" ", 1)[-1] for text in targets} == {"slice", "fry"}
    sources = [source for kind, source, targets in hints if kind == WORD and any("red potato" in t for t in targets)]
    assert {source.rsplit(" ", 1)[-1] for source in sources} == {"slice", "fry"}


def test_a_direction_leads_to_the_way_that_begins_with_it(encoder: PromptEncoder) -> None:
    """Catches ways that are not looked at, or looked at in their later moves."""
    context = "Room: shed\nThe knife: kitchen\nWay to kitchen: east, north\nWay to attic: south"
    commands = ("go north", "go east", "open plain door", "go south")
    hints = named(encoder, ReaderQuestion(context, "You are carrying nothing.", commands, commands[1:2]), commands)
    matches = {source.rsplit(". ", 1)[-1]: targets for kind, source, targets in hints if kind == WAY}
    assert list(matches) == ["go north", "go east", "go south"]
    assert {text[-10:] for text in matches["go north"]} == {". go north"}
    assert {text.rsplit("\n", 1)[-1] for text in matches["go east"]} == {"Way to kitchen: east,"}
    assert {text.rsplit("\n", 1)[-1] for text in matches["go south"]} == {"Way to attic: south"}


def test_a_move_leads_home_through_the_history(encoder: PromptEncoder) -> None:
    """Catches a way back read off the walk before the recipe, off a later visit, or off another room: the pantry was
    first entered from the west since the recipe, from the south before it and from the north after."""
    recipe = (
        "> examine cookbook\nRecipe #1\n---------\nGather all.\n\nIngredients:\nbanana\n\nDirections:\nprepare meal"
    )
    moves = ("north Pantry", "south Kitchen"), ("east Pantry", "south Bedroom", "north Pantry", "north Corridor")
    before, after = (
        [f"> go {way.split()[0]}\n-= {way.split()[1]} =-\nYou are in a room." for way in part] for part in moves
    )
    context = "\n\n".join([*before, recipe, *after, "> go south"])
    commands = ("go north", "go west", "take knife", "go south")
    observation = "-= Pantry =-\nYou are in a room."
    hints = named(encoder, ReaderQuestion(context, observation, commands, ("go west",)), commands)
    home = {source.rsplit(". ", 1)[-1]: targets for kind, source, targets in hints if kind == HOME}
    assert list(home) == ["go north\n", "go west\n", "go south\n"]
    (targets,) = {frozenset(targets) for targets in home.values()}
    (found,) = targets
    assert found.endswith("> go east\n-= Pantry =-\n")
    back = {source.rsplit(". ", 1)[-1]: targets for kind, source, targets in hints if kind == BACK}
    assert back["go west\n"] == home["go west\n"]
    assert all(text.endswith(f". {line}") for line in ("go north\n", "go south\n") for text in back[line])
    here = {target for kind, _, targets in hints if kind == HERE for target in targets}
    assert all("Current observation:\n-= Pantry =-" in target for target in here)
    entries = [targets for kind, source, targets in hints if kind == ENTRY and "Current observation" in source]
    assert all(target.endswith("> go south") for targets in entries for target in targets)
    again = [(source, target) for kind, source, targets in hints if kind == AGAIN for target in targets]
    first = [source for source, target in again if target.endswith("Ingredients:\n")]
    assert [source.rsplit("-= ", 1)[-1] for source in first] == ["Pantry =-\n", "Bedroom =-\n", "Corridor =-\n"]
    assert sum("Current observation" in source for source, _ in again) == 2
    asked_for_food = named(encoder, ReaderQuestion(context, observation, commands, ("take knife",)), commands)
    assert not any(kind == HOME for kind, _, _ in asked_for_food)


def test_a_look_counts_what_the_head_may_see(encoder: PromptEncoder) -> None:
    """Catches a loss that normalises over tokens of other branches or of the future: a head that cannot tell tokens
    apart must lose exactly the logarithm of how many it sees."""
    rng = random.Random(0)
    asked = [encode_question(encoder, GOAL, one, pick_options(one, 6, rng)) for one in drill(rng, 2)]
    row = lay_out([tree_of(asked[:1]), tree_of(asked)])
    blind = torch.zeros(len(row.ids), 8)
    lost = hint_loss(row, FETCH, [(blind, blind), (blind, blind)])
    seen = [len(one.ids) - 1 for one in (asked[0], *asked)]
    assert torch.allclose(lost, torch.tensor(seen, dtype=torch.float32).log().mean())


def test_first_weights_already_look_back_and_find_the_line(encoder: PromptEncoder) -> None:
    """Catches made heads whose rotation has the wrong sign or whose reach is a token off."""
    torch.manual_seed(0)
    network = Network(Shape(160, 6, 5, 64), encoder.init_vocabulary)
    rng = random.Random(1)
    (question,) = drill(rng, 1)
    asked = encode_question(encoder, GOAL, question, pick_options(question, 12, rng))
    network(lay_out([tree_of([asked])]))
    query, key = network.model.parts()[0].self_attn.queries_and_keys
    for head, distance in enumerate((1, 2, 3, 4)):
        scores = query[head] @ key[head].T / query.shape[-1] ** 0.5
        best = scores.masked_fill(torch.ones_like(scores).triu(1).bool(), float("-inf")).argmax(1)
        places = torch.arange(len(asked.ids) - 30, len(asked.ids) - 1)
        # The row holds the trunk, then the branch: places near the end are consecutive.
        assert (best[places] == places - distance).float().mean() > 0.9
