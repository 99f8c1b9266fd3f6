"""The reader's learning curve on real games with a tiny real model."""

import shutil
from pathlib import Path

import msgspec
import pytest
from tests.tiny import make_tiny
from tests.training.test_dagger import small
from tests.training.test_line import Killed, dies_at

import dssr
from dssr.config import Config
from dssr.errors import RecordError, UsageError
from dssr.record.run import Run
from dssr.reports.write import make_report
from dssr.training import fit as lora
from dssr.training.reader import ACCURACY, curve_rows
from dssr.training.reader_points import ReaderAccuracy
from dssr.worlds.archive import Archive

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def config(archive: Archive, tmp_path_factory: pytest.TempPathFactory) -> Config:
    folder = tmp_path_factory.mktemp("curve")
    return small(archive, make_tiny(folder / "model"), folder / "data")


@pytest.fixture(scope="module")
def trained(config: Config, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a finished training."""
    place = tmp_path_factory.mktemp("training") / "reader"
    dssr.reader_train(config, out=place)
    return place


def test_a_killed_curve_ends_alike_and_its_last_reader_is_the_trained_one(
    config: Config, trained: Path, tmp_path: Path
) -> None:
    """Catches a curve by another recipe or seed than the training's (the largest sample must give the same adapter),
    work lost by a kill, and held-out points that differ between sizes."""
    place = tmp_path / "curve"
    with pytest.raises(Killed):
        dssr.reader_curve(config, training=trained, out=place, progress=dies_at("train"))
    run = dssr.reader_curve(config, training=trained, out=place, resume=True)
    sizes = run.info.arguments["points"]
    assert len(sizes) == 3
    assert lora.content_hash(place / "adapters" / str(sizes[-1])) == lora.content_hash(trained / "adapters" / "2")
    assert lora.content_hash(place / "adapters" / str(sizes[0])) != lora.content_hash(trained / "adapters" / "2")
    rows = curve_rows(run)
    assert [row.trained for row in rows] == [0, *(2 * size for size in sizes)]  # two iterations, the bare base first
    assert len({(row.points, row.games) for row in rows}) == 1
    final = list(Run.open(trained / ACCURACY).read("reader_accuracy", ReaderAccuracy))
    assert rows[-1] == [row for row in final if row.memory == "all"][-1]
    with pytest.raises(RecordError, match="is finished"):
        dssr.reader_curve(config, training=trained, out=place, resume=True)
    found = make_report([run.path, trained / ACCURACY], tmp_path / "report")
    assert found
    for name in ("reader", "reader-curve"):
        assert "summary" in (tmp_path / "report" / "tables" / f"{name}.csv").read_text()


def test_bad_questions_get_one_sentence(config: Config, trained: Path, tmp_path: Path) -> None:
    """Catches a curve of more points than were stored, of another configuration's points, or of none."""
    with pytest.raises(UsageError, match="ask for sizes from 1 to"):
        dssr.reader_curve(config, points=[2, 7000], training=trained, out=tmp_path / "curve")
    with pytest.raises(UsageError, match="holds no finished training"):
        dssr.reader_curve(config, training=tmp_path / "nothing", out=tmp_path / "curve")
    other = msgspec.structs.replace(config, seed=7)
    with pytest.raises(UsageError, match="another configuration"):
        dssr.reader_curve(other, training=trained, out=tmp_path / "curve")
    with pytest.raises(RecordError, match="is finished"):
        dssr.reader_train(config, out=trained, resume=True)
    assert not (tmp_path / "curve").exists()


def test_an_accuracy_that_a_kill_left_unwritten_is_written_by_resume(config: Config, trained: Path) -> None:
    """Catches a training that counts as finished when only its adapter is there, so that its rows never come."""
    before = list(Run.open(trained / ACCURACY).read("reader_accuracy", ReaderAccuracy))
    shutil.rmtree(trained / ACCURACY)
    dssr.reader_train(config, out=trained, resume=True)
    assert list(Run.open(trained / ACCURACY).read("reader_accuracy", ReaderAccuracy)) == before
