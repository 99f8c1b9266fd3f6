"""The whole study on the scripted model, to its sealed end, recomputed from raw logs without our statistics."""

import csv
import json
import shutil
from collections import defaultdict
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

import dssr
from dssr.errors import SealError, UsageError
from dssr.studies.stages import STAGES
from dssr.worlds.shipped import unpack

GAMES = Path(__file__).parents[1] / "games" / "six.tar.xz"
CONFIG = """
base = "scripted"
name = "small"
data = "data"
[games]
archive = "six"
train = 3
valid = 2
test = 1
[protocol]
fillers = [0, 20, 40]
[measure]
points = 2
oracle_samples = 2
[writer]
points = 24
candidates = 4
rounds = 2
gap = 0.001
outcome_points = 8
a4_candidates = 4
[stats]
resamples = 200
[reader]
accept = 0.0
accept_games = 1
[continuation]
points = 6
candidates = 3
[study]
walks = [0, 5, 20, 40]
lag_games = 1
"""


TABLES = (
    *("valid-grid", "valid-decomposition", "valid-kappa-by-filler", "valid-lag-table", "pilot-protocols"),
    *("writer-rounds-success", "writer-credit", "writer-seeds", "lag-grid-lag-grid"),
    *("test-grid", "test-contrasts", "test-rewrites", "test-frontier-frontier"),
)
"""Some of the tables that every study has; the report's own tests know them all."""


def lines(path: Path) -> list[dict[str, Any]]:
    """A log, read as any program would."""
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.slow
def test_the_whole_study_runs_to_its_sealed_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a stage that does not fit the one before it, test games that open without words or twice, a gate that is
    left out, a reader that is not accepted where the study goes on, and tables that do not follow from the logs."""
    monkeypatch.chdir(tmp_path)
    unpack(GAMES, "data/six")
    Path("small.toml").write_text(CONFIG)
    dssr.study("small.toml", out="study", stage="returns")
    shutil.rmtree("data/readers")  # as in a study that goes on elsewhere
    with pytest.raises(UsageError, match="--approve"):
        dssr.study("small.toml", out="study")
    assert not (tmp_path / "study" / "test").exists()
    states = dssr.study("small.toml", out="study", approval="All choices are made.")
    assert [(one.stage, one.state) for one in states] == [(name, "done") for name in STAGES]
    study = tmp_path / "study"
    judged = {entry["gate"] for entry in lines(study / "ledger.jsonl") if entry["kind"] == "verdict"}
    told = {one["stage"]: one["facts"] for one in lines(study / "stages.jsonl")}["verdicts"]
    assert set(told) == {"G0", "G1a", "G1b", "G1c", "G2a", "G2b", "G2c", "G2d", "G2e", "plain"}
    assert judged == {gate for gate, found in told.items() if not isinstance(found, str) or found == "vacuous"}
    with pytest.raises(SealError):
        dssr.evaluate("small.toml", ["summary"], [128], [0], out="again")
    page = (study / "report" / "index.html").read_text()
    assert all(gate in page for gate in told)
    assert not [name for name in TABLES if not (study / "report" / "tables" / f"{name}.csv").exists()]
    recompute(study / "test", study / "report-of-test")


def recompute(run: Path, out: Path) -> None:
    """Success and regret of every cell, from the logs alone, against the table of the report."""
    dssr.report(run, out=out, forms=["csv"])
    cells: dict[tuple[str, str, str], list[tuple[float, list[float]]]] = defaultdict(list)
    audits = defaultdict(list)
    for audit in lines(run / "audits.jsonl"):
        audits[audit["episode"]].append(audit["nll_state"] - audit["nll_oracle"])
    for episode in lines(run / "episodes.jsonl"):
        cell = episode["job"]["cell"]
        name = (cell["memory"], str(cell["budget"] or ""), str(cell["filler"]))
        cells[name].append((float(episode["outcome"] == "won"), audits[episode["key"]]))
    seen = 0
    with (out / "tables" / "grid.csv").open() as file:
        for row in csv.DictReader(file):
            found = cells.get((row["memory"], row["budget"], row["filler"]))
            if found is None:  # a writer pooled over its seeds
                continue
            seen += 1
            assert float(row["success"]) == pytest.approx(fmean(won for won, _ in found), abs=1e-6)
            if row["kappa"]:
                assert float(row["kappa"]) == pytest.approx(fmean(fmean(k) for _, k in found if k), abs=1e-6)
    assert seen == len(cells)
