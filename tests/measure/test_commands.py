"""`dssr diagnose`, `plan`, `lag` and `gates` as a user calls them."""

import json
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from dssr.cli import diagnose, study
from dssr.errors import RecordError, SealError, StatsError, UsageError
from dssr.measure.gates import Ledger

CONFIG = """
name = "commands"
data = "{data}"
runs = "{runs}"
cache_gib = 0.1
[games]
archive = "small"
levels = [1]
[protocol]
fillers = [0]
[writer_model]
backend = "scripted"
path = "scripted"
context_length = 65536
[agent]
memories = ["full", "summary", "lastk"]
budgets = [32]
[measure]
points = 2
oracle_samples = 2
[stats]
resamples = 100
long_fillers = [0]
[gates]
budget = 32
"""


class Shell:
    """A folder with a configuration, and the commands."""

    def __init__(self, folder: Path, games: Path) -> None:
        self.folder = folder
        (folder / "data" / "small").mkdir(parents=True)
        for name in games.iterdir():
            (folder / "data" / "small" / name.name).symlink_to(name)
        self.config = folder / "study.toml"
        self.config.write_text(CONFIG.format(data=folder / "data", runs=folder / "runs"))
        self.app = typer.Typer()
        for area in (diagnose, study):
            area.register(self.app)

    def __call__(self, *words: object, config: bool = True) -> Any:
        """The JSON a command prints, or its words; errors are raised as they are."""
        given = [*map(str, words), *(("--config", str(self.config)) if config else ())]
        result = CliRunner().invoke(self.app, given)
        if result.exception is not None:
            raise result.exception
        return json.loads(result.stdout) if "--json" in given else result.stdout


@pytest.fixture(scope="module")
def shell(archive: Any, tmp_path_factory: pytest.TempPathFactory) -> Shell:
    return Shell(tmp_path_factory.mktemp("shell"), archive.folder)


@pytest.fixture(scope="module")
def run(shell: Shell) -> Path:
    """A gate written first, then a diagnosis."""
    assert "10 gates" in shell("gates", "write")
    return Path(shell("diagnose", "--json")["run"])


def test_diagnose_says_who_loses(shell: Shell, run: Path) -> None:
    """The table and one sentence per memory, the same from a second call with --json in another place."""
    again = shell("diagnose", "--out", shell.folder / "again", "--json")
    assert again["episodes"] == 6
    assert again["errors"] == again["problems"] == 0
    assert json.loads((run / "summary.json").read_text())["answers"] == again["answers"]
    text = shell("diagnose", "--out", shell.folder / "words", "-m", "summary", "-g", 1)
    assert "summary, 32 tokens: budget loss β =" in text


def test_diagnose_refuses(shell: Shell, run: Path) -> None:
    """An existing directory, a finished run to resume, an unknown split, a split without games of that size."""
    with pytest.raises(RecordError, match="exists"):
        shell("diagnose")
    with pytest.raises(RecordError, match="finished"):
        shell("diagnose", "--resume")
    with pytest.raises(SystemExit):
        shell("diagnose", "--split", "dev", "--out", shell.folder / "dev")
    assert not (shell.folder / "dev").exists()


def test_the_test_split_opens_once(shell: Shell, archive: Any) -> None:
    """Sealed, approved for two runs, opened once for each, and shut for all others."""
    shell = Shell(shell.folder / "sealed", archive.folder)
    asked = ("diagnose", "--split", "test", "-m", "full", "--json")
    with pytest.raises(SealError, match="sealed"):
        shell(*asked, "--out", shell.folder / "first")
    assert not (shell.folder / "first").exists()
    made = shell("gates", "approve", "--yes", "the authors, all choices made on valid", "-m", "full", "--json")
    assert (made["memories"], made["budgets"], made["protocol"], made["games"]) == (["full"], [32], "post", 2)
    told = shell("gates", "approve", "--yes", "and the other", "-m", "lastk")
    assert "commands-" in told
    assert made["models"]["reader"][:12] in told
    assert shell(*asked, "--out", shell.folder / "first")["episodes"] == 2
    with pytest.raises(SealError, match="once for each approved run"):
        shell(*asked, "--out", shell.folder / "second")
    with pytest.raises(SealError, match="summary instead of"):
        shell("evaluate", "-m", "summary", "--out", shell.folder / "second")
    assert shell("evaluate", "-m", "lastk", "--out", shell.folder / "other", "--json")["episodes"] == 2
    with pytest.raises(SealError, match="no run can be approved after that"):
        shell("gates", "approve", "--yes", "one more", "-m", "summary")


