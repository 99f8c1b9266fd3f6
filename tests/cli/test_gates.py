"""The gates and the evaluation on the command line: asked, shown, refused; and a check that has nothing to search."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.test_main import dssr, tiny_study

from dssr.worlds.archive import Archive

ASKED = ("-m", "summary", "-b", "64")


@pytest.fixture
def place(archive: Archive, tmp_path: Path) -> Path:
    """A configuration with games of its own, whose seal no other test breaks."""
    config = tiny_study(archive, tmp_path)
    config.write_text(config.read_text() + "[gates]\nbudget = 64\n")
    (tmp_path / "data" / "one").unlink()
    ignored = shutil.ignore_patterns("trees", "seal")
    shutil.copytree(archive.folder / "one", tmp_path / "data" / "one", ignore=ignored)
    return tmp_path


def approve(place: Path, answer: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "dssr.cli.main", "gates", "approve", "All choices are made.", "-c", "tiny.toml"]
    return subprocess.run([*command, *ASKED], input=answer, capture_output=True, text=True, cwd=place)


def test_an_approval_is_asked_for_and_shown(place: Path) -> None:
    """Catches test games that open without a question or after a no, an approval that cannot be seen later, and an
    evaluation of something else than was approved."""
    assert dssr("gates", "write", "-c", "tiny.toml", cwd=place).returncode == 0
    refused = approve(place, "n\n")
    assert refused.returncode == 1
    assert "This lets one run see 2 test games, once: memories summary; budgets 64; fillers 0." in refused.stderr
    assert "approval" not in dssr("gates", "show", "-c", "tiny.toml", cwd=place).stdout
    evaluation = ("evaluate", "-c", "tiny.toml", *ASKED, "-o", "test")
    assert dssr(*evaluation, cwd=place).returncode == 2
    assert approve(place, "y\n").returncode == 0
    shown = dssr("gates", "show", "-c", "tiny.toml", cwd=place).stdout
    assert "approval" in shown
    assert "All choices are made. (memories summary; budgets 64; fillers 0)" in " ".join(shown.split())
    other = dssr("evaluate", "-c", "tiny.toml", "-m", "summary", "-b", "32", "-o", "test", cwd=place)
    assert other.returncode == 2
    assert not (place / "test").exists()
    assert dssr(*evaluation, cwd=place).returncode == 0


def test_a_check_that_searched_nothing_says_so(place: Path) -> None:
    """Catches "0 leaked" of a run whose prompts nobody searched."""
    assert dssr("diagnose", "-c", "tiny.toml", *ASKED, "-o", "run", cwd=place).returncode == 0
    assert dssr("check", "run", cwd=place).returncode == 0
    for name in ("prompts.jsonl", "searches.jsonl", "summary.json"):
        (place / "run" / name).unlink()
    done = dssr("check", "run", cwd=place)
    assert done.returncode == 2
    assert "No prompt of run was searched" in done.stderr
