"""From transcripts and drills to training trees: the reader's questions.

All prompts are made by the agent's own layout and prompt files, so the model meets in use what it was made on.
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from dssr.agent.prompts import reader_messages, render_history
from dssr.models.base import Message
from dssr.worlds.cooking.recipe import is_opening
from dssr_nano.factory.drill import ReaderQuestion, directives, marks_of
from dssr_nano.factory.encoder import NEWLINE, PromptEncoder
from dssr_nano.factory.hints import AttentionHint, house_hints, question_hints, thing_of
from dssr_nano.factory.names import FAMILIAR, Rename, renamer
from dssr_nano.factory.transcripts import Transcript, TranscriptStep
from dssr_nano.factory.tree import Branch, OptionSet, Tree, agreed

SPARSE = 5
"""One in so many echoes is learned: predicting a token costs as much as a layer."""
CONTEXT_END = "\n</CONTEXT>"


@dataclass(frozen=True)
class EncodedQuestion:
    """One question as tokens; the answer's label is the last token."""

    ids: tuple[int, ...]
    context: int
    """Tokens up to and including the context: what later questions of the same history share."""
    ends: tuple[int, ...]
    right: int
    marks: tuple[tuple[float, ...], ...]
    letters: tuple[int, ...]
    hints: tuple[AttentionHint, ...]


def pick_options(question: ReaderQuestion, most: int, rng: random.Random) -> tuple[str, ...]:
    """The right command and others, at most `most`, in random order."""
    others = [command for command in question.commands if command != question.plan[0]]
    rng.shuffle(others)
    # Few options should be telling ones: those that the rest of the plan or the right command resemble.
    others.sort(key=lambda command: command not in question.plan[1:3] and rng.random() < 0.7)
    commands = [question.plan[0], *others[: most - 1]]
    rng.shuffle(commands)
    return tuple(commands)


def encode_question(
    encoder: PromptEncoder, goal: str, question: ReaderQuestion, commands: Sequence[str], house: bool = False
) -> EncodedQuestion:
    """The question as tokens, with its hints; in a house also those that find the way there."""
    messages = reader_messages(encoder.prompts.reader, goal, question.context, question.observation, commands)
    ids = encoder.prompt(messages)
    before = messages[1].content.split(f"{CONTEXT_END}\n\nCurrent observation:\n")[0]
    context = len(encoder.prompt((messages[0], Message("user", before)))) - 2
    lines = [place for place, token in enumerate(ids) if token == encoder.newline]
    # The option lines and the blank line after them close the prompt; nothing else in it is a bare line break there.
    ends = lines[-len(commands) - 1 : -1]
    first = max(place for place in range(ends[0]) if ids[place] == encoder.labels[0])
    right = commands.index(question.plan[0])
    answered = (*ids, encoder.labels[right])
    names = [encoder.name(thing_of(command)) for command in commands]
    held = directives(question.context, dict.fromkeys(map(thing_of, commands)))
    opened = (first, *(end + 1 for end in ends[:-1]))
    hints = [*question_hints(answered, names, opened, ends, right, context, encoder.cues)]
    if house:
        moves = ((end, encoder.cues.moves.get(ids[begin + 1])) for begin, end in zip(opened, ends, strict=True))
        going = {end: direction for end, direction in moves if direction}
        deed = next((command for command in question.plan if not is_travel(command)), "")
        goal_name, aim = encoder.name(thing_of(deed)), encoder.room(question.room)
        hints += house_hints(answered, going, goal_name, aim, context, first, encoder.cues)
    return EncodedQuestion(
        answered,
        context,
        tuple(ends),
        right,
        tuple(marks_of(command, held, command in question.plan) for command in commands),
        tuple(range(len(commands))),
        tuple(hints),
    )


def is_travel(command: str) -> bool:
    """Whether a command is a step from room to room, or opens a door for one."""
    return command.startswith("go ") or is_opening(command, doors=True)


def relabelled(asked: EncodedQuestion, encoder: PromptEncoder, rng: random.Random) -> EncodedQuestion:
    """The question with other letters, still in alphabetical order: with few options shown, the later letters of the
    alphabet would not be learned."""
    count = len(asked.ends)
    places = sorted(rng.sample(range(len(encoder.labels)), count))
    letters = [encoder.labels[place] for place in places]
    ids = list(asked.ids)
    first = max(place for place in range(asked.ends[0]) if ids[place] == encoder.labels[0])
    for place, letter in zip((first, *(end + 1 for end in asked.ends[:-1])), letters, strict=True):
        ids[place] = letter
    ids[-1] = letters[asked.right]
    return replace(asked, ids=tuple(ids), letters=tuple(places))


