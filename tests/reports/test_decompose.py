"""Losses of one's own: read, averaged per task, judged, shown."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars
import pytest

import dssr
from dssr.errors import DssrError


def losses(tasks: int = 40, seed: int = 0) -> polars.DataFrame:
    """Two decisions per task: `short` loses by its writer, `fine` loses nothing."""
    rng = np.random.default_rng(seed)
    rows = []
    for task in range(tasks):
        for _ in range(2):
            full, oracle = rng.exponential(0.2, 2)
            for memory, more in (("short", rng.normal(1.5, 0.3)), ("fine", rng.normal(0, 0.01))):
                state = max(0.0, oracle + more)
                row = {"task": f"t{task}", "memory": memory, "nll_state": state}
                rows.append(row | {"nll_full": float(full), "nll_oracle": float(oracle)})
    return polars.DataFrame(rows)


def test_a_frame_a_file_and_rows_say_the_same(tmp_path: Path) -> None:
    """Catches a column mixed up, decisions counted as tasks, and delta that is not beta + kappa."""
    frame = losses()
    frame.write_csv(tmp_path / "rows.csv")
    found = dssr.decompose(frame)
    assert dssr.decompose(tmp_path / "rows.csv") == found == dssr.decompose(frame.to_dicts())
    short, fine = found.rows
    assert (short.memory, short.tasks, short.points, short.cause) == ("short", 40, 80, "writer")
    assert "40 tasks: the writer's choices lose more" in short.sentence
    assert fine.cause in ("little", "unclear")
    mine = frame.filter(polars.col("memory") == "short")
    assert short.kappa.estimate == pytest.approx((mine["nll_state"] - mine["nll_oracle"]).mean())
    assert short.delta.estimate == pytest.approx(short.beta.estimate + short.kappa.estimate)
    assert found.frame().columns[:4] == ["memory", "tasks", "points", "delta"]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("task,memory,nll_state,nll_full\n1,a,1,1\n", "Row 1 has no nll_oracle"),
        ("task,memory,nll_state,nll_full,nll_oracle\n1,a,1,x,1\n", "Row 1 has 'x' as nll_full"),
        ("task,memory,nll_state,nll_full,nll_oracle\n1,a,1,1,1\n2,a,1,nan,1\n", "Row 2 has 'nan' as nll_full"),
        ("task,memory,nll_state,nll_full,nll_oracle\n", "no rows"),
    ],
)
def test_bad_rows_are_named(tmp_path: Path, text: str, sentence: str) -> None:
    """Catches a missing loss taken for zero."""
    (tmp_path / "rows.csv").write_text(text)
    with pytest.raises(DssrError, match=sentence):
        dssr.decompose(tmp_path / "rows.csv")


def test_the_command_prints_the_answer_and_writes_the_page(tmp_path: Path) -> None:
    """Catches a command that says something else than the function."""
    losses().write_csv(tmp_path / "rows.csv")
    command = [sys.executable, "-m", "dssr.cli.main", "decompose", "rows.csv"]
    told = subprocess.run([*command, "-o", "page"], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert dssr.decompose(tmp_path / "rows.csv").rows[0].sentence in told
    page = (tmp_path / "page" / "index.html").read_text()
    assert "The writer loses more" in page
    assert "β, what the state written in hindsight still loses" in " ".join(page.split())
    assert '"intervals":"95\N{NO-BREAK SPACE}% t"' in page
    rows = json.loads(subprocess.run([*command, "--json"], cwd=tmp_path, capture_output=True, check=True).stdout)
    assert rows["memories"][0]["cause"] == "writer"


def test_few_tasks_are_called_tasks(tmp_path: Path) -> None:
    """Catches the word game where nothing was played."""
    found = dssr.decompose(losses(tasks=3))
    assert "too few tasks for an answer" in found.rows[0].sentence
    page = found.page(tmp_path).read_text()
    assert "Too few tasks" in page
    assert "Too few games" not in page
