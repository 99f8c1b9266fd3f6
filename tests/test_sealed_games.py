"""No verb but an approved evaluation reaches a test game, whatever it is asked and whatever was opened before."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.tiny import make_adapter, make_tiny

import dssr
from dssr.config import (
    AgentConfig,
    Config,
    ContinuationConfig,
    GamesConfig,
    GatesConfig,
    MeasureConfig,
    ModelConfig,
    ProtocolConfig,
    ReaderConfig,
    StatsConfig,
    StudyConfig,
    WriterConfig,
)
from dssr.errors import DssrError, GameError, RecordError, SealError, StatsError, UsageError
from dssr.record.log import DIGESTS
from dssr.record.run import Run
from dssr.session import Verb
from dssr.types import Episode, Game
from dssr.worlds.archive import MANIFEST, Archive
from dssr.worlds.base import settled
from dssr.worlds.cooking.world import Cooking, CookingWorld

GAME = "test-1-000"


class Place:
    """Games of one's own with an evaluation that has run, and the stored steps of its test games taken away."""

    def __init__(self, folder: Path, archive: Archive) -> None:
        self.folder = folder
        shutil.copytree(archive.folder / "one", folder / "data" / "one", ignore=shutil.ignore_patterns("trees", "seal"))
        made = Config(
            name="sealed",
            data=str(folder / "data"),
            runs=str(folder / "runs"),
            cache_gib=0,
            games=GamesConfig(archive="one", levels=(1,), options={"recipe": 1, "take": 1}),
            protocol=ProtocolConfig(fillers=(0,), max_actions=6),
            writer_model=ModelConfig(backend="scripted", path="scripted", context_length=65536),
            agent=AgentConfig(memories=("summary",), budgets=(32,)),
            gates=GatesConfig(budget=32, far=0),
            study=StudyConfig(walks=(0,)),
            measure=MeasureConfig(points=1, oracle_samples=1),
            stats=StatsConfig(resamples=50),
            reader=ReaderConfig(accept=0.0, accept_games=1),
            continuation=ContinuationConfig(budget=32),
        )
        self.config = settled(made)
        dssr.approve("the authors", self.config)
        self.run = folder / "evaluation"
        dssr.evaluate(self.config, out=self.run)
        self.episode = next(iter(Run.open(self.run).read("episodes", Episode))).key
        self.tested = Archive.open(folder / "data" / "one").games("test")
        for tree in self.trees():
            tree.unlink()

    def trees(self) -> list[Path]:
        """Stored steps of test games: what playing one in any process leaves behind."""
        trees = self.folder / "data" / "one" / "trees"
        return [file for game in self.tested for file in trees.glob(f"{game.md5}*")]


