"""Tiers and configurations of other packages: found when they are installed, named in a sentence when they are not."""

import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

import pytest
from tests.cli.test_main import tiny_study

from dssr import config, settings
from dssr.errors import ConfigError, ModelError
from dssr.models import load
from dssr.models.scripted import ScriptedModel
from dssr.worlds.archive import Archive

BARE = """
import sys, importlib.metadata as metadata
found = metadata.entry_points
metadata.entry_points = lambda **wanted: [one for one in found(**wanted) if not one.value.startswith("dssr_nano")]
sys.modules["dssr_nano"] = None
from dssr.cli.main import main
main()
"""
"""The command line as it is without dssr-nano: its entry points are not there, and importing it fails."""


@pytest.fixture
def without_nano(monkeypatch: pytest.MonkeyPatch) -> None:
    """An installation of dssr alone."""

    def others(group: str, name: str = "") -> list[EntryPoint]:
        found = [one for one in entry_points(group=group) if not one.value.startswith("dssr_nano")]
        return [one for one in found if name in ("", one.name)]

    for module in (settings, load):
        monkeypatch.setattr(module, "entry_points", others)


@pytest.mark.usefixtures("without_nano")
@pytest.mark.parametrize("name", ["nano", "nano-house", "nano-r2"])
def test_a_configuration_of_nano_says_what_to_install(name: str, tmp_path: Path) -> None:
    """Catches the default configuration refused as an unknown name, also as the base of a file."""
    assert name not in settings.names()
    file = tmp_path / "mine.toml"
    file.write_text(f'base = "{name}"')
    for asked in (name, str(file)):
        with pytest.raises(ConfigError, match=r"dssr-nano, which is not installed: .*pip install 'dssr\[nano\]'.*\.$"):
            config.load(asked)
    with pytest.raises(ConfigError, match="No configuration 'nano-hose'"):
        config.load("nano-hose")


@pytest.mark.usefixtures("without_nano")
def test_a_network_of_nano_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches `nano/reader` sent to the hub as if it were a name there; a folder of that name stays a folder."""
    with pytest.raises(ModelError, match=r"The tier nano is not installed: .*pip install 'dssr\[nano\]'`\.$"):
        load.weights_folder("nano/reader")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nano" / "reader").mkdir(parents=True)
    assert load.weights_folder("nano/reader") == "nano/reader"


@pytest.mark.usefixtures("without_nano")
def test_the_scripted_tier_needs_no_plug_in() -> None:
    """Catches a bare installation that cannot even take a first look."""
    assert {"scripted", "smol", "paper"} <= set(settings.names())
    assert isinstance(load.load_model(config.load("scripted").writer_model), ScriptedModel)


def bare(*arguments: str, cwd: Path) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-c", BARE, *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd)


def test_the_command_line_works_without_nano(archive: Archive, tmp_path: Path) -> None:
    """Catches an import of dssr_nano anywhere in dssr: help, a diagnosis and its report must not need it, and whoever
    asks for it gets one sentence."""
    study = tiny_study(archive, tmp_path)
    helped = bare("--help", cwd=tmp_path)
    assert helped.returncode == 0, helped.stderr
    assert " nano " not in helped.stdout
    done = bare("diagnose", "-c", str(study), "-m", "summary", "-g", "1", "-o", "run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for asked in (("plan",), ("plan", "-c", "nano-house")):
        refused = bare(*asked, cwd=tmp_path)
        assert refused.returncode == 2
        assert len(refused.stderr.strip().splitlines()) == 1
        assert "pip install 'dssr[nano]'" in refused.stderr


def test_a_cached_folder_is_made_once_and_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a folder that others see half filled, one that two callers make into a mixture, and drafts left."""
    monkeypatch.setenv("DSSR_HOME", str(tmp_path / "home"))
    seen: list[Sequence[Path]] = []

    def fill(folder: Path) -> None:
        (folder / "one").write_text("1")
        seen.append([path for path in (tmp_path / "home").iterdir() if not path.name.startswith(".")])
        (folder / "two").write_text("2")

    with ThreadPoolExecutor(8) as pool:
        found = set(pool.map(lambda _: load.cached_folder("model", fill), range(16)))
    (folder,) = found
    assert {path.name: path.read_text() for path in folder.iterdir()} == {"one": "1", "two": "2"}
    assert seen[0] == []
    assert list((tmp_path / "home").iterdir()) == [folder]
    made = len(seen)
    assert load.cached_folder("model", fill) == folder
    assert len(seen) == made


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a full or read-only home that ends in a traceback, or in a broken folder that is trusted next time."""
    monkeypatch.setenv("DSSR_HOME", str(tmp_path))

    def fill(folder: Path) -> None:
        (folder / "one").write_text("1")
        raise OSError(28, "No space left on device")

    with pytest.raises(ModelError, match=r"No space left on device.*set DSSR_HOME"):
        load.cached_folder("model", fill)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").touch()
    monkeypatch.setenv("DSSR_HOME", str(tmp_path / "file"))
    with pytest.raises(ModelError, match="set DSSR_HOME"):
        load.cached_folder("model", fill)
