"""Run directories: refused, resumed, finished once."""

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from dssr.config import Config, StatsConfig
from dssr.errors import RecordError
from dssr.record.run import Run
from dssr.types import Fact

CONFIG = Config(name="test")
FACT = Fact(name="at", args=("P", "kitchen"))


def start(path: Path, config: Config = CONFIG, resume: bool = False, **more: object) -> Run:
    return Run.start(
        path, command="diagnose", config=config, models={"writer": "w1"}, resume=resume, arguments=dict(more)
    )


def test_a_run_says_where_it_came_from(tmp_path: Path) -> None:
    """Catches a run.json that lost one of the fields a result must be traced by."""
    with start(tmp_path / "run", split="valid") as run:
        run.append("facts", "a", FACT)
    stored = msgspec.json.decode((tmp_path / "run" / "run.json").read_bytes())
    assert stored["config"]["games"]["train"] == 80
    assert stored["arguments"] == {"split": "valid"}
    assert stored["models"] == {"writer": "w1"}
    assert stored["digest"] == CONFIG.digest()
    origin = stored["provenance"]
    assert any(one.startswith("textworld==") for one in origin["packages"])
    assert origin["device"]
    assert origin["host"]
    assert origin["started"].endswith("+00:00")
    assert {"commit", "dirty"} <= origin.keys()


def test_an_existing_directory_is_refused(tmp_path: Path) -> None:
    """Catches overwriting: without --resume, with a finished run, and with a folder that is no run."""
    run = start(tmp_path / "run")
    with pytest.raises(RecordError, match="--resume"):
        start(tmp_path / "run")
    with pytest.raises(RecordError, match="another process"):
        start(tmp_path / "run", resume=True)
    run.finish({"cells": []})
    with pytest.raises(RecordError, match="is finished"):
        start(tmp_path / "run", resume=True)
    with pytest.raises(RecordError, match="holds no run"):
        start(tmp_path, resume=True)


def test_resume_refuses_other_settings_and_names_them(tmp_path: Path) -> None:
    """Catches a run whose first half was computed under another configuration than its second."""
    start(tmp_path / "run", split="valid").close()
    other = msgspec.structs.replace(CONFIG, stats=StatsConfig(resamples=5))
    with pytest.raises(RecordError, match=r"config\.stats\.resamples"):
        start(tmp_path / "run", other, resume=True, split="valid")
    with pytest.raises(RecordError, match="arguments"):
        start(tmp_path / "run", resume=True, split="test")
    moved = msgspec.structs.replace(CONFIG, runs="elsewhere")
    start(tmp_path / "run", moved, resume=True, split="valid").close()


def test_nothing_is_added_after_the_end(tmp_path: Path) -> None:
    """Catches a summary that no longer describes its logs, and a second summary."""
    run = start(tmp_path / "run")
    run.append("facts", "a", FACT)
    run.finish({"n": 1})
    with pytest.raises(RecordError):
        run.append("facts", "b", FACT)
    with pytest.raises(RecordError):
        run.finish({"n": 2})
    read = Run.open(tmp_path / "run")
    assert read.summary == {"n": 1}
    assert list(read.read("facts", Fact)) == [FACT]
    with pytest.raises(RecordError):
        read.append("facts", "b", FACT)


def test_a_failed_run_has_no_summary(tmp_path: Path) -> None:
    """Catches a leaking run that can still be reported."""
    run = start(tmp_path / "run")
    run.fail({"leaks": 3})
    read = Run.open(tmp_path / "run")
    assert read.finished
    assert read.summary is None
    assert read.failure == {"leaks": 3}


@pytest.mark.skipif(os.name != "posix", reason="needs a POSIX system: use Linux or macOS")
def test_a_directory_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    """Catches a traceback, and a draft folder left behind. A file as the parent fails for every user, root included."""
    (tmp_path / "file").write_text("")
    with pytest.raises(RecordError, match="Cannot make"):
        start(tmp_path / "file" / "run")
    assert [one.name for one in tmp_path.iterdir()] == ["file"]


