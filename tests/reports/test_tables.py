"""Tables say what the raw logs say, in every form."""

import csv
import io
import json
from pathlib import Path
from statistics import mean
from typing import Any

import pytest
from tests.reports.synthetic import make_run
from tests.tiny import finished_again

from dssr.errors import StatsError, UsageError
from dssr.measure.study import Study
from dssr.reports.paper import Setting, as_table, beside, paper_tables, published
from dssr.reports.study_tables import study_tables
from dssr.reports.tables import Column, Table, cell_text, latex, markdown, to_csv
from dssr.reports.write import make_report
from dssr.stats.bootstrap import Interval
from dssr.types import Record, Split


class Line(Record, frozen=True):
    """A row of the smallest table."""

    memory: str
    success: Interval | None
    kappa: float | None


def raw(run: Path, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / f"{name}.jsonl").read_text().splitlines()]


def by_hand(run: Path) -> dict[tuple[Any, ...], dict[str, Any]]:
    """The grid recomputed from the JSON lines with nothing of ours: games first, then their mean."""
    cells: dict[tuple[Any, ...], dict[str, Any]] = {}
    place = {}
    for one in raw(run, "episodes"):
        cell = one["job"]["cell"]
        key = (cell["memory"], cell["budget"], cell["filler"])
        place[one["key"]] = (key, one["job"]["game"])
        found = cells.setdefault(key, {"won": [], "errors": 0, "losses": {}})
        if one["outcome"] == "error":
            found["errors"] += 1
        else:
            found["won"].append(one["outcome"] == "won")
    for one in raw(run, "audits"):
        key, game = place[one["episode"]]
        kappa = one["nll_state"] - one["nll_oracle"]
        beta = one["nll_oracle"] - one["nll_full"]
        cells[key]["losses"].setdefault(game, []).append((kappa, beta, one["nll_state"] - one["nll_full"]))
    return cells


def test_the_grid_agrees_with_the_raw_logs(made_run: Path) -> None:
    """Catches a wrong join, a failed episode counted as a loss, or points weighed instead of games."""
    tables, _ = study_tables(Study.load([made_run]))
    grid = next(table for table in tables if table.name == "grid")
    expected = by_hand(made_run)
    assert len(grid.rows) == len(expected) == 14
    for row in grid.plain():
        cell = expected[row["memory"], row["budget"], row["filler"]]
        assert (row["games"], row["errors"]) == (len(cell["won"]), cell["errors"])
        assert row["success"] == pytest.approx(mean(cell["won"]))
        for place, name in enumerate(("kappa", "beta", "delta")):
            games = [mean(values[place] for values in points) for points in cell["losses"].values()]
            assert row[name] == (pytest.approx(mean(games)) if games else None)
    assert sum(row["errors"] for row in grid.plain()) == 1


def test_the_parts_add_up_in_every_row(whole_run: Path) -> None:
    """Catches a table whose δ is not β + κ."""
    tables, _ = study_tables(Study.load([whole_run]))
    rows = [r for table in tables for r in table.plain() if r.get("kappa") is not None and "delta" in r]
    assert len(rows) > 10
    for row in rows:
        assert row["delta"] == pytest.approx(row["beta"] + row["kappa"], abs=1e-9)


def test_all_kinds_are_there_or_say_why(whole_run: Path, tmp_path: Path) -> None:
    """Catches a kind of table that silently disappears, and an absence that names no way to get it."""
    made = make_report([whole_run], tmp_path / "out", ["markdown"])
    names = {table.name for table in made.tables}
    assert {"grid", "decomposition", "kappa-by-filler", "frontier", "rewrites", "contrasts", "pairs", "losses"} <= names
    absent = {one.name: one.reason for one in made.absent}
    assert "dssr lag" in absent["lag-bins"]
    assert "dssr train" in absent["rounds-success"]
    assert "dssr continuation" in absent["score-return"]
    assert "dssr lag" in (tmp_path / "out" / "report.md").read_text()


def test_forms_of_one_table() -> None:
    """Catches rounding, escaping and interval mistakes in the renderers."""
    columns = (Column("memory", "memory"), Column("success", "success %", "percent"), Column("kappa", "κ", "nats"))
    first = Line("a|b_c", Interval(0.5, 0.25, 0.75), -0.001)
    second = Line("a|b_c", Interval(1.0, 1.0, 1.0), None)
    table = Table("t", "Title", columns, (first, second))
    assert [cell_text(row, columns[1]) for row in table.rows] == ["50.0 [25.0, 75.0]", "100"]
    assert cell_text(first, columns[2]) == "0.00"
    assert "| a\\|b_c | 50.0 [25.0, 75.0] | 0.00 |" in markdown(table)
    assert r"a\textbar{}b\_c & 50.0 [25.0, 75.0] & 0.00 \\" in latex(table)
    assert r"$\kappa$" in latex(table)
    rows = list(csv.DictReader(io.StringIO(to_csv(table))))
    assert rows[0]["success_low"] == "0.25"
    assert rows[1]["kappa"] == ""


def test_columns_read_fields_or_functions() -> None:
    """Catches bounds lost from files where no row has a value, and a function column that shows its field instead."""
    empty = (Line("a", None, None), Line("b", None, None))
    plain = Table("t", "T", (Column("memory", "memory"), Column("success", "success", "percent")), empty)
    assert to_csv(plain).splitlines()[0] == "memory,success,success_low,success_high"
    points = Column("success", "points", "nats", lambda row: row.success.times(100))
    scaled = Table("t", "T", (points,), (Line("a", Interval(0.5, 0.25, 0.75), 1.0),))
    assert scaled.plain() == [{"memory": "a", "success": 50.0, "success_low": 25.0, "success_high": 75.0, "kappa": 1.0}]
    assert "| 50.00 [25.00, 75.00] |" in markdown(scaled)


