"""What every memory must do, built in or a user's own: one suite for all."""

from collections.abc import Iterator

import msgspec
import pytest
from tests.agent.bench import FORMATS, make_agent, make_job, play_all

from dssr.agent.episode import Played
from dssr.agent.memory import FULL, Kit
from dssr.agent.store import save, stored
from dssr.config import Config
from dssr.record.run import Run
from dssr.types import Episode, View
from dssr.worlds.archive import Archive, Worlds


class Newest:
    """A user's memory: the last observation."""

    def __init__(self, kit: Kit) -> None:
        self.kit = kit

    async def write(self, view: View, previous: str) -> str:
        return f"{view.last_action}: {view.observation}"


MEMORIES = (*FORMATS, f"{__name__}:Newest")
BUDGETS = (7, 64)


@pytest.fixture(scope="module")
def worlds(archive: Archive) -> Iterator[Worlds]:
    made = Worlds(archive)
    yield made
    made.close()


def played_with(worlds: Worlds, memory: str) -> list[Played]:
    jobs = [
        make_job("train-1-001", memory, budget=budget, temperature=0.5)
        for budget in BUDGETS[: 1 if memory == FULL else 2]
    ]
    return play_all(jobs, make_agent(worlds))


@pytest.mark.parametrize("memory", MEMORIES)
def test_states_keep_their_budget(worlds: Worlds, memory: str) -> None:
    """Catches a memory whose states escape the budget, even one far too small for it."""
    for played in played_with(worlds, memory):
        assert played.episode.error is None
        assert played.steps
        budget = played.episode.job.cell.budget
        assert all(budget is None or step.write.tokens <= budget for step in played.steps)


@pytest.mark.parametrize("memory", MEMORIES)
def test_equal_jobs_give_equal_records(worlds: Worlds, memory: str) -> None:
    """Catches a memory with a hidden source of chance or a life beyond its text."""
    assert played_with(worlds, memory) == played_with(worlds, memory)


@pytest.mark.parametrize("memory", MEMORIES)
def test_records_come_back_from_disk_unchanged(
    worlds: Worlds, memory: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Catches text that JSON lines change or cannot hold."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    runs = played_with(worlds, memory)
    with Run.start(folder, command="test", config=Config(name="test"), models={}) as run:
        for played in runs:
            save(run, played)
            save(run, played)
    assert list(stored(Run.open(folder))) == runs
    assert msgspec.json.decode(msgspec.json.encode(runs[0].episode), type=Episode) == runs[0].episode
