"""`dssr play`, `dssr check` and `dssr fork` on a real run."""

import json
from pathlib import Path

import msgspec
import pytest
import typer
from tests.agent.bench import make_job, play_all
from tests.sessions import open_agent
from tests.tiny import finished_again
from typer.testing import CliRunner

from dssr.agent.episode import save
from dssr.cli import episodes
from dssr.config import Config, GamesConfig, ModelConfig, load, resolved
from dssr.errors import GameError, LeakError, RecordError, UsageError
from dssr.models.scripted import ScriptedModel
from dssr.record.run import Run
from dssr.types import StoredPrompt
from dssr.worlds.archive import Archive

GAME = "train-1-000"


@pytest.fixture(scope="module")
def config(archive: Archive) -> Config:
    return Config(
        name="test",
        data=str(archive.folder.parent),
        cache_gib=0,
        games=GamesConfig(archive=archive.folder.name),
        writer_model=ModelConfig(backend="scripted", context_length=65536),
    )


@pytest.fixture
def run(archive: Archive, config: Config, tmp_path: Path) -> Path:
    """A run of two episodes."""
    jobs = [make_job(GAME, memory) for memory in ("summary", "full")]
    model = ScriptedModel(0.9, 65536)
    with (
        open_agent(config, archive, model, jobs) as agent,
        Run.start(tmp_path / "run", command="diagnose", config=config, models={}) as made,
    ):
        for played in play_all(jobs, agent):
            save(made, played)
        made.finish({})
    return tmp_path / "run"


def call(*arguments: str) -> str:
    app = typer.Typer()
    episodes.register(app)
    result = CliRunner().invoke(app, list(arguments))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output


def test_play_prints_for_people_and_for_programs(config: Config, tmp_path: Path) -> None:
    """Catches a command that no longer runs from a configuration file alone."""
    file = tmp_path / "test.toml"
    file.write_text(resolved(config))
    assert load(str(file)).digest() == config.digest()
    text = call("play", GAME, "--config", str(file), "--memory", "belief", "--budget", "64")
    assert "== step 0 · start ==" in text
    assert "outcome" in text
    played = json.loads(call("play", GAME, "--config", str(file), "--memory", "full", "--json"))
    assert played["episode"]["outcome"] == "won"
    assert played["episode"]["steps"] == len(played["steps"])
    with pytest.raises(GameError, match="no game"):
        call("play", "valid-99-000", "--config", str(file))


def test_fork_reproduces_or_departs(run: Path, tmp_path: Path) -> None:
    """Catches the tool's self-test passing or failing for the wrong reason."""
    key = next(line for line in (run / "episodes.jsonl").read_text().splitlines() if '"summary"' in line)
    name = json.loads(key)["key"][:10]
    assert json.loads(call("fork", str(run), name, "3", "--json"))["differs"] is None
    (tmp_path / "state.txt").write_text("nothing is known")
    other = json.loads(call("fork", str(run), name, "3", "--state", str(tmp_path / "state.txt"), "--json"))
    assert other["differs"] == 3
    assert other["steps"][3]["write"]["state"] == "nothing is known"
    with pytest.raises(UsageError, match="No episode of"):
        call("fork", str(run), "zzz", "3")


def test_check_passes_a_clean_run_and_fails_a_leaking_one(run: Path) -> None:
    """Catches a check that reads nothing, and a leak that does not change the exit code."""
    report = {search["what"]: search for search in json.loads(call("check", str(run), "--json"))}
    assert all(search["leaks"] == [] and search["leaked"] == 0 for search in report.values())
    for what in ("episode", "stored"):
        assert report[what]["writer_prompts"] > 5
        assert report[what]["reader_prompts"] > 5
    file = run / "prompts.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    first = next(line for line in lines if line["role"] == "writer" and line["step"] == 0)
    first["messages"][1][1] += "\nin(I know, all)\non(cookbook, table) on(cookbook, counter) at(P, kitchen)"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    msgspec.json.decode(json.dumps(first), type=StoredPrompt)
    with pytest.raises(RecordError, match="was altered"):
        call("check", str(run))
    finished_again(run)
    with pytest.raises(LeakError, match="do not use its numbers"):
        call("check", str(run))
