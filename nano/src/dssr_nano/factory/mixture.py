"""Training rows: trees of the kinds that the curriculum asks for, each row from its step and its place in it alone."""

import random
from functools import cached_property, partial
from pathlib import Path
from typing import NamedTuple

from tokenizers import Tokenizer

from dssr.agent.prompts import load_prompts
from dssr.seeds import rng_of
from dssr_nano.factory.corpus import Transcript, read
from dssr_nano.factory.curriculum import Role, Stage, stage_at
from dssr_nano.factory.drill import drill, look_ups
from dssr_nano.factory.questions import (
    ask,
    decisions,
    fresh,
    full_question,
    is_travel,
    look_tree,
    oracle_question,
    plan_tree,
    relabelled,
    room_of,
    shown,
    state_question,
    tree_of,
)
from dssr_nano.factory.rewrites import Written, any_format, digest_tree, novelty, write_along, writer_tree
from dssr_nano.factory.scribe import Scribe
from dssr_nano.factory.tree import Row, Tree, lay_out

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


class Recipe(NamedTuple):
    """Where the data comes from."""

    transcripts: tuple[str, ...]
    """Files of them."""
    tokenizer: str
    seed: int
    role: Role
    tokens: int = 1500
    """Per row, at least; the last tree may be much longer."""
    budgets: tuple[int, ...] = (24, 32, 48, 64, 96, 128)
    retention: tuple[float, float] = (0.97, 1.0)


class Maker:
    """Makes trees of every kind."""

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe
        self.scribe = scribe_of(recipe.tokenizer)
        self.ask = partial(ask, self.scribe, house=recipe.role == "house")
        self.block = -1, -1
        self.pool: list[tuple[Transcript, Written]] = []

    @cached_property
    def transcripts(self) -> list[Transcript]:
        """Ordered by key, so that the order of collecting does not matter."""
        found = [one for file in self.recipe.transcripts for one in read(Path(file))]
        return [transcript for _, transcript in sorted(found, key=lambda one: one[0])]

    def row(self, step: int, part: int) -> Row:
        stage = stage_at(self.recipe.role, step)
        rng = rng_of("nano row", self.recipe.role, self.recipe.seed, step, part)
        if self.block != (step // BLOCK, part):
            self.block = step // BLOCK, part
            made = rng_of("nano written", self.recipe.role, self.recipe.seed, *self.block)
            first = stage_at(self.recipe.role, step // BLOCK * BLOCK)
            self.pool = [self.written(first, made) for _ in range(WRITTEN)]
        trees: list[Tree] = []
        while sum(map(len, trees)) < self.recipe.tokens:
            (kind,) = rng.choices(tuple(stage.shares), tuple(stage.shares.values()))
            trees.append(self.tree(kind, stage, rng))
        row = lay_out(trees)
        row.looks = {look: targets for look, targets in row.looks.items() if look[0] not in stage.untold}
        return row

    def tree(self, kind: str, stage: Stage, rng: random.Random) -> Tree:
        most, echo = stage.options, stage.echo
        if kind == "drill":
            goal = rng.choice(self.transcripts).goal
            questions = drill(rng, rng.randint(3, 6), plain=rng.random() < stage.plain, cooks=stage.cooks)
            asked = [self.ask(goal, one, shown(one, most, rng)) for one in questions]
            if most < 52 and rng.random() < RELABELLED:
                asked = [relabelled(one, self.scribe, rng) for one in asked]
            return tree_of(asked, echo)
        if kind == "look":
            recipe, pairs = look_ups(rng, plain=rng.random() < stage.plain)
            return look_tree(self.scribe, rng.choice(self.transcripts).goal, recipe, pairs)
        if kind == "plan":
            (question,) = drill(rng, 1, plain=rng.random() < stage.plain)
            return plan_tree(self.scribe, rng.choice(self.transcripts).goal, question)
        if kind == "full":
            transcript = self.walked(stage, rng)
            questions = [full_question(transcript, index) for index in places_of(transcript, 6, stage, rng)]
            asked = [self.ask(transcript.goal, one, shown(one, most, rng)) for one in questions]
            return tree_of(asked, echo, shared=True)
        if kind in ("oracle", "road"):
            if kind == "oracle":
                transcript = fresh(rng.choice(self.transcripts), rng, familiar=stage.familiar)
                budget = rng.choice(self.recipe.budgets)
                places = places_of(transcript, 4, stage, rng)
            else:
                transcript, budget = self.walked(stage, rng), AMPLE
                places = asked_at(transcript, 0, 4, rng) or asked_at(transcript, 2, 0, rng)
            questions = [oracle_question(transcript, index, budget, self._count) for index in places]
            return tree_of([self.ask(transcript.goal, one, shown(one, most, rng)) for one in questions], echo)
        if kind == "digest":
            transcript = self.walked(stage, rng)
            style = any_format(rng) if rng.random() < 0.3 else "summary"
            settings = style, rng.choice(self.recipe.budgets), rng.uniform(*self.recipe.retention)
            return digest_tree(self.scribe, transcript, _some(decisions(transcript), 4, rng), *settings, rng)
        transcript, written = rng.choice(self.pool)
        if kind == "writer":
            (index,) = rng.choices(range(len(transcript.steps)), novelty(written))
            trouble = stage.disturbance, stage.loops
            return writer_tree(self.scribe, transcript, written, index, REWRITES, rng, *trouble)
        places = places_of(transcript, 3, stage, rng)
        questions = [state_question(transcript, index, written.states[index]) for index in places]
        return tree_of([self.ask(transcript.goal, one, shown(one, most, rng)) for one in questions], echo)

    def walked(self, stage: Stage, rng: random.Random) -> Transcript:
        """A transcript with a walk as long as the stage wants it, under new names."""
        least, most = stage.walk
        return fresh(
            rng.choice([one for one in self.transcripts if least <= one.filler <= most]), rng, familiar=stage.familiar
        )

    def written(self, stage: Stage, rng: random.Random) -> tuple[Transcript, Written]:
        """A transcript with a scripted writer's states."""
        transcript = fresh(rng.choice(self.transcripts), rng, familiar=stage.familiar)
        retention = rng.uniform(*self.recipe.retention)
        budget = rng.choice(self.recipe.budgets)
        return transcript, write_along(transcript, any_format(rng), budget, retention, rng, self._count)

    def _count(self, text: str) -> int:
        return len(self.scribe.encode(text))


def places_of(transcript: Transcript, most: int, stage: Stage, rng: random.Random) -> list[int]:
    """Where a stage asks: some decisions, and what it wants beside them."""
    return asked_at(transcript, most, stage.roads, rng, stage.sought, stage.bound)


def asked_at(
    transcript: Transcript,
    most: int,
    roads: int,
    rng: random.Random,
    sought: str | None = None,
    bound: str | None = None,
) -> list[int]:
    """Some decisions, and beside them some steps from room to room, all whose right command ends as is sought, and all
    steps bound for a room."""
    places = decisions(transcript)
    travels = [index for index in places if is_travel(transcript.steps[index].plan[0])]
    rare = [index for index in places if sought and transcript.steps[index].plan[0].endswith(sought)]
    far = [index for index in travels if bound and room_of(transcript.steps[index]) == bound]
    return sorted({*_some(places, most, rng), *_some(travels, roads, rng), *rare, *far})


def _some(places: list[int], most: int, rng: random.Random) -> list[int]:
    return sorted(rng.sample(places, min(most, len(places))))


def scribe_of(tokenizer: str) -> Scribe:
    return Scribe(Tokenizer.from_file(str(Path(tokenizer) / "tokenizer.json")), load_prompts())
