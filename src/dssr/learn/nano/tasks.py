"""From transcripts and drills to training trees: the reader's questions and the writer's demonstrations.

All prompts are made by the agent's own layout and prompt files, so the model meets in use what it was made on.
"""

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise

from tokenizers import Tokenizer

from dssr.agent.layout import WRITER_FIELDS, reader_messages, writer_messages
from dssr.agent.texts import Prompts
from dssr.games.history import render_history
from dssr.learn.nano.corpus import Seen, Transcript
from dssr.learn.nano.drill import COOKS, CUTS, Question, directives, marks_of
from dssr.learn.nano.looks import Look, Name, Words, copies_of, looks_of, thing_of
from dssr.learn.nano.names import Rename, renamer
from dssr.learn.nano.start import Tokens
from dssr.learn.nano.tree import Branch, Choice, Tree
from dssr.models.base import Message
from dssr.models.scripted.formats import FORMATS, Format
from dssr.models.scripted.writer import rewrite
from dssr.types import LABELS, View

NEWLINE = "\n"
SPACE = "Ġ"
"""How the tokenizer writes a space."""
SPARSE = 5
"""One in so many echoes is learned: predicting a token costs as much as a layer."""
CONTEXT_END = "\n</CONTEXT>"
_SENTENCES = re.compile(r"(?<=\.) |\n")
NEWS = 12
"""Most new words of a rewrite that count."""


@dataclass(frozen=True)
class Scribe:
    """Turns messages into token ids as the chat template does."""

    tokenizer: Tokenizer
    prompts: Prompts
    names: dict[str, Name] = field(default_factory=dict)

    @cached_property
    def end(self) -> int:
        return self.special("<|end|>")

    @cached_property
    def newline(self) -> int:
        (found,) = self.encode(NEWLINE)
        return found

    @cached_property
    def labels(self) -> tuple[int, ...]:
        found = [self.encode(label) for label in LABELS]
        assert all(len(ids) == 1 for ids in found)
        return tuple(ids[0] for ids in found)

    @cached_property
    def words(self) -> Words:
        verbs = (*CUTS, *COOKS)
        texts = self.tokenizer.decode_batch([[token] for token in range(self.tokenizer.get_vocab_size())])
        asking = tuple(f"{verb} the" for verb in verbs)
        (the,), (colon,) = self.encode(" the"), self.encode(":")
        return Words(
            asking=frozenset(at for at, text in enumerate(texts) if text.endswith(asking) and "You" not in text),
            verbs=frozenset(at for at, text in enumerate(texts) if text.strip() in verbs),
            the=the,
            colon=colon,
            newline=self.newline,
        )

    @cached_property
    def twins(self) -> tuple[tuple[int, int], ...]:
        """Tokens that are the same word with and without a space before it."""
        vocabulary = self.tokenizer.get_vocab()
        pairs = ((token, vocabulary.get(text[1:])) for text, token in vocabulary.items() if text[:1] == SPACE)
        return tuple(sorted((spaced, bare) for spaced, bare in pairs if bare is not None))

    @cached_property
    def parts(self) -> tuple[int, ...]:
        """What opens a part of a prompt; the previous state's header comes first."""
        headers = [self.encode(f"{label}\n-")[:-1] for label in (WRITER_FIELDS[1], WRITER_FIELDS[3])]
        roles = [self.special(f"<|{role}|>") for role in ("system", "user", "assistant")]
        return (*(ids[-1] for ids in headers), *roles)

    @cached_property
    def tokens(self) -> Tokens:
        return Tokens(self.tokenizer.get_vocab_size(), self.labels, self.twins, self.parts)

    def name(self, text: str) -> Name:
        if text not in self.names:
            self.names[text] = Name(tuple(self.encode(f" {text}")), tuple(self.encode(text)))
        return self.names[text]

    def encode(self, text: str) -> list[int]:
        ids: list[int] = self.tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    def prompt(self, messages: Sequence[Message]) -> list[int]:
        """Everything up to where the reply begins."""
        ids: list[int] = []
        for message in messages:
            ids += [self.special(f"<|{message.role}|>"), *self.encode(message.content), self.end]
        return [*ids, self.special("<|assistant|>")]

    def special(self, name: str) -> int:
        found = self.tokenizer.token_to_id(name)
        assert found is not None
        return int(found)