CHILD = """
import sys
from dssr.config import Config
from dssr.record.run import Run
from dssr.types import Fact
with Run.start(sys.argv[1], command="test", config=Config(name="test"), models={}, resume=True) as run:
    for episode in range(60):
        if run.has("episodes", f"e{episode}"):
            continue
        if not sys.stdin.read(1):
            sys.exit(3)
        run.extend("steps", [(f"e{episode}:{n}", Fact(name="step", args=(str(n) * 400,))) for n in range(20)])
        run.append("episodes", f"e{episode}", Fact(name="episode", args=(str(episode),)))
    run.finish({"episodes": sum(1 for _ in run.read("episodes", Fact))})
"""


def test_killed_and_resumed_equals_undisturbed(tmp_path: Path) -> None:
    """Catches lost, doubled, reordered or torn lines after SIGKILL at 20 random moments.

    A kill falls inside a write or between two logs in a good share of the 20 rounds; one survivor with a
    missing or doubled line fails the byte comparison. A round has leave for two episodes, one byte each, so that
    the child cannot finish however late the kill comes.
    """
    import random
    import time

    rng = random.Random(7)
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    subprocess.run([sys.executable, "-c", CHILD, str(whole)], check=True, input=b"." * 60)
    for _ in range(20):
        child = subprocess.Popen([sys.executable, "-c", CHILD, str(killed)], stdin=subprocess.PIPE)
        assert child.stdin is not None
        size = _size(killed)
        child.stdin.write(b"..")
        child.stdin.flush()
        while _size(killed) == size:
            assert child.poll() is None
            time.sleep(0.001)  # let it begin to write, then kill somewhere inside these episodes
        time.sleep(rng.uniform(0, 0.004))
        child.kill()
        assert child.wait() < 0
        child.stdin.close()
    assert not (killed / "summary.json").exists()
    subprocess.run([sys.executable, "-c", CHILD, str(killed)], check=True, input=b"." * 60)
    for name in ("steps.jsonl", "episodes.jsonl", "summary.json"):
        assert (killed / name).read_bytes() == (whole / name).read_bytes(), name


def _size(run: Path) -> int:
    return sum(one.stat().st_size for one in run.glob("*.jsonl") if one.name != "resumes.jsonl") if run.exists() else 0


def test_a_run_names_every_device_it_was_computed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a run continued on another machine whose numbers count as those of the first: before, only the device of
    `run.json` could be asked for. Started on A, continued on B, then on A again: two devices, the first one first."""
    for device in ("card A", "card B", "card A"):
        monkeypatch.setattr("dssr.record.run.device", lambda device=device: device)
        start(tmp_path / "run", resume=True).close()
    run = Run.open(tmp_path / "run")
    assert run.devices == ("card A", "card B")
    with (run.path / "resumes.jsonl").open("ab") as file:
        file.write(b'{"commit":nu')
    assert run.devices == ("card A", "card B")
    with (run.path / "resumes.jsonl").open("ab") as file:
        file.write(b"\n")
    with pytest.raises(RecordError, match="line 3 is damaged"):
        _ = run.devices


def test_a_run_is_private_to_its_user(tmp_path: Path) -> None:
    """Catches prompts and replies that every user of the machine can read; a usual umask leaves 0755 and 0644."""
    before = os.umask(0o022)
    try:
        start(tmp_path / "run").close()
        with start(tmp_path / "run", resume=True) as run:
            run.append("facts", "a", FACT)
        (tmp_path / "run" / "facts.jsonl").open("ab").write(b"torn")
        with start(tmp_path / "run", resume=True) as run:
            run.append("facts", "b", FACT)
            run.finish({})
    finally:
        os.umask(before)
    modes = {file.name: file.stat().st_mode & 0o777 for file in (tmp_path / "run").iterdir()}
    assert {"run.json", "facts.jsonl", "facts.torn", "resumes.jsonl", "summary.json", "lock"} <= modes.keys()
    assert set(modes.values()) == {0o600}
    assert (tmp_path / "run").stat().st_mode & 0o777 == 0o700
