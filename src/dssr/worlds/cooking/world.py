"""The world as the rest of the system sees it: a tree of moments.

A step played before, by this process or any other, is looked up; an unseen one is played by TextWorld, in
its own process, and stored.

The choice put before the reader at one step.
"""

from collections.abc import Callable, Hashable
from pathlib import Path

from dssr.errors import GameError
from dssr.seeds import rng_of
from dssr.types import LABELS, Game, Moment, Options, Privileged
from dssr.worlds.cooking.archive import Archive, md5_of
from dssr.worlds.cooking.generate import require_textworld
from dssr.worlds.cooking.process import begin, play
from dssr.worlds.cooking.tree import FORMAT, StepTree


class Node:
    """A position in a game: the moment reached, and the commands that led to it."""

    __slots__ = ("_moment", "_world", "commands", "number")

    def __init__(self, world: "World", number: int, commands: tuple[str, ...]) -> None:
        self._world = world
        self._moment: Moment | None = None
        self.number = number
        self.commands = commands

    @property
    def moment(self) -> Moment:
        if self._moment is None:
            self._moment = self._world._moment(self.number)
        return self._moment


class World:
    """One game. Open with `World.open`; walk it with `start` and `step`; positions stay valid for ever."""

    def __init__(self, game: Game, path: Path, tree: StepTree) -> None:
        self.game = game
        self._path = path
        self._tree = tree
        if tree.constants is None:
            tree.begin(*begin(path))
        assert tree.constants is not None
        self._constants = tree.constants
        self._computed: dict[Hashable, object] = {}
        self._nodes: dict[int, Node] = {0: Node(self, 0, ())}

    @classmethod
    def open(cls, archive: Archive, game: Game) -> "World":
        """Checks the game's files and its TextWorld version, then opens its stored tree."""
        path = archive.path(game)
        if md5_of(path) != game.md5:
            raise GameError(f"The files of game {game.id} were altered since they were made: restore {path}.")
        require_textworld(game.textworld)
        return cls(game, path, StepTree(archive.folder / "trees" / f"{game.md5}.{FORMAT}.jsonl"))

    @property
    def goal(self) -> str:
        return self._constants.goal

    def start(self) -> Node:
        """The position before the first command."""
        return self._nodes[0]

    def step(self, node: Node, command: str) -> Node:
        """The position after one command, which must be admissible or the reference action."""
        number = self._tree.children[node.number].get(command)
        if number is None:
            self._check(node, command)
            answer = play(self._path, node.commands, command)
            number = self._tree.add(node.number, command, answer)
        known = self._nodes.get(number)
        if known is None:
            known = self._nodes[number] = Node(self, number, (*node.commands, command))
        return known

    def once(self, name: Hashable, compute: Callable[[], object]) -> object:
        """What was computed from this game under this name; computed now if it never was."""
        if name not in self._computed:
            self._computed[name] = compute()
        return self._computed[name]

    def close(self) -> None:
        """Closes the stored tree."""
        self._tree.close()

    def _check(self, node: Node, command: str) -> None:
        moment = node.moment
        if moment.won or moment.lost:
            raise GameError(f"The game is over: {command!r} cannot be played.")
        if command not in moment.admissible and command not in moment.privileged.policy[:1]:
            raise GameError(f"{command!r} is not admissible in the {moment.room}: choose one of the options.")

    def _moment(self, number: int) -> Moment:
        line, constants = self._tree.lines[number], self._constants
        facts = self._tree.facts(number)
        return Moment(
            observation=line.observation,
            room=next(fact.args[1] for fact in facts if fact.name == "at" and fact.args[0] == "P"),
            admissible=line.admissible,
            score=line.score,
            max_score=constants.max_score,
            won=line.won,
            lost=line.lost,
            privileged=Privileged(
                facts=facts,
                policy=line.policy,
                recipe=constants.recipe,
                walkthrough=constants.walkthrough,
                entities=constants.entities,
            ),
        )


HIDDEN = ("examine ", "close ", "put ", "insert ")
SHOWN = "examine cookbook"


def is_option(command: str) -> bool:
    """Whether an admissible command may be shown: the others only re-print or undo."""
    return command == SHOWN or not (command in ("look", "inventory") or command.startswith(HIDDEN))


def options_at(moment: Moment, game_id: str, step: int) -> Options:
    """The lettered commands, in an order that depends on game and step alone, and the reference among them."""
    if not moment.privileged.policy:
        raise GameError(f"Game {game_id} has no reference action at step {step}: it is over or cannot be won.")
    reference = moment.privileged.policy[0]
    commands = [command for command in moment.admissible if is_option(command)]
    appended = reference not in commands
    if appended:
        commands.append(reference)
    rng_of("options", game_id, step).shuffle(commands)
    others = [command for command in commands if command != reference][: len(LABELS) - 1]
    kept = {*others, reference}
    return Options(
        commands=tuple(command for command in commands if command in kept),
        reference=reference,
        appended=appended,
        dropped=len(commands) - len(kept),
    )