@dataclass(frozen=True)
class Asked:
    """One question as tokens; the answer's label is the last token."""

    ids: tuple[int, ...]
    context: int
    """Tokens up to and including the context: what later questions of the same history share."""
    ends: tuple[int, ...]
    right: int
    marks: tuple[tuple[float, ...], ...]
    letters: tuple[int, ...]
    looks: tuple[Look, ...]


def shown(question: Question, most: int, rng: random.Random) -> tuple[str, ...]:
    """The right command and others, at most `most`, in random order."""
    others = [command for command in question.commands if command != question.plan[0]]
    rng.shuffle(others)
    # Few options should be telling ones: those that the rest of the plan or the right command resemble.
    others.sort(key=lambda command: command not in question.plan[1:3] and rng.random() < 0.7)
    commands = [question.plan[0], *others[: most - 1]]
    rng.shuffle(commands)
    return tuple(commands)


def ask(scribe: Scribe, goal: str, question: Question, commands: Sequence[str]) -> Asked:
    messages = reader_messages(scribe.prompts.reader, goal, question.context, question.observation, commands)
    ids = scribe.prompt(messages)
    before = messages[1].content.split(f"{CONTEXT_END}\n\nCurrent observation:\n")[0]
    context = len(scribe.prompt((messages[0], Message("user", before)))) - 2
    lines = [place for place, token in enumerate(ids) if token == scribe.newline]
    # The option lines and the blank line after them close the prompt; nothing else in it is a bare line break there.
    ends = lines[-len(commands) - 1 : -1]
    first = max(place for place in range(ends[0]) if ids[place] == scribe.labels[0])
    right = commands.index(question.plan[0])
    answered = (*ids, scribe.labels[right])
    names = [scribe.name(thing_of(command)) for command in commands]
    held = directives(question.context, dict.fromkeys(map(thing_of, commands)))
    opened = (first, *(end + 1 for end in ends[:-1]))
    return Asked(
        answered,
        context,
        tuple(ends),
        right,
        tuple(marks_of(command, held, command in question.plan) for command in commands),
        tuple(range(len(commands))),
        tuple(looks_of(answered, names, opened, ends, right, context, scribe.words)),
    )


def relabelled(asked: Asked, scribe: Scribe, rng: random.Random) -> Asked:
    """The question with other letters, still in alphabetical order: with few options shown, the later letters of the
    alphabet would not be learned."""
    count = len(asked.ends)
    places = sorted(rng.sample(range(len(scribe.labels)), count))
    letters = [scribe.labels[place] for place in places]
    ids = list(asked.ids)
    first = max(place for place in range(asked.ends[0]) if ids[place] == scribe.labels[0])
    for place, letter in zip((first, *(end + 1 for end in asked.ends[:-1])), letters, strict=True):
        ids[place] = letter
    ids[-1] = letters[asked.right]
    return replace(asked, ids=tuple(ids), letters=tuple(places))


def tree_of(asked: Sequence[Asked], echo: float = 0.0, shared: bool = False) -> Tree:
    """Questions with what they share as the trunk. `echo` is the weight of predicting repeated text."""
    last = max(asked, key=lambda one: one.context)
    trunk = last.ids[: last.context] if shared else common(asked)
    branches = []
    for one in asked:
        start = _agreed(trunk, one.ids)
        tail = one.ids[start:]
        said = [(place - start, echo) for place in echoes(one.ids[:-1]) if place >= start] if echo else []
        choice = Choice(tuple(end - start for end in one.ends), one.right, one.marks, one.letters)
        branches.append(Branch(start, tail, (*said, (len(tail) - 1, 1.0)), choice, one.looks))
    learn = tuple((place, echo) for place in echoes(trunk)) if echo else ()
    return Tree(trunk, tuple(branches), learn)


