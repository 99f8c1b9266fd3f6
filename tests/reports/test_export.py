"""Exports can be read by the programs they are for, and hold every record."""

from pathlib import Path

import polars
import pytest
from tests.reports.synthetic import make_run

from dssr.errors import UsageError
from dssr.record.run import Run
from dssr.reports.write import export_flat, export_inspect
from dssr.types import Audit, Episode, Step


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_flat_files_hold_every_record(made_run: Path, tmp_path: Path, ending: str) -> None:
    """Catches lost rows, columns missing because the first row had no decision, and wrong losses."""
    run = Run.open(made_run)
    files = {file.stem: file for file in export_flat(run, tmp_path, ending)}
    read = polars.read_csv if ending == "csv" else polars.read_parquet
    steps = read(files["steps"])
    assert len(steps) == len(list(run.read("steps", Step)))
    assert steps["decision.action"].null_count() < len(steps)
    audits = list(run.read("audits", Audit))
    table = read(files["audits"])
    assert table["kappa"].to_list() == pytest.approx([audit.kappa for audit in audits])
    assert len(read(files["episodes"])) == len(list(run.read("episodes", Episode)))


def test_inspect_opens_its_logs(made_run: Path, tmp_path: Path) -> None:
    """Catches a log that Inspect cannot read, and a failed episode that it would show as a wrong answer."""
    inspect_log = pytest.importorskip("inspect_ai.log", reason="needs inspect-ai: pip install 'dssr[inspect]'")
    files = export_inspect(Run.open(made_run), tmp_path)
    assert len(files) == 14
    failed = 0
    for file in files:
        log = inspect_log.read_eval_log(str(file))
        assert log.status == "success"
        assert len(log.samples) == 4
        for sample in log.samples:
            failed += sample.error is not None
            assert (sample.error is None) == (sample.scores is not None)
            assert sample.messages[0].role == "user"
    assert failed == 1
    log = inspect_log.read_eval_log(str(tmp_path / "summary_b64_f20_post.eval"))
    run = Run.open(made_run)
    episodes = [e for e in run.read("episodes", Episode) if e.job.cell == _cell("summary", 64, 20)]
    won = sum(episode.outcome == "won" for episode in episodes)
    assert log.results.scores[0].metrics["accuracy"].value == pytest.approx(won / len(episodes))


def _cell(memory: str, budget: int, filler: int) -> object:
    from dssr.types import Cell

    return Cell(memory, budget, filler, "post")


def test_an_empty_run_is_refused(tmp_path: Path) -> None:
    """Catches an export that writes empty files without a word."""
    run = Run.open(make_run(tmp_path / "empty", games=0))
    with pytest.raises(UsageError, match="dssr diagnose"):
        export_flat(run, tmp_path / "out", "csv")
    with pytest.raises(UsageError, match="dssr diagnose"):
        export_inspect(run, tmp_path / "out")
