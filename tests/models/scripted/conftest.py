"""Phase A of real games, as text and as true facts."""

from dataclasses import dataclass

import pytest

from dssr.types import Fact, View
from dssr.worlds.archive import Archive
from dssr.worlds.base import WalkStep

GAMES = ("train-6-000", "train-6-001", "valid-6-000", "valid-6-001", "valid-9-000", "valid-12-000")


@dataclass(frozen=True)
class Walk:
    """One game, explored and with its recipe read."""

    goal: str
    steps: tuple[WalkStep, ...]
    recipe: str

    @property
    def views(self) -> list[View]:
        return [View(self.goal, step.action, step.observation) for step in self.steps]

    @property
    def history(self) -> str:
        shown = [f"> {step.action}\n{step.observation}" if step.action else step.observation for step in self.steps]
        return "\n\n".join(shown)

    @property
    def facts(self) -> tuple[Fact, ...]:
        return self.steps[-1].node.moment.privileged.facts


@pytest.fixture(scope="session")
def walks(archive: Archive) -> dict[str, Walk]:
    found = {}
    for name in GAMES:
        world = archive.world(name)
        steps = world.walk("post", 0)
        found[name] = Walk(world.goal, steps, steps[-1].node.moment.privileged.task)
        world.close()
    return found
