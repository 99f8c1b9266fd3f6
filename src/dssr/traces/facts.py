"""Values in a trace that need no judge: paths, identifiers, numbers, quoted strings, commands, error names.

A value is *carried* at a decision if the reference action needs it and only the context can tell it: it stands in an
earlier observation or in an action done so far, and neither in the goal nor in the current observation, which the
reader is shown beside its context. A carried value is a *fact* of its trace; it must survive every rewrite from the
step that first showed it to the last decision that uses it.

A state holds a fact *verbatim* if the value stands in it as a whole (no letter, digit or underscore touches its ends).
It holds a *paraphrase* of
- a path, if its last part stands there;
- a number, if the same number stands there with other separators (1,474 for 1474);
- an identifier or an error name, if all its words stand in one line, in order, in any case (`zero division error`);
- a string or a command, if at least four fifths of its words stand in one line.
"""

import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Literal, NamedTuple, Protocol

from dssr.traces.trace import Trace
from dssr.types import Record

FactKind = Literal["path", "error", "number", "command", "string", "identifier"]
Held = Literal["verbatim", "paraphrase", "gone"]

_KINDS: tuple[tuple[FactKind, re.Pattern[str]], ...] = (
    ("command", re.compile(r"`([^`\n]{3,120}\s[^`\n]{1,120})`")),
    ("string", re.compile(r"\"([^\"\n]{3,120})\"|(?<!\w)'([^'\n]{3,120})'(?!\w)|`([^`\n\s]{3,120})`")),
    ("path", re.compile(r"((?:https?://|~/|\.{0,2}/)?(?:[\w.+@-]+/)+[\w.+@-]*\w|\b[\w-]+\.[a-z]{1,4}\b(?![.(]))")),
    ("error", re.compile(r"\b([A-Z]\w*(?:Error|Exception|Warning|Interrupt|Exit))\b")),
    ("number", re.compile(r"(?<![\w.])(\d[\d,]*\d(?:\.\d+)?|\d+\.\d+)(?![\w.])")),
    (
        "identifier",
        re.compile(
            r"(\b[A-Za-z]\w*(?:_\w+|(?:\.[A-Za-z]\w*)+)|\b[a-z]+[A-Z]\w+|\b[A-Z][a-z0-9]+[A-Z]\w*|--[a-z][\w-]+)"
        ),
    ),
)
"""In the order in which they claim text; what one has claimed the next leave alone, except that values inside a quoted
string or command are values too."""
_WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")
SHARE = 0.8
"""Of a string's words that a paraphrase keeps."""


class Value(NamedTuple):
    """A value where it stands in a text."""

    text: str
    kind: FactKind
    start: int
    end: int


def values(text: str) -> list[Value]:
    """All values of a text, in order."""
    found: list[Value] = []
    taken: list[tuple[int, int]] = []
    for kind, pattern in _KINDS:
        for match in pattern.finditer(text):
            group = next(number for number in range(1, pattern.groups + 1) if match[number] is not None)
            start, end = match.span(group)
            if any(start < last and first < end for first, last in taken):
                continue
            found.append(Value(match[group], kind, start, end))
            if kind not in ("command", "string"):
                taken.append((start, end))
    return sorted(found, key=lambda one: (one.start, -one.end))


def occurs(value: str, text: str) -> bool:
    """Whether a text holds a value as a whole."""
    return next(places(value, text), None) is not None


def places(value: str, text: str) -> Iterator[int]:
    """Where a value stands in a text as a whole."""
    place = text.find(value)
    while place >= 0:
        end = place + len(value)
        if not (_touching(text[place - 1 : place], value[0]) or _touching(text[end : end + 1], value[-1])):
            yield place
        place = text.find(value, place + 1)


def _touching(outside: str, inside: str) -> bool:
    return bool(outside) and (outside.isalnum() or outside == "_") and (inside.isalnum() or inside == "_")


def held(value: str, kind: FactKind, text: str) -> Held:
    """How a text holds a value, by the rule above."""
    if occurs(value, text):
        return "verbatim"
    return "paraphrase" if _paraphrased(value, kind, text) else "gone"


def _paraphrased(value: str, kind: FactKind, text: str) -> bool:
    if kind == "path":
        last = value.rstrip("/").rpartition("/")[2]
        return len(last) > 2 and last != value and occurs(last, text)
    if kind == "number":
        plain = value.replace(",", "")
        return any(found.replace(",", "") == plain for found in re.findall(r"\d[\d,.]*\d", text))
    words = [word.lower() for word in _WORDS.findall(value)]
    if not words:
        return False
    if kind in ("identifier", "error"):
        pattern = re.compile(r"\b" + r"\W*(?:\w+\W+)?".join(map(re.escape, words)), re.I)
        return len(words) > 1 and any(pattern.search(line) for line in text.splitlines())
    lines = (set(map(str.lower, _WORDS.findall(line))) for line in text.splitlines())
    return len(words) > 2 and any(sum(word in line for word in words) >= SHARE * len(words) for line in lines)


# ---------------------------------------------------------------- facts of a trace


class Shown(Protocol):
    """A step as far as facts care: a trace's or an episode's."""

    @property
    def action(self) -> str | None:
        """What was done; None at step 0."""
        ...

    @property
    def observation(self) -> str:
        """What was seen after it."""
        ...


class LogFact(Record, frozen=True):
    """A value that a later action needs and only the past tells."""

    text: str
    kind: FactKind
    seen: int
    """The first step that shows it."""
    uses: tuple[int, ...]
    """Decisions at which it is carried."""

    @property
    def last(self) -> int:
        """The last decision that needs it."""
        return self.uses[-1]

    def held_in(self, state: str) -> bool:
        """Whether a state still tells it, in any form."""
        return held(self.text, self.kind, state) != "gone"


