"""A trace: what an agent was asked, saw and did, in order, and what it kept where it compacted its context.

A trace file is JSON lines, one trace per line:

    {"id": "fix-17", "goal": "Make the tests pass.", "steps": [
      {"action": null, "observation": "2 failed: test_fields.py", "decision": {"reference": "open test_fields.py"}},
      {"action": "open test_fields.py", "observation": "1: def test_…", "state": "Two tests fail in test_fields.py"}]}

A step is what was done (`action`, null at step 0) and what was seen after it. Its `decision` is what came next: free
text, or one of `options`. A `state` is what the agent itself kept after this step in place of all before it.
Logs in other formats become traces by an importer (`dssr.traces.importers`).

To the rest of the system a trace is a world that cannot be branched: it has a goal and steps in order, and nothing
else can be played. `TraceArchive` stands where an archive of games does, so that a session opens, records and checks
an audit of logs as it does any other run. The leak check asks of a log: does a prompt show what an observation was to
show only later?
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import msgspec

from dssr.config import GamesConfig
from dssr.errors import GameError, UsageError
from dssr.record import log
from dssr.record.run import Run
from dssr.types import LABELS, Cell, Game, Record, Step
from dssr.worlds.archive import Archive, Settings
from dssr.worlds.base import ChunkKind, GamePlan, KeyFact, Node, Secret, Words, World

NO_OUTPUT = "(no output)"
"""Stands for an observation that a log leaves empty."""
HIDDEN = "[redacted]"
WORLD = "logs"
"""What configurations call the kind of world that logs are."""


class TraceDecision(Record, frozen=True):
    """What the agent did next, as a choice."""

    reference: str
    """The action that counts as right: the logged one, or a better one if the log knows it."""
    options: tuple[str, ...] = ()
    """What could be chosen, the reference among them; empty when the action is free text."""


class TraceStep(Record, frozen=True):
    """One step: what was done, and what was seen after it."""

    action: str | None = None
    """None at step 0."""
    observation: str = NO_OUTPUT
    decision: TraceDecision | None = None
    """What was done next; None where nothing was, or where it is not to be judged."""
    state: str | None = None
    """What the agent kept after this step in place of all before it; None where it compacted nothing."""
    thought: str | None = None
    """What the agent thought before the action; never shown to writer or reader, since it tells the action."""


class Trace(Record, frozen=True):
    """One logged episode."""

    id: str
    """Unique among the traces that are audited together."""
    goal: str
    """What was asked for, without the instructions that every task of that agent gets."""
    steps: tuple[TraceStep, ...]
    kind: Literal["log", "game"] = "log"
    """`game`: an episode of a text game, whose prompts are those of games; exported runs are."""
    agent: str | None = None
    """Who acted, for the record."""
    budget: int | None = None
    """Tokens that the agent's own states may have, where the log tells."""
    points: tuple[int, ...] | None = None
    """Decisions to audit, where the log names them; drawn otherwise."""
    cell: Cell | None = None
    """Of an exported run: the condition that the episode was played in."""

    @property
    def decisions(self) -> tuple[int, ...]:
        """Steps with a decision."""
        return tuple(index for index, step in enumerate(self.steps) if step.decision is not None)

    @property
    def actions(self) -> tuple[str, ...]:
        """All logged actions."""
        return tuple(step.action for step in self.steps if step.action is not None)

    @property
    def characters(self) -> int:
        """Of the goal, the actions and what was seen."""
        return len(self.goal) + sum(len(step.observation) + len(step.action or "") for step in self.steps)


# ---------------------------------------------------------------- what makes a trace useless


