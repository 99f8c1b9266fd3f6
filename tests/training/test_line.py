"""A whole line of rounds on real games with a tiny real model: killed anywhere, it ends in the same adapters."""

import asyncio
from pathlib import Path

import msgspec
import pytest
import torch
from tests.tiny import make_tiny
from tests.training.study import study

from dssr.agent.episode import stored
from dssr.agent.prompts import load_prompts
from dssr.record.run import Run
from dssr.reports.write import make_report
from dssr.session import silent
from dssr.training import fit as lora
from dssr.training.line import Line
from dssr.training.round import adapter_folder
from dssr.types import Audit, Progress, Standing
from dssr.worlds.archive import Archive

pytestmark = pytest.mark.slow


class Killed(Exception):
    pass


def dies_at(stage: str) -> Progress:
    """Listens until something of a stage is done."""

    def die(here: Standing) -> None:
        if here.stage == stage and here.done:
            raise Killed

    return die


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    return make_tiny(tmp_path_factory.mktemp("base") / "model")


def test_a_killed_line_ends_in_the_same_adapters(archive: Archive, base: Path, tmp_path: Path) -> None:
    """Catches work lost, doubled or reseeded by a kill in collection, in scoring or in training.

    The killed line has its own, empty response cache, so equality does not come from replayed answers.
    """
    config = study(archive, base, tmp_path / "data")
    whole = Line(config, "dssr", 0, tmp_path / "whole", silent)
    rows = asyncio.run(whole.train(range(2)))
    assert [row["round"] for row in rows] == ["untrained", 0, 1]
    killed_config = study(archive, base, tmp_path / "other")
    for stage in ("collect", "candidates", "train"):
        with pytest.raises(Killed):
            asyncio.run(Line(killed_config, "dssr", 0, tmp_path / "killed", dies_at(stage)).train(range(2)))
    asyncio.run(Line(killed_config, "dssr", 0, tmp_path / "killed", silent).train(range(2)))
    for number in range(2):
        one, other = (adapter_folder(tmp_path / name, number) for name in ("whole", "killed"))
        assert lora.content_hash(one) == lora.content_hash(other)
        for log in ("episodes", "steps", "points", "candidates"):
            left, right = (tmp_path / name / f"round-{number}" / f"{log}.jsonl" for name in ("whole", "killed"))
            assert left.read_bytes() == right.read_bytes(), log


def test_any_prompted_format_can_be_trained(archive: Archive, base: Path, tmp_path: Path) -> None:
    """Catches a line that collects, learns, validates or compares with the summary prompt although another is asked
    for, and a trained format that the report does not know."""
    config = study(archive, base, tmp_path / "data")
    config = msgspec.structs.replace(config, writer=msgspec.structs.replace(config.writer, memory="belief"))
    line = Line(config, "dssr", 0, tmp_path / "line", silent)
    rows = asyncio.run(line.train(range(2)))
    assert [row["round"] for row in rows] == ["untrained", 0, 1]
    assert {row["base"] for row in rows[-1]["against_untrained"]} == {"belief"}
    played = {
        place: {one.episode.job.cell.memory for one in stored(Run.open(tmp_path / "line" / place))}
        for place in ("round-0", "round-1", "valid-untrained", "valid-0", "valid-1")
    }
    assert played == {
        "round-0": {"belief"},
        "round-1": {"belief@r0"},
        "valid-untrained": {"belief"},
        "valid-0": {"belief@r0"},
        "valid-1": {"belief@r1"},
    }
    system = load_prompts().writer("belief", 24)
    asked = [one.messages[0].content for one in asyncio.run(line.data(0)).examples(line.archive)]
    assert asked == [system] * len(asked)
    prompts = [prompt for one in stored(Run.open(tmp_path / "line" / "valid-1")) for prompt in one.prompts]
    assert {one.messages[0][1] for one in prompts if one.role == "writer"} == {system}
    valid = Run.open(tmp_path / "line" / "valid-1")
    assert "writer@r1" in valid.info.models
    assert any(True for _ in valid.read("audits", Audit))
    report = make_report([valid.path, tmp_path / "line" / "valid-untrained"], tmp_path / "report", ["markdown"])
    grid = next(table for table in report.tables if table.name == "grid")
    assert {getattr(row, "memory", None) for row in grid.rows} == {"belief", "belief@r1"}


def test_no_qualifying_pair_ends_the_line_with_the_gaps(archive: Archive, base: Path, tmp_path: Path) -> None:
    """Catches a crash, or training on nothing, when all candidates are alike."""
    config = study(archive, base, tmp_path / "data")
    strict = msgspec.structs.replace(config, writer=msgspec.structs.replace(config.writer, gap=1000.0))
    rows = asyncio.run(Line(strict, "dssr", 0, tmp_path / "line", silent).train(range(3)))
    assert rows[-1]["qualifying"] == 0
    assert "no pair at least 1000 apart" in rows[-1]["ended"]
    assert f"{rows[-1]['largest']:.3g} at most" in rows[-1]["ended"]
    assert rows[-1]["largest"] >= rows[-1]["median"] >= 0
    assert not adapter_folder(tmp_path / "line", 1).exists()
    summary = Run.open(tmp_path / "line").summary
    assert summary is not None
    assert summary["ended"] == rows[-1]["ended"]
    assert summary["best"]["round"] == 0
