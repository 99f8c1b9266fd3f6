"""`dssr games make · check · stats`."""

import json
import shutil
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from dssr.cli import episodes
from dssr.errors import GameError
from dssr.measure.archives import counter
from dssr.record.log import DIGESTS
from dssr.worlds.archive import Archive

CONFIG = """
name = "tiny"
[games]
archive = "tiny"
levels = [1]
options = { recipe = 1, take = 1 }
train = 1
valid = 0
test = 0
"""


def run(*arguments: str) -> Result:
    app = typer.Typer()
    episodes.register(app)
    app.command("other")(lambda: None)
    return CliRunner().invoke(app, ["games", *arguments])


@pytest.mark.timeout(3600)  # makes a game: see LIMITS in the root conftest.py
def test_make_makes_the_games_of_a_configuration_once(archive: Archive, tmp_path: Path) -> None:
    """Catches a command that ignores the configuration's options, and one that makes an archive twice."""
    config = tmp_path / "tiny.toml"
    config.write_text(f'data = "{tmp_path}"\n' + CONFIG)
    made = run("make", "--config", str(config), "--json")
    assert made.exit_code == 0, made.output
    assert json.loads(made.stdout) == {"archive": str(tmp_path / "tiny"), "games": 1, "engine": "1.7.0"}
    assert Archive.open(tmp_path / "tiny").games()[0].md5 == archive.game("train-1-000").md5
    again = run("make", "--config", str(config))
    assert isinstance(again.exception, GameError)
    assert "never made again" in str(again.exception)


def test_check_passes_good_games_and_names_bad_ones(fresh_archive: Archive, tmp_path: Path) -> None:
    """Catches a check that says yes to an altered file, or that does not fail when a game does."""
    one = fresh_archive.folder / "one"
    small = tmp_path / "small"
    shutil.copytree(one.resolve(), small, ignore=shutil.ignore_patterns("trees", DIGESTS))
    lines = (small / "manifest.jsonl").read_bytes().splitlines(keepends=True)[:2]
    (small / "manifest.jsonl").write_bytes(b"".join(lines))
    good = run("check", "--archive", str(small), "--json")
    assert good.exit_code == 0, good.output
    assert json.loads(good.stdout) == {"archive": str(small), "games": 2, "faulty": 0, "faults": []}
    first, second = Archive.open(small).games()
    with (small / second.file).open("ab") as file:
        file.write(b"x")
    bad = run("check", "--archive", str(small), "--json")
    assert bad.exit_code == 1
    told = json.loads(bad.stdout)
    assert told["faulty"] == 1
    assert told["faults"][0]["game"] == second.id != first.id
    assert "altered" in told["faults"][0]["fault"]


def some_games(archive: Archive, folder: Path, *names: str) -> Path:
    """An archive of a few of the shared games, with their stored steps."""
    shutil.copy(archive.folder / "archive.json", folder)
    lines = (archive.folder / "manifest.jsonl").read_bytes().splitlines(keepends=True)
    chosen = [line for line in lines if json.loads(line)["id"] in names]
    (folder / "manifest.jsonl").write_bytes(b"".join(chosen))
    for part in ("one", "six", "large", "trees"):
        (folder / part).symlink_to(archive.folder / part)
    return folder


def test_stats_rows(archive: Archive, tmp_path: Path) -> None:
    """Catches a renamed column, a missing cell, or lengths that do not grow with the walk."""
    folder = some_games(archive, tmp_path, "train-1-000", "train-1-001", "valid-6-000", "valid-12-000")
    done = run("stats", "--archive", str(folder), "--tokenizer", "words", "--json")
    assert done.exit_code == 0, done.output
    rows = json.loads(done.stdout)
    assert [(row["level"], row["filler"]) for row in rows] == [
        (1, 0),
        *[(rooms, filler) for rooms in (6, 12) for filler in (0, 10, 20, 40)],
    ]
    names = {"level", "filler", "phase_a_steps", "phase_b_steps", "history_tokens_mean", "history_tokens_max", "games"}
    assert all(set(row) == names | {"phase_a_error", "phase_b_error"} for row in rows)
    assert all((row["phase_b_error"] is None) == (row["games"] == 1) for row in rows)
    assert {row["level"]: row["games"] for row in rows} == {1: 2, 6: 1, 12: 1}
    six = {row["filler"]: row for row in rows if row["level"] == 6}
    assert six[40]["phase_a_steps"] == six[0]["phase_a_steps"] + 40
    assert six[0]["history_tokens_mean"] < six[10]["history_tokens_mean"] < six[40]["history_tokens_mean"]
    assert all(row["history_tokens_mean"] <= row["history_tokens_max"] for row in rows)
    assert all(row["phase_b_steps"] >= 3 for row in rows)


def test_missing_archive_is_one_sentence(tmp_path: Path) -> None:
    """Catches a traceback for the most likely mistake."""
    done = run("stats", "--archive", str(tmp_path / "none"))
    assert isinstance(done.exception, GameError)
    assert "dssr games make" in str(done.exception)


@pytest.mark.parametrize("text", ["", "one two\n\nthree"])
def test_words(text: str) -> None:
    """Catches a plain counter that counts characters or lines."""
    assert counter("words")(text) == len(text.split())
