"""The frame of every run: what is opened is closed, what can be refused early is refused early."""

import asyncio
import shutil
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.tiny import finished_again

from dssr.config import AgentConfig, Config, GamesConfig, ModelConfig, ProtocolConfig, StatsConfig
from dssr.errors import GameError, LeakError, RecordError, SealError
from dssr.measure.diagnose import diagnose, evaluate, measure_grid
from dssr.measure.gates import approve
from dssr.measure.grid import grid_of
from dssr.measure.logs import audit
from dssr.measure.study import Study
from dssr.models.base import Generate, Generated
from dssr.models.scripted import ScriptedModel
from dssr.record.run import Run
from dssr.scale.shards import each
from dssr.session import Bench, Session, Stage, run_now, verb
from dssr.types import Audit, Cell, Standing
from dssr.worlds.archive import Archive
from dssr.worlds.base import settled


class Closing(ScriptedModel):
    """Counts how often it was closed, and can fail or be interrupted while it writes."""

    def __init__(self, trouble: BaseException | None = None) -> None:
        super().__init__(0.9, 65536)
        self.closed = 0
        self.trouble = trouble

    async def generate(self, request: Generate) -> Generated:
        if self.trouble is not None:
            raise self.trouble
        return await super().generate(request)

    async def close(self) -> None:
        self.closed += 1


@pytest.fixture
def config(archive: Archive, tmp_path: Path) -> Config:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "small").mkdir()
    for part in archive.folder.iterdir():
        (tmp_path / "data" / "small" / part.name).symlink_to(part)
    made = Config(
        name="frame",
        data=str(tmp_path / "data"),
        runs=str(tmp_path / "runs"),
        cache_gib=0,
        games=GamesConfig(archive="small", levels=(1,)),
        protocol=ProtocolConfig(fillers=(0,), max_actions=6),
        writer_model=ModelConfig(backend="scripted", path="scripted", context_length=65536),
        agent=AgentConfig(memories=("summary",), budgets=(32,)),
        stats=StatsConfig(resamples=50),
    )
    return settled(made)


def loading(monkeypatch: pytest.MonkeyPatch, model: ScriptedModel) -> list[str]:
    """Notes when models are loaded."""
    seen: list[str] = []

    def load(config: Config) -> tuple[ScriptedModel, ScriptedModel]:
        seen.append("models")
        return model, model

    monkeypatch.setattr("dssr.session.load_models", load)
    return seen


