"""Configuration: what is shipped parses, what is wrong is named."""

from pathlib import Path

import msgspec
import pytest

from dssr import config as configs
from dssr.config import Config
from dssr.errors import ConfigError


@pytest.mark.parametrize("name", configs.names())
def test_shipped_configurations_parse_and_survive_resolution(name: str, tmp_path: Path) -> None:
    """Catches a shipped file with a misspelt key, and a resolved copy that means something else."""
    config = configs.load(name)
    assert config.name == name
    copy = tmp_path / "copy.toml"
    copy.write_text(configs.resolved(config))
    assert configs.load(str(copy)) == config


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('name = "a"\n[games]\nroms = [6]', r"unknown key `roms` in \[games\]"),
        ('name = "a"\n[agent]\nbudgets = [64, -5]', r"agent\.budgets is -5"),
        ('name = "a"\n[agent]\nbudgets = [0]', r"agent\.budgets must be at least 1"),
        ('name = "a"\n[agent]\nbudgets = "many"', r"agent\.budgets: Expected `array`, got `str`"),
        ("seed = 1", "missing required field `name`"),
        ('name = "a"\n[games]\nrooms = [7]', r"unknown key.*rooms"),
        ('name = "a"\n[protocol]\nfillers = [-1]', r"protocol\.fillers is -1"),
        ('name = "a"\n[protocol]\nfillers = []', r"protocol\.fillers is empty"),
        ('name = "a"\n[reader]\nfull_share = 1.5', r"reader\.full_share is 1\.5"),
        ('name = "a"\n[agent]\nreader_adapter = "r1"', "which its model's adapters lack"),
        ('name = "a"\n[writer_model]\nbackend = "server"', r"writer_model\.url is missing"),
        ('name = "a"\n[writer_model]\nbackend = "gpt"', "writer_model.backend"),
        ('name = "a"\nseed =', "cannot be read as TOML"),
        ('base = "no-such-study"', "No configuration 'no-such-study'"),
        ('base = "mine.toml"', "base leads back to this file"),
        ("base = 3", "base must be the name or the path of a configuration"),
        ('base = "nano"\n[reader_model]\npth = "nano/R2"', r"unknown key `pth` in \[reader_model\]"),
    ],
)
def test_bad_configuration_is_named(text: str, message: str, tmp_path: Path) -> None:
    """Catches a setting silently ignored or a traceback; every message names the file and the key."""
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message) as caught:
        configs.load(str(path))
    assert str(path) in str(caught.value)


def test_a_file_states_what_differs_from_its_base(tmp_path: Path) -> None:
    """Catches a base that is ignored, a section that hides the whole section below it, lists that are joined, and a
    base that is sought from where the command runs."""
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "second.toml").write_text('base = "nano"\n[reader_model]\npath = "nano/R2"')
    upper = tmp_path / "upper.toml"
    upper.write_text('name = "mine"\nbase = "inner/second.toml"\n[agent]\nbudgets = [80]\n[writer]\npoints = 7')
    nano, mine = configs.load("nano"), configs.load(str(upper))
    assert nano.reader_model is not None
    assert (mine.name, mine.agent.budgets, mine.writer.points) == ("mine", (80,), 7)
    assert mine.reader_model == msgspec.structs.replace(nano.reader_model, path="nano/R2")
    assert mine.writer_model == nano.writer_model
    assert mine.writer == msgspec.structs.replace(nano.writer, points=7)
    copy = tmp_path / "copy.toml"
    copy.write_text(configs.resolved(mine))
    assert configs.load(str(copy)) == mine


def test_missing_configuration_lists_the_shipped_ones() -> None:
    """Catches an unhelpful refusal."""
    with pytest.raises(ConfigError, match="scripted"):
        configs.load("no-such-study")


def test_digest_depends_on_what_is_computed_only() -> None:
    """Catches a digest that changes with folders, or stays when a number of the method changes."""
    config = Config(name="a")
    assert msgspec.structs.replace(config, runs="x", data="y").digest() == config.digest()
    assert msgspec.structs.replace(config, seed=1).digest() != config.digest()


def test_paper_numbers_are_the_defaults() -> None:
    """Catches a default that drifted from the stated method."""
    paper = configs.load("paper")
    assert paper.games.levels == (6, 9, 12)
    assert (paper.games.train, paper.games.valid, paper.games.test) == (80, 15, 30)
    assert paper.protocol.fillers == (0, 10, 20, 40)
    assert paper.agent.budgets == (64, 128, 256)
    assert paper.measure.oracle_samples == 8
    assert paper.writer.points == 3984
    assert paper.writer.targets == (1, 4, 12)
    assert (paper.writer.dpo_beta, paper.writer.chosen_weight, paper.writer.gap) == (0.1, 0.5, 0.3)
    assert (paper.stats.resamples, paper.stats.seed) == (10_000, 0)
