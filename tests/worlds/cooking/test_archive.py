"""Making and opening archives."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from dssr.config import GamesConfig, load
from dssr.errors import ConfigError, DssrError, GameError, SealError
from dssr.measure.archives import game_stats
from dssr.record.log import DIGESTS
from dssr.types import Standing
from dssr.worlds.archive import MANIFEST, PARTIAL, SETTINGS, Archive, Worlds, make_archive, read_manifest, read_settings
from dssr.worlds.cooking.generate import ROOM_SEEDS, plan_games

MAKING = pytest.mark.timeout(3600)
"""Making games takes what it takes on a busy machine; the limit only ends what hangs."""
ONE = GamesConfig(archive="one", levels=(1,), options={"recipe": 1, "take": 1}, train=1, valid=1, test=0)


def rewrite(archive: Archive, folder: Path, **changes: object) -> Archive:
    """The archive's first game alone, in a folder of its own, with some fields of its listing changed."""
    (folder / "one" / "games").mkdir(parents=True)
    game = archive.games("train")[0]
    for suffix in (".z8", ".json"):
        shutil.copy(archive.path(game).with_suffix(suffix), (folder / game.file).with_suffix(suffix))
    shutil.copy(archive.folder / SETTINGS, folder / SETTINGS)
    changed = msgspec.structs.replace(game, **changes)
    (folder / MANIFEST).write_bytes(msgspec.json.encode(changed) + b"\n")
    return Archive.open(folder)


