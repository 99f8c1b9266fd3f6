"""Configuration: what is shipped parses, what is wrong is named."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dssr import config as configs
from dssr import settings
from dssr.config import Config, MeasureConfig, WriterConfig
from dssr.errors import ConfigError


@pytest.mark.parametrize("name", settings.names())
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
        ('name = "a"\n[games]\nroms = [6]', r"There is no key `roms` in \[games\]\."),
        ('name = "a"\n[agent]\nbudget = [6]', r"There is no key `budget` in \[agent\]\. Did you mean `budgets`\?"),
        ('name = "a"\n[agent]\nbudgets = [64, -5]', r"agent\.budgets has -5, but must be at least 1\."),
        ('name = "a"\n[agent]\nbudgets = "many"', r"agent\.budgets is 'many', but must be a list\."),
        ('name = "a"\n[agent]\nmemories = []', r"agent\.memories is empty; give at least one entry"),
        ('name = "a"\n[agent]\nmemories = [""]', r"agent\.memories has an empty entry"),
        ("seed = 1", r"The key name is missing\."),
        ('name = "a/../b"', "name is 'a/../b', but becomes part of folder names"),
        ('name = "a"\n[games]\nrooms = [7]', r"There is no key `rooms` in \[games\]"),
        ('name = "a"\n[games]\nlevels = []', r"games\.levels is empty"),
        ('name = "a"\n[games]\ntrain = -1', r"games\.train is -1, but must be at least 0"),
        ('name = "a"\n[protocol]\nfillers = [-1]', r"protocol\.fillers has -1"),
        ('name = "a"\n[protocol]\nfillers = []', r"protocol\.fillers is empty"),
        ('name = "a"\n[reader]\nfull_share = 1.5', r"reader\.full_share is 1\.5, but must be at most 1\."),
        ('name = "a"\n[writer]\ncandidates = 0', r"writer\.candidates is 0, but must be at least 1\."),
        ('name = "a"\n[writer]\nsft_batch = 0', r"writer\.sft_batch is 0, but must be at least 1\."),
        ('name = "a"\n[writer]\nsft_batch = 1.5', r"writer\.sft_batch is 1\.5, but must be a whole number\."),
        ('name = "a"\n[writer]\ndpo_learning_rate = 0', r"dpo_learning_rate is 0, but must be more than 0\."),
        ('name = "a"\n[writer]\nmemory = "mine:Memory"', r"writer\.memory is 'mine:Memory', but only a memory whose"),
        ('name = "a"\n[writer]\nmemory = "lastk"', "use one of summary, belief, slots, guide"),
        ('name = "a"\n[measure]\nlag_threshold = nan', r"measure\.lag_threshold is nan, but must be a finite number\."),
        (
            'name = "a"\n[measure]\nlag_robustness = [0.3, inf]',
            r"lag_robustness has inf, but must be a finite number\.",
        ),
        ('name = "a"\n[measure]\nrewrite_bins = []', r"measure\.rewrite_bins is empty"),
        (
            'name = "a"\n[measure]\nrewrite_bins = [0, 3, 3]',
            r"rewrite_bins is \[0, 3, 3\], but the edges of bins must rise",
        ),
        ('name = "a"\n[measure]\nstored_prompts = 0', r"measure\.stored_prompts is 0"),
        ('name = "a"\n[stats]\nlevel = 1.0', r"stats\.level is 1\.0, but must be less than 1\."),
        ('name = "a"\ncache_gib = inf', "cache_gib is inf, but must be a finite number"),
        ('name = "a"\n[writer_model]\nconcurrency = 0', r"writer_model\.concurrency is 0"),
        ('name = "a"\n[writer_model]\nthreads = true', r"threads is True, but must be a whole number"),
        ('name = "a"\n[writer_model.adapters]\nr1 = ""', r"writer_model\.adapters has an empty entry"),
        ('name = "a"\n[writer_model.adapters]\n"" = "r1"', r"writer_model\.adapters has an empty entry"),
        ('name = "a"\nagent = 3', "agent is 3, but must be a table"),
        ('name = "a"\n[agent]\nreader_adapter = "r1"', "which its model's adapters lack"),
        ('name = "a"\n[writer_model]\nbackend = "server"', r"writer_model\.url is missing"),
        (
            'name = "a"\n[reader_model]\nbackend = "gpt"',
            r"reader_model\.backend is 'gpt', but must be one of scripted, hf, vllm, server\.",
        ),
        ('name = "a"\nseed =', "cannot be read as TOML"),
        (f'name = "a"\nseed = {"9" * 5000}', "cannot be read as TOML"),
        (f'name = "a"\nseed = {"[" * 3000}{"]" * 3000}', "nests deeper than any setting"),
        (f'name = "a"\n{".".join("a" * 3000)} = 1', r"nests deeper than any setting|There is no key `a`"),
        ('base = "no-such-study"', "No configuration 'no-such-study'"),
        ('base = "mine.toml"', "base leads back to this file"),
        ("base = 3", "base must be the name or the path of a configuration"),
        ('base = "nano"\n[reader_model]\npth = "nano/R2"', r"There is no key `pth` in \[reader_model\]\."),
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


def test_a_chain_of_bases_may_be_long(tmp_path: Path) -> None:
    """Catches a chain that is followed by recursion, which ends in a traceback, and one that is laid in wrong order."""
    for number in range(1500):
        base = f'base = "{number + 1}.toml"' if number < 1499 else 'base = "scripted"'
        (tmp_path / f"{number}.toml").write_text(f"{base}\nseed = {number}")
    found = configs.load(str(tmp_path / "0.toml"))
    assert (found.name, found.seed) == ("scripted", 0)
    (tmp_path / "1499.toml").write_text('base = "700.toml"')
    with pytest.raises(ConfigError, match=r"700\.toml: base leads back to this file"):
        configs.load(str(tmp_path / "0.toml"))


OPEN = ("games.options",)
"""Checked by the world that they belong to."""


def numbers(kind: msgspec.inspect.Type, key: str) -> Iterator[tuple[str, Any]]:
    """Every number a configuration can hold, by key, with its bounds."""
    if isinstance(kind, msgspec.inspect.StructType):
        for one in kind.fields:
            yield from numbers(one.type, f"{key}.{one.name}".strip("."))
    elif isinstance(kind, msgspec.inspect.UnionType):
        for part in kind.types:
            yield from numbers(part, key)
    elif isinstance(kind, msgspec.inspect.VarTupleType):
        yield from numbers(kind.item_type, key)
    elif isinstance(kind, msgspec.inspect.IntType | msgspec.inspect.FloatType):
        yield key, kind


def test_every_number_is_bounded() -> None:
    """Catches a setting added without a bound: below, and for fractions above too, where infinity would pass."""
    found = list(numbers(msgspec.inspect.type_info(Config), ""))
    assert len(found) > 100
    for key, kind in found:
        if not key.startswith(OPEN):
            assert (kind.ge, kind.gt) != (None, None), key
            assert isinstance(kind, msgspec.inspect.IntType) or (kind.le, kind.lt) != (None, None), key


@pytest.mark.parametrize("value", ["nan", "inf", "-inf"])
def test_no_fraction_is_nan_or_infinite(value: str, tmp_path: Path) -> None:
    """Catches a key that takes what no comparison refuses: a run with it ends in numbers that cannot be stored."""
    every = numbers(msgspec.inspect.type_info(Config), "")
    found = {key for key, kind in every if isinstance(kind, msgspec.inspect.FloatType)}
    path, refused = tmp_path / "mine.toml", set()
    for key in sorted(found):
        section, _, name = key.rpartition(".")
        for given in (value, f"[{value}]"):
            path.write_text('name = "a"\n' + (f"[{section}]\n" if section else "") + f"{name} = {given}\n")
            with pytest.raises(ConfigError) as caught:
                configs.load(str(path))
            if "must be a finite number" in str(caught.value):
                refused.add(key)
    assert refused == found
    assert len(found) > 23


def test_a_configuration_made_in_python_is_checked_alike() -> None:
    """Catches a check that only files get."""
    configs.check(Config(name="a"))
    with pytest.raises(ConfigError, match=r"writer\.dpo_batch is 0"):
        configs.check(Config(name="a", writer=WriterConfig(dpo_batch=0)))
    with pytest.raises(ConfigError, match="must rise"):
        configs.check(Config(name="a", measure=MeasureConfig(lag_bins=(5, 1))))


def test_missing_configuration_lists_the_shipped_ones() -> None:
    """Catches an unhelpful refusal."""
    with pytest.raises(ConfigError, match="scripted"):
        configs.load("no-such-study")


def test_digest_depends_on_what_is_computed_only() -> None:
    """Catches a digest that changes with folders, or stays when a number of the method changes."""
    config = Config(name="a")
    assert msgspec.structs.replace(config, runs="x", data="y").digest() == config.digest()
    assert msgspec.structs.replace(config, seed=1).digest() != config.digest()


def test_young_settings_change_no_digest() -> None:
    """Catches a run or study of before that is refused because a setting exists now that it did not have, and a young
    setting that is set but is no part of the identity."""
    config = Config(name="a")
    for section, names in configs.LATER.items():
        assert names
        assert not set(names) & set(config.content()[section])
    chains = msgspec.structs.replace(config.continuation, tries="chains")
    assert msgspec.structs.replace(config, continuation=chains).digest() != config.digest()


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
