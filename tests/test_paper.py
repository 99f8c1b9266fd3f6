"""The paper kit: its configurations, and the page whose commands somebody will pay GPU hours for."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.tiny import make_tiny
from typer.main import get_command

from dssr import config as configs
from dssr import settings
from dssr.cli.main import build
from dssr.errors import ConfigError
from dssr.session import Session

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "paper.md").read_text()
COMMANDS = re.findall(r"^ {4}dssr (.*)$", PAGE, re.M)
SHOWN = dict(re.findall(r"^```toml\n# ([\w-]+\.toml).*?\n(.*?)^```$", PAGE, re.M | re.S))
"""File name to content."""


@pytest.mark.parametrize("line", COMMANDS)
def test_every_command_of_the_sequence_can_be_parsed(line: str) -> None:
    """Catches a missing argument, a value that an option does not take, and a configuration that the page never shows:
    somebody would find out hours later."""
    words = shlex.split(line, comments=True)
    command: Any = get_command(build())
    while words and words[0] in getattr(command, "commands", {}):
        command = command.commands[words.pop(0)]
    with command.make_context(command.name, words) as context:
        asked = context.params.get("config")
    assert asked is None or asked in SHOWN or asked in settings.names(), line


def test_the_sequence_is_whole() -> None:
    """Catches a step of the study that the page forgets, and memories whose adapters its files do not name."""
    steps = [" ".join(line.split()[:2]) for line in COMMANDS]
    for needed in ("games make", "gates write", "reader train", "reader accept", "gates approve", "gates show"):
        assert needed in steps, needed
    assert steps[0] == "games make"
    assert steps[-1] == "gates show"
    for line in COMMANDS:
        for file in re.findall(r"--config (\S+\.toml)", line):
            for adapter in re.findall(r"-m dssr@(\S+)", line):
                assert re.search(rf'^"?{adapter}"? = ', SHOWN[file], re.M), (file, adapter)


@pytest.mark.parametrize("name", ["paper", "paper-r2"])
def test_a_shipped_paper_configuration_claims_what_it_must_show(name: str) -> None:
    """Catches a model that may change under its name, a claim of invariance lost, a bare reader, two engines that want
    more than one card."""
    config = configs.load(name)
    models = [config.writer_model, *([config.reader_model] if config.reader_model else [])]
    for model in models:
        assert model.pinned
        assert model.batch_invariant
        assert re.fullmatch(r"[0-9a-f]{40}", model.revision or "")
    assert sum(model.gpu_memory for model in models) <= 0.9
    assert config.reader.trained
    assert config.counts_with == "Qwen/Qwen3-4B-Instruct-2507"
    with pytest.raises(ConfigError, match="`dssr reader train`"):
        Session(config).agent()


def test_every_second_reader_counts_with_the_first() -> None:
    """Catches a shipped configuration of a second reader whose budgets are its own, so that its states differ."""
    for second in (name for name in settings.names() if name.endswith("-r2")):
        first = configs.load(second.removesuffix("-r2"))
        other = configs.load(second)
        assert other.counts_with == first.counts_with
        assert other.reads_with.path != first.reads_with.path
        assert other.writer_model.path == first.writer_model.path
    assert {"nano-r2", "paper-r2"} <= set(settings.names())


# ---------------------------------------------------------------- the whole sequence, in small

MODEL = """
path = "{model}"
dtype = "float32"
context_length = 8192
"""
TINY = 'base = "{sizes}/smol-tiny.toml"\nname = "tiny"\n[writer_model]' + MODEL
SECOND = (
    'base = "tiny.toml"\nname = "tiny-r2"\n[reader]\nrank = 4\n[agent]\nbudget_tokenizer = "{model}"\n'
    '[reader_model]\nbackend = "hf"\ndevice = "cpu"' + MODEL
)


def start(folder: Path) -> "subprocess.Popen[bytes]":
    command = [sys.executable, str(ROOT / "tools" / "paper-in-small"), str(folder), str(folder.parent / "tiny.toml")]
    with (folder.parent / "log.txt").open("ab") as log:
        return subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)


def noted(folder: Path) -> list[dict[str, Any]]:
    file = folder / "commands.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


@pytest.mark.slow
def test_every_command_of_the_page_runs_in_small(tmp_path: Path) -> None:
    """Catches a command of the page that does not fit those before it: a run it names that nobody makes, an approval
    that its evaluation does not match, adapters under other names, and a sequence that cannot go on after a kill. The
    model is a random transformer with LoRA adapters; `tools/paper-in-small` without a configuration takes SmolLM2."""
    fill = {"model": make_tiny(tmp_path / "model"), "sizes": ROOT / "docs" / "study-smol"}
    (tmp_path / "tiny.toml").write_text(TINY.format(**fill))
    (tmp_path / "tiny-r2.toml").write_text(SECOND.format(**fill))
    folder = tmp_path / "study"
    begun = start(folder)
    while begun.poll() is None and not (folder / "runs" / "study" / "dssr-s0" / "round-0").exists():
        time.sleep(0.2)
    os.killpg(begun.pid, signal.SIGKILL)
    begun.wait()
    cut = noted(folder)[-1]
    assert (cut["command"].split()[:5], cut["exit"]) == (shlex.split("train --config r1.toml --variant dssr"), None)
    assert start(folder).wait() == 0, (tmp_path / "log.txt").read_text()[-3000:]
    ended = {one["line"]: one for one in noted(folder) if one["exit"] is not None}
    assert list(ended) == COMMANDS
    failed = {" ".join(one["command"].split()[:2]) for one in ended.values() if one["exit"]}
    assert failed <= {"games check", "reader accept", "gates judge"}
    finished = {path.parent.name for path in (folder / "runs").glob("*/summary.json")}
    assert {"valid-r1", "valid-r1-lag", "continuation", "walks", "test-r1", "test-r2"} <= finished
    judged = list(map(json.loads, (folder / "runs" / "ledger.jsonl").read_text().splitlines()))
    assert {one["kind"] for one in judged} >= {"gate", "verdict"}
    assert (folder / "report" / "index.html").exists()