def faults(trace: Trace) -> list[str]:
    """What is wrong with a trace, one sentence each; none for a good one."""
    found: list[str] = []
    if not trace.id.strip():
        found.append("It has no id; name it.")
    if not trace.steps:
        return [*found, "It has no step; give at least one observation with a decision."]
    if trace.steps[0].action is not None:
        found.append("Its step 0 has an action; the first step is what was seen before any, so its action is null.")
    late = [index for index, step in enumerate(trace.steps) if index and step.action is None]
    if late:
        found.append(f"Step {late[0]} has no action; every step but the first needs the action that led there.")
    if not trace.decisions:
        found.append("It has no decision, so nothing can be audited; give steps a decision with a reference.")
    for index in trace.decisions:
        found += _decision_faults(index, trace.steps[index].decision)
    for index in trace.points or ():
        if index not in trace.decisions:
            found.append(f"Its points name step {index}, which is no decision; name steps that have one.")
    return found


def _decision_faults(index: int, decision: TraceDecision | None) -> Iterator[str]:
    assert decision is not None
    if not decision.reference.strip():
        yield f"The decision of step {index} has an empty reference; leave the decision out or fill it."
    if decision.options and decision.reference not in decision.options:
        yield f"The options of step {index} lack its reference; add it to them."
    if len(set(decision.options)) < len(decision.options):
        yield f"Two options of step {index} are the same; leave one out."
    if len(decision.options) > len(LABELS):
        yield f"Step {index} has {len(decision.options)} options; at most {len(LABELS)} can be lettered."


def require_good(trace: Trace, file: object) -> Trace:
    """The trace itself, or its first fault as an error."""
    if problems := faults(trace):
        raise UsageError(f"{file}, trace {trace.id!r}: {problems[0]}")
    return trace


# ---------------------------------------------------------------- files


def read_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """The non-empty lines of a file with their numbers, one at a time, as UTF-8; anything else is refused by line."""
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                plain = line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
                if plain.startswith((b"\xff\xfe", b"\xfe\xff")):
                    raise UsageError(f"{path} is UTF-16; save it as UTF-8.")
                if not plain.isascii():
                    _check_utf8(plain, path, number)
                if plain.strip():
                    yield number, plain
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror}); check the name.") from error


def read_text(path: Path) -> bytes:
    """A whole file as UTF-8 bytes; for formats that are one JSON document."""
    try:
        plain = path.read_bytes().removeprefix(b"\xef\xbb\xbf")
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror}); check the name.") from error
    for number, line in enumerate(plain.split(b"\n"), start=1):
        if not line.isascii():
            _check_utf8(line, path, number)
    return plain