@MAKING
def test_making_survives_a_kill_and_repeats_exactly(archive: Archive, tmp_path: Path) -> None:
    """Catches a half-made archive that cannot be finished, and games that differ when made again.

    The maker stops after its first game and is killed; the second run makes only the other. Both games must have
    the md5 of the shared archive's games of the same seeds, which were made at another time in another folder.
    """
    folder = tmp_path / "made"
    code = (
        "from dssr.config import GamesConfig; from dssr.worlds.archive import make_archive; import msgspec\n"
        f"config = msgspec.json.decode({msgspec.json.encode(ONE)!r}, type=GamesConfig)\n"
        f"make_archive(config, {str(folder)!r}, 1, lambda done, total: done and (print(flush=True), sys.stdin.read()))"
    )
    maker = subprocess.Popen(
        [sys.executable, "-c", code], start_new_session=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert maker.stdout is not None
    assert maker.stdout.readline() == b"\n"
    os.killpg(maker.pid, signal.SIGKILL)
    maker.wait()
    with contextlib.suppress(ProcessLookupError):  # its children hold the archive until they are gone
        while True:
            os.killpg(maker.pid, 0)
            time.sleep(0.05)
    with pytest.raises(GameError, match="half made"):
        Archive.open(folder)
    (first,) = Archive.open(folder, partial=True).games()
    untouched = (folder / first.file).stat().st_mtime_ns
    with (folder / PARTIAL).open("ab") as torn:
        torn.write(b'{"id":"cut sho')
    with pytest.raises(GameError, match="other settings"):
        make_archive(msgspec.structs.replace(ONE, train=2), folder)
    seen: list[tuple[int, int]] = []
    made = make_archive(ONE, folder, 1, lambda done, total: seen.append((done, total)))
    assert seen == [(1, 2), (2, 2)]
    assert (folder / first.file).stat().st_mtime_ns == untouched
    assert [game.md5 for game in made.games()] == [archive.game(game.id).md5 for game in made.games()]
    assert len(made.games()) == 2
    assert not list((folder / "games").glob("*.ni"))
    for game in made.games():  # a path of this machine would change the md5, and with it every seed
        assert sys.prefix.encode() not in (folder / game.file).with_suffix(".json").read_bytes()
    with pytest.raises(GameError, match="never made again"):
        make_archive(ONE, folder)


def test_seed_ranges_are_disjoint_and_the_paper_sizes_hold() -> None:
    """Catches a seed shared by two cells, which would put one game in two splits."""
    plans = plan_games(GamesConfig())
    assert len(plans) == len({plan.seed for plan in plans}) == len({plan.id for plan in plans}) == 375
    sizes = {split: sum(plan.split == split for plan in plans) for split in ("train", "valid", "test")}
    assert sizes == {"train": 240, "valid": 45, "test": 90}
    cells = {(plan.split, plan.level, plan.seed // ROOM_SEEDS) for plan in plans}
    assert len(cells) == len({cell for *_, cell in cells}) == 9
    command = " ".join(next(plan.command for plan in plans if plan.id == "valid-9-003"))
    assert "--recipe 3 --take 3 --go 9 --open --cook --cut --split valid" in command
    assert "--drop" not in command
    assert "PYTHONHASHSEED=0" in command


@pytest.mark.parametrize(
    "wrong",
    [
        {"levels": (7,)},
        {"levels": ()},
        {"levels": (6, 6)},
        {"options": {"take": 4}},
        {"options": {"recipe": 0}},
        {"options": {"take": -1}},
        {"options": {"rooms": 6}},
        {"options": {"cut": "yes"}},
        {"train": -1},
        {"train": 10_001},
    ],
)
def test_impossible_settings_are_refused(wrong: dict[str, object]) -> None:
    """Catches settings that tw-make would choke on after minutes of work."""
    with pytest.raises(ConfigError, match="games"):
        plan_games(msgspec.structs.replace(GamesConfig(), **wrong))


def test_games_by_split_and_rooms(archive: Archive) -> None:
    """Catches a filter that lets another split through."""
    assert {game.split for game in archive.games("train")} == {"train"}
    assert [game.id for game in archive.games("valid", level=6)] == ["valid-6-000", "valid-6-001"]
    assert len(archive.games()) == 22


def test_unknown_game_names_some_known_ones(archive: Archive) -> None:
    """Catches a bare KeyError."""
    with pytest.raises(GameError, match=r"no game 'valid-6-999'.*train-1-000"):
        archive.game("valid-6-999")


def test_a_folder_without_archive_and_a_damaged_one(tmp_path: Path) -> None:
    """Catches a traceback where a sentence is due."""
    with pytest.raises(GameError, match="is no game archive"):
        Archive.open(tmp_path)
    (tmp_path / SETTINGS).write_text("{")
    with pytest.raises(GameError, match="damaged"):
        read_settings(tmp_path)


@pytest.mark.parametrize("suffix", [".z8", ".json"])
def test_missing_and_altered_files_are_refused(archive: Archive, tmp_path: Path, suffix: str) -> None:
    """Catches play on a game that is not the archived one; either file counts."""
    copy = rewrite(archive, tmp_path)
    game = copy.games()[0]
    copy.world(game).close()
    file = copy.path(game).with_suffix(suffix)
    file.write_bytes(file.read_bytes() + b" ")
    with pytest.raises(GameError, match="altered"):
        copy.world(game)
    file.unlink()
    with pytest.raises(GameError, match="cannot be read"):
        copy.world(game)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        (MANIFEST, lambda data: b"".join(data.splitlines(True)[:-1])),
        (MANIFEST, lambda data: data + data.splitlines(True)[-1]),
        (MANIFEST, lambda data: b"".join(reversed(data.splitlines(True)))),
        (MANIFEST, lambda data: data[:-20]),
        (MANIFEST, lambda data: data.replace(b'"valid"', b'"train"', 1)),
        (MANIFEST, lambda data: data.replace(b'"seed":1', b'"seed":2', 1)),
        (SETTINGS, lambda data: data.replace(b'"recipe": 1', b'"recipe": 2').replace(b'"recipe":1', b'"recipe":2')),
        (DIGESTS, lambda data: data.replace(b"lines", b"Lines")),
    ],
)
def test_a_changed_list_of_games_is_refused(
    archive: Archive, tmp_path: Path, name: str, change: Callable[[bytes], bytes]
) -> None:
    """Catches games that are gone, doubled, in another order or of another split since the archive was finished."""
    shutil.copytree(archive.folder / "one", tmp_path / "one", ignore=shutil.ignore_patterns("trees", "seal"))
    file = tmp_path / "one" / name
    Archive.open(tmp_path / "one")
    before = file.read_bytes()
    file.write_bytes(change(before))
    assert file.read_bytes() != before
    with pytest.raises(DssrError, match=name):
        Archive.open(tmp_path / "one")


def test_another_textworld_is_refused(archive: Archive, tmp_path: Path) -> None:
    """Catches games of one TextWorld played by another, whose texts may differ."""
    copy = rewrite(archive, tmp_path, engine="1.6.2")
    with pytest.raises(GameError, match=r"made with TextWorld 1\.6\.2 but .* is installed"):
        copy.world(copy.games()[0])


@MAKING
def test_a_game_that_is_not_cooking_is_refused(archive: Archive, tmp_path: Path) -> None:
    """Catches a game without recipe or policy, which would fail much later and less clearly."""
    from dssr.worlds.archive import md5_of
    from dssr.worlds.cooking.generate import files_of

    tool = Path(sys.executable).parent / "tw-make"
    call = [sys.executable, str(tool), "tw-simple", "--rewards", "dense", "--goal", "detailed", "--seed", "1"]
    subprocess.run([*call, "--output", "simple.z8", "--silent"], cwd=tmp_path, check=True)
    copy = rewrite(archive, tmp_path, file="simple.z8", md5=md5_of(files_of(tmp_path / "simple.z8")))
    with pytest.raises(DssrError, match="not a cooking game"):
        copy.world(copy.games()[0])


def test_test_games_stay_shut_until_they_are_unsealed(archive: Archive) -> None:
    """Catches any way to a test game that the approval does not guard: its world, its path, its pool of worlds."""
    sealed = Archive.open(archive.folder)
    game = sealed.games("test", level=1)[0]
    worlds = Worlds(sealed)
    with pytest.raises(SealError, match="sealed test game"):
        sealed.world(game)
    with pytest.raises(SealError, match="sealed test game"):
        sealed.path(game)
    with pytest.raises(SealError, match="sealed test game"), worlds.playing(game.id):
        pass
    sealed.unseal()
    with worlds.playing(game.id) as world:
        assert world.game == game
    worlds.close()
    assert Archive.open(archive.folder).is_sealed(game), "unsealing is of one object, not of the folder"


def test_sealed_games_are_checked_by_their_files_alone(archive: Archive, tmp_path: Path) -> None:
    """Catches a check or statistics that play test games, and a check that passes a damaged one."""
    game = archive.games("test", level=1)[0]
    (tmp_path / "one" / "games").mkdir(parents=True)
    for file in archive.domain.files(archive.folder / game.file):
        shutil.copy(file, tmp_path / game.file.replace(".z8", file.suffix))
    shutil.copy(archive.folder / SETTINGS, tmp_path / SETTINGS)
    (tmp_path / MANIFEST).write_bytes(msgspec.json.encode(game) + b"\n")
    copy = Archive.open(tmp_path)
    assert copy.check(game.id, 50) == ()
    assert game_stats(load("scripted"), folder=tmp_path, workers=1) == []
    assert not (tmp_path / "trees").exists()
    with (tmp_path / game.file).open("ab") as written:
        written.write(b"x")
    assert "altered" in copy.check(game.id, 50)[0]


def test_statistics_are_the_same_from_any_number_of_workers_and_play_nothing_twice(
    archive: Archive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches rows that depend on the order in which workers finish, and stored steps that are played again."""
    games = [game for game in archive.games() if game.level == 1 and game.split != "test"][:2]
    for name in (SETTINGS, Path(games[0].file).parts[0]):
        (tmp_path / name).symlink_to((archive.folder / name).resolve())
    (tmp_path / MANIFEST).write_bytes(b"".join(msgspec.json.encode(game) + b"\n" for game in games))
    rows = game_stats(load("scripted"), folder=tmp_path, workers=2)
    assert [row["games"] for row in rows] == [2]

    def refuse(*_: object) -> None:
        raise AssertionError("a stored step was played")

    monkeypatch.setattr("dssr.worlds.cooking.world.play", refuse)
    monkeypatch.setattr("dssr.worlds.cooking.world.begin", refuse)
    seen: list[Standing] = []
    assert game_stats(load("scripted"), folder=tmp_path, workers=1, progress=seen.append) == rows
    assert seen == [Standing("games measured", done, 2) for done in range(3)]


@pytest.mark.parametrize("file", ["../outside.z8", "/etc/passwd", "games/../../x.z8"])
def test_paths_that_leave_the_archive_are_refused(fresh_archive: Archive, tmp_path: Path, file: str) -> None:
    """Catches a list of games that has files read, and steps written, outside of its folder."""
    game = msgspec.structs.replace(fresh_archive.games("train")[0], file=file)
    manifest = tmp_path / "manifest.jsonl"
    manifest.write_bytes(msgspec.json.encode(game) + b"\n")
    with pytest.raises(GameError, match="outside the archive"):
        read_manifest(manifest)
