"""Checks of one game: does Phase A show all that Phase B needs, and does the reference policy win?"""

import re
from pathlib import Path

from dssr.errors import GameError
from dssr.worlds.cooking.archive import Archive
from dssr.worlds.cooking.facts import ingredients, rooms, tools
from dssr.worlds.cooking.protocol import PhaseStep, phase_a
from dssr.worlds.cooking.world import Node, World


def unseen(steps: tuple[PhaseStep, ...]) -> tuple[str, ...]:
    """Ingredients, tools and rooms that the game needs and that Phase A did not show outside the cookbook."""
    privileged = steps[-1].node.moment.privileged
    text = "\n".join(step.observation for step in steps if step.kind != "reveal")
    needed = ingredients(privileged.recipe) + tools(privileged.recipe)
    reached = {step.node.moment.room for step in steps}
    hidden = [thing for thing in needed if not re.search(rf"\b{re.escape(thing)}\b", text)]
    return (*hidden, *[room for room in rooms(privileged.facts) if room not in reached])


def oracle(world: World, node: Node) -> tuple[Node, ...]:
    """The positions that the reference policy goes through from here, the first one included."""
    nodes = [node]
    while policy := nodes[-1].moment.privileged.policy:
        nodes.append(world.step(nodes[-1], policy[0]))
    return tuple(nodes)


def faults(world: World, max_actions: int) -> tuple[str, ...]:
    """What is wrong with a game, one sentence each; empty for a good one."""
    steps = phase_a(world, "post", 0)
    found = [f"Phase A never shows {thing}." for thing in unseen(steps)]
    nodes = oracle(world, steps[-1].node)
    if not nodes[-1].moment.won:
        found.append("The reference policy does not win.")
    if len(nodes) - 1 > max_actions:
        found.append(f"The reference policy needs {len(nodes) - 1} actions, more than {max_actions}.")
    return tuple(found)


def check_game(folder: Path, game_id: str, max_actions: int) -> tuple[str, ...]:
    """Faults of an archived game; one that cannot be opened or played is a fault too."""
    archive = Archive.open(folder)
    try:
        world = World.open(archive, archive.game(game_id))
    except GameError as error:
        return (str(error),)
    try:
        return faults(world, max_actions)
    except GameError as error:
        return (str(error),)
    finally:
        world.close()
