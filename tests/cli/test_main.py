"""The command line: exit codes, one sentence for bad input, output for people and for programs."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dssr.cli.main import hint
from dssr.config import load
from dssr.errors import ModelError
from dssr.measure.plan import duration
from dssr.models.load import weights_folder
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
    assert "other settings (arguments, the content of games)" in other.stderr
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


TWICE = """
import os, signal
from pathlib import Path

class Memory:
    def __init__(self, kit):
        pass

    async def write(self, view, previous):
        if not Path("go-on").exists():
            for _ in range(4):
                os.kill(os.getpid(), signal.SIGINT)
        return view.observation
"""


def test_more_than_one_interrupt_ends_cleanly_too(archive: Archive, tmp_path: Path) -> None:
    """Catches tracebacks of asyncio, threads or the interpreter's end when Ctrl-C is pressed again and again, and a
    run that cannot go on after it. The memory sends the signals itself, from inside a write."""
    config = tiny_study(archive, tmp_path)
    (tmp_path / "twice.py").write_text(TWICE)
    command = ("diagnose", "-c", str(config), "-o", "run", "-m", "full", "-m", "twice:Memory")
    done = dssr(*command, cwd=tmp_path)
    assert done.returncode == 130, done.stderr
    assert "Traceback" not in done.stderr
    assert "Error" not in done.stderr
    assert done.stderr.strip().splitlines()[-1].endswith("go on with the same command and --resume.")
    (tmp_path / "go-on").touch()
    assert dssr(*command, "--resume", cwd=tmp_path).returncode == 0


EARLY = """
import os, signal, sys

class Finder:
    def find_spec(self, name, path, target=None):
        if name == "typer":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Finder())
from dssr.cli import start
start()
"""


def test_a_very_early_interrupt_ends_cleanly() -> None:
    """Catches the traceback of a Ctrl-C that comes while the program is still being imported."""
    done = subprocess.run([sys.executable, "-c", EARLY, "--help"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr == "dssr: interrupted; nothing was changed; give the same command again.\n"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["diagnose", "-c", "demo"], "--resume"),
        (["games", "make"], "--resume"),
        (["-q", "reader", "train"], "--resume"),
        (["demo"], "give the same command again to go on"),
        (["games", "stats"], "nothing was changed"),
        (["report", "runs/diagnose"], "nothing was changed"),
    ],
)
def test_the_hint_after_an_interrupt_is_true_for_the_command(words: list[str], told: str) -> None:
    """Catches `--resume` advised for a command that has no such option."""
    assert told in hint(words)


def test_what_failed_is_told_by_cause(archive: Archive, tmp_path: Path) -> None:
    """Catches failures that end in exit code 0, or in a pointer to a log instead of the reason and its count."""
    config = tiny_study(archive, tmp_path)
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "broken.py").write_text(
        "class Memory:\n    def __init__(self, kit): ...\n    async def write(self, view, previous):\n"
        "        return {}['nothing']\n"
    )
    done = dssr("diagnose", "-c", str(config), "-o", "run", "-m", "full", "-m", "own.broken:Memory", cwd=tmp_path)
    assert done.returncode == 1
    assert "KeyError: 'nothing' (broken.py, line 4)" in done.stdout
    assert "episodes failed" in done.stderr
    played = dssr("play", "valid-1-000", "-c", str(config), "-m", "own.broken:Memory", cwd=tmp_path)
    assert played.returncode == 1
    assert "KeyError" in played.stderr
    assert "Traceback" not in done.stderr + played.stderr


def test_what_there_is_can_be_listed(archive: Archive, tmp_path: Path) -> None:
    """Catches a fork that needs a key nobody can find; the listed key is one that `fork` takes."""
    config = tiny_study(archive, tmp_path)
    assert dssr("runs", cwd=tmp_path).returncode == 0
    done = dssr("--quiet", "diagnose", "-c", str(config), "-m", "summary", "-g", "1", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    (row,) = json.loads(dssr("runs", "--json", cwd=tmp_path).stdout)
    assert (row["command"], row["state"], row["episodes"]) == ("diagnose", "finished", 1)
    assert Path(row["run"]).name.startswith("diagnose-tiny-")
    (episode,) = json.loads(dssr("episodes", row["run"], "--json", cwd=tmp_path).stdout)
    assert episode["memory"] == "summary"
    forked = dssr("fork", row["run"], episode["episode"][:12], "0", cwd=tmp_path)
    assert forked.returncode == 0
    assert "as logged" in forked.stderr


def test_debug_shows_the_traceback() -> None:
    """Catches a `--debug` that hides what it is for, and a traceback without it."""
    assert "Traceback" in dssr("--debug", "diagnose", "-c", "nowhere").stderr
    assert "Traceback" not in dssr("diagnose", "-c", "nowhere").stderr


CARRYING = """
class Memory:
    seen = []

    def __init__(self, kit):
        pass

    async def write(self, view, previous):
        self.seen.append(view.observation[:20])
        return " ".join(self.seen)[-200:]
