"""The frame of a study: what is done is not done again, and what no longer fits is refused."""

import asyncio
from pathlib import Path

import msgspec
import pytest

from dssr.config import Config, ModelConfig, StudyConfig
from dssr.errors import ConfigError, RecordError, UsageError
from dssr.record.run import Run
from dssr.studies.study import Done, StageWork, WholeStudy

CONFIG = Config(name="small", writer_model=ModelConfig(backend="scripted", path="scripted"))


class Counted(msgspec.Struct):
    """Something to log."""

    number: int


def stage(name: str, did: list[str], facts: dict[str, int] | None = None, fails: bool = False) -> StageWork:
    """A stage that makes one run."""

    async def work(study: WholeStudy) -> Done:
        did.append(name)
        if fails:
            raise UsageError("Interrupted here.")
        with Run.start(study.out / name, command=name, config=study.config, models={}) as run:
            run.append("numbers", "one", Counted(1))
            run.finish({})
        return Done([study.out / name], facts=facts or {})

    return work


def run(stages: dict[str, StageWork], out: Path, config: Config = CONFIG, last: str | None = None) -> WholeStudy:
    """Do what a study owes."""
    study = WholeStudy(stages, config, out)
    asyncio.run(study.run(last))
    return study


def test_a_finished_stage_is_not_done_again(tmp_path: Path) -> None:
    """Catches a study that starts over when it is called again."""
    did: list[str] = []
    stages = {"grid": stage("grid", did), "lines": stage("lines", did)}
    run(stages, tmp_path / "s", last="grid")
    assert did == ["grid"]
    states = run(stages, tmp_path / "s").states()
    assert did == ["grid", "lines"]
    assert [one.state for one in states] == ["done", "done"]


def test_a_stage_that_failed_is_owed(tmp_path: Path) -> None:
    """Catches a stage that counts as done although it ended in the middle."""
    did: list[str] = []
    with pytest.raises(UsageError):
        run({"grid": stage("grid", did, fails=True)}, tmp_path / "s")
    assert [one.state for one in WholeStudy({"grid": stage("grid", did)}, CONFIG, tmp_path / "s").states()] == ["owed"]
    assert run({"grid": stage("grid", did)}, tmp_path / "s").states()[0].state == "done"


@pytest.mark.parametrize(
    "change",
    [msgspec.structs.replace(CONFIG, seed=1), msgspec.structs.replace(CONFIG, study=StudyConfig(wide_games=2))],
)
def test_a_changed_configuration_is_refused(tmp_path: Path, change: Config) -> None:
    """Catches a study that mixes stages made with different settings."""
    did: list[str] = []
    run({"grid": stage("grid", did)}, tmp_path / "s")
    with pytest.raises(RecordError, match=r"another (config|sizes)"):
        run({"grid": stage("grid", did)}, tmp_path / "s", change)
    assert did == ["grid"]


def test_an_altered_run_is_refused(tmp_path: Path) -> None:
    """Catches later stages that rest on a run which is not the one that was made."""
    did: list[str] = []
    stages = {"grid": stage("grid", did), "lines": stage("lines", did)}
    run(stages, tmp_path / "s", last="grid")
    (tmp_path / "s" / "grid" / "numbers.jsonl").write_text('{"key":"one","number":2}\n')
    with pytest.raises(RecordError, match="no longer what the stage grid made"):
        run(stages, tmp_path / "s")
    assert did == ["grid"]
    assert WholeStudy(stages, CONFIG, tmp_path / "s").states()[0].state == "changed"


def test_a_decision_made_otherwise_is_refused(tmp_path: Path) -> None:
    """Catches a study that goes on after the log of an earlier stage was exchanged."""
    did: list[str] = []
    run({"grid": stage("grid", did, {"selected": 1}), "lines": stage("lines", did)}, tmp_path / "s")
    log = tmp_path / "s" / "stages.jsonl"
    log.write_text(log.read_text().replace('"selected":1', '"selected":2'))
    with pytest.raises(RecordError, match="another grid"):
        run({"grid": stage("grid", did), "lines": stage("lines", did)}, tmp_path / "s")


def test_an_unknown_stage_is_a_sentence(tmp_path: Path) -> None:
    """Catches a misspelt stage that runs everything."""
    with pytest.raises(UsageError, match="There is no stage 'grip'"):
        run({"grid": stage("grid", [])}, tmp_path / "s", last="grip")


def test_a_selection_among_lines_that_are_not_trained_is_refused(tmp_path: Path) -> None:
    """Catches a study that trains for hours and then has nothing to select from, or selects what it was not told to."""
    sizes = StudyConfig(variants=("a4", "chains"), selected_from=("chains",))
    study = WholeStudy({}, msgspec.structs.replace(CONFIG, study=sizes), tmp_path)
    assert (study.variants, study.selectable) == (("dssr", "a4", "chains"), ("chains",))
    sizes = StudyConfig(variants=("a4",), selected_from=("chains",))
    with pytest.raises(ConfigError, match="names chains, but this study trains dssr, a4"):
        WholeStudy({}, msgspec.structs.replace(CONFIG, study=sizes), tmp_path)
