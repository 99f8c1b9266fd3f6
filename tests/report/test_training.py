"""Tables of training runs, from the rows such runs store."""

from pathlib import Path

import pytest

from dssr.config import Config
from dssr.record.run import Run
from dssr.report.write import make_report
from dssr.types import CreditRow, ReturnRow, RoundResult


@pytest.fixture
def trained(tmp_path: Path) -> Path:
    """Two variants, two rounds, two fillers; two seeds of the first."""
    path = tmp_path / "trained"
    with Run.start(path, command="train", config=Config(name="made"), models={}) as run:
        for writer, seeds in (("dssr", (0, 1)), ("K=1", (0,))):
            for seed in seeds:
                for number in (0, 1):
                    for filler in (0, 20):
                        success = 0.1 * number + 0.05 * seed + (0.2 if filler == 0 else 0.0)
                        key = f"{writer}:{seed}:{number}:{filler}"
                        run.append("rounds", key, RoundResult(writer, number, seed, 128, filler, 45, success, 1.0))
        run.append("credit", "a", CreditRow("main, round 0", "all", 9, 0.2, 0.3, 0.1, 0.5, 0.1, 0.3, 0.2))
        run.append("returns", "a", ReturnRow("S12", 0.31, 0.2, 0.42, 180, 20))
        run.finish({})
    return path


def test_tables_of_training(trained: Path, tmp_path: Path) -> None:
    """Catches seeds mixed into one row, a wrong mean over fillers, and the wrong best round."""
    made = make_report([trained], tmp_path / "out", ["markdown", "csv", "latex"], against_paper=True)
    tables = {table.name: table for table in made.tables}
    assert made.absent == []
    rounds = {(row["writer"], row["round"]): row for row in tables["rounds-success"].rows}
    assert set(rounds) == {("dssr", 0), ("dssr", 1), ("K=1", 0), ("K=1", 1)}
    assert rounds["dssr", 1]["mean"] == pytest.approx(0.2)
    best = {row["writer"]: row for row in tables["horizon"].rows}
    assert best["dssr"]["round"] == 1
    assert best["dssr"]["mean"] == pytest.approx(0.25)
    assert [row["seed"] for row in tables["seeds"].rows] == [0, 1, "mean ± sd"]
    assert tables["seeds"].rows[-1]["at_0"] == "32.5 ± 3.5"
    assert tables["score-return"].rows[0]["rho_high"] == 0.42
    assert "paper-credit" in tables
