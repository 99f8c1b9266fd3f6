"""Training rows: trees of the kinds that the curriculum asks for, each row from its step and its place in it alone."""

import random
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from tokenizers import Tokenizer

from dssr.agent.prompts import load_prompts
from dssr.seeds import rng_of
from dssr_nano.factory.curriculum import Stage, stage_at
from dssr_nano.factory.drill import ReaderQuestion, drill, lookups
from dssr_nano.factory.encoder import PromptEncoder
from dssr_nano.factory.reader_examples import (
    EncodedQuestion,
    decisions,
    encode_question,
    full_question,
    is_travel,
    lookup_tree,
    oracle_question,
    pick_options,
    plan_tree,
    relabelled,
    room_of,
    state_question,
    tree_of,
    with_new_names,
)
from dssr_nano.factory.transcripts import Transcript, read
from dssr_nano.factory.tree import Row, Tree, lay_out
from dssr_nano.factory.writer_examples import WrittenStates, any_format, history_tree, novelty, write_along, writer_tree
from dssr_nano.networks import Role

AMPLE = 256
"""Tokens that hold every line of `oracle-b`."""
RELABELLED = 0.3
"""Share of drills with few options whose letters come from the whole alphabet."""
BLOCK = 8
"""Steps that share their written transcripts: writing a whole game is the dearest part of a row."""
WRITTEN = 8
"""Written transcripts per block."""
REWRITES = 3
"""Rewrites of one prompt: the prompt, four times as long as a state, is paid for once."""


class DataSettings(NamedTuple):
    """Which data a network learns from."""

    transcripts: tuple[str, ...]
    """Files of them."""
    tokenizer: str
    seed: int
    role: Role
    tokens: int = 1500
    """Per row, at least; the last tree may be much longer."""
    budgets: tuple[int, ...] = (24, 32, 48, 64, 96, 128)
    retention: tuple[float, float] = (0.97, 1.0)


