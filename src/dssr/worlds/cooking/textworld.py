"""TextWorld in a process of its own: `begin` a game, `play` a command.

The process is started when first needed, shared by all games, and replaced when it dies or grows too large. Losing it
costs time only: positions are replayed from the commands that led to them. It keeps a crash or a leak of TextWorld
away from us, and runs under a fixed hash seed, so that no answer depends on the order of a set.

This is the only file that imports TextWorld to play (`generate.py` runs its game maker).
"""

import atexit
import os
import resource
import struct
import subprocess
import sys
import threading
from collections import OrderedDict
from pathlib import Path
from typing import IO, Any, NamedTuple, TypeVar

import msgspec

from dssr.errors import GameError
from dssr.types import Fact, Record
from dssr.worlds.cooking.recipe import clean, with_inventory
from dssr.worlds.cooking.tree import Constants, StepResult, fact_key

# ---------------------------------------------------------------- messages

LENGTH = struct.Struct("<I")
"""What stands before each message: the number of its bytes."""
T = TypeVar("T")


class PlayRequest(Record, frozen=True):
    """Play one command after others; without a command, begin the game."""

    path: str
    commands: tuple[str, ...]
    """Those played before, from the start."""
    command: str | None


class PlayReply(Record, frozen=True):
    """The answer, or one sentence on why there is none."""

    constants: Constants | None
    """Only when a game begins."""
    answer: StepResult | None
    error: str | None
    memory: int
    """Megabytes the process uses."""


def send(pipe: IO[bytes], message: PlayRequest | PlayReply) -> None:
    """One message, its length before it."""
    body = msgspec.msgpack.encode(message)
    pipe.write(LENGTH.pack(len(body)) + body)
    pipe.flush()


def receive(pipe: IO[bytes], kind: type[T]) -> T | None:
    """The next message, or None when the other side is gone."""
    head = pipe.read(LENGTH.size)
    if len(head) < LENGTH.size:
        return None
    (length,) = LENGTH.unpack(head)
    body = pipe.read(length)
    return msgspec.msgpack.decode(body, type=kind) if len(body) == length else None


# ---------------------------------------------------------------- our side

MEMORY = 1500
"""Megabytes at which the process is replaced: TextWorld is reported to leak, and here it cannot hurt."""
MAIN = "from dssr.worlds.cooking.textworld import serve; serve()"


def begin(path: Path) -> tuple[Constants, StepResult]:
    """A game's constants and the answer before any command."""
    reply = _child.ask(PlayRequest(path=str(path.resolve()), commands=(), command=None))
    assert reply.constants is not None
    assert reply.answer is not None
    return reply.constants, reply.answer


def play(path: Path, commands: tuple[str, ...], command: str) -> StepResult:
    """The answer to a command after others that were played before."""
    reply = _child.ask(PlayRequest(path=str(path.resolve()), commands=commands, command=command))
    assert reply.answer is not None
    return reply.answer


class Child:
    """The process, if one is running, and the lock that makes callers take turns."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0
        self._lock = threading.Lock()

    def ask(self, request: PlayRequest) -> PlayReply:
        """One request. A process that dies on it is replaced and asked once more."""
        with self._lock:
            reply = self._try(request) or self._try(request)
            if reply is None:
                raise GameError(f"TextWorld crashed twice on {request.path} at {request.command!r}.")
            if reply.memory > MEMORY:
                self._stop()
        if reply.error is not None:
            raise GameError(reply.error)
        return reply

    def stop(self) -> None:
        """End the process, if one is running; the next request starts another."""
        with self._lock:
            self._stop()

    def _try(self, request: PlayRequest) -> PlayReply | None:
        process = self._running()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            send(process.stdin, request)
            reply = receive(process.stdout, PlayReply)
        except OSError:
            reply = None
        if reply is None:
            self._stop()
        return reply

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._owner != os.getpid():
            # A session of its own, so that an interrupt from the keyboard reaches us and not the child.
            self._process = subprocess.Popen(
                [sys.executable, "-c", MAIN],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={**os.environ, "PYTHONHASHSEED": "0"},
                start_new_session=True,
            )
            self._owner = os.getpid()
        return self._process

    def _stop(self) -> None:
        process, self._process = self._process, None
        if process is not None and self._owner == os.getpid():
            process.kill()
            process.communicate()


_child = Child()
atexit.register(_child.stop)


# ---------------------------------------------------------------- the child process

SESSIONS = 256
"""Games kept running at once, about 3 MB each."""
POSITIONS = 256
"""Positions of one game kept ready to play on from, about 0.15 MB each."""


class Snapshot(NamedTuple):
    """All that TextWorld knows at one position of a game."""

    machine: Any
    """Memory, stack and counters of the Z-machine."""
    progress: Any
    """TextWorld's model of the world and of the quests."""
    policy: Any
    """TextWorld's winning plan from here."""
    printed: dict[str, Any]
    """Inventory, score and moves as last printed; TextWorld carries them over steps that print none."""
    branch: bool
    """Played on from more than once."""


