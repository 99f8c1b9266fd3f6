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
    start(tmp_path / "run", resume=True).close()  # a kill inside a line of it leaves the next one whole
    assert Run.open(tmp_path / "run").devices == ("card A", "card B")
    with (run.path / "resumes.jsonl").open("ab") as file:
        file.write(b"half\n")
    with pytest.raises(RecordError, match="line 4 is damaged"):
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


# ---------------------------------------------------------------- what belongs together


def unit(run: Run, word: str) -> None:
    """One episode whose model says something else at every try."""
    with run.unit():
        run.extend("audits", [(f"e1:{n}", Fact(word, (str(n),))) for n in range(3)])
        run.extend("steps", [(f"e1:{n}", Fact(word, (str(n),))) for n in range(5)])
        run.append("episodes", "e1", Fact(word, ()))


class KilledError(BaseException):
    pass


@pytest.mark.parametrize("written", range(4))
@pytest.mark.parametrize("torn", [False, True])
def test_a_record_is_never_joined_from_two_tries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: int, torn: bool
) -> None:
    """Catches audits of a first try beside the steps of a second: killed after each block, and inside the next, a run
    is continued by a model that answers otherwise. Before, keys that were there already stayed."""
    whole = start(tmp_path / "whole")
    unit(whole, "second")
    whole.finish({})

    real, blocks = os.write, 0

    def write(descriptor: int, data: bytes) -> int:
        nonlocal blocks
        if blocks == written:
            if torn:
                real(descriptor, bytes(data)[: len(data) // 2])
            raise KilledError
        blocks += 1
        return real(descriptor, data)

    first = start(tmp_path / "run")
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", write)
        with pytest.raises(KilledError):
            unit(first, "first")
    first.close()
    with start(tmp_path / "run", resume=True) as again:
        assert not again.has("episodes", "e1")
        unit(again, "second")
        again.finish({})
    for name in ("audits.jsonl", "steps.jsonl", "episodes.jsonl"):
        assert (tmp_path / "run" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    set_aside = b"".join(file.read_bytes() for file in (tmp_path / "run").glob("*.torn"))
    assert (b"first" in set_aside) == (written > 0 or torn)


def test_a_kill_before_the_summary_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches whole records that are set aside because the run was killed while it was being finished, and logs
    altered between that and the resume."""
    for blocks in range(2):
        run = start(tmp_path / f"run{blocks}")
        unit(run, "only")
        before = (run.path / "steps.jsonl").read_bytes()
        calls = iter(range(9))

        def replace(
            old: object, new: object, left: int = blocks, calls: object = calls, real: object = os.replace
        ) -> None:
            if next(calls) == left:  # type: ignore[call-overload]
                raise KilledError
            real(old, new)  # type: ignore[operator]

        with monkeypatch.context() as patch:
            patch.setattr(os, "replace", replace)
            with pytest.raises(KilledError):
                run.finish({})
        run.close()
        if blocks == 1:
            (run.path / "steps.jsonl").write_bytes(before.replace(b"only", b"ONLY"))
            with pytest.raises(RecordError, match="was altered"):
                start(run.path, resume=True)
            (run.path / "steps.jsonl").write_bytes(before)
        with start(run.path, resume=True) as again:
            assert again.has("episodes", "e1")
            again.finish({})
        assert (run.path / "steps.jsonl").read_bytes() == before


def test_a_log_that_became_shorter_is_not_continued(tmp_path: Path) -> None:
    """Catches a run that goes on although a part of what it had written is gone."""
    run = start(tmp_path / "run")
    unit(run, "only")
    run.close()
    file = run.path / "audits.jsonl"
    file.write_bytes(file.read_bytes()[:-30])
    with pytest.raises(RecordError, match=r"audits\.jsonl lost a part"):
        start(run.path, resume=True)


def test_another_content_is_refused_by_name(tmp_path: Path) -> None:
    """Catches a memory, a prompt or games that were edited between a kill and the resume."""
    asked = {"command": "diagnose", "config": CONFIG, "models": {}}
    Run.start(tmp_path / "run", contents={"mine:Memory": "a", "prompts": "p"}, **asked).close()  # type: ignore[arg-type]
    with pytest.raises(RecordError, match=r"\(the content of mine:Memory\)"):
        Run.start(tmp_path / "run", contents={"mine:Memory": "b", "prompts": "p"}, resume=True, **asked)  # type: ignore[arg-type]


# ---------------------------------------------------------------- finished runs


@pytest.fixture
def finished(tmp_path: Path) -> Path:
    run = start(tmp_path / "run")
    unit(run, "word")
    run.finish({"n": 1})
    return run.path


def read_all(path: Path) -> object:
    run = Run.open(path)
    logs = [list(run.read_keyed(name, Fact)) for name in ("audits", "steps", "episodes", "problems")]
    return run.summary, run.devices, logs


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("audits.jsonl", lambda data: data[: len(data) // 3]),
        ("audits.jsonl", lambda data: b"".join(data.splitlines(True)[:-1])),
        ("audits.jsonl", lambda data: data + data.splitlines(True)[-1]),
        ("audits.jsonl", lambda data: b"".join(reversed(data.splitlines(True)))),
        ("audits.jsonl", lambda data: data + b"torn"),
        ("audits.jsonl", lambda data: None),
        ("steps.jsonl", lambda data: data.replace(b"word", b"sword")),
        ("episodes.jsonl", lambda data: b""),
        ("problems.jsonl", lambda data: b'{"key":"e1","name":"x","args":[]}\n'),
        ("resumes.jsonl", lambda data: b"{}\n"),
        ("run.json", lambda data: data.replace(b'"resamples": 10000', b'"resamples": 10001')),
        ("summary.json", lambda data: data.replace(b"1", b"2")),
        ("digests.json", lambda data: None),
        ("digests.json", lambda data: data.replace(b"lines", b"Lines")),
        ("digests.json", lambda data: b"\xff\xfe"),
    ],
)
def test_a_finished_run_is_refused_once_a_file_differs(finished: Path, name: str, change: object) -> None:
    """Catches numbers that change without a word: half of the audits cut away, a line doubled, a file missing or
    added. Each change alone must be refused by whoever reads that file, and by `check`."""
    read_all(finished)
    assert Run.open(finished).check() == 5
    file = finished / name
    new = change(file.read_bytes() if file.exists() else b"")  # type: ignore[operator]
    file.unlink() if new is None else file.write_bytes(new)
    with pytest.raises(RecordError, match=name):
        read_all(finished)
    with pytest.raises(RecordError, match=name):
        Run.open(finished).check()


def test_a_run_of_before_opens_unchecked(finished: Path) -> None:
    """Catches stored runs, made when nothing was compared, that cannot be opened any more."""
    file = finished / "run.json"
    file.write_text(file.read_text().replace('"digests": true', '"digests": false'))
    (finished / "digests.json").unlink()
    assert Run.open(finished).check() is None
    read_all(finished)


def test_left_overs_are_cleared(tmp_path: Path) -> None:
    """Catches drafts of killed processes that stay for ever, and drafts of living ones that are taken away."""
    start(tmp_path / "run").close()
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    drafts = {owner: tmp_path / "run" / f".summary.json.{owner}.part" for owner in (dead.pid, 1)}
    folders = {owner: tmp_path / f".new.{owner}.part" for owner in (dead.pid, 1)}
    for draft in drafts.values():
        draft.write_text("half")
    for folder in folders.values():
        folder.mkdir()
        (folder / "run.json").write_text("half")
    start(tmp_path / "run", resume=True).close()
    start(tmp_path / "new").close()
    assert [draft.exists() for draft in (*drafts.values(), *folders.values())] == [False, True] * 2
