"""Demonstrations for the writer: what scripted writers make of transcripts, as training trees."""

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from dssr.agent.prompts import render_history, writer_messages
from dssr.models.scripted.formats import FORMATS, Format
from dssr.models.scripted.writer import rewrite
from dssr.types import View
from dssr_nano.factory.encoder import PromptEncoder
from dssr_nano.factory.hints import Name, copy_hints, thing_of
from dssr_nano.factory.transcripts import Transcript
from dssr_nano.factory.tree import Branch, Tree, agreed

NEWS = 12
"""Most new words of a rewrite that count."""
_SENTENCES = re.compile(r"(?<=\.) |\n")


@dataclass(frozen=True)
class WrittenStates:
    """What a scripted writer made of one transcript."""

    style: Format
    budget: int
    retention: float
    states: tuple[str, ...]
    """One per step."""


def write_along(
    transcript: Transcript,
    style: Format,
    budget: int,
    retention: float,
    rng: random.Random,
    count: Callable[[str], int],
) -> WrittenStates:
    """The states of a scripted writer that sees the transcript step by step."""
    states: list[str] = []
    for step in transcript.steps:
        view = View(transcript.goal, step.action, step.observation)
        states.append(rewrite(style, budget, states[-1] if states else "", view, rng, retention, count))
    return WrittenStates(style, budget, retention, tuple(states))


def novelty(written: WrittenStates) -> list[float]:
    """How often each rewrite is practised: the more words it adds, the more often. Most steps of a walk add none, and
    the one that shows the recipe comes once in a game."""
    pairs = pairwise(("", *written.states))
    return [1.0 + min(len(set(after.split()) - set(before.split())), NEWS) for before, after in pairs]


def disturbed(state: str, rng: random.Random) -> str:
    """The state with one of its sentences said again, up to four times, or broken off: what a writer that errs leaves
    to its next rewrite. Whoever never met such a state repeats it for ever."""
    pieces = _SENTENCES.split(state)
    place = rng.randrange(len(pieces))
    piece = pieces[place]
    if rng.random() < 0.7:
        at = rng.choice((place, rng.randrange(len(pieces))))
        pieces[at:at] = [piece] * rng.randint(1, 4)
    else:
        words = piece.split(" ")
        pieces[place] = " ".join(words[: rng.randrange(len(words))])
    return ("\n" if "\n" in state else " ").join(filter(None, pieces))


def looped(state: str, rng: random.Random) -> str:
    """The state with a stretch of one of its lists said again and again, and often nothing after it: a writer that
    loses its place in a list goes round in it until the budget ends. A state without a list is disturbed otherwise."""
    pieces = _SENTENCES.split(state)
    lists = [place for place, piece in enumerate(pieces) if piece.count(", ") > 1]
    if not lists:
        return disturbed(state, rng)
    place = rng.choice(lists)
    items = pieces[place].rstrip(".").split(", ")
    first = rng.randrange(1, len(items))
    last = min(len(items), first + rng.randint(1, 3))
    lap = items[first:last] * rng.randint(1, 8)
    rest = items[last:]
    if rng.random() < 0.6:
        rest, pieces = [], pieces[: place + 1]
    pieces[place] = ", ".join(items[:last] + lap + rest) + ("." if pieces[place].endswith(".") else "")
    return ("\n" if "\n" in state else " ").join(pieces)


def writer_tree(
    encoder: PromptEncoder,
    transcript: Transcript,
    written: WrittenStates,
    index: int,
    rewrites: int,
    rng: random.Random,
    disturbance: float = 0.0,
    loops: float = 0.0,
) -> Tree:
    """Rewrites of one prompt to be imitated: the prompt is the trunk, each state a branch. With the chance
    `disturbance` the prompt's state is disturbed, `loops` of these times by a list that goes round; the rewrites then
    are of that state, as the script mends it."""
    step = transcript.steps[index]
    view = View(transcript.goal, step.action, step.observation)
    previous = written.states[index - 1] if index else ""
    if previous and rng.random() < disturbance:
        previous = looped(previous, rng) if loops and rng.random() < loops else disturbed(previous, rng)
    settings = written.style, written.budget, previous, view, rng, written.retention
    states = [rewrite(*settings, lambda text: len(encoder.encode(text))) for _ in range(rewrites)]
    system = encoder.prompts.writer(written.style, written.budget)
    prompt = encoder.prompt(writer_messages(system, view, previous))
    names, told = names_of(encoder, transcript), encoder.encode(previous)
    branches = []
    for state in states:
        # The last token of the prompt belongs to the branch: the reply's first token is predicted from it.
        tail = (prompt[-1], *encoder.encode(state), encoder.end)
        hints = tuple(copy_hints((*prompt, *tail[1:]), len(prompt), told, names))
        learn = tuple((place, 1.0) for place in range(1, len(tail)))
        branches.append(Branch(len(prompt) - 1, tail, learn, hints=hints))
    return Tree(tuple(prompt[:-1]), tuple(branches))


def names_of(encoder: PromptEncoder, transcript: Transcript) -> list[Name]:
    """Everything the options of a transcript are about."""
    things = {thing_of(command) for step in transcript.steps for command in step.commands}
    return [encoder.name(thing) for thing in sorted(things)]


def history_tree(
    encoder: PromptEncoder,
    transcript: Transcript,
    places: Sequence[int],
    style: Format,
    budget: int,
    retention: float,
    rng: random.Random,
) -> Tree:
    """States made from the whole history at once, at several steps: what the read-time oracle asks of a writer."""
    system = encoder.prompts.writer(style, budget)
    asked: list[tuple[list[int], list[int]]] = []
    for index in sorted(places):
        history = render_history(transcript.steps[:index], transcript.steps[index].action)
        view = View(transcript.goal, None, history)
        state = rewrite(style, budget, "", view, rng, retention, lambda text: len(encoder.encode(text)))
        asked.append((encoder.prompt(writer_messages(system, view, "")), [*encoder.encode(state), encoder.end]))
    trunk = asked[-1][0]
    names = names_of(encoder, transcript)
    branches = []
    for prompt, reply in asked:
        # At least the last token of the prompt belongs to the branch: the reply's first token is predicted from it.
        start = min(agreed(trunk, prompt), len(prompt) - 1)
        tail = (*prompt[start:], *reply)
        learn = tuple((place, 1.0) for place in range(len(prompt) - start, len(tail)))
        hints = tuple(copy_hints((*prompt, *reply), len(prompt), (), names))
        branches.append(Branch(start, tail, learn, hints=hints))
    return Tree(tuple(trunk), tuple(branches))


def any_format(rng: random.Random) -> Format:
    """One of dssr's prompted formats, at random."""
    return rng.choice(FORMATS)
