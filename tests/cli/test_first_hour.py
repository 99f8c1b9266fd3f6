"""What a newcomer sees on an ordinary terminal, and how early a mistake is told."""

import io
import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from tests.cli.test_main import dssr, tiny_study

from dssr.cli.diagnose import demo
from dssr.cli.options import head, size
from dssr.config import Config, load
from dssr.reports.terminal import Fitted
from dssr.worlds.archive import Archive


def on_terminal(*arguments: str, cwd: Path, columns: int = 80) -> str:
    """What a command prints on a terminal of so many columns, without colours."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "COLUMNS": str(columns), "TERM": "xterm"}
    command = [sys.executable, "-m", "dssr.cli.main", *arguments]
    child = subprocess.Popen(command, cwd=cwd, stdout=theirs, stderr=subprocess.PIPE, env=environment)
    os.close(theirs)
    told = b""
    try:
        while part := os.read(ours, 65536):
            told += part
    except OSError:
        pass  # Linux ends a terminal that nobody holds any more with an error
    os.close(ours)
    trouble = child.communicate()[1]
    assert child.returncode == 0, trouble
    return re.sub(r"\x1b\[[0-9;]*m", "", told.decode())


def test_no_table_is_cut_on_a_terminal_of_80_columns(archive: Archive, tmp_path: Path) -> None:
    """Catches a path, a number or a heading that ends in an ellipsis: half a number is a wrong number, and half a path
    cannot be copied. Headings are words, not the names of fields."""
    config = str(tiny_study(archive, tmp_path))
    place = "runs/the-run-of-a-newcomer-with-quite-a-long-name"
    assert dssr("diagnose", "-c", config, "--lag", "-o", place, cwd=tmp_path).returncode == 0
    shown = {
        words[0]: on_terminal(*words, cwd=tmp_path)
        for words in (
            ("runs",),
            ("report", place),
            ("episodes", place),
            ("check", place),
            ("plan", "-c", config),
            ("lag", place),
        )
    }
    assert place in shown["runs"]
    for command, text in shown.items():
        assert "…" not in text, command
        table = [line for line in text.splitlines() if line and line[0] in "┏┃┡│└"]
        assert table, command
        assert max(map(len, table)) <= 80, command
        heads = [line for line in table if line.startswith("┃")]
        assert not any("_" in line for line in heads), command
    assert "written" in shown["plan"]
    assert "κ − β" in shown["report"]


def test_what_does_not_fit_goes_on_below() -> None:
    """Catches columns that are dropped, rows that lose their names in the second table, and a word that is broken
    although the table could be."""
    words = [f"value-{number}" for number in range(10, 22)]
    out = io.StringIO()
    Console(file=out, width=40).print(Fitted(["memory", *words], [["summary", *words], ["guide", *words]], title="T"))
    text = out.getvalue()
    assert all(text.count(word) == 3 for word in words)
    assert text.count("summary") == text.count("guide") == text.count("memory") > 1
    assert text.count("T\n") == 1
    assert max(map(len, text.splitlines())) <= 40
    narrow = io.StringIO()
    Console(file=narrow, width=20).print(Fitted(["run"], [["runs/a-name-that-is-longer-than-that"]]))
    cells = "".join(line.strip("│ ") for line in narrow.getvalue().splitlines() if line.startswith("│"))
    assert cells == "runs/a-name-that-is-longer-than-that"


@pytest.mark.parametrize(("count", "said"), [(7, "7 bytes"), (3076096, "2.9 MiB"), (20 * 2**30, "20.0 GiB")])
def test_a_size_is_told_in_units_that_fit(count: int, said: str) -> None:
    """Catches 21474836480 bytes."""
    assert size(count) == said


def test_a_heading_is_never_a_field() -> None:
    """Catches a field of a record that becomes a heading as it is."""
    assert (head("tokens_in"), head("kappa"), head("any_new_field")) == ("tokens read", "κ", "any new field")


@pytest.mark.parametrize("command", ["diagnose", "compare", "audit", "gates approve", "study", "trace show"])
def test_help_shows_no_value_where_none_is_taken(command: str) -> None:
    """Catches `--resume <bool>`, which asks for a value that is then refused."""
    told = dssr(*command.split(), "--help").stdout
    flags = [line for line in told.splitlines() if "<bool>" in line]
    assert all("--help" in line for line in flags), flags
    assert "--" in told


def test_a_missing_model_is_named_before_the_missing_games(tmp_path: Path) -> None:
    """Catches minutes of making games that end with a folder which was never there. An installed tier is not loaded
    for it: then the games are what is missing."""
    (tmp_path / "gone.toml").write_text('base = "scripted"\n[writer_model]\nbackend = "hf"\npath = "models/gone"\n')
    for command in ("diagnose", "plan"):
        done = dssr(command, "-c", "gone.toml", cwd=tmp_path)
        assert done.stderr.startswith("dssr: There is no folder models/gone"), done.stderr
    (tmp_path / "adapter.toml").write_text('base = "nano"\n[writer_model.adapters]\nmine = "runs/nowhere"\n')
    assert "There is no folder runs/nowhere" in dssr("diagnose", "-c", "adapter.toml", cwd=tmp_path).stderr
    assert "dssr games make --config nano" in dssr("diagnose", "-c", "nano", cwd=tmp_path).stderr


def test_a_misspelt_memory_is_told_before_models_load(archive: Archive, tmp_path: Path) -> None:
    """Catches minutes of loading before a name is looked at: these weights would be refused if they were opened."""
    config = tiny_study(archive, tmp_path)
    (tmp_path / "models" / "empty").mkdir(parents=True)
    config.write_text(
        config.read_text().replace('backend = "scripted"\npath = "scripted"', 'backend = "hf"\npath = "models/empty"')
    )
    told = dssr("diagnose", "-c", str(config), "-m", "sumary", cwd=tmp_path)
    assert told.returncode == 2
    assert "There is no memory 'sumary'; use one of summary, " in told.stderr
    assert "no memory" not in dssr("diagnose", "-c", str(config), "-m", "summary", cwd=tmp_path).stderr


BROKEN = {
    "import json\nX = {}['nothing']\n": "its module fails with KeyError: 'nothing' (mine.py, line 2).",
    "import nothing_like_this\n": "No module named 'nothing_like_this' (mine.py, line 1).",
    "class Memory:\n    def write(self:\n": "SyntaxError: '(' was never closed (mine.py, line 2).",
    "class Other: ...\n": "module 'mine' has no attribute 'Memory'.",
}


@pytest.mark.parametrize("text", BROKEN)
def test_an_error_at_import_has_file_and_line(archive: Archive, tmp_path: Path, text: str) -> None:
    """Catches a message that says what went wrong in a user's file and not where."""
    config = tiny_study(archive, tmp_path)
    (tmp_path / "mine.py").write_text(text)
    done = dssr("diagnose", "-c", str(config), "-m", "mine.py:Memory", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.strip().endswith(BROKEN[text])
    assert len(done.stderr.strip().splitlines()) == 1


def test_an_error_inside_a_library_is_told_by_the_users_line(archive: Archive, tmp_path: Path) -> None:
    """Catches `decoder.py, line 355`, which is no line of the user's."""
    config = tiny_study(archive, tmp_path)
    (tmp_path / "mine.py").write_text(
        "import json\n\nclass Memory:\n    def __init__(self, kit): ...\n"
        "    async def write(self, view, previous):\n        return json.loads('{')\n"
    )
    done = dssr("play", "valid-1-000", "-c", str(config), "-m", "mine.py:Memory", cwd=tmp_path)
    assert done.returncode == 1
    assert "(mine.py, line 6)" in done.stderr


def test_a_missing_file_is_said_to_be_missing(archive: Archive, tmp_path: Path) -> None:
    """Catches `[Errno 2] No such file or directory`, which is no sentence of ours."""
    config = tiny_study(archive, tmp_path)
    assert dssr("diagnose", "-c", str(config), "-m", "summary", "-o", "run", cwd=tmp_path).returncode == 0
    key = json.loads(dssr("episodes", "run", "--json", cwd=tmp_path).stdout)[0]["episode"]
    for words in (("fork", "run", key, "0", "--state", "none.txt"), ("decompose", "none.txt")):
        done = dssr(*words, cwd=tmp_path)
        assert done.returncode == 2
        assert done.stderr.startswith("dssr: There is no file none.txt"), done.stderr


@pytest.mark.parametrize(("asked_for", "name"), [({}, "demo"), ({"config": "scripted"}, "scripted")])
def test_the_demo_audits_what_its_table_says(
    asked_for: dict[str, Any], name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches a change of nano's study that moves README's table: the demo has its own games and audited points."""
    asked: list[Config] = []

    def caught(settings: Config, *_: object, **__: object) -> None:
        asked.append(settings)
        raise KeyboardInterrupt

    monkeypatch.setattr("dssr.diagnose", caught)
    with pytest.raises(KeyboardInterrupt):
        demo(**asked_for, out=tmp_path)
    (found,) = asked
    assert found.games == load("demo").games
    assert found.measure == load(name).measure
    assert load("demo").measure.points == 3
