"""Archives that come packed: unpacked whole, once, and as `dssr games make` makes them."""

import json
import lzma
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from dssr import config as configs
from dssr.cli.main import build
from dssr.errors import GameError, RecordError
from dssr.record.log import DIGESTS
from dssr.session import Session
from dssr.worlds import shipped
from dssr.worlds.archive import MANIFEST, SETTINGS, Archive
from dssr.worlds.base import settled
from dssr.worlds.cooking.generate import make_games, plan_games
from dssr.worlds.shipped import FOLDER, SUFFIX, pack, provided, unpack

DEMO = FOLDER / f"demo{SUFFIX}"
FILES = {"demo": DEMO} | {
    file.name.removesuffix(SUFFIX): file for file in sorted((Path(__file__).parents[1] / "games").glob(f"*{SUFFIX}"))
}
ANEW = {"demo": ["valid-6-003", "valid-6-000", "valid-6-001"], "one": ["train-1-004"], "large": ["valid-12-000"]}
"""Games of each kind of house; those of one list are made by one process."""


@pytest.mark.parametrize("name", FILES)
def test_packing_what_was_unpacked_gives_the_same_tar(name: str, tmp_path: Path) -> None:
    """Catches a packed file that cannot be made again: times, owners, orders or stored steps that got into it."""
    unpack(FILES[name], tmp_path / "out")
    (tmp_path / "out" / "trees").mkdir()
    (tmp_path / "out" / "trees" / "some.1.jsonl").write_text("steps")
    manifest = tmp_path / "out" / MANIFEST
    manifest.write_bytes(b"".join(reversed(manifest.read_bytes().splitlines(keepends=True))))
    (tmp_path / "out" / DIGESTS).unlink()  # as games that were finished in another order
    pack(tmp_path / "out", tmp_path / "again.tar.xz")
    # The tar, not the packed bytes: another version of the compressor may choose others.
    assert lzma.decompress((tmp_path / "again.tar.xz").read_bytes()) == lzma.decompress(FILES[name].read_bytes())


def test_the_demo_has_the_games_that_its_configuration_names(tmp_path: Path) -> None:
    """Catches a packed archive and a shipped configuration that no longer agree; anything but validation games in it
    would open the sealed split to everybody."""
    unpack(DEMO, tmp_path / "demo")
    archive = Archive.open(tmp_path / "demo")
    assert archive.settings.games == settled(configs.load("demo")).games
    assert [game.id for game in archive.games()] == [f"valid-6-00{number}" for number in range(6)]


@pytest.mark.parametrize("base", ["nano", "scripted"])
def test_any_configuration_that_names_it_finds_it(base: str, tmp_path: Path) -> None:
    """Catches a shipped archive that only the demo can use, and one that is unpacked over what is there."""
    config = msgspec.structs.replace(configs.load(base), games=configs.load("demo").games, data=str(tmp_path / "data"))
    assert len(Session(config).archive.games("valid")) == 6
    listed = tmp_path / "data" / "demo" / MANIFEST
    listed.write_bytes(listed.read_bytes().splitlines(keepends=True)[0])
    with pytest.raises(RecordError, match="has 1 lines instead of 6"):
        _ = Session(config).archive
    listed.with_name(DIGESTS).unlink()
    assert len(Session(config).archive.games()) == 1
    assert [place.name for place in (tmp_path / "data").iterdir()] == ["demo"]