@pytest.fixture(scope="module")
def place(archive: Archive, tmp_path_factory: pytest.TempPathFactory) -> Place:
    return Place(tmp_path_factory.mktemp("sealed"), archive)


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The games whose worlds are opened."""
    seen: list[str] = []
    honest = Cooking.open

    def noted(domain: Cooking, game: Game, path: Path, kept: Path) -> CookingWorld:
        seen.append(game.id)
        return honest(domain, game, path, kept)

    monkeypatch.setattr(Cooking, "open", noted)
    return seen


def out(place: Place, name: str) -> Path:
    return place.folder / "out" / name


CASES: dict[str, tuple[Callable[[Place], object], type[DssrError] | None]] = {
    "play": (lambda at: dssr.play(GAME, at.config), SealError),
    "plan": (lambda at: dssr.plan(at.config, split="test"), SealError),
    "plan calibrated": (lambda at: dssr.plan(at.config, split="test", calibrate=True), SealError),
    "plan valid": (lambda at: dssr.plan(at.config, calibrate=True), None),
    "fork": (lambda at: dssr.fork(at.run, at.episode, 0), SealError),
    "lag": (lambda at: dssr.lag(at.run), SealError),
    "audit": (lambda at: dssr.audit(at.run), SealError),
    "plan_audit": (lambda at: dssr.plan_audit(at.run), SealError),
    "check": (lambda at: dssr.check(at.run), SealError),
    "check_games": (lambda at: dssr.check_games(at.config), None),
    "game_stats": (lambda at: dssr.game_stats(at.config), None),
    "make_games": (lambda at: dssr.make_games(at.config), GameError),
    "diagnose": (lambda at: dssr.diagnose(at.config, split="test", out=out(at, "again")), SealError),
    "evaluate": (lambda at: dssr.evaluate(at.config, out=out(at, "again")), SealError),
    "evaluate resumed": (lambda at: dssr.evaluate(at.config, out=at.run, resume=True), RecordError),
    "evaluate full": (lambda at: dssr.evaluate(at.config, ["full"], out=out(at, "again")), SealError),
    "approve": (lambda at: dssr.approve("more", at.config, ["full"]), SealError),
    "continuation": (lambda at: dssr.continuation(at.config, split="test"), UsageError),
    "continuation valid": (lambda at: dssr.continuation(at.config, points=2, out=out(at, "continued")), None),
    "reader_accept": (lambda at: dssr.reader_accept(at.config, out=out(at, "accepted")), None),
    "compare": (lambda at: dssr.compare("summary", "guide", within=[at.run]), StatsError),
    "report": (lambda at: dssr.report(at.run, out=out(at, "report")), None),
    "export": (lambda at: dssr.export(at.run, "parquet", out=out(at, "export")), None),
    "gates": (lambda at: dssr.gates(at.config, write=True), None),
    "amend": (lambda at: dssr.amend("G9", "No such gate.", at.config), RecordError),
    "judge": (lambda at: dssr.judge("G9", [at.run], at.config), RecordError),
    # These lack what they start from; below they train for real.
    "train": (lambda at: dssr.train(at.config, "k1"), UsageError),
    "train_seeds": (lambda at: dssr.train_seeds(at.config), UsageError),
    "reader_train": (lambda at: dssr.reader_train(at.config), UsageError),
    "reader_curve": (lambda at: dssr.reader_curve(at.config), UsageError),
    "study": (lambda at: dssr.study(at.config, stage="accept", out=out(at, "study")), None),
    "study_states": (lambda at: dssr.study_states(at.config, out=out(at, "study")), None),
    "study_plan": (lambda at: dssr.study_plan(at.config, out=out(at, "study")), None),
    "transfer": (lambda at: dssr.transfer([at.run]), StatsError),
}
"""What is called, and how it is refused; None when it does its work on other games."""


def test_every_verb_has_a_case() -> None:
    """Catches a new verb that nobody tried on sealed games."""
    verbs = {name for name in dssr.__all__ if isinstance(getattr(dssr, name), Verb)}
    assert verbs == {name.split()[0] for name in CASES}


@pytest.mark.parametrize("name", CASES)
def test_no_verb_opens_a_test_game(name: str, place: Place, opened: list[str]) -> None:
    """Catches a way around the seal, even after the evaluation has run: what a command sees of test games could guide
    what is tried next. A refused call leaves no directory behind."""
    call, refusal = CASES[name]
    before = {file for file in place.folder.iterdir() if file.name != "out"}
    if refusal is None:
        call(place)
    else:
        with pytest.raises(refusal):
            call(place)
        assert {file for file in place.folder.iterdir() if file.name != "out"} == before
        assert not out(place, "again").exists()
    assert [game for game in opened if game.startswith("test")] == []
    assert place.trees() == []


@pytest.mark.slow
def test_training_opens_no_test_game(place: Place, opened: list[str], tmp_path: Path) -> None:
    """Catches a round or a reader trained, or validated, on test games."""
    model = ModelConfig(backend="hf", path=str(make_tiny(tmp_path / "tiny")), dtype="float32", device="cpu", threads=1)
    config = msgspec.structs.replace(
        place.config,
        writer_model=model,
        agent=AgentConfig(budgets=(24,)),
        reader=ReaderConfig(memories=("lastk",), budgets=(24,), iterations=1, points=8, rank=2, alpha=4, batch=4),
        writer=WriterConfig(
            episodes_per_game=1, points=4, candidates=2, targets=(1,), gap=0.0001, rank=2, alpha=4, sft_batch=4,
            dpo_batch=4, selection_budget=24,
        ),
    )  # fmt: skip
    dssr.train(config, rounds="0", force=True, out=tmp_path / "study")
    dssr.reader_train(config, out=tmp_path / "reader")
    assert {game.split("-")[0] for game in opened} == {"train", "valid"}
    assert place.trees() == []


@pytest.mark.slow
def test_an_adapter_that_is_not_the_approved_one_is_refused(place: Place, archive: Archive, tmp_path: Path) -> None:
    """Catches an adapter trained again under the same name and folder after the approval."""
    base = make_tiny(tmp_path / "tiny")
    adapter = make_adapter(tmp_path / "a4", base, seed=1)
    model = ModelConfig(
        backend="hf", path=str(base), dtype="float32", device="cpu", threads=1, adapters={"a4": str(adapter)}
    )
    shutil.copytree(archive.folder / "one", tmp_path / "data" / "one", ignore=shutil.ignore_patterns("trees", "seal"))
    config = msgspec.structs.replace(place.config, data=str(tmp_path / "data"), writer_model=model)
    approved = dssr.approve("the authors", config, ["dssr@a4"])
    assert set(approved.run.models) == {"reader", "writer", "writer@a4"}
    shutil.rmtree(adapter)
    make_adapter(adapter, base, seed=2)
    with pytest.raises(SealError, match=rf"differs from the approved {approved.name} in the content of writer@a4;"):
        dssr.evaluate(config, ["dssr@a4"], out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


# ---------------------------------------------------------------- the manifest


def relisted(archive: Archive, folder: Path, **changes: Any) -> Path:
    """A copy of the archive whose manifest calls a test game something else, by a forger who drops its digests too."""
    shutil.copytree(archive.folder / "one", folder, ignore=shutil.ignore_patterns("trees", "seal", DIGESTS))
    games = [msgspec.json.decode(line) for line in (folder / MANIFEST).read_bytes().splitlines()]
    edited = [game | changes if game["id"] == GAME else game for game in games]
    (folder / MANIFEST).write_bytes(b"".join(msgspec.json.encode(game) + b"\n" for game in edited))
    return folder


def test_a_test_game_listed_as_another_is_refused(archive: Archive, tmp_path: Path) -> None:
    """Catches a manifest edited to call a test game a validation game, which opened it to every command: its name and
    the command that made it say test too, and if those are edited along, its own file does."""
    command = archive.game(GAME).command
    plain = {"split": "valid"}
    with pytest.raises(GameError, match="lists test-1-000 as a valid game"):
        Archive.open(relisted(archive, tmp_path / "split", **plain))
    with pytest.raises(GameError, match="lists valid-1-009 as a valid game"):
        Archive.open(relisted(archive, tmp_path / "name", **plain, id="valid-1-009"))
    renamed = ["valid" if word == "test" else word for word in command]
    with pytest.raises(GameError, match="lists test-1-000 as a valid game"):
        Archive.open(relisted(archive, tmp_path / "command", **plain, command=renamed))
    forged = Archive.open(relisted(archive, tmp_path / "all", **plain, id="valid-1-009", command=renamed))
    with pytest.raises(GameError, match="made as a test game but is listed as valid"):
        forged.world("valid-1-009")
