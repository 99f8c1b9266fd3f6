"""The reader's whole training on real games with a tiny real model: killed anywhere, it ends in the same adapter."""

import asyncio
import json
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
import torch
from tests.tiny import make_tiny
from tests.training.study import study
from tests.training.test_line import Killed, dies_at

from dssr.agent.episode import stored
from dssr.agent.prompts import load_prompts
from dssr.config import Config, ReaderConfig
from dssr.errors import LeakError
from dssr.record.run import Run
from dssr.session import silent
from dssr.training import fit as lora
from dssr.training import reader_fit
from dssr.training.reader import ACCURACY, Dagger, bare, with_reader
from dssr.training.reader_points import ReaderAccuracy
from dssr.worlds.archive import Archive, Worlds

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
    whole = asyncio.run(Dagger(small(archive, base, tmp_path / "data"), tmp_path / "whole", silent).train())
    again = small(archive, base, tmp_path / "other")
    for stage in ("collect 1 train", "collect 2 train", "train"):
        with pytest.raises(Killed):
            asyncio.run(Dagger(again, tmp_path / "killed", dies_at(stage)).train())
    killed = asyncio.run(Dagger(again, tmp_path / "killed", silent).train())
    assert lora.content_hash(whole) == lora.content_hash(killed)
    curves = [json.loads((adapter / "card.json").read_text())["curve"] for adapter in (whole, killed)]
    assert curves[0] == curves[1]
    assert curves[0][0]["step"] == 0  # what the bare reader loses, to compare with
    assert {"held_out_loss", "held_out_accuracy"} <= curves[0][0].keys() & curves[0][-1].keys()
    rows = [
        list(Run.open(tmp_path / name / ACCURACY).read("reader_accuracy", ReaderAccuracy))
        for name in ("whole", "killed")
    ]
    assert rows[0] == rows[1]
    variants = [("all", None), ("full", None), ("lastk", 24), ("summary", 24)]
    assert [(row.memory, row.budget) for row in rows[0]] == 4 * variants  # base and trained, two iterations
    assert [row.accuracy for row in rows[0] if row.memory == "all"][-1] == curves[0][-1]["held_out_accuracy"]
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


def test_a_reader_trains_on_the_device_and_revision_of_its_model(
    archive: Archive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches a training on the CPU beside an idle GPU, and one of another revision than the one that is measured."""
    config = small(archive, make_tiny(tmp_path / "model"), tmp_path / "data")
    found: list[lora.Fit] = []
    monkeypatch.setattr(reader_fit, "train_reader", lambda fit, *rest: found.append(fit))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    for device in ("auto", "cpu"):
        model = msgspec.structs.replace(config.writer_model, device=device, revision="abc123")
        asked = msgspec.structs.replace(config, writer_model=model)
        Dagger(asked, tmp_path / "reader").fit(1, [], [], tmp_path / "adapter", tmp_path / "work")
    assert [(fit.place, fit.revision) for fit in found] == [("cuda", "abc123"), ("cpu", "abc123")]


@pytest.mark.parametrize(("number", "role"), [(1, "writer"), (2, "reader")])
def test_a_leak_in_a_collection_is_refused(number: int, role: str, archive: Archive, tmp_path: Path) -> None:
    """Catches a reader trained on prompts nobody searched: those of episodes driven by the reference action, which have
    no reader prompts, and of those the reader drove. All plans are put into the instruction of one of the two."""
    config = small(archive, make_tiny(tmp_path / "model"), tmp_path / "data")
    place = tmp_path / "reader" / f"collect-{number}-train"
    plans = []
    with closing(Worlds(archive)) as worlds:
        for game in archive.games("train"):
            with worlds.playing(game.id) as world:
                plans.append(", ".join(world.start().moment.privileged.walkthrough))
    texts = tmp_path / "texts"
    texts.mkdir()
    (texts / f"{role}.txt").write_text("\n".join((load_prompts().texts[role], *plans)))
    agent = msgspec.structs.replace(config.agent, prompts=str(texts))
    config = msgspec.structs.replace(config, agent=agent)
    with pytest.raises(LeakError, match=rf"the first a plan in a {role} prompt"):
        asyncio.run(Dagger(config, tmp_path / "reader", silent).train())
    assert (place / "failed.json").exists()
    assert not (place / "summary.json").exists()
    assert not Dagger(config, tmp_path / "reader", silent).adapter(number).exists()
