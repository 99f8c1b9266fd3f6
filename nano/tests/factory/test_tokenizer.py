import random
from itertools import pairwise

from dssr.agent.prompts import reader_messages
from dssr.types import LABELS
from dssr_nano.factory.drill import drill
from dssr_nano.factory.encoder import PromptEncoder
from dssr_nano.factory.reader_examples import encode_question, pick_options, relabelled

GOAL = "You are hungry!"


def test_labels_are_the_same_token_in_options_and_answer(encoder: PromptEncoder) -> None:
    """Catches a label merged with its line: the answer could then not be copied from the options."""
    commands = tuple(f"take thing {number} from fridge" for number in range(52))
    text = reader_messages("", GOAL, "(empty)", "nothing", commands)[1].content
    ids = encoder.encode(text)
    lines = encoder.tokenizer.decode(ids[ids.index(encoder.labels[0]) :]).splitlines()
    assert lines[:52] == [f"{label}. {command}" for label, command in zip(LABELS, commands, strict=True)]
    block = ids[ids.index(encoder.labels[0]) - 1 :]
    opening = [after for before, after in pairwise(block) if encoder.tokenizer.decode([before]).endswith("\n")]
    assert [token for token in opening if token in encoder.labels] == list(encoder.labels)


def test_text_comes_back(encoder: PromptEncoder) -> None:
    """Catches a pre-tokenizer that drops what none of its patterns match."""
    for text in ("A. go north\n\n\nB", "  -= Kitchen =-\n\n\n\ttab, é € 日本 [x]-\n", "", "\n", "A", "a. b"):
        assert encoder.tokenizer.decode(encoder.encode(text)) == text


def test_a_name_is_cut_the_same_way_everywhere(encoder: PromptEncoder) -> None:
    """Catches names joined with the words around them: they could not be matched by their tokens."""
    name = encoder.encode(" glorv pepper")
    for before, after in (("cook", " with stove"), ("You take the", " from the fridge."), ("a sliced", ", a knife")):
        ids = encoder.encode(f"{before} glorv pepper{after}")
        assert any(ids[place : place + len(name)] == name for place in range(len(ids)))


def test_stock_sentences_are_short(encoder: PromptEncoder) -> None:
    """Catches the loss of merges across words: histories would be three times as long."""
    assert len(encoder.encode("Your score has just gone up by one point.\n\nYou")) <= 3


def test_option_ends_are_found(encoder: PromptEncoder) -> None:
    """Catches probes placed on tokens other than the end of each option line."""
    rng = random.Random(0)
    for question in drill(rng, 6):
        commands = pick_options(question, 52, rng)
        asked = encode_question(encoder, GOAL, question, commands)
        for command, end in zip(commands, asked.ends, strict=True):
            line = encoder.tokenizer.decode(asked.ids[: end + 1]).rsplit("\n", 2)[-2]
            assert line.split(". ", 1)[1] == command
        assert asked.ids[-1] == encoder.labels[commands.index(question.plan[0])]


def test_other_letters_answer_the_same_question(encoder: PromptEncoder) -> None:
    """Catches letters moved away from their lines, or an answer that kept its old letter."""
    rng = random.Random(0)
    for question in drill(rng, 6):
        asked = encode_question(encoder, GOAL, question, pick_options(question, 9, rng))
        other = relabelled(asked, encoder, rng)
        changed = [place for place, (old, new) in enumerate(zip(asked.ids, other.ids, strict=True)) if old != new]
        openings = {encoder.tokenizer.decode(asked.ids[:place])[-1] for place in changed[:-1]}
        assert openings == {"\n"}
        assert other.ids[asked.ends[asked.right - 1] + 1 if asked.right else changed[0]] == other.ids[-1]
