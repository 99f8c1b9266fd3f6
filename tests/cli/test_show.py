"""What long work shows: bars on a terminal, a few lines in a log, nothing in the way of programs."""

import pytest

from dssr.cli.show import OFTEN, progress


def walk(as_json: bool) -> None:
    """Two stages, the second continued from its middle."""
    with progress(as_json) as tell:
        for done in range(1, 201):
            tell("transcripts", done, 200)
        for done in range(101, 201):
            tell("training", done, 200)


def test_a_log_gets_a_few_lines_of_every_stage(capsys: pytest.CaptureFixture[str]) -> None:
    """Catches a silent hour in a log, a line for every step, and remarks among the output for programs."""
    walk(as_json=False)
    out, err = capsys.readouterr()
    lines = err.splitlines()
    assert not out
    assert lines[-1] == "training: 200 of 200"
    assert "transcripts: 200 of 200" in lines
    assert OFTEN <= len(lines) <= 2 * OFTEN
    walk(as_json=True)
    assert capsys.readouterr() == ("", "")


def test_a_terminal_gets_a_bar_for_every_stage(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches stages that share a bar, and lines written between the bars."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    walk(as_json=False)
    _, err = capsys.readouterr()
    assert "transcripts" in err
    assert "training" in err
    assert " of 200" not in err
    assert err.count("200/200") >= 2
