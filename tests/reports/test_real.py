"""A report of a real diagnosis: real games, the scripted model, the commands as a user types them."""

import json
import shutil
from pathlib import Path

import pytest
from tests.measure.conftest import Bench
from tests.reports.test_tables import by_hand
from typer.testing import CliRunner

from dssr.cli.main import build
from dssr.errors import StatsError, UsageError
from dssr.record.run import Run
from dssr.types import Audit, Episode
from dssr.worlds.archive import Archive


@pytest.fixture(scope="module")
def real(archive: Archive, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two six-room games, three memories, two fillers, with lags."""
    bench = Bench(archive, tmp_path_factory.mktemp("real"))
    return bench.diagnose("real", fillers=(0, 10), lag=True).path


def dssr(*words: object) -> str:
    """Standard output of a command; its errors are raised as they are."""
    done = CliRunner().invoke(build(), [str(word) for word in words], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def test_report_of_a_real_run(real: Path, tmp_path: Path) -> None:
    """Catches a report that fits made-up runs only: all files, and a grid equal to one worked out from the logs."""
    shown = json.loads(dssr("report", real, "--out", tmp_path / "out", "--against", "paper", "--json"))
    expected = by_hand(real)
    for row in shown["tables"]["grid"]:
        cell = expected[row["memory"], row["budget"], row["filler"]]
        assert row["success"] == pytest.approx(sum(cell["won"]) / len(cell["won"]))
    assert {"lag-bins", "lag-kinds", "rewrites"} <= set(shown["tables"])
    assert [one["memory"] for one in shown["answers"]] == ["full", "summary", "guide"]
    out = tmp_path / "out"
    assert (out / "index.html").stat().st_size > 50_000
    for name in ("decomposition", "kappa-by-filler", "kappa-by-rewrites", "kappa-by-lag", "fact-survival"):
        assert (out / "figures" / f"{name}.svg").read_text().startswith("<?xml")
        assert (out / "figures" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    assert "Nothing was published of the reader scripted." in (out / "report.md").read_text()
    assert (out / "tables" / "grid.tex").exists()


def test_reports_are_repeatable(real: Path, tmp_path: Path) -> None:
    """Catches clocks and random names in any file of a report."""
    for name in ("one", "two"):
        dssr("report", real, "--out", tmp_path / name)
    files = sorted(file.relative_to(tmp_path / "one") for file in (tmp_path / "one").rglob("*") if file.is_file())
    assert len(files) > 20
    different = [str(f) for f in files if (tmp_path / "one" / f).read_bytes() != (tmp_path / "two" / f).read_bytes()]
    assert different == []


def test_people_get_tables_and_a_page(real: Path, tmp_path: Path) -> None:
    """Catches a command that prints nothing a person can use, and a page whose place is not named."""
    text = dssr("report", real, "--out", tmp_path / "out", "--format", "page", "--format", "terminal")
    assert "Decomposition" in text
    assert "index.html" in text
    assert not (tmp_path / "out" / "figures").exists()


def test_export_commands(real: Path, tmp_path: Path) -> None:
    """Catches an export that lost records of a real run."""
    run = Run.open(real)
    episodes = len(list(run.read("episodes", Episode)))
    made = json.loads(dssr("export", "csv", real, "--out", tmp_path / "csv", "--json"))
    assert {Path(one["file"]).name for one in made} >= {"episodes.csv", "steps.csv", "audits.csv", "lags.csv"}
    lines = (tmp_path / "csv" / "episodes.csv").read_text().splitlines()
    assert len(lines) == episodes + 1
    assert list(run.read("audits", Audit))
    assert len(json.loads(dssr("export", "parquet", real, "--out", tmp_path / "parquet", "--json"))) == len(made)


def test_wrong_words_are_refused(real: Path, tmp_path: Path) -> None:
    """Catches options that are ignored when misspelt."""
    for words in (("--format", "word"), ("--against", "papers")):
        done = CliRunner().invoke(build(), ["report", str(real), *words])
        assert done.exit_code == 2
        assert words[1] in done.output
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="is a file"):
        dssr("report", real, "--out", tmp_path / "file")


def test_an_unfinished_run_is_refused(real: Path, tmp_path: Path) -> None:
    """Catches numbers from half a run."""
    half = tmp_path / "half"
    shutil.copytree(real, half)
    (half / "summary.json").unlink()
    with pytest.raises(StatsError, match="not finished"):
        dssr("report", half, "--out", tmp_path / "out")
