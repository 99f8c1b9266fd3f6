"""What long work shows: bars and workers on a terminal, a line a minute in a log, nothing in the way of programs."""

import pytest

from dssr.cli import options as show
from dssr.cli.options import SECONDS, progress
from dssr.types import Counts, Standing, WorkerStanding


class Clock:
    """Time that goes on only when told to."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def monotonic(self) -> float:
        return self.seconds


def walk(as_json: bool, clock: Clock) -> None:
    """Two stages of 200 items, one every six seconds; the second is continued from its middle."""
    with progress(as_json) as tell:
        for stage, first in (("episodes", 0), ("training", 100)):
            for done in range(first, 201):
                clock.seconds += 6
                counts = Counts(calls=4 * done, hits=done, written=600 * done)
                half = WorkerStanding("process 1", done // 2, 3, counts)
                tell(Standing(stage, done, 200, (half, WorkerStanding("process 2", done - done // 2, 2))))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(show, "time", found)
    return found


def test_a_log_gets_a_line_a_minute(capsys: pytest.CaptureFixture[str], clock: Clock) -> None:
    """Catches a silent hour in a log, a line for every step, a rate that counts what was there before a resume, and
    remarks among the output for programs."""
    walk(as_json=False, clock=clock)
    out, err = capsys.readouterr()
    lines = err.splitlines()
    assert not out
    assert "episodes: 200 of 200" in lines
    assert lines[-1] == "training: 200 of 200"
    told = "about 9 minutes left, 2 workers, 5 under way, 25 % from the cache, 100 tokens a second"
    assert f"training: 110 of 200, 10 a minute, {told}" in lines
    minutes = 301 * 6 / SECONDS
    assert minutes - 2 <= len(lines) <= minutes + 4
    walk(as_json=True, clock=clock)
    assert capsys.readouterr() == ("", "")


def test_a_terminal_gets_a_bar_for_every_stage_and_a_row_for_every_worker(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    """Catches stages that share a bar, lines written between the bars, and a worker nobody sees."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "160")
    walk(as_json=False, clock=clock)
    _, err = capsys.readouterr()
    assert " of 200" not in err
    assert err.count("200/200") >= 2
    for words in ("episodes", "training", "process 1", "process 2", "cache hits", "tokens/s", "all"):
        assert words in err


def test_a_stage_of_a_second_run_is_timed_anew(capsys: pytest.CaptureFixture[str], clock: Clock) -> None:
    """Catches tokens a second below zero, and rates over hours of other work: a study has many runs with a stage of one
    name, and each has workers of its own, who count from nothing."""
    with progress(False) as tell:
        for run in (1, 2):
            for done in range(201):
                clock.seconds += 6 * run
                tell(Standing("episodes", done, 200, (WorkerStanding("process", done, 1, Counts(written=600 * done)),)))
    lines = capsys.readouterr().err.splitlines()
    told = "about 38 minutes left, 1 worker, 1 under way, - from the cache, 50 tokens a second"
    assert f"episodes: 10 of 200, 5 a minute, {told}" in lines
    assert not [line for line in lines if "-" in line.partition("under way")[2].replace("- from", "")]
