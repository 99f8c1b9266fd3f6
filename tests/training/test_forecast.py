"""What a line will take, against what it then took."""

import asyncio
from pathlib import Path

import msgspec
import pytest
from tests.sessions import open_agent

from dssr.config import AgentConfig, Config, GamesConfig, ModelConfig, ProtocolConfig, WriterConfig
from dssr.measure.candidates import Candidate
from dssr.measure.plan import Load, Walk
from dssr.models.load import load_model
from dssr.record.run import Run
from dssr.session import silent
from dssr.training.forecast import EpisodeSize, ahead, forecast, seeds_forecast
from dssr.training.line import Line
from dssr.training.variants import variant_of
from dssr.types import Step
from dssr.worlds.archive import Archive


@pytest.fixture
def line(archive: Archive, tmp_path: Path) -> Line:
    """A line on one-room games; the scripted model can collect, though not be trained."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "one").symlink_to(archive.folder / "one", target_is_directory=True)
    config = Config(
        name="tiny",
        data=str(tmp_path / "data"),
        games=GamesConfig(archive="one", levels=(1,), options={"recipe": 1, "take": 1}),
        protocol=ProtocolConfig(fillers=(0,), max_actions=8),
        writer_model=ModelConfig(backend="scripted", path="scripted", context_length=65536),
        agent=AgentConfig(budgets=(64,)),
        writer=WriterConfig(episodes_per_game=1, points=12, candidates=2, selection_budget=64),
    )
    return Line(config, "dssr", 0, tmp_path / "dssr-s0", silent)


def test_collection_takes_what_was_forecast(line: Line) -> None:
    """Catches a count of one kind of call only, a sample that is not scaled up to all games, or lost candidates."""
    with open_agent(line.config, line.archive, load_model(line.config.writer_model)) as agent:
        expected = {load.work: load for load in forecast(line, range(1), agent, (1000.0, 100.0)).loads}
    asyncio.run(line.data(0))
    run = Run.open(line.directory / "round-0")
    steps = list(run.read("steps", Step))
    calls = sum(step.write.tokens > 0 for step in steps) + sum(step.decision is not None for step in steps)
    assert expected["collection"].calls <= calls <= expected["collection"].most_calls
    assert expected["collection"].calls > 0.5 * calls, "a game in two would be missing"
    assert expected["candidates"].calls == len(list(run.read("candidates", Candidate))) == 24


def test_hours_follow_the_rates_and_what_is_done_is_not_counted(line: Line) -> None:
    """Catches hours that ignore training or writing, and a resumed line that is told the whole work again."""
    with open_agent(line.config, line.archive, load_model(line.config.writer_model)) as agent:
        slow, fast = (forecast(line, range(2), agent, rates) for rates in ((100.0, 100.0), (200.0, 200.0)))
        assert slow.hours == pytest.approx(2 * fast.hours)
        reading = sum(load.computed_in + load.tokens_out for load in slow.loads)
        trained = next(load.tokens_in for load in slow.loads if load.work == "training")
        assert slow.hours == pytest.approx((reading + 3 * trained) / 100 / 3600)
        (line.directory / "adapters" / "r0").mkdir(parents=True)
        rest = {load.work: load for load in forecast(line, range(2), agent, (100.0, 100.0)).loads}
        whole = {load.work: load for load in slow.loads}
        assert rest["scoring"].calls < whole["scoring"].calls
        assert rest["validation"] == whole["validation"]


def test_variants_are_counted_by_what_they_do(line: Line) -> None:
    """Catches collection counted for a variant that uses the main line's episodes, candidates for one that uses its
    candidates, points after the reveal counted as kept for certain, and seeds that are told the whole line's work.

    outcome: 4 points of 2 candidates, none sampled. a4 at twelve candidates: 144 at most, if every point is kept.
    Training again is one round's training and validation for each of two seeds.
    """
    writer = msgspec.structs.replace(line.config.writer, outcome_points=4)
    config = msgspec.structs.replace(line.config, writer=writer)

    def loads(variant: str, rounds: range) -> dict[str, Load]:
        other = Line(config, variant, 0, line.directory.parent / f"{variant}-s0", silent)
        return {load.work: load for load in forecast(other, rounds, agent, (100.0, 100.0)).loads}

    with open_agent(config, line.archive, load_model(config.writer_model)) as agent:
        assert set(loads("k1", range(1))) == {"training", "validation"}
        outcome = loads("outcome", range(1))
        assert set(outcome) == {"scoring", "training", "validation"}
        first, second = loads("a4", range(1, 2)), loads("a4", range(2, 3))
        assert set(first) == {"candidates", "scoring", "training", "validation"}
        assert set(second) == {"collection", "candidates", "scoring", "training", "validation"}
        assert first["candidates"].most_calls == 144
        assert 0 < first["candidates"].calls < 144
        assert 0 < first["training"].calls < first["training"].most_calls
        whole = loads("dssr", range(1, 2))
        again = {load.work: load for load in seeds_forecast(line, 1, range(1, 3), agent, (100.0, 100.0)).loads}
        assert set(again) == {"training", "validation"}
        assert again["training"].calls == 2 * whole["training"].calls
        # The line's own count holds the untrained writer's validation beside the round's: two, as of two seeds.
        assert again["validation"] == whole["validation"]


def test_scoring_looks_ahead_to_the_last_target() -> None:
    """Catches roll-forwards counted to the horizon or to the end instead of the last target. Worked by hand: decisions
    at steps 3, 4 and 5, of which K = 1 and 2 look at the first and the last within two steps. Step 0 has none within
    two steps, so it is no point of outcome either, which plays on to the end from the points of dssr."""
    walk = Walk(steps=4, shown=40, history=40, choice=10, frame=4, plan=3, visits=1)
    trip = EpisodeSize(walk, budget=8, actions=3)
    config = WriterConfig(horizon=2, targets=(1, 2))
    dssr, outcome = variant_of("dssr", config), variant_of("outcome", config)
    assert ahead(trip, dssr, (1, 2), 8) == [(1, 2, 1), (2, 2, 2), (3, 2, 2), (4, 1, 1)]
    assert ahead(trip, outcome, (1, 2), 8) == [
        (1, 4, 3), (2, 3, 3), (3, 2, 3), (4, 1, 2)
    ]  # fmt: skip


def test_samples_of_later_rewrites_are_counted() -> None:
    """Catches an enforced score that is forecast as a plain one: worked by hand on the episode above, two samples
    beside the greedy reply, each read at both decisions still ahead, or at one."""
    trip = EpisodeSize(Walk(steps=4, shown=40, history=40, choice=10, frame=4, plan=3, visits=2), budget=8, actions=3)
    config = WriterConfig(horizon=2, targets=(1, 2), chain_horizon=2)
    enforced, hindsight = variant_of("enforced", config), variant_of("hindsight", config)
    assert ahead(trip, enforced, (1, 2), 8, 2, 2) == [(1, 6, 6), (2, 6, 9), (3, 6, 9), (4, 3, 3)]
    assert ahead(trip, enforced, (1, 2), 8, 2, 1) == [(1, 6, 6), (2, 6, 6), (3, 6, 6), (4, 3, 3)]
    assert ahead(trip, enforced, (1, 2), 8, 0) == ahead(trip, variant_of("dssr", config), (1, 2), 8)
    assert ahead(trip, hindsight, (1, 2), 8) == [(1, 0, 3), (2, 0, 3), (3, 0, 3), (4, 0, 3)]