def test_a_taken_directory_is_refused_before_models_load(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches minutes of loading a model before the sentence that the directory exists."""
    seen = loading(monkeypatch, Closing())
    (tmp_path / "taken").mkdir()
    with pytest.raises(RecordError, match="exists and holds no run"):
        diagnose(config, out=tmp_path / "taken")
    assert seen == []


@pytest.mark.parametrize("trouble", [KeyboardInterrupt(), RuntimeError("a bug"), None])
def test_models_are_closed_once_whatever_happens(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trouble: BaseException | None
) -> None:
    """Catches a model or a lock left behind by an error or by Ctrl-C, and a model closed for each of its two roles."""
    model = Closing(trouble)
    loading(monkeypatch, model)
    if trouble is None:
        diagnose(config, out=tmp_path / "run")
    else:
        with pytest.raises(type(trouble)):
            diagnose(config, out=tmp_path / "run")
        with Run.start(
            tmp_path / "run",
            command="diagnose",
            config=config,
            models=Run.open(tmp_path / "run").info.models,
            arguments=Run.open(tmp_path / "run").info.arguments,
            resume=True,
        ):
            pass  # the lock is free
    assert model.closed == 1


def test_a_second_reader_neither_continues_the_firsts_run_nor_gets_its_answers(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches R2's numbers among R1's: a run begun under one reader and continued under another, whose cached answers
    lie in the same folder."""
    config = msgspec.structs.replace(config, cache_gib=1.0)
    diagnose(config, out=tmp_path / "first", workers=1)
    second = msgspec.structs.replace(config.writer_model, path="scripted-2", retention=0.5)
    other = msgspec.structs.replace(config, reader_model=second)
    loading(monkeypatch, Closing(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        diagnose(config, out=tmp_path / "broken", workers=1)
    monkeypatch.undo()
    with pytest.raises(
        RecordError, match=r"made with other settings \(.*reader_model.*resume it with the settings in its"
    ):
        diagnose(other, out=tmp_path / "broken", resume=True, workers=1)
    diagnose(other, out=tmp_path / "second", workers=1)
    alone = msgspec.structs.replace(other, cache_gib=0.0)
    diagnose(alone, out=tmp_path / "alone", workers=1)
    with_r1s, fresh = (list(Run.open(tmp_path / name).read("audits", Audit)) for name in ("second", "alone"))
    assert with_r1s == fresh


def test_the_seal_breaks_after_everything_has_loaded(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches a split opened for a run whose model then cannot be loaded."""
    seal = Session(config).seal
    approve("the authors", config)

    def broken(config: Config) -> Any:
        raise RuntimeError("no weights")

    monkeypatch.setattr("dssr.session.load_models", broken)
    with pytest.raises(RuntimeError, match="no weights"):
        diagnose(config, split="test", out=tmp_path / "first")
    assert not seal.openings
    monkeypatch.undo()
    diagnose(config, split="test", out=tmp_path / "second")
    (opening,) = seal.openings
    assert opening.id == Run.open(tmp_path / "second").info.id
    assert opening.place == str((tmp_path / "second").resolve())
    with pytest.raises(SealError, match="once for each approved run"):
        diagnose(config, split="test", out=tmp_path / "third")
    assert not (tmp_path / "third").exists()


def test_only_what_was_approved_reaches_the_test_games(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches a run that nobody approved: another memory, budget, number of games, or setting, told before models are
    loaded; and another model or prompt behind the same names, told after. None makes a directory."""
    approve("the authors", config)
    asked: list[tuple[dict[str, Any], str]] = [
        ({"memories": ["full"]}, "memories"),
        ({"budgets": [64]}, "budgets"),
        ({"games": 1}, "games"),
        ({"lag": True}, "lag"),
        ({"config": msgspec.structs.replace(config, seed=7)}, r"config\.seed"),
    ]
    whole: dict[str, Any] = {"config": config, "split": "test", "out": tmp_path / "run"}
    seen = loading(monkeypatch, Closing())
    for changes, named in asked:
        with pytest.raises(SealError, match=rf"differs from the approved frame-\w+ in .*{named}"):
            diagnose(**(whole | changes))
    assert seen == []
    other = ScriptedModel(0.5, 65536)
    loading(monkeypatch, other)
    with pytest.raises(SealError, match="the content of reader, the content of writer"):
        evaluate(config, out=tmp_path / "run")
    monkeypatch.setattr("dssr.session.identity_of", lambda memory, prompts: "edited")
    with pytest.raises(SealError, match="the content of summary"):
        evaluate(config, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_killed_evaluation_is_continued_and_shuts_behind_itself(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches an evaluation lost to a crash, one begun again somewhere else, and test games left open in a session."""
    approve("the authors", config)
    model = Closing(KeyboardInterrupt())
    loading(monkeypatch, model)
    with pytest.raises(KeyboardInterrupt):
        evaluate(config, out=tmp_path / "run")
    model.trouble = None
    with pytest.raises(SealError, match="continue that one with --resume"):
        evaluate(config, out=tmp_path / "elsewhere")
    (tmp_path / "run").rename(tmp_path / "hidden")
    with pytest.raises(SealError, match="that run is gone"):
        evaluate(config, out=tmp_path / "run")
    (tmp_path / "hidden").rename(tmp_path / "run")

    async def go() -> None:
        async with Session(config) as session:
            grid = grid_of(config, session.archive, split="test")
            run = await measure_grid(session, grid, tmp_path / "run", resume=True)
            assert run.summary is not None
            assert run.summary["episodes"] == 2
            with pytest.raises(SealError, match="sealed test game"), session.worlds.playing(grid.games[0]):
                pass

    asyncio.run(go())
    assert len(Session(config).seal.openings) == 1


def test_an_altered_test_game_is_told_before_the_seal_breaks(config: Config, tmp_path: Path, archive: Archive) -> None:
    """Catches an opening spent on games that then cannot be played."""
    approve("the authors", config)
    folder = tmp_path / "data" / "small" / "one"
    folder.unlink()
    shutil.copytree(archive.folder / "one", folder)
    with (folder / "games" / "test-1-000.z8").open("ab") as file:
        file.write(b"x")
    with pytest.raises(GameError, match="altered"):
        evaluate(config, out=tmp_path / "run")
    assert not Session(config).seal.openings


def test_a_leak_fails_the_run_in_the_frame(config: Config, tmp_path: Path) -> None:
    """Catches a verb whose run is finished although one of its prompts shows a secret, here a fact in the instruction
    of the reader, and one that is finished after all when it is continued."""
    with closing(Session(config).archive.world("valid-1-000")) as world:
        facts = world.start().moment.privileged.facts
    texts = tmp_path / "texts"
    texts.mkdir()
    secret = next(f"{fact.name}({', '.join(fact.args)})" for fact in facts if len(fact.args) == 2)
    (texts / "reader.txt").write_text(f"Choose. {secret}")
    agent = msgspec.structs.replace(config.agent, prompts=str(texts))
    told = msgspec.structs.replace(config, agent=agent)
    with pytest.raises(LeakError, match=r"marked failed: \d+ prompts show a secret, the first a fact in a reader"):
        diagnose(told, out=tmp_path / "leaking")
    assert Run.open(tmp_path / "leaking").failure is not None
    assert Run.open(tmp_path / "leaking").summary is None
    with pytest.raises(RecordError, match="is finished"):
        diagnose(told, out=tmp_path / "leaking", resume=True)


def test_owed_work_is_done_once_and_told(config: Config, tmp_path: Path) -> None:
    """Catches work done twice after an interruption, results stored in finishing order, and progress that lies."""
    told: list[tuple[str, int, int]] = []

    async def go(stop: int | None) -> list[str]:
        done: list[str] = []

        def watch(here: Standing) -> None:
            told.append((here.stage, here.done, here.of))
            if stop is not None and here.done == stop:
                raise KeyError(stop)

        async with Session(config, watch) as session:
            with session.run(tmp_path / "run", "work", (), {}, resume=True) as (run, _):

                async def work(bench: Bench, item: str) -> str:
                    await asyncio.sleep(0.01 * (5 - int(item)))
                    done.append(item)
                    return item

                def keep(item: str) -> None:
                    run.append("items", item, Audit(item, 0, 0, 0.0, 0.0, 0.0, "", None))

                await session.work(run, Stage("items", "items", [*"01234"], str, tuple, partial(each, work), keep))
        return done

    with pytest.raises(KeyError):
        asyncio.run(go(2))
    again = asyncio.run(go(None))
    assert sorted(again) == ["2", "3", "4"]
    kept = [one.episode for one in Run.open(tmp_path / "run").read("items", Audit)]
    assert kept == [*"01234"]
    assert told[-1] == ("items", 5, 5)


def test_a_verb_runs_from_ordinary_code_and_inside_a_running_loop() -> None:
    """Catches a verb that fails in a notebook, where an event loop runs already, or that loses its error there."""

    @verb
    async def double(number: int) -> int:
        """Twice the number."""
        await asyncio.sleep(0)
        if number < 0:
            raise ValueError("negative")
        return 2 * number

    async def notebook() -> tuple[int, int]:
        return double(2), await double.aio(3)

    assert double(1) == 2
    assert asyncio.run(notebook()) == (4, 6)
    assert double.__doc__ == "Twice the number."

    async def failing() -> int:
        return double(-1)

    with pytest.raises(ValueError, match="negative"):
        asyncio.run(failing())
    assert run_now(double.aio(5)) == 10


def test_stored_episodes_are_audited_as_they_would_have_been(config: Config, tmp_path: Path) -> None:
    """Catches audits of stored episodes that differ from those made at once, or that are made twice."""
    whole = diagnose(config, out=tmp_path / "whole")
    bare = tmp_path / "bare"
    bare.mkdir()
    for file in (tmp_path / "whole").iterdir():
        if file.name != "audits.jsonl":
            (bare / file.name).write_bytes(file.read_bytes())
    study = audit(finished_again(bare))

    def losses(study: Study) -> dict[tuple[Cell, str, int], tuple[float, ...]]:
        return {
            (cell, game, one.step): (one.delta, one.beta, one.kappa, one.nll_state)
            for cell, games in study.audits.items()
            for game, found in games.items()
            for one in found
        }

    assert losses(study) == losses(whole)
    assert study.runs[-1].path.name == "bare-audit"
    assert losses(audit(tmp_path / "whole", out=tmp_path / "again")) == losses(whole)
