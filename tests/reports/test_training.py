"""Tables of training runs, from the rows such runs store."""

import re
from pathlib import Path
from statistics import mean

import msgspec
import pytest
from tests.reports.synthetic import make_run

from dssr.config import Config
from dssr.measure.continuation import ReturnRow
from dssr.record.run import Run
from dssr.reports.study_tables import MAKERS
from dssr.reports.tables import cell_text
from dssr.reports.training_tables import MAKES, RoundRow
from dssr.reports.write import make_report
from dssr.stats.bootstrap import Interval
from dssr.training.reader_points import ReaderAccuracy
from dssr.training.results import CoverageRow, CreditRow, PairRow, RoundResult
from dssr.types import Audit, Episode


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
                        kappa = round(1.0 + 0.1 * number + 0.3 * seed, 3)
                        row = RoundResult(writer, number, seed, 128, filler, 45, success, kappa, *gains)
                        run.append("rounds", key, row)
        for filler in (0, 20):
            row = RoundResult("untrained", -1, 0, 128, filler, 45, 0.05, 1.5)
            run.append("rounds", f"untrained:{filler}", row)
        run.append("credit", "a", CreditRow("main, round 0", "all", 9, 0.2, 0.3, 0.1, 0.5, 0.1, 0.3, 0.2))
        run.append("pairs", "0", PairRow("dssr, round 0", 9, 0.5, 6, 0.1, 0.2, 0.4, 1.5, 0.25, 0.5))
        run.append("credit", "b", CreditRow("main, round 0", "F'=20", 5, 0.2, 0.3, 0.1, 0.5, 0.1, 0.3, 0.2))
        run.append("coverage", "0", CoverageRow("dssr, round 0", "1-2", 9, 0.75, 0.8, 0.7))
        run.append("returns", "a", ReturnRow("S12", 0.31, 0.2, 0.42, 180, 20))
        run.append("returns", "b", ReturnRow("W12", 0.05, -0.1, 0.2, 180, 20, 0, "S12"))
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
    best = {(row["quantity"], row["writer"]): row for row in tables["horizon"].plain()}
    assert set(best) == {(quantity, writer) for quantity in ("success, %", "κ, nats") for writer in ("dssr", "K=1")}
    assert best["success, %", "dssr"]["round"] == 1
    assert best["success, %", "dssr"]["mean"] == pytest.approx(20.0)
    assert best["κ, nats", "dssr"]["at_20"] == pytest.approx(1.1)
    seeds = tables["seeds"].plain()
    assert [row["seed"] for row in seeds] == [0, 1, "mean ± sd", None] * 2
    # Success 30 and 35 %: mean 32.5, sd 5 / √2 = 3.54. κ 1.1 and 1.4: mean 1.25, sd 0.3 / √2 = 0.21.
    assert seeds[2]["at_0"] == "32.5 ± 3.5"
    assert (seeds[4]["quantity"], seeds[4]["at_0"], seeds[5]["at_0"]) == ("κ, nats", 1.1, 1.4)
    assert seeds[6]["at_0"] == "1.25 ± 0.21"
    gains = {(row["quantity"], row["writer"], row["round"]): row for row in tables["rounds-gain"].plain()}
    assert gains["success, points", "dssr", 1]["at_0"] == pytest.approx(25.0)
    assert gains["success, points", "dssr", 1]["at_0_high"] == pytest.approx(40.0)
    assert gains["κ, nats", "K=1", 0]["at_20_low"] == -0.8
    rows = [row for row in tables["rounds-gain"].rows if isinstance(row, RoundRow)]
    shown = {(row.quantity, row.writer, row.round): row for row in rows}
    at_0 = next(column for column in tables["rounds-gain"].columns if column.key == "at_0")
    assert cell_text(shown["success, points", "dssr", 1], at_0).startswith("25.0 [")  # one decimal, as success has
    assert re.fullmatch(r"-?\d\.\d\d \[.*\]", cell_text(shown["κ, nats", "dssr", 1], at_0))
    assert tables["pair-gaps"].plain()[0]["actions"] == 0.25
    assert tables["coverage"].plain()[0]["since"] == "1-2"
    assert tables["score-return"].plain()[0]["rho_high"] == 0.42
    assert not any(name.startswith("paper-") for name in tables)  # this reader was never published


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
    found = [row["candidates"] for row in tables["credit"].plain() if row["group"] == "all"]
    assert found == ["main, round 0", "A4, round 0"]


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
    drawn = ("rounds", "candidate-coverage", "credit", "horizon", "score-return")
    assert set(files) == {f"{name}.{ending}" for name in drawn for ending in ("svg", "png")}
    parts = files["candidate-coverage.svg"].read_text()
    assert all(f"dssr, round 0, {part}" in parts for part in ("all", "best", "worst"))
    text = files["rounds.svg"].read_text()
    assert all(name in text for name in ("untrained", "dssr", "K=1", "success, %"))
    again = make_report([trained], tmp_path / "again", ["figures"]).files
    assert [Path(file).read_bytes() for file in again] == [file.read_bytes() for file in files.values()]


