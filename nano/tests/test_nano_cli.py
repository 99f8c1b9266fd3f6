"""The built-in model through the command line, on real games: what `make demo` does, smaller."""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.cli.test_main import dssr

from dssr.config import ModelConfig
from dssr.models.load import load_model
from dssr.record.log import SITTINGS
from dssr.worlds.archive import Archive
from dssr_nano import networks, weights
from dssr_nano.cli import build
from dssr_nano.factory.build import SPECS
from dssr_nano.factory.curriculum import STEPS
from dssr_nano.networks import Role


@pytest.fixture
def study(archive: Archive, tmp_path: Path) -> Path:
    """The shipped configuration over the shared six-room games, with few samples."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "six").symlink_to(archive.folder / "six", target_is_directory=True)
    file = tmp_path / "small.toml"
    file.write_text(
        'base = "nano"\n[games]\narchive = "six"\ntrain = 3\nvalid = 2\ntest = 1\n'
        "[agent]\nbudgets = [48]\n[measure]\npoints = 2\noracle_samples = 2\n"
        "[stats]\nresamples = 200\n"
    )
    return file


def asked(study: Path, out: str, *more: str) -> tuple[str, ...]:
    return ("diagnose", "-c", str(study), "-m", "full", "-m", "guide", "-f", "0", "-o", out, *more)


def logs(run: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in run.glob("*.jsonl") if file.name not in SITTINGS}


def test_a_diagnosis_with_nano_is_the_same_after_a_kill(study: Path, tmp_path: Path) -> None:
    """Catches a model whose answers depend on the batch or on what came before: a killed and resumed run must hold the
    same records. Also catches a reader that lost its skill: it wins both games with the full history."""
    done = dssr(*asked(study, "whole", "--json"), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    cells: list[dict[str, Any]] = json.loads((tmp_path / "whole" / "summary.json").read_text())["cells"]
    assert [cell["success"] for cell in cells if cell["memory"] == "full"] == [1.0]
    command = [sys.executable, "-m", "dssr.cli.main", *asked(study, "killed")]
    child = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    while child.poll() is None and not (tmp_path / "killed" / "episodes.jsonl").exists():
        time.sleep(0.005)
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    assert not (tmp_path / "killed" / "summary.json").exists()
    assert dssr(*asked(study, "killed", "--resume"), cwd=tmp_path).returncode == 0
    assert logs(tmp_path / "killed") == logs(tmp_path / "whole")


def test_a_new_tokenizer_does_not_silently_stay_the_old_one(study: Path, tmp_path: Path) -> None:
    """Catches `--new-tokenizer` ignored in a folder whose networks use the package's own."""
    shutil.copytree(weights("writer"), tmp_path / "made" / "tokenizer")
    before = sorted((tmp_path / "made").rglob("*"))
    arguments = ("nano", "build", "reader", "-c", str(study), "--folder", "made", "--model", "model")
    done = dssr(*arguments, "--new-tokenizer", cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert "made already uses the package's tokenizer" in done.stderr
    assert sorted((tmp_path / "made").rglob("*")) == before
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize("role", ["house", "house-writer"])
@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--new-tokenizer",), "leave out --new-tokenizer"),
        ((), "no training games of 9 or 12 rooms"),
        (("--folder", "held"), "without the words of houses"),
    ],
)
def test_a_network_for_houses_says_what_it_needs(
    study: Path, tmp_path: Path, more: tuple[str, ...], said: str, role: str
) -> None:
    """Catches a build that fails hours later, or learns houses from games that have none."""
    shutil.copytree(weights("reader"), tmp_path / "held" / "tokenizer")
    done = dssr("nano", "build", role, "-c", str(study), "--model", "model", *more, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert said in " ".join(done.stderr.split())
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize("role", ["writer", "house"])
def test_a_build_ends_in_a_network_that_plays(
    study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, role: Role
) -> None:
    """Catches a build that cannot find the shipped network it starts as, stores the shared tokenizer once more, or
    exports what does not load. One step of training, on one game."""
    shutil.copytree(networks.WEIGHTS, tmp_path / "weights")
    monkeypatch.setattr(networks, "WEIGHTS", tmp_path / "weights")
    monkeypatch.setattr(networks, "TOKENIZERS", tmp_path / "weights" / "tokenizers")
    few = SPECS[role]._replace(rooms=(6,), games=1, walked=((0, 0),), strayed=())
    monkeypatch.setitem(SPECS, role, few)
    monkeypatch.setitem(STEPS, role, 1)
    monkeypatch.chdir(tmp_path)
    before = weights(role)
    kept = signal.getsignal(signal.SIGTERM)
    try:
        build(role, config=str(study), as_json=True)
    finally:
        signal.signal(signal.SIGTERM, kept)
    assert {file.name for file in (tmp_path / "weights" / role).iterdir()} == {
        "README.md",
        "config.json",
        "model.safetensors",
    }
    assert weights(role) != before
    assert "1 steps" in (tmp_path / "weights" / role / "README.md").read_text(encoding="utf-8")
    model = load_model(ModelConfig(backend="hf", path=f"nano/{role}", dtype="float32", device="cpu", threads=1))
    asyncio.run(model.close())
