"""Transcripts to learn from: training games walked by the protocol, then played by the optimal policy with mistakes.

A slip is one random option. A stray is a row of steps about something else than the recipe, as of one who remembers it
wrongly: another food taken, cooked and cut, or a walk. Where a mistake would lose the game, the policy's command is
played instead. Stored as JSON lines, so that collecting can go on while training reads.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import msgspec

from dssr.seeds import rng_of
from dssr.types import LABELS, Game, Record
from dssr.worlds.archive import Archive
from dssr.worlds.base import Node, World
from dssr.worlds.cooking.world import is_option
from dssr_nano.factory.hints import thing_of

SLIP = 0.12
"""Chance of a slip."""
STRAY, GO_ON, WALK = 0.15, 0.75, 0.3
"""Chances that a stray begins, that it goes on, and that it is a walk."""
STRAYED = 3
"""Number of the transcript of a game with strays; 0 has no mistakes, the others slips."""
LIMITS = {STRAYED: 30}
"""Most commands of Phase B where they are not 50."""

Mistakes = Callable[[Sequence[str]], str | None]
"""Given the options, the policy's first: what is played in its place, if anything."""


class TranscriptStep(Record, frozen=True):
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
    """One game as it was walked and played."""

    game: str
    goal: str
    filler: int
    foods: tuple[str, ...]
    steps: tuple[TranscriptStep, ...]
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


def oracle_of(world: World, node: Node) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The lines of `oracle-b`, long and short."""
    return tuple(world.oracle_lines(node, long=True)), tuple(world.oracle_lines(node, long=False))


def slips(rng: random.Random) -> Mistakes:
    """Mistakes that are single random options."""
    return lambda commands: rng.choice(commands) if rng.random() < SLIP else None


def strays(rng: random.Random) -> Mistakes:
    """Mistakes that keep to one topic for some steps."""
    topic = ""

    def mistake(commands: Sequence[str]) -> str | None:
        nonlocal topic
        if not (topic and rng.random() < GO_ON):
            begins = rng.random() < STRAY
            about = "go " if rng.random() < WALK else thing_of(rng.choice(commands))
            topic = about if begins else ""
        found = [command for command in commands if topic in command] if topic else []
        return rng.choice(found) if found else None

    return mistake


def mistakes_of(number: int, rng: random.Random) -> Mistakes:
    """The mistakes of a game's transcript of this number."""
    if number == 0:
        return lambda commands: None
    return strays(rng) if number == STRAYED else slips(rng)


def play(world: World, filler: int, mistake: Mistakes, limit: int = 50) -> Transcript:
    """One transcript of one game."""
    walk = world.walk("post", filler)
    steps = [TranscriptStep(step.action, step.observation, step.kind) for step in walk[:-1]]
    node, action, kind, played = walk[-1].node, walk[-1].action, walk[-1].kind, []
    for _ in range(limit):
        moment = node.moment
        if moment.won or not moment.privileged.policy:
            break
        commands = options_of(node)
        steps.append(
            TranscriptStep(action, moment.observation, kind, commands, moment.privileged.policy, oracle_of(world, node))
        )
        action, kind = commands[0], "act"
        tried = mistake(commands)
        if tried is not None:
            after = world.step(node, tried).moment
            if after.privileged.policy and not after.lost:
                action = tried
        played.append(action)
        node = world.step(node, action)
    return Transcript(world.game.id, world.goal, filler, foods_of(walk[0].node), tuple(steps), tuple(played))


def key_of(game: Game, filler: int, number: int) -> str:
    """The name under which a transcript is stored."""
    return f"{game.id}/{filler}/{number}"


def transcripts_of(archive: Archive, game: Game, wanted: Sequence[tuple[int, int]]) -> list[tuple[str, Transcript]]:
    """The transcripts of one game by key; `wanted` are (number, filler)."""
    world = archive.world(game)
    made = []
    for number, filler in wanted:
        rng = rng_of("nano transcript", game.id, filler, number)
        played = play(world, filler, mistakes_of(number, rng), LIMITS.get(number, 50))
        made.append((key_of(game, filler, number), played))
    world.close()
    return made


def collect(
    archive: Archive,
    games: Sequence[Game],
    file: Path,
    wanted: Sequence[tuple[int, int]],
    workers: int,
    done: Callable[[int, int], None] = lambda made, of: None,
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
            done(len(known) + made, len(wanted) * len(games))
    return made


def read(file: Path) -> Iterator[tuple[str, Transcript]]:
    """All complete lines; a last line still being written is left for later."""
    if not file.exists():
        return
    decoder = msgspec.json.Decoder(tuple[str, Transcript])
    *lines, _ = file.read_bytes().split(b"\n")
    for line in lines:
        yield decoder.decode(line)
