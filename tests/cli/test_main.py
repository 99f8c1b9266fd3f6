"""The command line: exit codes, one sentence for bad input, output for people and for programs."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dssr.worlds.archive import Archive


def dssr(*arguments: str, cwd: Path | None = None) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, "-m", "dssr.cli.main", *arguments], capture_output=True, text=True, cwd=cwd)


def tiny_study(archive: Archive, folder: Path, fillers: str = "[0]") -> Path:
    """A configuration over the shared one-room games, in a folder of its own."""
    (folder / "data").mkdir()
    (folder / "data" / "one").symlink_to(archive.folder / "one", target_is_directory=True)
    path = folder / "tiny.toml"
    path.write_text(
        f'name = "tiny"\n[games]\narchive = "one"\nlevels = [1]\n[games.options]\nrecipe = 1\ntake = 1\n'
        f"[protocol]\nfillers = {fillers}\n"
        '[writer_model]\nbackend = "scripted"\npath = "scripted"\nretention = 0.98\ncontext_length = 65536\n'
        '[agent]\nmemories = ["full", "summary"]\nbudgets = [64]\n[stats]\nresamples = 200\n'
    )
    return path


def test_help_and_doctor_work_without_loading_anything_heavy() -> None:
    """Catches a broken registration, and square brackets swallowed as markup: `dssr[ray]` is what must be typed."""
    assert "diagnose" in dssr("--help").stdout
    told = dssr("doctor")
    assert told.returncode == 0
    rows = json.loads(dssr("doctor", "--json").stdout)
    assert {row["part"] for row in rows} >= {"python", "games", "tier scripted", "tier nano", "tier smol", "tier paper"}
    for row in rows:
        assert row["ready"] == (row["fix"] == "")
        assert row["fix"].split("&&")[0].strip() in told.stdout


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["diagnose", "-c", "nowhere"], "No configuration 'nowhere'"),
        (["diagnose", "-c", "tiny.toml", "-b", "-5"], "at least 1"),
        (["diagnose", "-c", "tiny.toml", "-m", "sumary"], "There is no memory 'sumary'"),
        (["diagnose", "-c", "tiny.toml", "--split", "test"], "seal"),
        (["report", "nothing-here"], "is not a run directory"),
        (["reader", "train", "-c", "tiny.toml"], "has no weights to train"),
        (["nano", "build", "reader", "--shape", "160x6"], "is no shape"),
        (["nano", "build", "writer", "--shape", "150x4x4x64"], "cannot be built"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_2(
    archive: Archive, tmp_path: Path, arguments: list[str], sentence: str
) -> None:
    """Catches a traceback, a wrong exit code, or a run directory left behind by a command that could not start."""
    tiny_study(archive, tmp_path)
    done = dssr(*arguments, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith("dssr: ")
    assert len(done.stderr.strip().splitlines()) == 1
    assert sentence in done.stderr
    assert not (tmp_path / "runs").exists()


def test_existing_and_foreign_runs_are_refused(archive: Archive, tmp_path: Path) -> None:
    """Catches a run overwritten, or continued under another configuration."""
    config = tiny_study(archive, tmp_path)
    common = ("diagnose", "-c", str(config), "-m", "full", "-g", "1", "-o", "run")
    assert dssr(*common, cwd=tmp_path).returncode == 0
    before = {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()}
    for more, sentence in (((), "exists"), (("--resume",), "is finished")):
        done = dssr(*common, *more, cwd=tmp_path)
        assert done.returncode == 2
        assert sentence in done.stderr
    (tmp_path / "run" / "summary.json").unlink()
    other = dssr("diagnose", "-c", str(config), "-m", "full", "-g", "2", "-o", "run", "--resume", cwd=tmp_path)
    assert other.returncode == 2
    assert "other settings (arguments)" in other.stderr
    for name, content in before.items():
        if name != "summary.json":
            assert (tmp_path / "run" / name).read_bytes() == content


WAITING = """
import asyncio
from pathlib import Path

class Memory:
    def __init__(self, kit):
        pass

    async def write(self, view, previous):
        while not Path("go-on").exists():
            await asyncio.sleep(0.01)
        return view.observation
"""


def test_interrupted_work_says_how_to_go_on(archive: Archive, tmp_path: Path) -> None:
    """Catches Ctrl-C that loses the run or prints a traceback; a resume then finishes it. The second episode's memory
    waits, so that the run cannot end before it is interrupted."""
    config = tiny_study(archive, tmp_path)
    (tmp_path / "waiting.py").write_text(WAITING)
    command = [sys.executable, "-m", "dssr.cli.main", "diagnose", "-c", str(config), "-o", "run"]
    command += ["-m", "full", "-m", "waiting:Memory"]
    child = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    while child.poll() is None and not (tmp_path / "run" / "episodes.jsonl").exists():
        time.sleep(0.005)
    os.kill(child.pid, signal.SIGINT)
    told = child.communicate()[1]
    assert child.returncode == 130, told
    assert "--resume" in told.strip().splitlines()[-1]
    assert "Traceback" not in told
    (tmp_path / "go-on").touch()
    assert subprocess.run([*command, "--resume"], cwd=tmp_path, capture_output=True).returncode == 0
    assert (tmp_path / "run" / "summary.json").exists()
