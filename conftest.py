"""Shared fixtures: a small archive of real games.

Use the fixture `archive` (an `Archive`) wherever a test needs games:

    def test_something(archive):
        world = archive.world(archive.games("train", level=1)[0])

It holds, with the ids in brackets,
- fourteen one-room games with one ingredient (`train-1-000` to `-009`, `valid-1-000`, `-001`, `test-1-000`,
  `-001`): a few actions long, for tests that need many or short episodes; they have no exits, so their filler
  must be 0;
- six six-room games of the paper's options (`train-6-000` to `-002`, `valid-6-000`, `-001`, `test-6-000`);
- one game each of nine and twelve rooms (`valid-9-000`, `valid-12-000`).

The games are made once and kept in `.pytest-games/` at the root of the repository, together with every step
tests have played, so later sessions start at once. Delete that folder to start afresh.
`fresh_archive` is the same archive without any stored step, in a folder of the test's own.
"""

import fcntl
import shutil
from pathlib import Path

import msgspec
import pytest

from dssr.config import GamesConfig
from dssr.seeds import digest_of
from dssr.worlds.archive import MANIFEST, SETTINGS, Archive, Settings
from dssr.worlds.base import find_domain
from dssr.worlds.cooking import generate
from dssr.worlds.cooking.generate import TEXTWORLD
from dssr.worlds.make import make_archive

PARTS = {
    "one": GamesConfig(archive="one", levels=(1,), options={"recipe": 1, "take": 1}, train=10, valid=2, test=2),
    "six": GamesConfig(archive="six", levels=(6,), train=3, valid=2, test=1),
    "large": GamesConfig(archive="large", levels=(9, 12), train=0, valid=1, test=0),
}
WORKERS = 2


@pytest.fixture(scope="session")
def archive(pytestconfig: pytest.Config) -> Archive:
    """The shared small archive; see the top of this file."""
    cache = pytestconfig.rootpath / ".pytest-games"
    cache.mkdir(exist_ok=True)
    (cache / ".gitignore").write_text("*\n")
    recipe = Path(generate.__file__).read_text()
    folder = cache / digest_of(msgspec.to_builtins(PARTS), TEXTWORLD, recipe)[:12]
    with (cache / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / MANIFEST).exists():
            build(folder)
    return Archive.open(folder)


@pytest.fixture
def fresh_archive(archive: Archive, tmp_path: Path) -> Archive:
    """The shared games without any stored step."""
    for name in (SETTINGS, MANIFEST):
        shutil.copy(archive.folder / name, tmp_path / name)
    for part in PARTS:
        (tmp_path / part).symlink_to(archive.folder / part)
    return Archive.open(tmp_path)


def build(folder: Path) -> None:
    """Makes the parts and lists all their games in one manifest."""
    lines = []
    for name, config in PARTS.items():
        part = folder / name
        made = Archive.open(part) if (part / MANIFEST).exists() else make_archive(config, part, WORKERS)
        games = [msgspec.structs.replace(game, file=f"{name}/{game.file}") for game in made.games()]
        lines += [msgspec.json.encode(game) + b"\n" for game in games]
    settled = find_domain("cooking").settled(PARTS["six"])
    (folder / SETTINGS).write_bytes(msgspec.json.encode(Settings(games=settled, engine=TEXTWORLD)))
    (folder / MANIFEST).write_bytes(b"".join(lines))