"""


def test_a_memory_that_keeps_more_than_its_text_is_noticed(archive: Archive, tmp_path: Path) -> None:
    """Catches history carried past the state in a class attribute, which a new object per write does not prevent; and a
    memory named by its file that is not found."""
    config = tiny_study(archive, tmp_path)
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "carrying.py").write_text(CARRYING)
    done = dssr("diagnose", "-c", str(config), "-o", "run", "-m", "sub/carrying.py:Memory", cwd=tmp_path)
    assert done.returncode == 1
    assert "something besides its text crosses steps" in done.stdout
    missing = dssr("diagnose", "-c", str(config), "-o", "other", "-m", "sub/nothing.py:Memory", cwd=tmp_path)
    assert missing.returncode == 2
    assert "There is no file sub/nothing.py" in missing.stderr


def test_folders_of_models_are_seen_from_the_configuration(tmp_path: Path) -> None:
    """Catches weights that are found only from one folder, and a missing folder asked of a hub for minutes."""
    (tmp_path / "study" / "models" / "mine").mkdir(parents=True)
    path = tmp_path / "study" / "mine.toml"
    path.write_text('base = "scripted"\n[writer_model]\nbackend = "hf"\npath = "models/mine"\n')
    assert load(str(path)).writer_model.path == str(tmp_path / "study" / "models" / "mine")
    for name in ("models/gone", "./gone", "/gone", "a/b/c"):
        with pytest.raises(ModelError, match=f"There is no folder {name}"):
            weights_folder(name)
    assert weights_folder("owner/model") == "owner/model"


def test_a_missing_archive_says_what_to_do(tmp_path: Path) -> None:
    """Catches a hint without the configuration, and a wait that is not stated."""
    done = dssr("play", "valid-6-000", "-c", "scripted", cwd=tmp_path)
    assert done.returncode == 1
    assert "`dssr games make --config scripted` (12 games, about a minute)" in done.stderr
    assert "--config demo" in done.stderr


@pytest.mark.parametrize(
    ("hours", "said"),
    [(0.0003, "1 second"), (0.02, "72 seconds"), (0.0601, "4 minutes"), (1.5, "90 minutes"), (2.0, "2.0 hours")],
)
def test_a_time_is_told_in_units_that_fit(hours: float, said: str) -> None:
    """Catches 0.0601 hours: seconds, minutes or hours, by what it is."""
    assert duration(hours) == said


def test_no_command_tells_fractions_of_hours(archive: Archive, tmp_path: Path) -> None:
    """Catches a plan or a stage of a study whose time is a bare number: both say seconds, minutes or hours."""
    config = str(tiny_study(archive, tmp_path))
    planned = dssr("plan", "-c", config, "-m", "full", "-g", "1", "--calibrate", cwd=tmp_path)
    assert planned.returncode == 0, planned.stderr
    assert re.search(
        r"^time: [\d.]+ (seconds?|minutes|hours) to [\d.]+ (seconds?|minutes|hours)$", planned.stdout, re.M
    )
    assert "hours" not in planned.stdout.partition("time:")[0]
    states = dssr("study", "-c", config, "--status", cwd=tmp_path)
    assert states.returncode == 0, states.stderr
    assert " time " in states.stdout
    assert "hours" not in states.stdout


def test_a_reader_is_not_accepted_on_a_few_games(archive: Archive, tmp_path: Path) -> None:
    """Catches a reader that passes by having won two games: the sentence names how many there are and are needed, and
    nothing is played; with as many games as asked for it is judged."""
    config = tiny_study(archive, tmp_path)
    refused = dssr("reader", "accept", "-c", str(config), cwd=tmp_path)
    assert refused.returncode == 1
    assert refused.stderr.startswith("dssr: 2 validation games are too few to accept a reader; make 10 or more")
    assert len(refused.stderr.splitlines()) == 1
    assert not (tmp_path / "runs").exists()
    config.write_text(config.read_text() + "[reader]\naccept_games = 2\n")
    judged = dssr("reader", "accept", "-c", str(config), "--json", cwd=tmp_path)
    assert judged.returncode in (0, 1), judged.stderr
    assert json.loads(judged.stdout)["games"] == 2


def test_intervals_in_tables_are_written_as_elsewhere(archive: Archive, tmp_path: Path) -> None:
    """Catches a record printed as Python writes it: the table of `dssr lag` has estimates with their bounds."""
    config = tiny_study(archive, tmp_path)
    assert dssr("diagnose", "-c", str(config), "-m", "summary", "-o", "run", cwd=tmp_path).returncode == 0
    told = dssr("lag", "run", cwd=tmp_path)
    assert told.returncode == 0, told.stderr
    assert "estimate" not in told.stdout
    assert "regret by relevance lag" in told.stdout


def test_the_episode_that_is_offered_to_fork_is_a_writers_loss(archive: Archive, tmp_path: Path) -> None:
    """Catches a hint that leads to an episode with nothing to see; the line must work as it is printed."""
    config = tiny_study(archive, tmp_path)
    config.write_text(config.read_text().replace("0.98", "0.0"))
    assert dssr("diagnose", "-c", str(config), "-o", "run", cwd=tmp_path).returncode == 0
    listed = json.loads(dssr("episodes", "run", "--json", cwd=tmp_path).stdout)
    told = dssr("episodes", "run", cwd=tmp_path).stderr
    *_, key, step = told.split()
    (named,) = [one for one in listed if one["episode"].startswith(key)]
    assert (named["memory"], named["outcome"] == "won") == ("summary", False)
    forked = dssr("fork", "run", key, step, cwd=tmp_path)
    assert forked.returncode == 0, forked.stderr
    assert "as logged" in forked.stdout + forked.stderr
    unknown = dssr("fork", "run", "KEY", "0", cwd=tmp_path)
    assert unknown.returncode == 2
    assert "No episode of run has a key that begins with 'KEY'; its keys are" in unknown.stderr