class Past:
    """What the actions of one episode need from before them, from one pass over its steps: where each word of the
    actions is shown. `references` are the actions that count as right, by the step of their decision."""

    def __init__(self, goal: str, steps: Sequence[Shown], references: Mapping[int, str]) -> None:
        self.goal, self.steps, self.references = goal, steps, references
        self.begins = [0]
        """Characters of all actions and observations before each step, and of all."""
        wanted = {word for text in references.values() for word in _WHOLE.findall(text)}
        self._places: dict[str, list[int]] = {}
        self._done: dict[str, int] = {}
        self._seen: dict[str, int | None] = {}
        for place, step in enumerate(steps):
            self._done.setdefault((step.action or "").strip(), place)
            self.begins.append(self.begins[-1] + len(step.action or "") + len(step.observation))
            for word in _words_of(step, wanted):
                self._places.setdefault(word, []).append(place)

    def carried(self, index: int, plain_words: bool = False) -> list[Value]:
        """The values of the reference action at step `index` that only the context can tell, where they stand in it.

        `plain_words` takes ordinary words for values too: actions that are chosen from options have few others.
        """
        reference = self.references[index]
        found = values(reference)
        if plain_words:
            found = [Value(one[0], "identifier", *one.span()) for one in re.finditer(r"\w{3,}", reference)]
        now = f"{self.goal}\n{self.steps[index].observation}"
        return [one for one in found if not occurs(one.text, now) and self._before(one.text, index)]

    def is_repeat(self, index: int) -> bool:
        """Whether the reference was done before, word for word."""
        return self._done.get(self.references[index].strip(), index + 1) <= index

    def facts(self) -> tuple[LogFact, ...]:
        """The facts of the episode, by first use."""
        uses: dict[str, list[int]] = {}
        kinds: dict[str, FactKind] = {}
        for index in sorted(self.references):
            for one in self.carried(index):
                if not uses.get(one.text) or uses[one.text][-1] != index:
                    uses.setdefault(one.text, []).append(index)
                kinds.setdefault(one.text, one.kind)
        found = []
        for text, where in uses.items():
            seen = self.first(text)
            found.append(LogFact(text, kinds[text], where[0] if seen is None else seen, tuple(where)))
        return tuple(found)

    def first(self, value: str) -> int | None:
        """The first step that shows a value; None where none does."""
        if value not in self._seen:
            anchor = max(_WHOLE.findall(value), key=len, default=None)
            # As a whole, a value stands only where each of its words does.
            where = range(len(self.steps)) if anchor is None else self._places.get(anchor, ())
            self._seen[value] = next((place for place in where if _shows(self.steps[place], value)), None)
        return self._seen[value]

    def _before(self, value: str, index: int) -> bool:
        if "\n" in value:  # it may reach from one step into the next
            past = "\n".join(f"{step.action or ''}\n{step.observation}" for step in self.steps[:index])
            return occurs(value, f"{past}\n{self.steps[index].action or ''}")
        seen = self.first(value)
        return seen is not None and (seen < index or occurs(value, self.steps[index].action or ""))


_WHOLE = re.compile(r"\w+")


def _words_of(step: Shown, wanted: Set[str]) -> Set[str]:
    return wanted & {*_WHOLE.findall(step.observation), *_WHOLE.findall(step.action or "")}


def _shows(step: Shown, value: str) -> bool:
    return occurs(value, step.observation) or occurs(value, step.action or "")


_PASTS: deque[tuple[Trace, Past]] = deque(maxlen=4)


def past_of(trace: Trace) -> Past:
    """The past of a trace's decisions; those of the newest traces are kept."""
    for known, past in tuple(_PASTS):
        if known is trace:
            return past
    references = {index: step.decision.reference for index, step in enumerate(trace.steps) if step.decision is not None}
    _PASTS.append((trace, Past(trace.goal, trace.steps, references)))
    return _PASTS[-1][1]


def trace_facts(trace: Trace) -> tuple[LogFact, ...]:
    """The facts of a trace."""
    return past_of(trace).facts()


# ---------------------------------------------------------------- which rewrite lost it


class FactLife(Record, frozen=True):
    """One fact through the rewrites of one memory."""

    fact: LogFact
    marks: str
    """One character per rewrite from the first that could hold it to the last use: v verbatim, p paraphrase, - gone."""
    rewrites: tuple[int, ...]
    """The steps of these rewrites."""
    dropped: int | None
    """The rewrite that lost it before its last use: its input held the value, its state does not, and no later state
    holds it again; None where it was kept, or never entered a rewrite."""


def lives(facts: Sequence[LogFact], steps: Sequence[Shown], states: dict[int, str]) -> list[FactLife]:
    """Follow facts through the states written at the given steps."""
    order = sorted(states)
    found = []
    for fact in facts:
        mine = [step for step in order if fact.seen <= step <= fact.last]
        marks = [held(fact.text, fact.kind, states[step]) for step in mine]
        dropped = None
        for place, (step, mark) in enumerate(zip(mine, marks, strict=True)):
            if mark != "gone":
                dropped = None
                continue
            before = order.index(step) - 1
            fresh = steps[(order[before] + 1 if before >= 0 else 0) : step + 1]
            had = place > 0 and marks[place - 1] != "gone"
            shown = any(occurs(fact.text, one.observation) or occurs(fact.text, one.action or "") for one in fresh)
            if had or shown:
                dropped = step
        letters = "".join({"verbatim": "v", "paraphrase": "p", "gone": "-"}[mark] for mark in marks)
        found.append(FactLife(fact, letters, tuple(mine), dropped))
    return found