class RunningGame:
    """A running TextWorld game that can stand at any position already reached.

    The latest position of each line of play is kept as it is, without a copy; a position that play branched
    from is copied, for it will be branched from again. What is not kept is replayed from the nearest kept
    position above it.
    """

    def __init__(self, path: Path) -> None:
        import textworld

        self._path = path
        self._env: Any = textworld.start(str(path), infos())
        if not isinstance(self._env, textworld.envs.TWInform7):
            raise GameError(f"{path} has no TextWorld data beside it: restore the archive.")
        self._first = self._env.reset()
        self._tracking = self._env._wrapped_env
        self._inform = self._tracking._wrapped_env
        self._machine = self._env.unwrapped._jericho
        self._kept: OrderedDict[tuple[str, ...], Snapshot] = OrderedDict()
        self._here: tuple[str, ...] = ()
        self._start = self._position(branch=True)

    def begin(self) -> tuple[Constants, StepResult]:
        """The game's constants and the answer before any command."""
        state = self._first
        if not state["policy_commands"] or "extra.recipe" not in state:
            raise GameError(f"{self._path} is not a cooking game with an optimal policy: make it with tw-cooking.")
        constants = Constants(
            goal=state["objective"].strip(),
            max_score=state["max_score"],
            recipe=state["extra.recipe"].strip(),
            walkthrough=tuple(state["extra.walkthrough"]),
            entities=tuple(state["entities"]),
        )
        return constants, answer_of(state)

    def play(self, path: tuple[str, ...], command: str) -> StepResult:
        """The answer to `command` after the commands of `path`, all of which were played before."""
        if self._here != path:
            self._keep(self._here, self._position(branch=False))
            replayed = self._go_to(path)
            if replayed:
                self._keep(path, self._position(branch=True))
        return answer_of(self._send(command))

    def close(self) -> None:
        """End the game."""
        self._env.close()

    def _send(self, command: str) -> Any:
        state, _, _ = self._env.step(command)
        self._here = (*self._here, command)
        return state

    def _go_to(self, path: tuple[str, ...]) -> bool:
        """Stands at `path`; says whether commands had to be replayed for it."""
        depth = next((depth for depth in range(len(path), 0, -1) if path[:depth] in self._kept), 0)
        self._restore(self._kept.pop(path[:depth]) if depth else self._start, path[:depth])
        for command in path[depth:]:
            self._send(command)
        return depth < len(path)

    def _position(self, branch: bool) -> Snapshot:
        progress = self._tracking._game_progression
        return Snapshot(
            machine=self._machine.get_state(),
            progress=progress.copy() if branch else progress,
            policy=self._tracking._current_winning_policy,
            printed={name: self._inform.state[name] for name in ("inventory", "score", "moves")},
            branch=branch,
        )

    def _keep(self, path: tuple[str, ...], position: Snapshot) -> None:
        self._kept[path] = position
        if len(self._kept) > POSITIONS:
            self._kept.popitem(last=False)

    def _restore(self, position: Snapshot, path: tuple[str, ...]) -> None:
        import textworld

        if position.branch and path:
            self._keep(path, position)
        self._machine.set_state(position.machine)
        self._tracking._game_progression = position.progress.copy() if position.branch else position.progress
        self._tracking._current_winning_policy = position.policy
        self._inform.state = textworld.GameState(position.printed)
        self._here = path


def answer_of(state: Any) -> StepResult:
    """TextWorld's state in our types. Its own answers None to any misspelt name, so index it, never dot it."""
    facts = [Fact(name=fact.name, args=tuple(argument.name for argument in fact.arguments)) for fact in state["facts"]]
    return StepResult(
        observation=with_inventory(clean(state["feedback"], state["objective"].strip()), state["inventory"]),
        admissible=tuple(state["admissible_commands"]),
        policy=tuple(state["policy_commands"]),
        facts=tuple(sorted(facts, key=fact_key)),
        score=state["score"],
        won=state["won"],
        lost=state["lost"],
    )


def infos() -> Any:
    """What we ask TextWorld for."""
    import textworld

    return textworld.EnvInfos(
        feedback=True,
        inventory=True,
        admissible_commands=True,
        policy_commands=True,
        facts=True,
        entities=True,
        objective=True,
        score=True,
        max_score=True,
        won=True,
        lost=True,
        extras=["recipe", "walkthrough"],
    )


def serve() -> None:
    """Answers requests until the parent closes the pipe. What TextWorld prints goes to standard error."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    sessions: OrderedDict[str, RunningGame] = OrderedDict()
    while (ask := receive(sys.stdin.buffer, PlayRequest)) is not None:
        send(answers, respond(ask, sessions))
    os._exit(0)  # the Z-machine's own clean-up at interpreter exit can crash


def respond(ask: PlayRequest, sessions: OrderedDict[str, RunningGame]) -> PlayReply:
    """Play one request, on a game already running where there is one."""
    constants = answer = error = None
    try:
        session = sessions.pop(ask.path, None) or RunningGame(Path(ask.path))
        if ask.command is None:
            constants, answer = session.begin()
        else:
            answer = session.play(ask.commands, ask.command)
        sessions[ask.path] = session
        if len(sessions) > SESSIONS:
            sessions.popitem(last=False)[1].close()
    except GameError as trouble:
        error = str(trouble)
    except Exception as trouble:  # anything TextWorld raises becomes one sentence; the session is not used again
        error = f"TextWorld failed on {ask.path} at {ask.command!r}: {type(trouble).__name__}: {trouble}"
    return PlayReply(constants=constants, answer=answer, error=error, memory=megabytes())


def megabytes() -> int:
    """Memory in use now.

    The peak that the system reports for a process begins with that of the process it was started from: a child of a
    large one would look too large from its first answer on.
    """
    statm = Path("/proc/self/statm")
    if statm.exists():
        return int(statm.read_text().split()[1]) * resource.getpagesize() // 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 2**10
