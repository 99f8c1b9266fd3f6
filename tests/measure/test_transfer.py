"""The matrix writer × reader on runs whose outcomes are set by hand."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

import dssr
from dssr.cli.main import build
from dssr.config import AgentConfig, Config, ModelConfig, StatsConfig
from dssr.errors import StatsError
from dssr.measure.comparisons import TransferRow
from dssr.record.run import Run
from dssr.seeds import digest_of
from dssr.types import Audit, Cell, Episode, Job

Outcomes = Mapping[str, Sequence[str]]
"""Memory to one string per game: won (1) or not (0) at filler 0, 20 and 40."""
FILLERS = (0, 20, 40)
KAPPA = {0: 0.1, 20: 0.3, 40: 0.5}
R1: Outcomes = {"summary": ("100", "110", "100", "101"), "dssr@a": ("111", "111", "110", "111")}
"""Over 20 and 40, game by game: summary 0, 0.5, 0, 0.5; dssr 1, 1, 0.5, 1. Gains 1, 0.5, 0.5, 0.5: mean 0.625."""
R2: Outcomes = {"summary": ("000", "000", "000", "000"), "dssr@a": ("111", "110", "100", "010")}
"""summary 0; dssr 1, 0.5, 0, 0.5: mean gain 0.5, which is 0.8 of 0.625."""
MODELS = {"writer": "w", "writer@a": "wa"}
FIRST = Config(
    name="made",
    reader_model=ModelConfig(path="one"),
    agent=AgentConfig(memories=("summary", "dssr@a"), budgets=(128,)),
    stats=StatsConfig(resamples=500),
)
SECOND = msgspec.structs.replace(
    FIRST,
    reader_model=ModelConfig(path="two", adapters={"r2": "somewhere"}),
    agent=msgspec.structs.replace(FIRST.agent, budget_tokenizer="one", reader_adapter="r2"),
)


def made_run(
    path: Path, config: Config, reader: str, outcomes: Outcomes, models: Mapping[str, str] = MODELS, first: int = 0
) -> Path:
    """A finished diagnosis with one audited decision per episode."""
    with Run.start(path, command="diagnose", config=config, models={"reader": reader, **models}) as run:
        for memory, games in outcomes.items():
            for number, won in enumerate(games, start=first):
                for filler, outcome in zip(FILLERS, won, strict=True):
                    store(run, Job(f"valid-6-{number:03d}", Cell(memory, 128, filler, "post"), 0, 0.0, 0.0, "reader"),
                          outcome == "1", reader)  # fmt: skip
        run.finish({})
    return path


def store(run: Run, job: Job, won: bool, reader: str) -> None:
    key = digest_of(reader, job.game, job.cell.memory, job.cell.filler)
    audit = Audit(
        episode=key,
        step=9,
        rewrites=3,
        nll_state=0.1 + KAPPA[job.cell.filler],
        nll_full=0.1,
        nll_oracle=0.1,
        oracle_state="",
        coverage=None,
    )
    run.append("audits", f"{key}:0009", audit)
    episode = Episode(
        key=key,
        job=job,
        split="valid",
        level=6,
        outcome="won" if won else "lost",
        score=11 if won else 0,
        max_score=11,
        steps=10,
        reveal=5,
        begin=8,
        truncations=0,
        error=None,
    )
    run.append("episodes", key, episode)


@pytest.fixture
def runs(tmp_path: Path) -> list[Path]:
    return [made_run(tmp_path / "r1", FIRST, "f1", R1), made_run(tmp_path / "r2", SECOND, "f2", R2)]


def test_the_numbers_are_those_worked_out_by_hand(runs: list[Path]) -> None:
    """Catches gains not paired per game, a share of the wrong reader's gain, and fillers pooled by episode.

    See R1 and R2 above: kept 0.5 / 0.625 = 0.8; kappa over 20 and 40 is (0.3 + 0.5) / 2 = 0.4; at filler 0 R2 wins
    three of four with dssr."""
    rows = {(row.memory, row.reader): row for row in dssr.transfer(runs)}
    assert list(rows) == [("summary", "one"), ("summary", "two@r2"), ("dssr@a", "one"), ("dssr@a", "two@r2")]
    first, second = rows["dssr@a", "one"], rows["dssr@a", "two@r2"]
    assert (estimate(first, "success"), estimate(first, "gain")) == (0.875, 0.625)
    assert (first.kept, first.kept_low, first.problem) == (None, None, None)
    assert [estimate(second, name) for name in ("near", "success", "gain")] == [0.75, 0.5, 0.5]
    assert estimate(second, "kappa") == pytest.approx(0.4)
    assert second.kept == pytest.approx(0.8)
    assert second.kept_low is not None
    assert second.kept_high is not None
    assert second.kept_low < 0.8 < second.kept_high
    assert rows["summary", "two@r2"].gain is None
    assert all(row.games == 4 for row in rows.values())


def estimate(row: TransferRow, name: str) -> float:
    found: Any = getattr(row, name)
    return float(found.estimate)


def test_no_gain_cannot_be_kept(tmp_path: Path) -> None:
    """Catches a share of nothing: dssr wins no more than summary under the first reader."""
    alike = {"summary": R1["summary"], "dssr@a": R1["summary"]}
    paths = [made_run(tmp_path / "r1", FIRST, "f1", alike), made_run(tmp_path / "r2", SECOND, "f2", R2)]
    row = dssr.transfer(paths)[-1]
    assert (row.kept, row.problem) == (None, "The first reader has no gain to keep.")
    assert estimate(row, "gain") == 0.5


def test_a_gain_of_few_games_has_no_bounds(tmp_path: Path) -> None:
    """Catches bounds from resamples that divide by nothing: only one of four games gains, so some resample has none."""
    once = {"summary": R1["summary"], "dssr@a": ("111", *R1["summary"][1:])}
    paths = [made_run(tmp_path / "r1", FIRST, "f1", once), made_run(tmp_path / "r2", SECOND, "f2", R2)]
    row = dssr.transfer(paths)[-1]
    assert row.kept == pytest.approx(0.5 / 0.25)
    assert (row.kept_low, row.kept_high) == (None, None)


def test_what_cannot_be_compared_is_refused(runs: list[Path], tmp_path: Path) -> None:
    """Catches a matrix of different games, of states cut by different tokenizers, or of different writers."""
    own = msgspec.structs.replace(SECOND, agent=msgspec.structs.replace(SECOND.agent, budget_tokenizer=None))
    others = msgspec.structs.replace(SECOND, games=msgspec.structs.replace(SECOND.games, archive="other"))
    wrong = {
        "not measured on the same games": made_run(tmp_path / "games", SECOND, "f2", R2, first=1),
        r"counts budgets by the tokenizer of one and .* by that of two": made_run(tmp_path / "own", own, "f2", R2),
        "not played on the same archive": made_run(tmp_path / "archive", others, "f2", R2),
        r"different models under the name writer@a": made_run(
            tmp_path / "writer", SECOND, "f2", R2, {**MODELS, "writer@a": "another"}
        ),
        "have one reader, one; give": made_run(tmp_path / "same", FIRST, "f1", R1),
    }
    for sentence, path in wrong.items():
        with pytest.raises(StatsError, match=sentence):
            dssr.transfer([runs[0], path])


def test_the_report_keeps_readers_apart(runs: list[Path], tmp_path: Path) -> None:
    """Catches a grid that mixes two readers, and a second reader that `dssr report` refuses or forgets."""
    made = dssr.report(runs, out=tmp_path / "report", forms=["markdown", "csv", "latex"])
    tables = {table.name: table for table in made.tables}
    assert len(tables["grid"].rows) == 2 * len(FILLERS)
    assert [row["reader"] for row in tables["transfer"].plain()] == ["one", "two@r2"] * 2
    (line,) = [
        line for line in (tmp_path / "report" / "report.md").read_text().splitlines() if "| two@r2 | 4 | 75.0" in line
    ]
    assert "80.0 [" in line
    alone = dssr.report(runs[:1], out=tmp_path / "alone", forms=["markdown"])
    assert any(one.name == "transfer" and "second reader" in one.reason for one in alone.absent)


def test_the_command_prints_rows(runs: list[Path]) -> None:
    """Catches a command that does not reach the verb."""
    done = CliRunner().invoke(build(), ["transfer", *map(str, runs), "--json"])
    rows = json.loads(done.stdout)
    assert [row["kept"] for row in rows] == [None, None, None, pytest.approx(0.8)]
    shown = CliRunner().invoke(build(), ["transfer", *map(str, runs)])
    assert "two@r2" in shown.stdout
