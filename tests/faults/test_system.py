"""What the operating system refuses is one sentence, whichever command meets it, and nothing is left half-written."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.faults.cases import scripted

from dssr.config import Config, resolved
from dssr.measure.diagnose import diagnose
from dssr.worlds.archive import Archive
from dssr.worlds.base import settled

LONG = "x" * 300
"""A name longer than any file system takes."""


@pytest.fixture(scope="module")
def config(archive: Archive, tmp_path_factory: pytest.TempPathFactory) -> Config:
    return settled(scripted(archive, tmp_path_factory.mktemp("data")))


@pytest.fixture(scope="module")
def measured(config: Config, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("runs") / "run"
    diagnose(config, ["full", "summary"], [24], [0], out=place)
    return place


@pytest.fixture
def here(config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with `mine.toml`, a file `file` where folders are asked for, and a link `run` to a finished run."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.toml").write_text(resolved(config))
    (tmp_path / "file").write_text("")
    return tmp_path


COMMAND = """
import ctypes, resource, signal, sys
room, bare = int(sys.argv.pop(1)), int(sys.argv.pop(1))
if bare:
    assert ctypes.CDLL(None).capset((ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()) == 0
if room:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))
sys.argv[0] = "dssr"
from dssr.cli.main import run
sys.exit(run())
"""


def told(words: list[str], room: int = 0, bare: bool = False) -> tuple[int, str]:
    """Exit code and output of a command; with `room`, no file can grow beyond so many bytes, as on a full disk; `bare`
    of the rights of root, to whom no place is closed.

    In a process of its own: threads of libraries that this one has started would not be there in a fork of it.
    """
    done = subprocess.run(
        [sys.executable, "-c", COMMAND, str(room), str(int(bare)), *words], capture_output=True, check=False
    )
    return done.returncode, (done.stdout + done.stderr).decode(errors="replace")


def in_one_sentence(words: list[str], room: int = 0, bare: bool = False) -> str:
    code, output = told(words, room, bare)
    assert code in (1, 2), output
    assert "Traceback" not in output, output
    last = [line for line in output.splitlines() if line.strip()]
    assert any(line.startswith("dssr: ") for line in last), output
    return output


WRITING = [
    ["report", "RUN", "--out"],
    ["export", "csv", "RUN", "--out"],
    ["export", "parquet", "RUN", "--out"],
    ["export", "inspect", "RUN", "--out"],
    ["diagnose", "-c", "mine.toml", "-m", "full", "--out"],
    ["games", "make", "-c", "mine.toml", "--archive"],
    ["cache", "show", "-c"],
    ["cache", "clear", "-c"],
]
"""Commands, each to be followed by the place that it writes to."""


def asked(words: list[str], run: Path, place: str) -> list[str]:
    """The command with its place; a cache lies in the data folder of a configuration."""
    if words[0] == "cache":
        Path("cached.toml").write_text(f'base = "scripted"\ndata = "{place}"\ncache_gib = 1.0\n')
    last = "cached.toml" if words[0] == "cache" else place
    return [*(str(run) if word == "RUN" else word for word in words), last]


@pytest.mark.parametrize("out", ["file/inside", LONG])
@pytest.mark.parametrize("words", WRITING)
def test_a_place_that_cannot_be(here: Path, measured: Path, words: list[str], out: str) -> None:
    """Catches tracebacks where a folder is a file, or a name is too long."""
    in_one_sentence(asked(words, measured, out))
    assert {path.name for path in here.iterdir()} <= {"file", "mine.toml", "cached.toml"}


@pytest.mark.parametrize("words", WRITING)
def test_a_place_that_is_read_only(here: Path, measured: Path, words: list[str]) -> None:
    """Catches tracebacks where nothing may be written, and a left-over beside the place."""
    (here / "closed").mkdir(0o555)
    assert "denied" in in_one_sentence(asked(words, measured, "closed/out"), bare=True)
    assert {path.name for path in here.rglob("*")} <= {"file", "mine.toml", "cached.toml", "closed"}


ROOM = 2000


@pytest.mark.parametrize("words", [words for words in WRITING if words[1] != "inspect"])
def test_a_full_disk(here: Path, measured: Path, words: list[str]) -> None:
    """Catches tracebacks on a full disk, and a file that passes for a whole one: one that was cut has all its room."""
    in_one_sentence(asked(words, measured, "out"), room=ROOM)
    files = [file for file in (here / "out").rglob("*") if file.is_file()]
    assert [file.name for file in files if file.suffix == ".part" or file.stat().st_size >= ROOM] == []
    assert not [file for file in files if file.name in ("summary.json", "index.html", "manifest.jsonl")]


@pytest.mark.parametrize("name", ["run.json", "summary.json", "digests.json", "episodes.jsonl", "audits.jsonl"])
def test_broken_bytes_in_a_run(here: Path, measured: Path, name: str) -> None:
    """Catches tracebacks for bytes that are no text, in a run of today and in one whose digests say nothing."""
    shutil.copytree(measured, here / "run")
    data = (here / "run" / name).read_bytes()
    (here / "run" / name).write_bytes(data[:20] + b"\xff\xfe\x80" + data[20:])
    words = ["check", "run"] if name == "summary.json" else ["report", "run", "--out", "out"]
    assert name in in_one_sentence(words)


def test_broken_bytes_elsewhere(here: Path) -> None:
    """Catches tracebacks for a configuration, a prompt or a list of games that is no text."""
    (here / "broken.toml").write_bytes(b'name = "\xff"\n')
    in_one_sentence(["diagnose", "-c", "broken.toml"])
    (here / "texts").mkdir()
    (here / "texts" / "summary.txt").write_bytes(b"\xff\xfe")
    text = (here / "mine.toml").read_text()
    (here / "other.toml").write_text(text.replace("[agent]", '[agent]\nprompts = "texts"'))
    in_one_sentence(["diagnose", "-c", "other.toml", "-m", "summary", "-o", "out"])
    (here / "games").mkdir()
    (here / "games" / "archive.json").write_bytes(b'{"games": "\xff"}')
    in_one_sentence(["games", "check", "-c", "mine.toml", "--archive", "games"])