class RowBuilder:
    """Makes the rows of a training run: trees of every kind, laid out side by side."""

    def __init__(self, data: DataSettings) -> None:
        self.data = data
        self.encoder = load_encoder(data.tokenizer)
        self.block = -1, -1
        self.pool: list[tuple[Transcript, WrittenStates]] = []

    @cached_property
    def transcripts(self) -> list[Transcript]:
        """Ordered by key, so that the order of collecting does not matter."""
        found = [one for file in self.data.transcripts for one in read(Path(file))]
        return [transcript for _, transcript in sorted(found, key=lambda one: one[0])]

    def row(self, step: int, part: int) -> Row:
        """The row of one step at one of its places; nothing else goes into it."""
        stage = stage_at(self.data.role, step)
        rng = rng_of("nano row", self.data.role, self.data.seed, step, part)
        if self.block != (step // BLOCK, part):
            self.block = step // BLOCK, part
            made = rng_of("nano written", self.data.role, self.data.seed, *self.block)
            first = stage_at(self.data.role, step // BLOCK * BLOCK)
            self.pool = [self.written(first, made) for _ in range(WRITTEN)]
        trees: list[Tree] = []
        while sum(map(len, trees)) < self.data.tokens:
            (kind,) = rng.choices(tuple(stage.shares), tuple(stage.shares.values()))
            trees.append(self.tree(kind, stage, rng))
        row = lay_out(trees)
        row.hints = {hint: targets for hint, targets in row.hints.items() if hint[0] not in stage.withheld}
        return row

    def tree(self, kind: str, stage: Stage, rng: random.Random) -> Tree:
        """One tree of a kind that the stage's shares name."""
        most, echo = stage.options, stage.echo
        if kind == "drill":
            goal = rng.choice(self.transcripts).goal
            questions = drill(rng, rng.randint(3, 6), plain=rng.random() < stage.plain, cooks=stage.cooks)
            asked = self.asked(goal, questions, most, rng)
            if most < 52 and rng.random() < RELABELLED:
                asked = [relabelled(one, self.encoder, rng) for one in asked]
            return tree_of(asked, echo)
        if kind == "lookup":
            recipe, pairs = lookups(rng, plain=rng.random() < stage.plain)
            return lookup_tree(self.encoder, rng.choice(self.transcripts).goal, recipe, pairs)
        if kind == "plan":
            (question,) = drill(rng, 1, plain=rng.random() < stage.plain)
            return plan_tree(self.encoder, rng.choice(self.transcripts).goal, question)
        if kind == "full":
            transcript = self.walked(stage, rng)
            questions = [full_question(transcript, index) for index in places_of(transcript, 6, stage, rng)]
            asked = self.asked(transcript.goal, questions, most, rng)
            return tree_of(asked, echo, shared=True)
        if kind in ("oracle", "travel"):
            if kind == "oracle":
                transcript = with_new_names(rng.choice(self.transcripts), rng, familiar=stage.familiar)
                budget = rng.choice(self.data.budgets)
                places = places_of(transcript, 4, stage, rng)
            else:
                transcript, budget = self.walked(stage, rng), AMPLE
                places = asked_at(transcript, 0, 4, rng) or asked_at(transcript, 2, 0, rng)
            questions = [oracle_question(transcript, index, budget, self._count) for index in places]
            return tree_of(self.asked(transcript.goal, questions, most, rng), echo)
        if kind == "history":
            transcript = self.walked(stage, rng)
            style = any_format(rng) if rng.random() < 0.3 else "summary"
            settings = style, rng.choice(self.data.budgets), rng.uniform(*self.data.retention)
            return history_tree(self.encoder, transcript, _some(decisions(transcript), 4, rng), *settings, rng)
        transcript, written = rng.choice(self.pool)
        if kind == "writer":
            (index,) = rng.choices(range(len(transcript.steps)), novelty(written))
            trouble = stage.disturbance, stage.loops
            return writer_tree(self.encoder, transcript, written, index, REWRITES, rng, *trouble)
        places = places_of(transcript, 3, stage, rng)
        questions = [state_question(transcript, index, written.states[index]) for index in places]
        return tree_of(self.asked(transcript.goal, questions, most, rng), echo)

    def asked(
        self, goal: str, questions: Sequence[ReaderQuestion], most: int, rng: random.Random
    ) -> list[EncodedQuestion]:
        """The questions as tokens, each with at most so many options."""
        house = self.data.role == "house"
        return [encode_question(self.encoder, goal, one, pick_options(one, most, rng), house) for one in questions]

    def walked(self, stage: Stage, rng: random.Random) -> Transcript:
        """A transcript with a walk as long as the stage wants it, under new names."""
        least, most = stage.walk
        return with_new_names(
            rng.choice([one for one in self.transcripts if least <= one.filler <= most]), rng, familiar=stage.familiar
        )

    def written(self, stage: Stage, rng: random.Random) -> tuple[Transcript, WrittenStates]:
        """A transcript with a scripted writer's states."""
        transcript = with_new_names(rng.choice(self.transcripts), rng, familiar=stage.familiar)
        retention = rng.uniform(*self.data.retention)
        budget = rng.choice(self.data.budgets)
        return transcript, write_along(transcript, any_format(rng), budget, retention, rng, self._count)

    def _count(self, text: str) -> int:
        return len(self.encoder.encode(text))


def places_of(transcript: Transcript, most: int, stage: Stage, rng: random.Random) -> list[int]:
    """Where a stage asks: some decisions, and what it wants beside them."""
    return asked_at(transcript, most, stage.travels, rng, stage.sought, stage.bound)


def asked_at(
    transcript: Transcript,
    most: int,
    travels: int,
    rng: random.Random,
    sought: str | None = None,
    bound: str | None = None,
) -> list[int]:
    """Some decisions, and beside them some steps from room to room, all whose right command ends as is sought, and all
    steps bound for a room."""
    places = decisions(transcript)
    moves = [index for index in places if is_travel(transcript.steps[index].plan[0])]
    rare = [index for index in places if sought and transcript.steps[index].plan[0].endswith(sought)]
    far = [index for index in moves if bound and room_of(transcript.steps[index]) == bound]
    return sorted({*_some(places, most, rng), *_some(moves, travels, rng), *rare, *far})


def _some(places: list[int], most: int, rng: random.Random) -> list[int]:
    return sorted(rng.sample(places, min(most, len(places))))


def load_encoder(tokenizer: str) -> PromptEncoder:
    """The encoder over a folder's tokenizer and dssr's own prompts."""
    return PromptEncoder(Tokenizer.from_file(str(Path(tokenizer) / "tokenizer.json")), load_prompts())
