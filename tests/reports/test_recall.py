"""What looking back buys, counted by hand."""

from pathlib import Path

import msgspec
import pytest
from tests.measure.made import Result, cells, make_run

from dssr.config import Config
from dssr.errors import StatsError
from dssr.measure.study import Study
from dssr.record.run import Run
from dssr.reports.recall import recall_rows, recall_table
from dssr.seeds import digest_of
from dssr.types import Cell, Chunk, Decision, Episode, Job, Options, Recalled, Step, Write

OPTIONS = Options(("go north", "go south"), "go north", False, 0)


def _step(index: int, nll: float, without: float | None, kind: str = "cookbook") -> Step:
    """A decision that chose right, after a chunk (`without` it the loss was that, and the choice wrong) or not."""
    seen = None
    if without is not None:
        seen = Recalled(Chunk(kind, 0, 1), "see it again", 100, 2, 3, without, "go south")
    decision = Decision(OPTIONS, (-nll, -9.0), "go north", "go north", nll, None, seen)
    return Step(index, "act", index, "kitchen", None, "Here.", Write("", 0, 0, False, None), decision)


def test_a_request_is_worth_the_loss_that_it_takes_away(tmp_path: Path) -> None:
    """Three requests in three games, worth 2, 1 and 0 nats: 1 each, 1 a game. Catches a mean over games in place of
    requests, decisions without a request that count, a sign, and a game without a request left out of the rate."""
    cell = Cell("summary+recall", 80, 0, "post")
    games = {
        "valid-6-000": [_step(0, 1.0, 3.0), _step(1, 1.0, 2.0, "visit"), _step(2, 7.0, None)],
        "valid-6-001": [_step(0, 1.0, 1.0)],
        "valid-6-002": [_step(0, 5.0, None)],
    }
    with Run.start(tmp_path / "run", command="diagnose", config=Config(name="made"), models={}) as run:
        for game, steps in games.items():
            job = Job(game, cell, 0, 0.0, 0.0, "reader")
            key = digest_of(msgspec.to_builtins(job))
            run.extend("steps", [(f"{key}:{step.index:04d}", step) for step in steps])
            run.append("episodes", key, Episode(key, job, "valid", 6, "won", 11, 11, len(steps), 0, 0, 0, None))
        run.finish({})
    study = Study.load([tmp_path / "run"])
    (row,) = recall_rows(study)
    assert row.bought is not None
    assert row.requests is not None
    assert row.right is not None
    assert (row.bought.estimate, row.requests.estimate, row.right.estimate) == (1.0, 1.0, 1.0)
    assert (row.bought.low, row.bought.high) == (0.0, 1.5)
    assert (row.changed, row.tokens, row.tried) == (1.0, 100.0, 2.0)
    assert row.reveal == pytest.approx(2 / 3)
    frame = study.frame("steps")
    assert frame["recalled"].drop_nulls().len() == 3
    assert recall_table(study).rows == (row,)


def test_a_study_without_recall_has_no_such_table(tmp_path: Path) -> None:
    """Catches rows of zeros for readers that could not look back."""
    (cell,) = cells("summary", [0])
    run = make_run(tmp_path / "run", Config(name="made"), {cell: {"valid-6-000": Result(True)}})
    with pytest.raises(StatsError, match="may look back"):
        recall_table(Study.load([run.path]))
