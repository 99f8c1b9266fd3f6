"""The README's commands and code, as printed and in order: the first hour of someone new."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
QUICK = """
base = "demo"
name = "demo"
[writer_model]
backend = "scripted"
path = "scripted"
retention = 0.98
context_length = 65536
[reader_model]
backend = "scripted"
path = "scripted"
context_length = 65536
[agent]
budgets = [80]
[stats]
resamples = 200
"""
"""The demo with rules for a model: the same games, names and commands in seconds."""


def commands() -> list[list[str]]:
    """What stands after `make shell`, without remarks."""
    block = README.partition("Then, on the demo's run and games:\n\n")[2].partition("\n\n")[0]
    return [line.partition("  #")[0].split() for line in block.splitlines()]


def ran(words: list[str], folder: Path) -> str:
    """What a command of the README prints; it must end well."""
    assert words[0] == "dssr"
    done = subprocess.run(
        [sys.executable, "-m", "dssr.cli.main", *words[1:]], cwd=folder, capture_output=True, text=True
    )
    assert done.returncode == 0, f"{' '.join(words)}: {done.stderr}"
    assert "Traceback" not in done.stderr
    return done.stdout


def first_hour(folder: Path, config: str) -> None:
    """The demo, then every command, then the Python block."""
    (folder / "examples").symlink_to(ROOT / "examples")
    assert "page: runs/demo-report/index.html" in ran(["dssr", "demo", *config.split()], folder)
    listed = json.loads(ran(["dssr", "episodes", "runs/demo", "--json"], folder))
    key = next(one["episode"] for one in listed if one["memory"] == "summary" and one["F'"] == 20)
    known = {"KEY": key[:12]}
    for asked in commands():
        words = [known.get(word, word) for word in asked]
        if config and "--config" in words:
            words[words.index("--config") + 1] = config.split()[-1]
        ran(words, folder)
    (code,) = re.findall(r"^```python\n(.*?)^```$", README, re.M | re.S)
    if config:
        code = code.replace('"demo"', repr(config.split()[-1]))
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "page:" in done.stdout


def test_the_commands_are_those_that_a_newcomer_needs() -> None:
    """Catches a README that lost its commands: then the test below would run nothing."""
    verbs = [words[1] for words in commands()]
    assert set(verbs) >= {"runs", "report", "episodes", "fork", "play", "diagnose"}


def test_readme_works_as_printed(tmp_path: Path) -> None:
    """Catches a hint, path, option or example of the README that does not work on the demo's games at once."""
    (tmp_path / "quick.toml").write_text(QUICK)
    first_hour(tmp_path, "--config quick.toml")


def test_from_a_log_of_one_s_own_to_the_page_in_five_lines(tmp_path: Path) -> None:
    """Catches a way from one's own log to the page, or to a memory of one's own on it, that needs more lines than the
    README shows or does not work as it shows them; a chat log, and rules in place of the model."""
    block = README.partition("## Use it on your own logs\n\n")[2].partition("\n\n")[0]
    shown = [line.partition("  #")[0].split() for line in block.splitlines()]
    assert len(shown) <= 5
    assert [words[1] for words in shown].count("audit") == 2
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    said = [{"role": "user", "content": "Mend the build."}]
    for number in range(4):
        said += [
            {"role": "assistant", "content": f"open src/part_{number}/main.py"},
            {"role": "user", "content": f"It imports src/part_{number + 2}/main.py, line {number + 40}."},
        ]
    (tmp_path / "my-log.jsonl").write_text(json.dumps({"messages": said}) + "\n")
    for words in shown:
        ran(["scripted" if word == "smol" else word for word in words], tmp_path)
    assert "part_2/main.py" in (tmp_path / "runs" / "mine-report" / "report.md").read_text()
    assert (tmp_path / "runs" / "mine-report" / "index.html").is_file()
    assert (tmp_path / "runs" / "own" / "summary.json").is_file()


@pytest.mark.slow
def test_readme_works_as_printed_with_the_model_it_names(tmp_path: Path) -> None:
    """The same with nothing replaced: the built-in model."""
    first_hour(tmp_path, "")
