"""The reader's whole training on real games with a tiny real model: killed anywhere, it ends in the same adapter."""

import json
from pathlib import Path

import msgspec
import pytest
from tests.tiny import make_tiny
from tests.train.test_line import Killed, dies_at, silent, study

from dssr.agent.store import stored
from dssr.config import Config, ReaderConfig
from dssr.record.run import Run
from dssr.train import lora
from dssr.train.reader.dagger import Dagger, bare, with_reader
from dssr.worlds.archive import Archive

pytestmark = pytest.mark.slow


def small(archive: Archive, base: Path, data: Path) -> Config:
    """Two memories at one budget, a handful of points."""
    reader = ReaderConfig(
        memories=("lastk", "summary"),
        budgets=(24,),
        points=12,
        rank=2,
        alpha=4,
        batch=4,
        micro_tokens=4096,
        held_out=0.4,
    )
    return msgspec.structs.replace(study(archive, base, data), reader=reader)


def test_a_killed_training_ends_in_the_same_reader(archive: Archive, tmp_path: Path) -> None:
    """Catches work lost or doubled by a kill in collection and in training, and a second iteration that is not driven
    by the reader of the first."""
    base = make_tiny(tmp_path / "model")
    whole = Dagger(small(archive, base, tmp_path / "data"), tmp_path / "whole", silent).train()
    again = small(archive, base, tmp_path / "other")
    for stage in ("collect 1 train", "collect 2 train", "train"):
        with pytest.raises(Killed):
            Dagger(again, tmp_path / "killed", dies_at(stage)).train()
    killed = Dagger(again, tmp_path / "killed", silent).train()
    assert lora.content_hash(whole) == lora.content_hash(killed)
    curves = [json.loads((adapter / "card.json").read_text())["curve"] for adapter in (whole, killed)]
    assert curves[0] == curves[1]
    assert curves[0][0]["step"] == 0  # what the bare reader loses, to compare with
    assert {"held_out_loss"} <= curves[0][0].keys() & curves[0][-1].keys()
    drivers = [
        {played.episode.job.driver for played in stored(Run.open(tmp_path / "whole" / f"collect-{number}-train"))}
        for number in (1, 2)
    ]
    assert drivers == [{"reference"}, {"reader"}]
    readers = [Run.open(tmp_path / "whole" / f"collect-{number}-train").info.models["reader"] for number in (1, 2)]
    assert readers[0] != readers[1]


def test_training_starts_without_the_adapter_it_replaces(archive: Archive, tmp_path: Path) -> None:
    """Catches a reader trained on top of, or acting with, the adapter that the configuration names already."""
    config = study(archive, tmp_path, tmp_path / "data")
    named = with_reader(config, tmp_path / "adapter")
    assert named.agent.reader_adapter is not None
    assert bare(named) == config
