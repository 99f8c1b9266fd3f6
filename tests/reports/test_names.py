"""Names and texts of others in what we print and write: shown as they are, never obeyed."""

import csv
import io
import json
import re
from pathlib import Path

import polars
import pytest
from rich.console import Console
from tests.reports.synthetic import make_run

from dssr.cli import report as command
from dssr.cli.options import emit, say, tell
from dssr.measure.study import Study
from dssr.record.run import Run
from dssr.reports.page import study_view
from dssr.reports.study_tables import study_tables
from dssr.reports.tables import Column, Table, inert_cell, terminal, to_csv
from dssr.reports.view import pack, render
from dssr.reports.write import export_flat, report
from dssr.types import Record

MARKUP = "[/bold][red]x[/]"
"""Closes what was not opened, which rich refuses with a traceback."""


class Named(Record, frozen=True):
    """A row with a name."""

    memory: str
    value: float


@pytest.mark.parametrize(
    ("cell", "written"),
    [
        ("=1+1", "'=1+1"),
        ("+cmd", "'+cmd"),
        ("-cmd", "'-cmd"),
        ("@sum", "'@sum"),
        ("\tx", "'\tx"),
        ("\rx", "'\rx"),
        ("-1.5", "-1.5"),
        ("+2e3", "+2e3"),
        ("summary", "summary"),
        ("a=b", "a=b"),
        (-1.5, -1.5),
        (None, None),
    ],
)
def test_spreadsheets_compute_no_cell(cell: object, written: object) -> None:
    """Catches text that a spreadsheet runs as a formula, and numbers turned into text."""
    assert inert_cell(cell) == written


def test_csv_tables_hold_no_formula() -> None:
    """Catches a memory's name that is run when the table is opened; the loss beside it stays a number."""
    table = Table("t", "T", (Column("memory", "memory"), Column("value", "v", "number")), (Named("=x()", -0.5),))
    assert list(csv.reader(io.StringIO(to_csv(table)))) == [["memory", "value"], ["'=x()", "-0.5"]]


def test_exported_csv_holds_no_formula_and_parquet_the_text(tmp_path: Path) -> None:
    """Catches formulas in the exported logs, and records changed where no spreadsheet opens them."""
    run = Run.open(make_run(tmp_path / "run", games=1, memories=("full", "@x")))
    made = {ending: {file.stem: file for file in export_flat(run, tmp_path / ending, ending)} for ending in FORMS}
    column = "job.cell.memory"
    assert set(polars.read_csv(made["csv"]["episodes"])[column]) == {"full", "'@x"}
    assert set(polars.read_parquet(made["parquet"]["episodes"])[column]) == {"full", "@x"}


FORMS = ("csv", "parquet")


def test_markup_in_names_is_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Catches a memory called like markup that crashes or recolours `dssr report`."""
    made = report([make_run(tmp_path / "run", games=2, memories=("full", MARKUP))], out=tmp_path / "out", forms=[])
    command._print(made, True)
    shown = capsys.readouterr().out
    assert f"{MARKUP}: " in shown


def test_markup_in_headings_is_text(capsys: pytest.CaptureFixture[str]) -> None:
    """Catches a gate's statement, a title, a note or a column that is taken for markup, as in `dssr gates judge`."""
    emit([{MARKUP: MARKUP + "\x1b[2J"}], title=MARKUP)
    emit({MARKUP: MARKUP}, title=MARKUP)
    Console(width=100).print(terminal(Table("t", MARKUP, (Column("memory", MARKUP),), (Named(MARKUP, 0),), MARKUP)))
    shown = capsys.readouterr().out
    assert shown.count(MARKUP) == 3 + 3 + 4
    assert "\x1b" not in shown


def test_no_word_reaches_the_terminal_but_by_the_one_that_cleans_it(capsys: pytest.CaptureFixture[str]) -> None:
    """Catches a command that prints a model's, a server's or a log's words as they are, which a terminal obeys; JSON
    for programs loses nothing."""
    hostile = "a\x1b[2J\x07\x9b31m\u202eb"
    printed = re.compile(r"\btyper\.echo\(|\bclick\.|\bprint_exc\b|(?<![\w.])print\(")
    for module in sorted(Path(command.__file__).parent.glob("*.py")):
        found = [line.strip() for line in module.read_text().splitlines() if printed.search(line)]
        assert found == (["typer.echo(printable(text), err=err, nl=nl)"] if module.name == "options.py" else []), module
    tell(hostile)
    say(hostile)
    emit([{hostile: hostile}], title=hostile)
    emit({hostile: hostile})
    Console(width=100).print(terminal(Table("t", hostile, (Column("memory", hostile),), (Named(hostile, 0),), hostile)))
    emit({hostile: [hostile]}, as_json=True)
    shown = capsys.readouterr()
    assert not set("\x1b\x07\x9b\u202e") & set(shown.out + shown.err)
    assert json.loads(shown.out.splitlines()[-1]) == {hostile: [hostile]}


def test_the_level_of_intervals_is_the_setting(tmp_path: Path) -> None:
    """Catches `95 %` written out over intervals of another level: here 90 %."""
    study = Study.load([make_run(tmp_path / "run", games=2, level=0.9)])
    tables, _ = study_tables(study)
    assert "90 % percentile" in next(table for table in tables if table.name == "grid").note
    page = render(study_view(study, pack(study)))
    assert not re.search(r"95\s%", page)
    assert "Bands are 90\N{NO-BREAK SPACE}% percentile intervals" in page
    assert '"intervals":"90\N{NO-BREAK SPACE}% percentile"' in page