def _check_utf8(line: bytes, path: Path, number: int) -> None:
    try:
        line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{path} line {number} is not UTF-8 (byte {error.start + 1} of the line is {line[error.start]:#04x}); "
            "the file mixes encodings or has another one: save it as UTF-8."
        ) from None


def read_native(path: Path) -> Iterator[Trace]:
    """The traces of a file in the format above."""
    decoder = msgspec.json.Decoder(Trace)
    for number, line in read_lines(path):
        try:
            yield decoder.decode(line)
        except msgspec.MsgspecError as error:
            raise UsageError(f"{path} line {number} is no trace ({error}); see `dssr trace check`.") from error


class TraceStore:
    """The traces that a run keeps, found by id without holding them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._places: dict[str, tuple[int, int]] = {}
        self.load = lru_cache(maxsize=4)(self._load)

    def _load(self, name: str) -> Trace:
        return msgspec.json.decode(self._line(name), type=Trace)

    def goal(self, name: str) -> str | None:
        """What a trace asks for; None where there is no such trace."""
        line = self._line(name)
        return msgspec.json.decode(line, type=_Named).goal if line else None

    def _line(self, name: str) -> bytes:
        if name not in self._places:
            place = 0
            for _, line in log.lines(self.path):
                self._places[msgspec.json.decode(line, type=_Named).id] = (place, len(line))
                place += len(line)
        if name not in self._places:
            return b""
        place, length = self._places[name]
        with self.path.open("rb") as file:
            file.seek(place)
            return file.read(length)


class _Named(msgspec.Struct):
    id: str
    goal: str


@lru_cache(maxsize=8)
def trace_store(file: str) -> TraceStore:
    """The traces of a run, opened once per process."""
    return TraceStore(Path(file))


def write_traces(traces: Iterator[Trace], path: Path) -> int:
    """Write traces to a file, one per line; how many there were. The file appears whole or not at all."""
    draft = path.with_name(f".{path.name}.part")
    encode, count = msgspec.json.Encoder().encode, 0
    try:
        with draft.open("wb") as file:
            for trace in traces:
                count += 1
                file.write(encode(trace) + b"\n")
        draft.replace(path)
    except OSError as error:
        raise UsageError(f"{path} cannot be written ({error.strerror}); choose another place.") from error
    finally:
        draft.unlink(missing_ok=True)
    return count


# ---------------------------------------------------------------- what must not be shown


class Redactor:
    """Takes secrets out of every text of a trace. An entry is a literal text, or a pattern between slashes."""

    def __init__(self, entries: Sequence[str] = ()) -> None:
        patterns = []
        for entry in entries:
            if len(entry) > 2 and entry.startswith("/") and entry.endswith("/"):
                patterns.append(entry[1:-1])
            elif entry.strip():
                patterns.append(re.escape(entry.strip()))
        try:
            self._pattern = re.compile("|".join(f"(?:{one})" for one in patterns)) if patterns else None
        except re.error as error:
            raise UsageError(f"A pattern of the redaction list is no regular expression ({error}); mend it.") from error

    @staticmethod
    def entries(path: Path) -> list[str]:
        """The entries of a file, one per line; lines that begin with # are remarks."""
        lines = [line.decode().strip() for _, line in read_lines(path)]
        entries = [line for line in lines if line and not line.startswith("#")]
        if not entries:
            raise UsageError(f"{path} lists nothing to redact; write one text or /pattern/ per line.")
        Redactor(entries)
        return entries

    def text(self, text: str) -> str:
        """The same text with every match replaced."""
        return text if self._pattern is None else self._pattern.sub(HIDDEN, text)

    def maybe(self, text: str | None) -> str | None:
        """The same for a text that may be missing."""
        return None if text is None else self.text(text)

    def trace(self, trace: Trace) -> Trace:
        """The same trace without the secrets, its id and its agent's name included."""
        if self._pattern is None:
            return trace
        steps = tuple(
            TraceStep(
                action=self.maybe(step.action),
                observation=self.text(step.observation),
                decision=step.decision and self._decision(step.decision),
                state=self.maybe(step.state),
                thought=self.maybe(step.thought),
            )
            for step in trace.steps
        )
        return msgspec.structs.replace(
            trace, id=self.text(trace.id), goal=self.text(trace.goal), agent=self.maybe(trace.agent), steps=steps
        )

    def _decision(self, decision: TraceDecision) -> TraceDecision:
        options = tuple(dict.fromkeys(map(self.text, decision.options)))
        return TraceDecision(self.text(decision.reference), options)


# ---------------------------------------------------------------- a world that cannot be branched

ENGINE = "log"
LEAST_WORDS = 4
"""Words of a line that nobody writes by chance."""


def _unplayable(what: str) -> GameError:
    return GameError(f"A log cannot be played, so {what}; audit it with `dssr audit`.")


class LogDomain:
    """The kind of world that logs are; implements `dssr.worlds.base.Domain` as far as logs go."""

    engine = ENGINE
    words = Words(
        task="values that actions need",
        fact="value",
        level="log",
        home="start",
        reveal_chunk=ChunkKind("start", "the start"),
        visit_chunk=ChunkKind("visit", "a step"),
        block_chunk=ChunkKind("block", "a block of steps"),
    )
    form_words: frozenset[str] = frozenset()

    def settled(self, games: GamesConfig) -> GamesConfig:
        """Nothing to check: logs have no options."""
        return games

    def plans(self, games: GamesConfig) -> tuple[GamePlan, ...]:
        """None: logs are brought, not made."""
        raise _unplayable("none can be made")

    def make(self, plan: GamePlan, folder: Path) -> Game:
        """None: logs are brought, not made."""
        raise _unplayable("none can be made")

    def files(self, path: Path) -> tuple[Path, ...]:
        """None of its own: a run keeps the traces that it audits."""
        return ()

    def open(self, game: Game, path: Path, kept: Path) -> World:
        """Only a `TraceArchive` knows where its traces are."""
        raise _unplayable(f"{game.id} cannot be opened as a game")

    def facts(self, steps: Sequence[Step], reveal: int) -> tuple[KeyFact, ...]:
        """None is told at one step for all: `dssr.traces.facts` finds a log's."""
        return ()

    def is_home(self, place: str) -> bool:
        """A log has no places."""
        return False


LOGS = LogDomain()


class TraceWorld:
    """One trace; implements `dssr.worlds.base.World` as far as a log goes."""

    can_walk = False

    def __init__(self, game: Game, trace: Trace) -> None:
        self.game = game
        self.trace = trace

    @property
    def goal(self) -> str:
        """What was asked for."""
        return self.trace.goal

    def start(self) -> Node:
        """The position before the first action."""
        return Node(0, (), _no_moment)

    def step(self, node: Node, action: str) -> Node:
        """The next position, if the log went there."""
        following = self.trace.steps[node.number + 1 : node.number + 2]
        if not following or following[0].action != action:
            raise _unplayable(f"{self.trace.id} has no step for {action[:40]!r} after step {node.number}")
        return Node(node.number + 1, (*node.actions, action), _no_moment)

    def secrets(self, nodes: Iterable[Node]) -> Iterable[Secret]:
        """The lines of all observations that neither the goal nor any action tells."""
        told = "\n".join((self.trace.goal, *self.trace.actions))
        lines = {line.strip() for step in self.trace.steps for line in step.observation.splitlines()}
        return [
            Secret("later observation", line, "line")
            for line in sorted(lines)
            if len(line.split()) >= LEAST_WORDS and line not in told
        ]

    def options(self, node: Node, step: int) -> Any:
        """Only what the log itself offered is known."""
        raise _unplayable("nothing is offered at any position")

    def walk(self, protocol: object, filler: int) -> Any:
        """A log has no script."""
        raise _unplayable("nothing walks in it")

    def oracle_lines(self, node: Node, long: bool) -> list[str]:
        """Nobody is all-knowing here."""
        raise _unplayable("it has no oracle-b")

    def faults(self, max_actions: int) -> tuple[str, ...]:
        """See `dssr.traces.trace.faults`."""
        return ()

    def close(self) -> None:
        """Nothing is held open."""


def _no_moment(number: int) -> Any:
    raise _unplayable(f"nothing but its text is known at step {number}")


class TraceArchive(Archive):
    """The traces of one audit, found by id in the run that keeps them; by digest before it does."""

    idle = 1

    def __init__(self, digests: Mapping[str, str], run: Path) -> None:
        games = (Game(name, "valid", 1, 0, name, digest, (), ENGINE) for name, digest in digests.items())
        super().__init__(run, Settings(GamesConfig(world=WORLD), ENGINE), tuple(games))

    @classmethod
    def open(cls, folder: str | Path, partial: bool = False) -> "TraceArchive":
        """The traces that a run was asked to audit."""
        return cls(Run.open(folder).info.arguments["traces"], Path(folder))

    def verify(self, game: Game) -> None:
        """Nothing: the digest of a trace is taken when it is read."""

    def world(self, game: Game | str) -> World:
        """The world of a trace."""
        game = self.game(game) if isinstance(game, str) else game
        return TraceWorld(game, trace_store(str(self.folder / "traces.jsonl")).load(game.id))
