"""The suite of memories on every one built in, on a user's own class, and on the example memory."""

from collections.abc import Iterator

import pytest
from tests.agent.bench import FORMATS

from dssr.agent.memory import Kit
from dssr.testing import MemorySuite
from dssr.types import View
from dssr.worlds.archive import Archive, Worlds


class Newest:
    """A user's memory: the last observation."""

    def __init__(self, kit: Kit) -> None:
        self.kit = kit

    async def write(self, view: View, previous: str) -> str:
        return f"{view.last_action}: {view.observation}"


@pytest.fixture(scope="module")
def worlds(archive: Archive) -> Iterator[Worlds]:
    made = Worlds(archive)
    yield made
    made.close()


@pytest.fixture
def game() -> str:
    return "train-1-001"


@pytest.fixture(params=[*FORMATS, f"{__name__}:Newest", "own_memory:Newest"])
def memory(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


class TestMemories(MemorySuite):
    """Every memory, through the fixtures above."""