def test_published_values() -> None:
    """Catches columns of the published tables read one place off."""
    valid, test = Setting("valid", "post", "R1"), Setting("test", "post", "R1")
    assert published(valid, "summary", 128, 20) == {"success": 0.0, "kappa": 1.47}
    assert published(valid, "guide", 256, 40) == {"success": pytest.approx(0.222), "kappa": 0.60}
    assert published(valid, "summary", 64, 10) == {"success": 0.0, "kappa": 1.42}
    assert published(valid, "oracle-b", 64, 40)["success"] == pytest.approx(0.978)
    assert published(valid, "full", None, 0) == {"success": pytest.approx(0.978)}
    assert published(test, "full", None, 0) == {"success": pytest.approx(0.956)}
    assert published(test, "guide", 128, 10) == {"success": pytest.approx(0.067), "kappa": 0.86}
    assert published(test, "dssr@a4", 128, 40) == {"success": pytest.approx(0.019), "kappa": 1.58}
    assert published(test, "dssr@k4", 128, 20) == {"success": pytest.approx(0.022), "kappa": 0.96}
    assert published(Setting("test", "post", "R2"), "full", None, 10) == {"success": pytest.approx(0.644)}
    assert published(Setting("test", "post", "R2"), "dssr@a4/s0", 128, 0) == {"success": pytest.approx(0.056)}
    for name in paper_tables():
        assert as_table(name).rows


@pytest.mark.parametrize(
    "setting",
    [
        Setting("train", "post", "R1"),
        Setting("valid/test", "post", "R1"),
        Setting("valid", "pre", "R1"),
        Setting("valid", "post", "R2"),
        Setting("valid", "post", None),
    ],
)
def test_nothing_stands_beside_another_setting(setting: Setting) -> None:
    """Catches a published validation value beside another split, place of the walk or reader; and at a budget or walk
    that was not published."""
    assert published(setting, "summary", 128, 20) == {}
    assert beside("grid", [setting]) == []
    assert published(Setting("test", "post", "R1"), "summary", 64, 20) == {}
    assert published(Setting("valid", "post", "R1"), "summary", 128, 5) == {}


@pytest.mark.parametrize(
    ("reader", "split", "kappa", "tables"),
    [
        ("Qwen/Qwen3-4B-Instruct-2507", "valid", 0.85, {"stage2full", "stage2kappaB"}),
        ("Qwen/Qwen3-4B-Instruct-2507", "test", 0.79, {"test", "testci", "frontier"}),
        ("microsoft/Phi-4-mini-instruct", "test", None, {"testci"}),
        ("microsoft/Phi-4-mini-instruct", "valid", None, set()),
        (None, "valid", None, set()),
    ],
)
def test_against_paper_puts_values_side_by_side(
    tmp_path: Path, reader: str | None, split: Split, kappa: float | None, tables: set[str]
) -> None:
    """Catches published values joined to the wrong cell, and those of another split or reader shown at all."""
    run = make_run(tmp_path / "run", reader=reader, split=split)
    made = make_report([run], tmp_path / "out", ["csv"], against_paper=True)
    grid = next(table for table in made.tables if table.name == "grid")
    row = next(r for r in grid.plain() if (r["memory"], r["budget"], r["filler"]) == ("summary", 128, 0))
    assert row["paper_kappa"] == kappa
    shown = {table.name.removeprefix("paper-") for table in made.tables if table.name.startswith("paper-")}
    assert shown - {"rewrites", "rewrites_n", "rewrites_contrast", "laggrid_gain"} == tables
    assert ("Nothing was published of the reader" in grid.note) == (reader is None)


def test_bad_input_is_refused(whole_run: Path, tmp_path: Path) -> None:
    """Catches reports over runs that cannot be compared; each refusal must name the trouble."""
    with pytest.raises(UsageError, match="No run"):
        make_report([], tmp_path / "out")
    other = make_run(tmp_path / "other", memories=("belief",), first_game=2)
    with pytest.raises(StatsError, match="valid-6-000"):
        make_report([whole_run, other], tmp_path / "out")
    info = (other / "run.json").read_text()
    same = make_run(tmp_path / "same", memories=("belief",))
    device = json.loads(info)["provenance"]["device"]
    text = (same / "run.json").read_text()
    (same / "run.json").write_text(text.replace(json.dumps(device), json.dumps("another device")))
    finished_again(same)
    with pytest.raises(StatsError, match="another device"):
        make_report([whole_run, same], tmp_path / "out")


def test_an_empty_run_and_missing_audits(tmp_path: Path) -> None:
    """Catches an empty report for an empty run, and a page that fails when nothing was audited."""
    empty = make_run(tmp_path / "empty", games=0)
    with pytest.raises(StatsError, match="dssr diagnose"):
        make_report([empty], tmp_path / "out")
    plain = make_run(tmp_path / "plain", games=2, audited=False)
    made = make_report([plain], tmp_path / "out", ["page", "markdown", "figures"])
    absent = {one.name: one.reason for one in made.absent}
    assert "dssr diagnose" in absent["decomposition"]
    assert "dssr diagnose" in (tmp_path / "out" / "index.html").read_text()