# ---------------------------------------------------------------- the list of labels

LISTED = Path(__file__).parents[2] / "docs" / "report.md"
FORMATS = ("full", "oracle-b", "summary", "belief", "slots", "guide", "dssr@a4/s0", "dssr@a4/s1", "dssr@a4/s2")


def test_every_label_of_the_list_is_made(trained: Path, tmp_path: Path) -> None:
    """Catches a table or figure of the method that the page names and no report makes, or that two reports make under
    one name: all files of the list come from stored runs, of two readers, two places of the walk, and a training."""
    valid = make_run(tmp_path / "valid", games=3, memories=FORMATS, budgets=(128,), fillers=(0, 20, 40), lags=True)
    pilot = [
        make_run(tmp_path / kind, 3, ("summary",), (128,), (0, 40), protocol=kind)
        for kind in ("pre", "brief", "post-brief")
    ]
    second = make_run(tmp_path / "second", 3, FORMATS, (128,), (0, 20, 40), reader="microsoft/Phi-4-mini-instruct")
    made = make_report([valid, *pilot, second, trained], tmp_path / "out")
    section = LISTED.read_text().split("## Each label of the method")[1].split("\n## ")[0]
    listed = re.findall(r"`((?:tables|figures)/[\w-]+\.(?:csv|svg))`", section)
    files = {str(Path(file).relative_to(tmp_path / "out")) for file in made.files}
    assert len(listed) > 25
    assert [name for name in listed if name not in files] == []
    names = [table.name for table in made.tables]
    assert len(names) == len(set(names))


def test_the_pilot_has_its_five_contrasts(tmp_path: Path) -> None:
    """Catches a contrast left out, turned round, or taken at another walk; the numbers are worked out from the runs."""
    runs = [
        make_run(tmp_path / kind, 3, ("summary",), (128,), (0, 40), protocol=kind)
        for kind in ("pre", "brief", "post", "post-brief")
    ]
    tables = {table.name: table for table in make_report(runs, tmp_path / "out", ["csv"]).tables}
    found = {row["contrast"]: row["difference"] for row in tables["protocol-contrasts"].plain()}
    kappas: dict[tuple[str, int], list[float]] = {}
    for path in runs:
        run = Run.open(path)
        audits: dict[str, list[float]] = {}
        for audit in run.read("audits", Audit):
            audits.setdefault(audit.episode, []).append(audit.kappa)
        for episode in run.read("episodes", Episode):
            cell = episode.job.cell
            kappas.setdefault((cell.protocol, cell.filler), []).append(mean(audits[episode.key]))
    at = {place: mean(values) for place, values in kappas.items()}
    assert found == {
        "brief 40 minus pre 40": pytest.approx(at["brief", 40] - at["pre", 40]),
        "post 40 minus no walk": pytest.approx(at["post", 40] - at["pre", 0]),
        "post 40 minus pre 40": pytest.approx(at["post", 40] - at["pre", 40]),
        "post-brief 40 minus no walk": pytest.approx(at["post-brief", 40] - at["pre", 0]),
        "brief 40 minus no walk": pytest.approx(at["brief", 40] - at["pre", 0]),
    }


def test_the_gain_stands_in_the_grid_of_walks(tmp_path: Path) -> None:
    """Catches a gain that is not the difference of the two rows, or that has no interval."""
    run = make_run(tmp_path / "run", 4, ("summary", "guide"), (128,), (0, 5, 20))
    tables = {table.name: table for table in make_report([run], tmp_path / "out", ["csv"]).tables}
    rows = {(row["memory"], row["filler"]): row for row in tables["lag-grid"].plain()}
    for filler in (0, 5, 20):
        row = rows["guide", filler]
        assert row["gain"] == pytest.approx(100 * (row["success"] - rows["summary", filler]["success"]))
        assert row["gain_low"] <= row["gain"] <= row["gain_high"]
        assert rows["summary", filler]["gain"] is None