def plan_tree(scribe: Scribe, goal: str, question: Question) -> Tree:
    """The rest of the plan to be spelled out: each of its words is looked up in the context, so one sample teaches
    a dozen look-ups. Only training asks this."""
    asked = reader_messages(scribe.prompts.reader, goal, question.context, question.observation, ())[1].content
    user = asked.removesuffix("Options:\n\n\nAction:") + "Plan:"
    prompt = scribe.prompt((Message("system", scribe.prompts.reader), Message("user", user)))
    reply = [*scribe.encode(NEWLINE.join(f". {command}" for command in question.plan)), scribe.end]
    ids = (*prompt, *reply)
    return Tree(ids, (), tuple((place, 1.0) for place in range(len(prompt), len(ids))))


def look_tree(scribe: Scribe, goal: str, recipe: str, pairs: Sequence[tuple[str, str]]) -> Tree:
    """Nothing but look-ups: what the recipe says of a food just named. Only training asks this."""
    user = reader_messages(scribe.prompts.reader, goal, recipe, "", ())[1].content
    ids = scribe.prompt((Message("system", scribe.prompts.reader), Message("user", user)))
    learn: list[tuple[int, float]] = []
    for named, completed in pairs:
        line = scribe.encode(f"{named}{completed}")
        known = _agreed(line, scribe.encode(named))
        learn += [(len(ids) + place, 1.0) for place in range(known, len(line))]
        ids += [*line, scribe.newline]
    return Tree(tuple(ids), (), tuple(learn))


def echoes(ids: Sequence[int]) -> list[int]:
    """Places whose token followed the same token before: what copying from the text itself can predict.

    Learning them builds the heads that find earlier mentions of a name, which reading a recipe needs.
    """
    seen: set[tuple[int, int]] = set()
    found = []
    for place, pair in enumerate(pairwise(ids), start=1):
        if pair in seen:
            found.append(place)
        seen.add(pair)
    return found[::SPARSE]


def common(asked: Sequence[Asked]) -> tuple[int, ...]:
    """The longest beginning of all questions."""
    first = asked[0].ids
    length = min(len(one.ids) for one in asked) - 1
    for one in asked[1:]:
        length = min(length, _agreed(first, one.ids))
    if len(asked) == 1:
        length = asked[0].context // 2
    return first[:length]


def _agreed(left: Sequence[int], right: Sequence[int]) -> int:
    most = min(len(left), len(right))
    return next((place for place in range(most) if left[place] != right[place]), most)


def renamed(transcript: Transcript, rename: Rename) -> Transcript:
    def each(step: Seen) -> Seen:
        return Seen(
            step.action and rename(step.action),
            rename(step.observation),
            step.kind,
            tuple(map(rename, step.commands)),
            tuple(map(rename, step.plan)),
            (tuple(map(rename, step.oracle[0])), tuple(map(rename, step.oracle[1]))),
        )

    return Transcript(
        transcript.game, transcript.goal, transcript.filler, (), tuple(map(each, transcript.steps)), transcript.played
    )


def fresh(transcript: Transcript, rng: random.Random, keep: float = 0.15) -> Transcript:
    """The transcript under new names."""
    return renamed(transcript, renamer(transcript.foods, rng, keep))


def decisions(transcript: Transcript) -> list[int]:
    return [index for index, step in enumerate(transcript.steps) if step.commands]


def full_question(transcript: Transcript, index: int) -> Question:
    """The question at a step with the whole history before it."""
    step = transcript.steps[index]
    context = render_history(transcript.steps[:index], step.action)
    return Question(context, step.observation, step.commands, step.plan)


def state_question(transcript: Transcript, index: int, state: str) -> Question:
    step = transcript.steps[index]
    return Question(state, step.observation, step.commands, step.plan)


def oracle_question(transcript: Transcript, index: int, budget: int, count: Callable[[str], int]) -> Question:
    """The question with the lines of `oracle-b` that the budget holds."""
    long, short = transcript.steps[index].oracle
    text = NEWLINE.join(long)
    if count(text) > budget:
        kept = [NEWLINE.join(short[:lines]) for lines in range(len(short) + 1)]
        text = [each for each in kept if count(each) <= budget][-1]
    return state_question(transcript, index, text)


