"""The stored tree of one game: every command sequence ever played, and what TextWorld answered.

One append-only file per game. A line is a checksum and a JSON record; a record names its parent by line
number, so the file is whole after every line. Processes that share a game take turns with a file lock and
read each other's lines before they add their own. A line cut short by a kill is dropped by the next writer.

One cooking game: a tree of moments.

A step played before, by this process or any other, is looked up; an unseen one is played by TextWorld, in
its own process, and stored.

"""

import fcntl
import os
import re
import zlib
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path

import msgspec

from dssr.errors import GameError
from dssr.types import Fact, Game, Moment, Options, Privileged, Protocol, Record
from dssr.worlds.base import Node, Secret, WalkStep, follow, lettered
from dssr.worlds.cooking.facts import OPENING, oracle_lines, player_room, rooms
from dssr.worlds.cooking.recipe import ingredients, telling_lines, tools
from dssr.worlds.cooking.textworld import begin, play
from dssr.worlds.cooking.walk import Explored, explore, phase_a
from dssr.worlds.cooking.words import COOKBOOK

FORMAT = 1
"""Part of the file's name: a later format starts a new file."""


class Constants(Record, frozen=True):
    """What is true of a game at every step; the first line of the file."""

    goal: str
    max_score: int
    recipe: str
    walkthrough: tuple[str, ...]
    entities: tuple[str, ...]


class StepResult(Record, frozen=True):
    """What TextWorld answered to one command; everything that changes from step to step."""

    observation: str
    admissible: tuple[str, ...]
    policy: tuple[str, ...]
    facts: tuple[Fact, ...]
    score: int
    won: bool
    lost: bool


class TreeLine(Record, frozen=True, array_like=True):
    """An answer as stored: facts as the difference from the parent's."""

    parent: int
    command: str
    observation: str
    admissible: tuple[str, ...]
    policy: tuple[str, ...]
    gone: tuple[Fact, ...]
    come: tuple[Fact, ...]
    score: int
    won: bool
    lost: bool


def fact_key(fact: Fact) -> tuple[str, tuple[str, ...]]:
    """The order of facts: TextWorld keeps them in sets, whose order changes from process to process."""
    return (fact.name, fact.args)


