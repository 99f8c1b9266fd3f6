"""Phase A of real games, as text and as true facts."""

from dataclasses import dataclass

import pytest

from dssr.types import Fact, View
from dssr.worlds.cooking.archive import Archive
from dssr.worlds.cooking.protocol import PhaseStep, phase_a
from dssr.worlds.cooking.world import World

GAMES = ("train-6-000", "train-6-001", "valid-6-000", "valid-6-001", "valid-9-000", "valid-12-000")


@dataclass(frozen=True)
class Walk:
    """One game, explored and with its recipe read."""

    goal: str
    steps: tuple[PhaseStep, ...]
    recipe: str

    @property
    def views(self) -> list[View]:
        return [View(self.goal, step.command, step.observation) for step in self.steps]

    @property
    def history(self) -> str:
        shown = [f"> {step.command}\n{step.observation}" if step.command else step.observation for step in self.steps]
        return "\n\n".join(shown)

    @property
    def facts(self) -> tuple[Fact, ...]:
        return self.steps[-1].node.moment.privileged.facts


@pytest.fixture(scope="session")
def walks(archive: Archive) -> dict[str, Walk]:
    found = {}
    for name in GAMES:
        world = World.open(archive, archive.game(name))
        steps = tuple(phase_a(world, "post", 0))
        found[name] = Walk(world.goal, steps, steps[-1].node.moment.privileged.recipe)
        world.close()
    return found
