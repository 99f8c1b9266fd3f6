"""Transcripts to learn from: training games walked by the protocol, then played by the optimal policy with slips.

A slip is a random option; where it would lose the game, the policy's command is played instead. Stored as
JSON lines, so that collecting can go on while training reads.
"""

import random
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import msgspec

from dssr.agent.oracle import oracle_lines
from dssr.games.archive import Archive
from dssr.games.options import is_option
from dssr.games.protocol import phase_a
from dssr.games.world import Node, World
from dssr.seeds import rng_of
from dssr.types import LABELS, Game, Record

SLIP = 0.12


class Seen(Record, frozen=True):
    """One step of a transcript."""

    action: str | None
    observation: str
    kind: str
    commands: tuple[str, ...] = ()
    """Options in Phase B; empty in Phase A."""
    plan: tuple[str, ...] = ()
    """Optimal commands from here, in Phase B."""
    oracle: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
    """Lines of `oracle-b`, long and short, in Phase B."""


class Transcript(Record, frozen=True):
    game: str
    goal: str
    filler: int
    foods: tuple[str, ...]
    steps: tuple[Seen, ...]
    played: tuple[str, ...]
    """Commands of Phase B."""


def foods_of(node: Node) -> tuple[str, ...]:
    """Names of everything edible or cookable, whatever its state."""
    facts = node.moment.privileged.facts
    marks = ("edible", "inedible", "cookable", "drinkable", "cuttable")
    return tuple(sorted({fact.args[0] for fact in facts if fact.name in marks} - {"meal"}))


def options_of(node: Node) -> tuple[str, ...]:
    """What the reader may be shown, unordered: each sample shuffles anew."""
    commands = [command for command in node.moment.admissible if is_option(command)]
    reference = node.moment.privileged.policy[:1]
    others = [command for command in commands if command not in reference]
    return (*reference, *others[: len(LABELS) - 1])


def oracle_of(node: Node) -> tuple[tuple[str, ...], tuple[str, ...]]:
    privileged = node.moment.privileged
    return tuple(oracle_lines(privileged, long=True)), tuple(oracle_lines(privileged, long=False))


def play(world: World, filler: int, slip: float, rng: random.Random, limit: int = 50) -> Transcript:
    """One transcript of one game."""
    walk = phase_a(world, "post", filler)
    steps = [Seen(step.command, step.observation, step.kind) for step in walk[:-1]]
    node, action, kind, played = walk[-1].node, walk[-1].command, walk[-1].kind, []
    for _ in range(limit):
        moment = node.moment
        if moment.won or not moment.privileged.policy:
            break
        commands = options_of(node)
        steps.append(Seen(action, moment.observation, kind, commands, moment.privileged.policy, oracle_of(node)))
        action, kind = commands[0], "act"
        if rng.random() < slip:
            tried = rng.choice(commands)
            after = world.step(node, tried).moment
            if after.privileged.policy and not after.lost:
                action = tried
        played.append(action)
        node = world.step(node, action)
    return Transcript(world.game.id, world.goal, filler, foods_of(walk[0].node), tuple(steps), tuple(played))


def key_of(game: Game, filler: int, number: int) -> str:
    return f"{game.id}/{filler}/{number}"


def transcripts_of(archive: Archive, game: Game, wanted: Sequence[tuple[int, int]]) -> list[tuple[str, Transcript]]:
    """The transcripts of one game by key; `wanted` are (number, filler), and number 0 has no slips."""
    world = World.open(archive, game)
    made = []
    for number, filler in wanted:
        rng = rng_of("nano transcript", game.id, filler, number)
        made.append((key_of(game, filler, number), play(world, filler, SLIP if number else 0.0, rng)))
    world.close()
    return made


def collect(
    archive: Archive, games: Sequence[Game], file: Path, wanted: Sequence[tuple[int, int]], workers: int
) -> int:
    """Appends the transcripts that are not yet in the file, a game at a time."""
    known = {key for key, _ in read(file)}
    missing = {game: [one for one in wanted if key_of(game, one[1], one[0]) not in known] for game in games}
    made = 0
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool, file.open("ab") as out:
        jobs = [pool.submit(transcripts_of, archive, game, left) for game, left in missing.items() if left]
        for job in jobs:
            lines = [msgspec.json.encode(one) + b"\n" for one in job.result()]
            out.write(b"".join(lines))
            out.flush()
            made += len(lines)
    return made


def read(file: Path) -> Iterator[tuple[str, Transcript]]:
    """All complete lines; a last line still being written is left for later."""
    if not file.exists():
        return
    decoder = msgspec.json.Decoder(tuple[str, Transcript])
    *lines, _ = file.read_bytes().split(b"\n")
    for line in lines:
        yield decoder.decode(line)