class StepTree:
    """The lines of one game's file, by number, and the way from a line to its children."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.constants: Constants | None = None
        self.lines: list[TreeLine] = []
        self.children: list[dict[str, int]] = []
        self._facts: dict[int, tuple[Fact, ...]] = {}
        self._shared: dict[Fact, Fact] = {}
        self._read_to = 0
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            self._handle = os.open(file, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        except OSError as error:
            raise GameError(
                f"{file} cannot be written ({error.strerror}): the archive needs a writable folder."
            ) from error
        self._catch_up()

    def close(self) -> None:
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1

    def begin(self, constants: Constants, answer: StepResult) -> None:
        """Stores the first two lines: the constants and the answer at the start of the game."""
        self._locked_append(None, [constants, self._line(-1, "", answer, ())])

    def add(self, parent: int, command: str, answer: StepResult) -> int:
        """Stores one answer, unless another process was first; returns its number."""
        self._locked_append((parent, command), [self._line(parent, command, answer, self.facts(parent))])
        return self.children[parent][command]

    def facts(self, number: int) -> tuple[Fact, ...]:
        """The facts at one line, rebuilt from the differences above it."""
        pending = []
        above = number
        while above >= 0 and above not in self._facts:
            pending.append(above)
            above = self.lines[above].parent
        for below in reversed(pending):
            line = self.lines[below]
            base = self._facts[line.parent] if line.parent >= 0 else ()
            if line.gone or line.come:
                gone = set(line.gone)
                kept = [fact for fact in base if fact not in gone]
                kept += [self._shared.setdefault(fact, fact) for fact in line.come]
                base = tuple(sorted(kept, key=fact_key))
            self._facts[below] = base
        return self._facts[number]

    def _line(self, parent: int, command: str, answer: StepResult, base: tuple[Fact, ...]) -> TreeLine:
        before, after = set(base), set(answer.facts)
        return TreeLine(
            parent=parent,
            command=command,
            observation=answer.observation,
            admissible=answer.admissible,
            policy=answer.policy,
            gone=tuple(fact for fact in base if fact not in after),
            come=tuple(fact for fact in answer.facts if fact not in before),
            score=answer.score,
            won=answer.won,
            lost=answer.lost,
        )

    def _locked_append(self, place: tuple[int, str] | None, records: list[Constants | TreeLine]) -> None:
        if self._handle < 0:
            raise GameError(f"{self.file} was closed: open the world again to play on.")
        fcntl.flock(self._handle, fcntl.LOCK_EX)
        try:
            self._catch_up()
            if os.fstat(self._handle).st_size > self._read_to:
                os.ftruncate(self._handle, self._read_to)
            known = self.constants is not None if place is None else place[1] in self.children[place[0]]
            if not known:
                self._write(b"".join(packed(record) for record in records))
                self._catch_up()
        finally:
            fcntl.flock(self._handle, fcntl.LOCK_UN)

    def _write(self, content: bytes) -> None:
        try:
            written = os.write(self._handle, content)
        except OSError as error:
            raise GameError(f"{self.file} cannot be written ({error.strerror}).") from error
        if written != len(content):
            raise GameError(f"{self.file} cannot be written: the disk is full.")

    def _catch_up(self) -> None:
        """Takes in whole lines added since the last look, by this process or another."""
        size = os.fstat(self._handle).st_size
        if size <= self._read_to:
            return
        content = os.pread(self._handle, size - self._read_to, self._read_to)
        whole = content[: content.rfind(b"\n") + 1]
        for line in whole.splitlines():
            self._take(line)
        self._read_to += len(whole)

    def _take(self, content: bytes) -> None:
        body = content[9:]
        if content[:9] != checksum(body):
            raise GameError(f"{self.file} is damaged: delete it and it will be built anew.")
        if self.constants is None:
            self.constants = msgspec.json.decode(body, type=Constants)
            return
        line = msgspec.json.decode(body, type=TreeLine)
        self.lines.append(line)
        self.children.append({})
        if line.parent >= 0:
            self.children[line.parent][line.command] = len(self.lines) - 1


def checksum(body: bytes) -> bytes:
    return b"%08x " % zlib.crc32(body)


def packed(record: Constants | TreeLine) -> bytes:
    body = msgspec.json.encode(record)
    return checksum(body) + body + b"\n"


HIDDEN = ("examine ", "close ", "put ", "insert ")


class CookingWorld:
    """One game. Walk it with `start` and `step`; positions stay valid for ever."""

    def __init__(self, game: Game, path: Path, trees: Path) -> None:
        self.game = game
        self._path = path
        self._tree = StepTree(trees / f"{game.md5}.{FORMAT}.jsonl")
        if self._tree.constants is None:
            self._tree.begin(*begin(path))
        assert self._tree.constants is not None
        self._constants = self._tree.constants
        self._walks: dict[tuple[Protocol, int], tuple[WalkStep, ...]] = {}
        self._nodes: dict[int, Node] = {0: Node(0, (), self._moment)}

    @property
    def goal(self) -> str:
        return self._constants.goal

    @property
    def can_walk(self) -> bool:
        return self.game.level > 1

    def start(self) -> Node:
        """The position before the first action."""
        return self._nodes[0]

    def step(self, node: Node, action: str) -> Node:
        """The position after one action, which must be admissible or the reference."""
        number = self._tree.children[node.number].get(action)
        if number is None:
            self._check(node, action)
            answer = play(self._path, node.actions, action)
            number = self._tree.add(node.number, action, answer)
        known = self._nodes.get(number)
        if known is None:
            known = self._nodes[number] = Node(number, (*node.actions, action), self._moment)
        return known

    def options(self, node: Node, step: int) -> Options:
        """The lettered choice at a position."""
        return options_at(node.moment, self.game.id, step)

    def walk(self, protocol: Protocol, filler: int) -> tuple[WalkStep, ...]:
        """Phase A; found once for each protocol and length."""
        if (protocol, filler) not in self._walks:
            self._walks[protocol, filler] = phase_a(self, self._explored, protocol, filler)
        return self._walks[protocol, filler]

    def oracle_lines(self, node: Node, long: bool) -> list[str]:
        """The lines of `oracle-b`."""
        return oracle_lines(node.moment.privileged, long)

    def secrets(self, nodes: Iterable[Node]) -> Iterator[Secret]:
        """The recipe's lines, the walkthrough and every plan, the facts, and the `oracle-b` lines."""
        visited = tuple(nodes)
        for node in visited:
            privileged = node.moment.privileged
            for line in (*oracle_lines(privileged, long=True), *oracle_lines(privileged, long=False)):
                yield Secret("oracle", line.removeprefix(OPENING), "line")
            for fact in privileged.facts:
                if fact.args:
                    yield Secret("fact", f"{fact.name}({','.join(fact.args)})", "code")
                if len(fact.args) > 1:
                    yield Secret("fact", f"{fact.name} {' '.join(fact.args)}", "code")
            yield Secret("plan", "\n".join(privileged.policy), "plan")
        if visited:
            yield Secret("plan", "\n".join(self._constants.walkthrough), "plan")
            for line in telling_lines(self._constants.recipe):
                yield Secret("recipe", line, "line")

    def faults(self, max_actions: int) -> tuple[str, ...]:
        """Whether Phase A shows all that Phase B needs, and the reference wins in time."""
        steps = self.walk("post", 0)
        found = [f"Phase A never shows {thing}." for thing in unseen(steps)]
        nodes = follow(self, steps[-1].node)
        if not nodes[-1].moment.won:
            found.append("The reference policy does not win.")
        if len(nodes) - 1 > max_actions:
            found.append(f"The reference policy needs {len(nodes) - 1} actions, more than {max_actions}.")
        return tuple(found)

    def close(self) -> None:
        """Closes the stored tree."""
        self._tree.close()

    @cached_property
    def _explored(self) -> Explored:
        return explore(self)

    def _check(self, node: Node, action: str) -> None:
        moment = node.moment
        if moment.won or moment.lost:
            raise GameError(f"The game is over: {action!r} cannot be played.")
        if action not in moment.admissible and action not in moment.privileged.policy[:1]:
            raise GameError(f"{action!r} is not admissible in the {moment.place}: choose one of the options.")

    def _moment(self, number: int) -> Moment:
        line, constants = self._tree.lines[number], self._constants
        facts = self._tree.facts(number)
        return Moment(
            observation=line.observation,
            place=player_room(facts),
            admissible=line.admissible,
            score=line.score,
            max_score=constants.max_score,
            won=line.won,
            lost=line.lost,
            privileged=Privileged(
                facts=facts,
                policy=line.policy,
                task=constants.recipe,
                walkthrough=constants.walkthrough,
                entities=constants.entities,
            ),
        )


def is_option(action: str) -> bool:
    """Whether an admissible action may be shown: the others only re-print or undo."""
    return action == COOKBOOK or not (action in ("look", "inventory") or action.startswith(HIDDEN))


def options_at(moment: Moment, game: str, step: int) -> Options:
    """What may be chosen at a moment, the reference among it."""
    if not moment.privileged.policy:
        raise GameError(f"Game {game} has no reference action at step {step}: it is over or cannot be won.")
    return lettered(filter(is_option, moment.admissible), moment.privileged.policy[0], game, step)


def unseen(steps: tuple[WalkStep, ...]) -> tuple[str, ...]:
    """Ingredients, tools and rooms that the game needs and that Phase A did not show outside the cookbook."""
    privileged = steps[-1].node.moment.privileged
    text = "\n".join(step.observation for step in steps if step.kind != "reveal")
    needed = ingredients(privileged.task) + tools(privileged.task)
    reached = {step.node.moment.place for step in steps}
    hidden = [thing for thing in needed if not re.search(rf"\b{re.escape(thing)}\b", text)]
    return (*hidden, *[room for room in rooms(privileged.facts) if room not in reached])