@dataclass(frozen=True)
class Written:
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
) -> Written:
    states: list[str] = []
    for step in transcript.steps:
        view = View(transcript.goal, step.action, step.observation)
        states.append(rewrite(style, budget, states[-1] if states else "", view, rng, retention, count))
    return Written(style, budget, retention, tuple(states))


def novelty(written: Written) -> list[float]:
    """How often each rewrite is practised: the more words it adds, the more often. Most steps of a walk add none, and
    the one that shows the recipe comes once in a game."""
    pairs = pairwise(("", *written.states))
    return [1.0 + min(len(set(after.split()) - set(before.split())), NEWS) for before, after in pairs]


def disturbed(state: str, rng: random.Random) -> str:
    """The state with one of its sentences said again, up to four times, or broken off: what a
    writer that errs leaves to its next rewrite. Whoever never met such a state repeats it for ever."""
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


def writer_tree(
    scribe: Scribe,
    transcript: Transcript,
    written: Written,
    index: int,
    rewrites: int,
    rng: random.Random,
    disturbance: float = 0.0,
) -> Tree:
    """Rewrites of one prompt to be imitated: the prompt is the trunk, each state a branch. With the chance
    `disturbance` the prompt's state is disturbed; the rewrites then are of that state, as the script mends it."""
    step = transcript.steps[index]
    view = View(transcript.goal, step.action, step.observation)
    previous = written.states[index - 1] if index else ""
    if previous and rng.random() < disturbance:
        previous = disturbed(previous, rng)
    settings = written.style, written.budget, previous, view, rng, written.retention
    states = [rewrite(*settings, lambda text: len(scribe.encode(text))) for _ in range(rewrites)]
    system = scribe.prompts.writer(written.style, written.budget)
    prompt = scribe.prompt(writer_messages(system, view, previous))
    names, told = names_of(scribe, transcript), scribe.encode(previous)
    branches = []
    for state in states:
        # The last token of the prompt belongs to the branch: the reply's first token is predicted from it.
        tail = (prompt[-1], *scribe.encode(state), scribe.end)
        looks = tuple(copies_of((*prompt, *tail[1:]), len(prompt), told, names))
        learn = tuple((place, 1.0) for place in range(1, len(tail)))
        branches.append(Branch(len(prompt) - 1, tail, learn, looks=looks))
    return Tree(tuple(prompt[:-1]), tuple(branches))


def names_of(scribe: Scribe, transcript: Transcript) -> list[Name]:
    """Everything the options of a transcript are about."""
    things = {thing_of(command) for step in transcript.steps for command in step.commands}
    return [scribe.name(thing) for thing in sorted(things)]


def digest_tree(
    scribe: Scribe,
    transcript: Transcript,
    places: Sequence[int],
    style: Format,
    budget: int,
    retention: float,
    rng: random.Random,
) -> Tree:
    """States made from the whole history at once, at several steps: what the read-time oracle asks of a writer."""
    system = scribe.prompts.writer(style, budget)
    asked: list[tuple[list[int], list[int]]] = []
    for index in sorted(places):
        history = render_history(transcript.steps[:index], transcript.steps[index].action)
        view = View(transcript.goal, None, history)
        state = rewrite(style, budget, "", view, rng, retention, lambda text: len(scribe.encode(text)))
        asked.append((scribe.prompt(writer_messages(system, view, "")), [*scribe.encode(state), scribe.end]))
    trunk = asked[-1][0]
    names = names_of(scribe, transcript)
    branches = []
    for prompt, reply in asked:
        # At least the last token of the prompt belongs to the branch: the reply's first token is predicted from it.
        start = min(_agreed(trunk, prompt), len(prompt) - 1)
        tail = (*prompt[start:], *reply)
        learn = tuple((place, 1.0) for place in range(len(prompt) - start, len(tail)))
        looks = tuple(copies_of((*prompt, *reply), len(prompt), (), names))
        branches.append(Branch(start, tail, learn, looks=looks))
    return Tree(tuple(trunk), tuple(branches))


def any_format(rng: random.Random) -> Format:
    return rng.choice(FORMATS)
