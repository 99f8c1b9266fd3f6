"""The memoised world against TextWorld itself."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import textworld

from dssr.seeds import rng_of
from dssr.worlds.archive import Archive
from dssr.worlds.base import Node, World
from dssr.worlds.cooking.textworld import infos

pytestmark = pytest.mark.filterwarnings("ignore::jericho.UnsupportedGameWarning")

LINES = 4
"""Lines of play per game; they share beginnings, so that the world has to go back and branch."""
LENGTH = 16
RISKY = ("cook ", "slice ", "chop ", "dice ", "eat ", "drop ", "prepare ")


def choose(node: Node, rng: random.Random) -> str:
    """Half sensible, half harmful: burning and wrong cuts need several right steps before them."""
    moment = node.moment
    risky = [command for command in moment.admissible if command.startswith(RISKY)]
    draw = rng.random()
    if draw < 0.45 and moment.privileged.policy:
        return moment.privileged.policy[0]
    if draw < 0.8 and risky:
        return rng.choice(risky)
    return rng.choice(moment.admissible)


def play_lines(world: World, rng: random.Random) -> list[Node]:
    """Several lines, one step of each in turn; a new line begins where an older one has just been."""
    lines = [world.start()]
    for _ in range(LENGTH):
        for place, node in enumerate(lines):
            if not (node.moment.won or node.moment.lost):
                lines[place] = world.step(node, choose(node, rng))
        if len(lines) < LINES:
            lines.append(rng.choice(lines))
    return lines


@contextmanager
def raw_game(path: Path) -> Iterator[Any]:
    env = textworld.start(str(path), infos())
    try:
        yield env
    finally:
        env.close()


def compare(node: Node, state: Any) -> None:
    """Everything but the layout of the text is compared with TextWorld's own values, unconverted."""
    moment = node.moment
    assert list(moment.admissible) == state["admissible_commands"]
    assert list(moment.privileged.policy) == state["policy_commands"]
    assert (moment.score, moment.won, moment.lost) == (state["score"], state["won"], state["lost"])
    assert moment.max_score == state["max_score"]
    true = {(fact.name, tuple(one.name for one in fact.arguments)) for fact in state["facts"]}
    assert {(fact.name, fact.args) for fact in moment.privileged.facts} == true
    assert len(moment.privileged.facts) == len(true)
    text, _, inventory = moment.observation.rpartition("\n\n")
    assert inventory == state["inventory"]
    before, found, after = state["feedback"].partition(text)
    assert found, "the observation is not a part of what TextWorld printed"
    assert not before.strip() or "$$$$" in before, "more than the banner is missing"
    assert after.strip() == "" or after.strip().startswith(">"), "more than prompt and status line is missing"


def test_world_equals_textworld(fresh_archive: Archive) -> None:
    """Catches any difference from TextWorld in text, options, policy, score, end or facts.

    Each line of play is replayed command by command in a TextWorld of its own; the lines branch and take
    turns in our world, so a position restored wrongly shows as a difference on the following step.
    """
    fresh_archive.unseal()
    seen: set[str] = set()
    compared = 0
    for game in fresh_archive.games():
        world = fresh_archive.world(game)
        lines = play_lines(world, rng_of("replay", game.id))
        with raw_game(fresh_archive.path(game)) as env:
            for line in lines:
                node, state = world.start(), env.reset()
                compare(node, state)
                for command in line.actions:
                    node = world.step(node, command)
                    state, _, _ = env.step(command)
                    compare(node, state)
                    compared += 1
                seen |= endings(line)
        world.close()
    assert len(fresh_archive.games()) >= 20
    assert compared > 500
    assert seen >= {"won", "lost", "burned", "wrong cut", "unwinnable"}


def endings(line: Node) -> set[str]:
    """Which of the rare things happened on a line; the test is worth little if they never do."""
    moment = line.moment
    found = {"won"} if moment.won else {"lost"} if moment.lost else set()
    if any(fact.name == "burned" for fact in moment.privileged.facts):
        found.add("burned")
    if not moment.privileged.policy and not moment.won:
        found.add("unwinnable")
    cut = {"slice": "sliced", "chop": "chopped", "dice": "diced"}
    for command in line.actions:
        verb, _, rest = command.partition(" ")
        food = rest.partition(" with ")[0]
        if (
            verb in cut
            and f"the {food}" in moment.privileged.task
            and f"{verb} the {food}" not in moment.privileged.task
        ):
            found.add("wrong cut")
    return found