def test_commands_work_on_it_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a command that asks for games to be made first."""
    monkeypatch.chdir(tmp_path)
    Path("mine.toml").write_text('base = "scripted"\n[games]\narchive = "demo"\n[protocol]\nfillers = [0]\n')
    played = CliRunner().invoke(build(), ["play", "valid-6-000", "--config", "mine.toml", "--json"])
    assert played.exit_code == 0, played.output
    assert json.loads(played.stdout)["episode"]["job"]["game"] == "valid-6-000"
    rows = CliRunner().invoke(build(), ["games", "stats", "--config", "mine.toml", "--json"])
    assert {row["games"] for row in json.loads(rows.stdout)} == {6}


def test_other_names_are_left_alone(tmp_path: Path) -> None:
    """Catches a folder made for an archive that is not shipped."""
    assert provided(tmp_path / "paper") == tmp_path / "paper"
    assert not list(tmp_path.iterdir())


def test_processes_that_unpack_at_once_share_the_result(tmp_path: Path) -> None:
    """Catches a half-written folder seen by another process, or the second of two that fails."""
    code = (
        "import sys; from dssr.worlds.shipped import provided\n"
        "from dssr.worlds.archive import Archive\n"
        "print('ready', flush=True); sys.stdin.readline()\n"
        "archive = Archive.open(provided(sys.argv[1]))\n"
        "for game in archive.games(): archive.verify(game)\n"
    )
    call = [sys.executable, "-c", code, str(tmp_path / "demo")]
    crowd = [subprocess.Popen(call, stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in range(4)]
    for process in crowd:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
    for process in crowd:
        assert process.stdin is not None
        process.stdin.write(b"\n")
        process.stdin.close()
    assert [process.wait() for process in crowd] == [0] * 4
    assert [place.name for place in tmp_path.iterdir()] == ["demo"]


def test_one_that_finishes_second_uses_what_is_there(tmp_path: Path) -> None:
    """Catches an archive that is replaced under a process that plays from it."""
    unpack(DEMO, tmp_path / "demo")
    marked = tmp_path / "demo" / "trees"
    marked.mkdir()
    unpack(DEMO, tmp_path / "demo")
    assert marked.exists()
    assert [place.name for place in tmp_path.iterdir()] == ["demo"]


def test_a_folder_without_its_settings_is_one_sentence(tmp_path: Path) -> None:
    """Catches a damaged copy for which the advice is to make games, when deleting it is enough."""
    folder = provided(tmp_path / "demo")
    (folder / SETTINGS).unlink()
    with pytest.raises(GameError, match=r"holds no whole archive: delete it, and the one shipped .* unpacked there\.$"):
        provided(folder)


def test_a_data_folder_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    """Catches a traceback. A file as the parent fails for every user, root included."""
    (tmp_path / "file").write_text("")
    with pytest.raises(GameError, match=r"cannot be .* choose another data folder\.$"):
        provided(tmp_path / "file" / "demo")


def damaged(kind: str) -> bytes:
    """The demo's packed file with something wrong in it."""
    whole = DEMO.read_bytes()
    if kind == "cut":
        return whole[: len(whole) // 2]
    if kind == "no archive":
        return b"not packed at all"
    plain = lzma.decompress(whole)
    if kind == "altered":
        return lzma.compress(plain.replace(b'"objective"', b'"objectivE"'))
    return lzma.compress(plain.replace(b"manifest.jsonl", b"manifest.other"))


@pytest.mark.parametrize("kind", ["cut", "no archive", "altered", "unlisted"])
def test_a_damaged_file_leaves_nothing_behind(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a folder that looks whole although its packed file was not."""
    (tmp_path / "packed").mkdir()
    (tmp_path / "packed" / f"demo{SUFFIX}").write_bytes(damaged(kind))
    monkeypatch.setattr(shipped, "FOLDER", tmp_path / "packed")
    with pytest.raises(GameError, match=r"is damaged .* install dssr again\.$"):
        provided(tmp_path / "data" / "demo")
    assert not list((tmp_path / "data").iterdir())


def test_altered_games_are_not_packed(tmp_path: Path) -> None:
    """Catches a damaged archive that is shipped to everybody."""
    unpack(DEMO, tmp_path / "demo")
    with (tmp_path / "demo" / "games" / "valid-6-002.z8").open("ab") as file:
        file.write(b" ")
    with pytest.raises(GameError, match="valid-6-002 were altered"):
        pack(tmp_path / "demo", tmp_path / "demo.tar.xz")
    assert not (tmp_path / "demo.tar.xz").exists()


@pytest.mark.slow
@pytest.mark.parametrize("name", ANEW)
def test_shipped_games_are_as_made(name: str, tmp_path: Path) -> None:
    """Catches shipped games that `tw-make` would no longer make: runs on them would not compare with runs on others.
    Also a game that depends on what its process made before: the shipped ones were made in processes of their own."""
    unpack(FILES[name], tmp_path / "there")
    there = Archive.open(tmp_path / "there")
    (tmp_path / "anew" / "games").mkdir(parents=True)
    plans = {plan.id: plan for plan in plan_games(there.settings.games)}
    made = make_games(tmp_path / "anew", [plans[game] for game in reversed(ANEW[name])])
    assert list(made) == [there.game(game) for game in reversed(ANEW[name])]
