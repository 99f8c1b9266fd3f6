import random
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

from dssr.worlds.archive import Archive
from dssr_nano.factory.encoder import PromptEncoder
from dssr_nano.factory.reader_examples import (
    decisions,
    encode_question,
    full_question,
    oracle_question,
    pick_options,
    tree_of,
    with_new_names,
)
from dssr_nano.factory.transcripts import LIMITS, STRAYED, Transcript, collect, read
from dssr_nano.factory.writer_examples import write_along, writer_tree


@pytest.fixture(scope="module")
def stored(archive: Archive, tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("corpus") / "train.jsonl"
    collect(archive, archive.games("train")[:1], file, [(1, 0)], 1)
    return file


@pytest.fixture(scope="module")
def transcript(stored: Path) -> Transcript:
    ((_, transcript),) = read(stored)
    return transcript


def test_collecting_again_adds_nothing(archive: Archive, stored: Path) -> None:
    """Catches an interrupted collection that repeats what it has."""
    before = stored.read_bytes()
    assert collect(archive, archive.games("train")[:1], stored, [(1, 0)], 1) == 0
    assert stored.read_bytes() == before


def test_policy_comes_first_and_ends_in_the_meal(transcript: Transcript) -> None:
    """Catches transcripts in which a slip lost the game, or whose first option is not the reference."""
    last = transcript.steps[decisions(transcript)[-1]]
    assert last.plan == ("eat meal",)
    assert all(step.commands[0] == step.plan[0] for step in transcript.steps if step.commands)


def test_strays_keep_to_one_thing_for_some_steps(archive: Archive, tmp_path: Path) -> None:
    """Catches strays that are single slips, that lose the game, or that never happen."""
    collect(archive, archive.games("train", level=6)[:1], tmp_path / "strays.jsonl", [(STRAYED, 0), (STRAYED, 20)], 1)
    astray = 0
    for _, transcript in read(tmp_path / "strays.jsonl"):
        acted = [transcript.steps[index] for index in decisions(transcript)]
        assert len(acted) <= LIMITS[STRAYED]
        assert all(step.plan for step in acted)
        wrong = [played != step.plan[0] for step, played in zip(acted, transcript.played, strict=True)]
        astray += sum(one and other for one, other in pairwise(wrong))
    assert astray > 3


def test_history_questions_share_one_trunk(encoder: PromptEncoder, transcript: Transcript) -> None:
    """Catches a trunk that is not the beginning of every prompt: the model would train on text it never meets."""
    rng = random.Random(0)
    named = with_new_names(transcript, rng)
    questions = [full_question(named, index) for index in decisions(named)]
    asked = [encode_question(encoder, named.goal, one, pick_options(one, 8, rng)) for one in questions]
    tree = tree_of(asked, shared=True)
    for one, branch in zip(asked, tree.branches, strict=True):
        assert tree.trunk[: branch.start] + branch.ids == one.ids
    assert len(tree) < 0.7 * sum(len(one.ids) for one in asked)


def test_renaming_reaches_every_field(encoder: PromptEncoder, transcript: Transcript) -> None:
    """Catches a field left under its old name, which would make the question unanswerable."""
    named = with_new_names(transcript, random.Random(1), keep=0.0)
    old = set(transcript.foods)
    for step in named.steps:
        for text in (*step.commands, *step.plan, *step.oracle[0], *step.oracle[1]):
            assert not any(f" {food} " in f" {text} " for food in old if len(food.split()) > 1)


def test_oracle_keeps_to_the_budget(encoder: PromptEncoder, transcript: Transcript) -> None:
    """Catches lines of the oracle beyond the budget that evaluation would cut."""
    index = decisions(transcript)[0]
    for budget in (0, 12, 40, 400):
        context = oracle_question(transcript, index, budget, lambda text: len(encoder.encode(text))).context
        assert len(encoder.encode(context)) <= budget


def test_writer_learns_the_reply_alone(encoder: PromptEncoder, transcript: Transcript) -> None:
    """Catches a loss on the writer's prompt, a reply without its end mark, and rewrites of another prompt."""
    rng = random.Random(2)
    written = write_along(transcript, "summary", 60, 0.98, rng, lambda text: len(encoder.encode(text)))
    tree = writer_tree(encoder, transcript, written, 3, 4, rng)
    assert not tree.learn
    assert len(tree.branches) == 4
    for branch in tree.branches:
        assert branch.start == len(tree.trunk)
        assert [place for place, _ in branch.learn] == list(range(1, len(branch.ids)))
        assert branch.ids[-1] == encoder.end
    prompt = encoder.tokenizer.decode(tree.trunk, skip_special_tokens=False)
    assert f"Previous state:\n{written.states[2]}" in prompt


def test_a_disturbed_state_is_mended(encoder: PromptEncoder, transcript: Transcript) -> None:
    """Catches disturbances that reach the state to be imitated: the script must leave nothing said twice."""
    rng = random.Random(3)
    written = write_along(transcript, "summary", 60, 1.0, rng, lambda text: len(encoder.encode(text)))
    differs = 0
    for index in range(1, len(transcript.steps)):
        tree = writer_tree(encoder, transcript, written, index, 1, rng, disturbance=1.0)
        differs += written.states[index - 1] not in encoder.tokenizer.decode(tree.trunk)
        state = encoder.tokenizer.decode(tree.branches[0].ids[1:-1])
        sentences = [sentence for sentence in state.split(". ") if sentence]
        assert len(sentences) == len(set(sentences))
    assert differs > 2


def test_a_list_that_goes_round_is_mended(encoder: PromptEncoder, transcript: Transcript) -> None:
    """Catches loops that are not shown to the writer, or that reach the state to be imitated."""
    rng = random.Random(4)
    written = write_along(transcript, "summary", 60, 1.0, rng, lambda text: len(encoder.encode(text)))
    round_and_round = 0
    for index in range(1, len(transcript.steps)):
        tree = writer_tree(encoder, transcript, written, index, 1, rng, disturbance=1.0, loops=1.0)
        shown = encoder.tokenizer.decode(tree.trunk).rsplit("Previous state:", 1)[-1]
        round_and_round += any(max(Counter(one.split(", ")).values()) > 2 for one in shown.split(". "))
        items = encoder.tokenizer.decode(tree.branches[0].ids[1:-1]).rstrip(".").split(", ")
        assert len(items) == len(set(items))
    assert round_and_round > 2
