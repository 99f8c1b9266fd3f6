"""Tables of training runs, from the rows such runs store."""

from pathlib import Path

import msgspec
import pytest

from dssr.config import Config
from dssr.measure.continuation import ReturnRow
from dssr.record.run import Run
from dssr.reports.study_tables import MAKERS
from dssr.reports.training_tables import MAKES
from dssr.reports.write import make_report
from dssr.stats.bootstrap import Interval
from dssr.training.reader.accuracy import ReaderAccuracy
from dssr.training.results import CoverageRow, CreditRow, PairRow, RoundResult


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
                        gains = (success - 0.05, -0.1, 0.4, -0.5, -0.8, -0.2)
                        row = RoundResult(writer, number, seed, 128, filler, 45, success, 1.0, *gains)
                        run.append("rounds", key, row)
        for filler in (0, 20):
            row = RoundResult("untrained", -1, 0, 128, filler, 45, 0.05, 1.5)
            run.append("rounds", f"untrained:{filler}", row)
        run.append("credit", "a", CreditRow("main, round 0", "all", 9, 0.2, 0.3, 0.1, 0.5, 0.1, 0.3, 0.2))
        run.append("pairs", "0", PairRow("dssr, round 0", 9, 0.5, 6, 0.1, 0.2, 0.4, 1.5, 0.25, 0.5))
        run.append("coverage", "0", CoverageRow("dssr, round 0", "1-2", 9, 0.75))
        run.append("returns", "a", ReturnRow("S12", 0.31, 0.2, 0.42, 180, 20))
        run.append("reader_accuracy", "a", ReaderAccuracy(2, 12000, "summary", 64, 90, 12, 0.5, 0.7, 0.6, 0.8))
        run.append("reader_curve", "a", ReaderAccuracy(2, 4000, "all", None, 600, 12, 0.4, 0.8, 0.75, 0.85))
        run.finish({})
    return path


def test_tables_of_training(trained: Path, tmp_path: Path) -> None:
    """Catches seeds mixed into one row, a wrong mean over fillers, and the wrong best round."""
    made = make_report([trained], tmp_path / "out", ["markdown", "csv", "latex"], against_paper=True)
    tables = {table.name: table for table in made.tables}
    assert made.absent == []
    rounds = {(row["writer"], row["round"]): row for row in tables["rounds-success"].plain()}
    assert set(rounds) == {("dssr", 0), ("dssr", 1), ("K=1", 0), ("K=1", 1), ("untrained", None)}
    assert rounds["dssr", 1]["mean"] == pytest.approx(0.2)
    best = {row["writer"]: row for row in tables["horizon"].plain()}
    assert set(best) == {"dssr", "K=1"}
    assert best["dssr"]["round"] == 1
    assert best["dssr"]["mean"] == pytest.approx(0.2)
    assert [row["seed"] for row in tables["seeds"].plain()] == [0, 1, "mean ± sd", None]
    assert tables["seeds"].plain()[2]["at_0"] == "32.5 ± 3.5"
    gains = {(row["quantity"], row["writer"], row["round"]): row for row in tables["rounds-gain"].plain()}
    assert gains["success, points", "dssr", 1]["at_0"] == pytest.approx(25.0)
    assert gains["success, points", "dssr", 1]["at_0_high"] == pytest.approx(40.0)
    assert gains["κ, nats", "K=1", 0]["at_20_low"] == -0.8
    assert tables["pair-gaps"].plain()[0]["actions"] == 0.25
    assert tables["coverage"].plain()[0]["since"] == "1-2"
    assert tables["score-return"].plain()[0]["rho_high"] == 0.42
    assert "paper-credit" in tables


def test_no_two_tables_share_a_name(trained: Path, whole_run: Path, tmp_path: Path) -> None:
    """Catches a table of training that overwrites the file of one of the grid, as both kinds of pairs once did."""
    made = make_report([whole_run, trained], tmp_path / "out", ["csv"], against_paper=True)
    names = [table.name for table in made.tables]
    assert {"pairs", "pair-gaps"} <= set(names)
    assert len(names) == len(set(names)) == len(made.files)
    assert not MAKERS.keys() & MAKES.keys()


def test_stored_changes_are_intervals(trained: Path) -> None:
    """Catches a bound of a stored round read into the wrong place; the untrained writer has no change, not a zero."""
    rounds = list(Run.open(trained).read("rounds", RoundResult))
    first, untrained = rounds[0], rounds[-1]
    assert first.gain_interval == Interval(0.2 - 0.05, -0.1, 0.4)
    assert first.kappa_interval == Interval(-0.5, -0.8, -0.2)
    assert untrained.gain_interval is untrained.kappa_interval is None


def test_shared_candidates_are_told_once(trained: Path, tmp_path: Path) -> None:
    """Catches the candidates that two variants share listed for each of them."""
    credit = CreditRow("main, round 0", "all", 9, 0.2, 0.3, 0.1, 0.5, 0.1, 0.3, 0.2)
    other = tmp_path / "other"
    with Run.start(other, command="train", config=Config(name="made"), models={}) as run:
        run.append("credit", "a", credit)
        run.append("credit", "b", msgspec.structs.replace(credit, candidates="A4, round 0"))
    tables = {table.name: table for table in make_report([trained, other], tmp_path / "out", ["csv"]).tables}
    assert [row["candidates"] for row in tables["credit"].plain()] == ["main, round 0", "A4, round 0"]


def test_the_reader_has_its_accuracy_with_interval(trained: Path, tmp_path: Path) -> None:
    """Catches rows of the curve mixed into those of the training, and an accuracy shown without its interval."""
    make_report([trained], tmp_path / "out", ["markdown"])
    text = (tmp_path / "out" / "report.md").read_text()
    assert "| 2 | 12000 | summary | 64 | 90 | 12 | 0.50 | 70.0 [60.0, 80.0] |" in text
    assert "| 2 | 4000 | all | – | 600 | 12 | 0.40 | 80.0 [75.0, 85.0] |" in text
    assert text.count("| top-1, % |") == 2


def test_rounds_at_different_fillers_are_not_ranked(trained: Path, tmp_path: Path) -> None:
    """Catches a best round chosen between means over different walks; the other tables still stand."""
    other = tmp_path / "other"
    with Run.start(other, command="train", config=Config(name="made"), models={}) as run:
        run.append("rounds", "0:40", RoundResult("A4", 0, 0, 128, 40, 45, 0.9, 1.0))
    made = make_report([trained, other], tmp_path / "out", ["csv"])
    reasons = {one.name: one.reason for one in made.absent}
    assert set(reasons) == {"horizon", "seeds"}
    assert "cannot be ranked" in reasons["horizon"]
    assert "rounds-success" in {table.name for table in made.tables}


def test_figures_of_training(trained: Path, tmp_path: Path) -> None:
    """Catches a training report without pictures, or one that differs from time to time."""
    files = {Path(file).name: Path(file) for file in make_report([trained], tmp_path / "out", ["figures"]).files}
    assert set(files) == {"rounds.svg", "rounds.png", "candidate-coverage.svg", "candidate-coverage.png"}
    text = files["rounds.svg"].read_text()
    assert all(name in text for name in ("untrained", "dssr", "K=1", "success, %"))
    again = make_report([trained], tmp_path / "again", ["figures"]).files
    assert [Path(file).read_bytes() for file in again] == [file.read_bytes() for file in files.values()]
