"""The stream of training rows, made in a process of its own: one core makes data while another trains."""

import multiprocessing
import os
import random
import signal
import time
from collections.abc import Iterator
from ctypes import c_double
from dataclasses import dataclass, field
from pathlib import Path
from queue import Full
from typing import Any, NamedTuple

from tokenizers import Tokenizer

from dssr.agent.texts import load_prompts
from dssr.learn.nano.corpus import Transcript, read
from dssr.learn.nano.drill import drill, look_ups
from dssr.learn.nano.tasks import (
    Scribe,
    Written,
    any_format,
    ask,
    decisions,
    digest_tree,
    fresh,
    full_question,
    look_tree,
    oracle_question,
    plan_tree,
    relabelled,
    shown,
    state_question,
    tree_of,
    write_along,
    writer_tree,
)
from dssr.learn.nano.tree import Row, Tree, lay_out
from dssr.seeds import rng_of

KINDS = ("look", "drill", "plan", "full", "state", "writer", "oracle", "digest")
REREAD = 300.0
"""Seconds after which the transcripts are read again, while they are still being collected."""
RELABELLED = 0.3
"""Share of drills with few options whose letters come from the whole alphabet."""
REUSE = 12
"""Samples drawn from one renamed and written-along transcript."""


class Recipe(NamedTuple):
    """Where the data comes from."""

    transcripts: str
    tokenizer: str
    seed: int
    tokens: int = 3000
    """Per row."""
    budgets: tuple[int, ...] = (24, 32, 48, 64, 96, 128)
    retention: tuple[float, float] = (0.94, 1.0)


class Dials:
    """What the curriculum turns while the stream runs."""

    def __init__(self) -> None:
        self.options = multiprocessing.Value("i", 4)
        self.shares = multiprocessing.Array(c_double, len(KINDS))
        self.filler = multiprocessing.Value("i", 0)
        self.plain = multiprocessing.Value(c_double, 1.0)
        self.echo = multiprocessing.Value(c_double, 0.0)

    def mix(self, **shares: float) -> None:
        for place, kind in enumerate(KINDS):
            self.shares[place] = shares.get(kind, 0.0)


@dataclass
class Maker:
    """Makes trees of every kind."""

    recipe: Recipe
    scribe: Scribe
    dials: Dials
    transcripts: list[Transcript] = field(default_factory=list)
    pool: list[tuple[Transcript, Written, int]] = field(default_factory=list)
    read_at: float = 0.0

    def refresh(self) -> None:
        if time.monotonic() - self.read_at > REREAD:
            self.transcripts = [transcript for _, transcript in read(Path(self.recipe.transcripts))]
            self.read_at = time.monotonic()

    def row(self, rng: random.Random) -> Row:
        self.refresh()
        trees: list[Tree] = []
        while sum(map(len, trees)) < self.recipe.tokens:
            (kind,) = rng.choices(KINDS, self.dials.shares[:])
            trees.append(self.tree(kind, rng))
        return lay_out(trees)

    def tree(self, kind: str, rng: random.Random) -> Tree:
        most, echo = int(self.dials.options.value), float(self.dials.echo.value)
        if kind == "drill":
            goal = rng.choice(self.transcripts).goal
            questions = drill(rng, rng.randint(3, 6), plain=rng.random() < float(self.dials.plain.value))
            asked = [ask(self.scribe, goal, one, shown(one, most, rng)) for one in questions]
            if most < 52 and rng.random() < RELABELLED:
                asked = [relabelled(one, self.scribe, rng) for one in asked]
            return tree_of(asked, echo)
        if kind == "look":
            recipe, pairs = look_ups(rng, plain=rng.random() < float(self.dials.plain.value))
            return look_tree(self.scribe, rng.choice(self.transcripts).goal, recipe, pairs)
        if kind == "plan":
            (question,) = drill(rng, 1, plain=rng.random() < float(self.dials.plain.value))
            return plan_tree(self.scribe, rng.choice(self.transcripts).goal, question)
        if kind == "full":
            transcript = self.short(rng)
            picked = _some(decisions(transcript), 6, rng)
            questions = [full_question(transcript, index) for index in picked]
            asked = [ask(self.scribe, transcript.goal, one, shown(one, most, rng)) for one in questions]
            return tree_of(asked, echo, shared=True)
        if kind == "oracle":
            transcript = fresh(rng.choice(self.transcripts), rng)
            budget = rng.choice(self.recipe.budgets)
            questions = [
                oracle_question(transcript, i, budget, self._count) for i in _some(decisions(transcript), 4, rng)
            ]
            return tree_of([ask(self.scribe, transcript.goal, one, shown(one, most, rng)) for one in questions], echo)
        if kind == "digest":
            transcript = self.short(rng)
            style = any_format(rng) if rng.random() < 0.3 else "summary"
            settings = style, rng.choice(self.recipe.budgets), rng.uniform(*self.recipe.retention)
            return digest_tree(self.scribe, transcript, _some(decisions(transcript), 4, rng), *settings, rng)
        transcript, written = self.written(rng)
        if kind == "writer":
            return writer_tree(self.scribe, transcript, written, rng.randrange(len(transcript.steps)))
        questions = [
            state_question(transcript, index, written.states[index]) for index in _some(decisions(transcript), 3, rng)
        ]
        return tree_of([ask(self.scribe, transcript.goal, one, shown(one, most, rng)) for one in questions], echo)

    def short(self, rng: random.Random) -> Transcript:
        """A transcript whose walk is not longer than the stage allows, under new names."""
        return fresh(rng.choice([one for one in self.transcripts if one.filler <= self.dials.filler.value]), rng)

    def written(self, rng: random.Random) -> tuple[Transcript, Written]:
        """A transcript with a scripted writer's states, used a few times before a new one is made."""
        if len(self.pool) < 40 or rng.random() < 1 / REUSE:
            transcript = fresh(rng.choice(self.transcripts), rng)
            retention = rng.uniform(*self.recipe.retention)
            budget = rng.choice(self.recipe.budgets)
            written = write_along(transcript, any_format(rng), budget, retention, rng, self._count)
            self.pool.append((transcript, written, 0))
            self.pool = self.pool[-80:]
            return transcript, written
        transcript, written, _ = rng.choice(self.pool)
        return transcript, written

    def _count(self, text: str) -> int:
        return len(self.scribe.encode(text))


def _some(places: list[int], most: int, rng: random.Random) -> list[int]:
    return sorted(rng.sample(places, min(most, len(places))))


def scribe_of(tokenizer: str) -> Scribe:
    return Scribe(Tokenizer.from_file(str(Path(tokenizer) / "tokenizer.json")), load_prompts())


def _produce(recipe: Recipe, dials: Dials, first: int, queue: Any) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.nice(2)
    maker = Maker(recipe, scribe_of(recipe.tokenizer), dials)
    number, parent = first, os.getppid()
    while True:
        row = maker.row(rng_of("nano row", recipe.seed, number))
        number += 1
        while True:
            try:
                queue.put(row, timeout=5.0)
                break
            except Full:
                if os.getppid() != parent:  # the trainer is gone
                    return


def rows(recipe: Recipe, dials: Dials, first: int = 0, ahead: int = 6) -> Iterator[Row]:
    """Rows without end, from number `first` on."""
    queue: Any = multiprocessing.Queue(ahead)
    worker = multiprocessing.Process(target=_produce, args=(recipe, dials, first, queue), daemon=True)
    worker.start()
    try:
        while True:
            yield queue.get()
    finally:
        worker.terminate()