def tree_of(asked: Sequence[EncodedQuestion], echo: float = 0.0, shared: bool = False) -> Tree:
    """Questions with what they share as the trunk. `echo` is the weight of predicting repeated text."""
    last = max(asked, key=lambda one: one.context)
    trunk = last.ids[: last.context] if shared else common(asked)
    branches = []
    for one in asked:
        start = agreed(trunk, one.ids)
        tail = one.ids[start:]
        said = [(place - start, echo) for place in echoes(one.ids[:-1]) if place >= start] if echo else []
        choice = OptionSet(tuple(end - start for end in one.ends), one.right, one.marks, one.letters)
        branches.append(Branch(start, tail, (*said, (len(tail) - 1, 1.0)), choice, one.hints))
    learn = tuple((place, echo) for place in echoes(trunk)) if echo else ()
    return Tree(trunk, tuple(branches), learn)


def plan_tree(encoder: PromptEncoder, goal: str, question: ReaderQuestion) -> Tree:
    """The rest of the plan to be spelled out: each of its words is looked up in the context, so one sample teaches
    a dozen look-ups. Only training asks this."""
    asked = reader_messages(encoder.prompts.reader, goal, question.context, question.observation, ())[1].content
    user = asked.removesuffix("Options:\n\n\nAction:") + "Plan:"
    prompt = encoder.prompt((Message("system", encoder.prompts.reader), Message("user", user)))
    reply = [*encoder.encode(NEWLINE.join(f". {command}" for command in question.plan)), encoder.end]
    ids = (*prompt, *reply)
    return Tree(ids, (), tuple((place, 1.0) for place in range(len(prompt), len(ids))))


def lookup_tree(encoder: PromptEncoder, goal: str, recipe: str, pairs: Sequence[tuple[str, str]]) -> Tree:
    """Nothing but look-ups: what the recipe says of a food just named. Only training asks this."""
    user = reader_messages(encoder.prompts.reader, goal, recipe, "", ())[1].content
    ids = encoder.prompt((Message("system", encoder.prompts.reader), Message("user", user)))
    learn: list[tuple[int, float]] = []
    for named, completed in pairs:
        line = encoder.encode(f"{named}{completed}")
        known = agreed(line, encoder.encode(named))
        learn += [(len(ids) + place, 1.0) for place in range(known, len(line))]
        ids += [*line, encoder.newline]
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


def common(asked: Sequence[EncodedQuestion]) -> tuple[int, ...]:
    """The longest beginning of all questions."""
    first = asked[0].ids
    length = min(len(one.ids) for one in asked) - 1
    for one in asked[1:]:
        length = min(length, agreed(first, one.ids))
    if len(asked) == 1:
        length = asked[0].context // 2
    return first[:length]


def renamed(transcript: Transcript, rename: Rename) -> Transcript:
    """The transcript with every text of it renamed."""

    def each(step: TranscriptStep) -> TranscriptStep:
        return TranscriptStep(
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


def with_new_names(
    transcript: Transcript, rng: random.Random, keep: float = 0.15, familiar: float = FAMILIAR
) -> Transcript:
    """The transcript under new names."""
    return renamed(transcript, renamer(transcript.foods, rng, keep, familiar))


def decisions(transcript: Transcript) -> list[int]:
    """Indices of the steps at which an option is chosen."""
    return [index for index, step in enumerate(transcript.steps) if step.commands]


def full_question(transcript: Transcript, index: int) -> ReaderQuestion:
    """The question at a step with the whole history before it."""
    step = transcript.steps[index]
    context = render_history(transcript.steps[:index], step.action)
    return ReaderQuestion(context, step.observation, step.commands, step.plan, room_of(step))


def state_question(transcript: Transcript, index: int, state: str) -> ReaderQuestion:
    """The question at a step with a written state in place of the history."""
    step = transcript.steps[index]
    return ReaderQuestion(state, step.observation, step.commands, step.plan, room_of(step))


def room_of(step: TranscriptStep) -> str:
    """Where the next deed is done, from the lines of `oracle-b`: their first way leads there; without a step to go it
    is here."""
    opening = "Way to " if is_travel(step.plan[0]) else "Room: "
    told = (line.removeprefix(opening) for line in step.oracle[0] if line.startswith(opening))
    return next(told, "").split(":")[0]


def oracle_question(transcript: Transcript, index: int, budget: int, count: Callable[[str], int]) -> ReaderQuestion:
    """The question with the lines of `oracle-b` that the budget holds."""
    long, short = transcript.steps[index].oracle
    text = NEWLINE.join(long)
    if count(text) > budget:
        kept = [NEWLINE.join(short[:lines]) for lines in range(len(short) + 1)]
        text = [each for each in kept if count(each) <= budget][-1]
    return state_question(transcript, index, text)
