"""A whole line of rounds on real games with a tiny real model: killed anywhere, it ends in the same adapters."""

import asyncio
from pathlib import Path

import msgspec
import pytest
import torch
from tests.tiny import make_tiny

from dssr.agent.prompts import load_prompts
from dssr.agent.store import stored
from dssr.config import (
    AgentConfig,
    Config,
    GamesConfig,
    MeasureConfig,
    ModelConfig,
    ProtocolConfig,
    StatsConfig,
    WriterConfig,
)
from dssr.errors import UsageError
from dssr.measure.candidates import Candidate, WritePoint
from dssr.record.run import Run
from dssr.reports.write import make_report
from dssr.session import silent
from dssr.training import fit as lora
from dssr.training.line import Line
from dssr.training.round import adapter_folder
from dssr.types import Audit, Progress
from dssr.worlds.archive import Archive

pytestmark = pytest.mark.slow


def study(archive: Archive, base: Path, data: Path) -> Config:
    """One-room games, a budget of 24 tokens, a handful of points."""
    games = data / "one"
    if not games.exists():
        data.mkdir(parents=True, exist_ok=True)
        games.symlink_to(archive.folder / "one", target_is_directory=True)
    return Config(
        name="tiny",
        data=str(data),
        cache_gib=1.0,
        games=GamesConfig(archive="one", levels=(1,), options={"recipe": 1, "take": 1}),
        protocol=ProtocolConfig(fillers=(0,), max_actions=4),
        writer_model=ModelConfig(backend="hf", path=str(base), dtype="float32", device="cpu", threads=1),
        agent=AgentConfig(budgets=(24,)),
        measure=MeasureConfig(points=1, oracle_samples=1),
        stats=StatsConfig(resamples=50),
        writer=WriterConfig(
            episodes_per_game=1,
            points=8,
            candidates=3,
            targets=(1, 2),
            gap=0.0001,
            outcome_points=6,
            outcome_gap=0.0,
            rank=2,
            alpha=4,
            sft_batch=4,
            dpo_batch=4,
            selection_budget=24,
            a4_candidates=4,
        ),
    )


class Killed(Exception):
    pass


def dies_at(stage: str) -> Progress:
    """Listens until something of a stage is done."""

    def die(name: str, done: int, of: int) -> None:
        if name == stage and done:
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


def test_variants_share_candidates_and_differ_in_what_they_learn_from(
    archive: Archive, base: Path, tmp_path: Path
) -> None:
    """Catches a variant that samples its own candidates where it should re-rank the common ones, or ranks as dssr does.

    Scores are swapped by hand in the stored candidates, so that S1 and S2 disagree about the best.
    """
    config = study(archive, base, tmp_path / "data")
    k1 = Line(config, "k1", 0, tmp_path / "k1-s0", silent)
    with pytest.raises(UsageError, match="--variant dssr"):
        asyncio.run(k1.train(range(1)))
    assert not (tmp_path / "k1-s0").exists()
    dssr = Line(config, "dssr", 0, tmp_path / "dssr-s0", silent)
    groups = asyncio.run(dssr.data(0)).groups()
    log = tmp_path / "dssr-s0" / "round-0" / "candidates.jsonl"
    lines = []
    for group in groups.values():
        for one in group:
            scores = {"S1": float(one.index), "S2": -float(one.index)}
            changed = msgspec.to_builtins(msgspec.structs.replace(one, scores=scores))
            lines.append(msgspec.json.encode({"key": f"{one.point}:{one.index:02d}", **changed}))
    log.write_bytes(b"\n".join(lines) + b"\n")
    archive_of = dssr.archive
    first, last = (asyncio.run(line.data(0)).examples(archive_of) for line in (dssr, k1))
    assert [one.reply for one in first] == [group[0].state for group in groups.values()]
    assert [one.reply for one in last] == [group[-1].state for group in groups.values()]
    rows = asyncio.run(k1.train(range(1)))
    assert rows[-1]["ended"] is None
    assert not (tmp_path / "k1-s0" / "round-0").exists()
    assert adapter_folder(tmp_path / "k1-s0", 0).exists()


def test_outcome_scores_by_the_game_played_on(archive: Archive, base: Path, tmp_path: Path) -> None:
    """Catches an outcome line that takes the reader's loss, or more points than it was given."""
    config = study(archive, base, tmp_path / "data")
    outcome = Line(config, "outcome", 0, tmp_path / "outcome", silent)
    asyncio.run(outcome.data(0))
    run = Run.open(tmp_path / "outcome" / "round-0")
    scores = [one.scores for one in run.read("candidates", Candidate)]
    assert len(scores) == 6 * 3
    assert all(set(score) == {"return"} and 0 <= score["return"] <= 1 for score in scores)


def test_a4_keeps_only_points_from_which_a_directive_is_reachable(archive: Archive, base: Path, tmp_path: Path) -> None:
    """Catches the filter applied before the reveal, or not at all: a random writer's states hold no directive."""
    config = study(archive, base, tmp_path / "data")
    line = Line(config, "a4", 0, tmp_path / "a4", silent)
    asyncio.run(line.data(0))
    run = Run.open(tmp_path / "a4" / "round-0")
    points = list(run.read("points", WritePoint))
    assert points
    assert all(point.since_reveal <= 0 for point in points)
    assert len(list(run.read("candidates", Candidate))) == 4 * len(points)


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
