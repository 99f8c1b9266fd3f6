"""The paper kit: its configurations, and the page whose commands somebody will pay GPU hours for."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from dssr import config as configs
from dssr import settings
from dssr.cli.main import build
from dssr.errors import ConfigError
from dssr.session import Session

PAGE = (Path(__file__).parents[1] / "docs" / "paper.md").read_text()
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