def test_approve_shows_what_it_opens_and_asks(shell: Shell) -> None:
    """Catches test games opened by a slip of the hand: no answer, or "no", approves nothing, and the question names
    what would be seen."""
    asked = ["gates", "approve", "all is chosen", "-m", "full", "-b", "32", "--config", str(shell.config)]
    before = shell("gates", "show")
    for answer in ("n\n", "", "perhaps\n"):
        refused = CliRunner().invoke(shell.app, asked, input=answer)
        assert refused.exit_code == 1
        assert "one run see 2 test games, once: memories full; budgets 32; fillers 0." in refused.stderr
        assert "Approve it? [y/N]" in refused.stderr
        assert shell("gates", "show") == before
    agreed = CliRunner().invoke(shell.app, asked, input="y\n")
    assert agreed.exit_code == 0
    shown = " ".join(shell("gates", "show").split())
    assert "approval" in shown.removeprefix(before)
    assert "all is chosen (memories full; budgets 32; fillers 0)" in shown
    assert "Approve it?" not in CliRunner().invoke(shell.app, [*asked, "--yes"], input="").stderr


def test_plan(shell: Shell) -> None:
    """Counts without rates, hours with a calibration, and half a pair of prices refused."""
    bare = shell("plan", "--json")
    assert bare["episodes"] == 6
    assert bare["total"]["hours"] is None
    timed = shell("plan", "--calibrate", "--price-in", 1, "--price-out", 2, "--lag", "--json")
    assert timed["total"]["hours"] > 0
    assert timed["total"]["cost"] > 0
    assert timed["total"]["calls"] > bare["total"]["calls"]
    assert "6 episodes" in shell("plan")
    with pytest.raises(UsageError, match="pairs"):
        shell("plan", "--price-in", 1)


def test_lag_goes_beside_the_run(shell: Shell, run: Path) -> None:
    """A finished run stays as it is; the lags of its audited points are a run of their own, done once."""
    before = {file.name: file.read_bytes() for file in run.glob("*.json*")}
    found = shell("lag", run, "--json", config=False)
    audits = (run / "audits.jsonl").read_text().splitlines()
    assert len((Path(found["run"]) / "lags.jsonl").read_text().splitlines()) == len(audits) > 0
    assert {file.name: file.read_bytes() for file in run.glob("*.json*")} == before
    with pytest.raises(RecordError, match="exists"):
        shell("lag", run, config=False)


def test_gates(shell: Shell, run: Path) -> None:
    """A verdict on a run that came after the gate is kept; older data and unknown gates are refused."""
    shell("gates", "amend", "G2c", "Counted at filler 0 in this small study.")
    found = shell("gates", "judge", "G2c", run, "--dssr", "summary", "--one-target", "lastk", "--json")
    assert found["passed"] in (True, False)
    assert "Amended" in found["statement"]
    stored = shell("gates", "show", "--json")
    assert stored[-1]["verdict"]["checks"] == found["checks"]
    shown = " ".join(shell("gates", "show").split())
    assert f"{found['checks'][0]['estimate']:.3f} [" in shown, "estimates and intervals are shown, not only the verdict"
    kinds = [row["kind"] for row in stored]
    assert kinds == ["gate"] * 10 + ["amendment", "verdict"]
    with pytest.raises(RecordError, match="no gate G9"):
        shell("gates", "judge", "G9", run)
    with pytest.raises(StatsError, match="dssr lag"):
        shell("gates", "judge", "G1a", run)


def test_an_amendment_after_the_data_is_marked_late(shell: Shell, run: Path) -> None:
    """Catches a gate whose words were changed once the data were known, and that then reads like one written before;
    an amendment older than the runs is not called late."""
    words = ("gates", "judge", "G2e", run, "--dssr", "summary", "--no-hint", "lastk")
    started = json.loads((run / "run.json").read_text())["provenance"]["started"]
    ledger = Ledger(shell.folder / "runs" / "ledger.jsonl")
    ledger.amend("G2e", "Judged on one level.", "2020-01-01T00:00:00+00:00")
    assert "Late" not in shell(*words)
    shell("gates", "amend", "G2e", "Half of the gain is enough.")
    amended = ledger.entries()[-1].date
    assert amended >= started
    late = f"Late: the gate was amended on {amended[:10]}, after the first of these runs was begun."
    assert late in " ".join(shell(*words).split())
    judged = ledger.entries()[-1].verdict
    assert judged is not None
    assert late in judged.notes
    assert "2020-01-01," not in late
    assert late in " ".join(shell("gates", "show").replace("│", "").split())
