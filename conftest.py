"""Shared fixtures: a small archive of real games, and how long a test may take.

Use the fixture `archive` (an `Archive`) wherever a test needs games:

    def test_something(archive):
        world = archive.world(archive.games("train", level=1)[0])

It holds, with the ids in brackets,
- fourteen one-room games with one ingredient (`train-1-000` to `-009`, `valid-1-000`, `-001`, `test-1-000`,
  `-001`): a few actions long, for tests that need many or short episodes; they have no exits, so their filler
  must be 0;
- six six-room games of the paper's options (`train-6-000` to `-002`, `valid-6-000`, `-001`, `test-6-000`);
- one game each of nine and twelve rooms (`valid-9-000`, `valid-12-000`).

The games lie packed in `tests/games/`, one file for each of the three lines above; tests/games/README.md says how they
were made. They are unpacked into `.pytest-games/` at the root of the repository, where every step that tests have
played is kept too, so later sessions start at once. Delete that folder to start afresh.
`fresh_archive` is the same archive without any stored step, in a folder of the test's own.
"""

import fcntl
import hashlib
import json
import os
import shutil
from pathlib import Path

import hypothesis
import pytest

from dssr.worlds.archive import MANIFEST, SETTINGS, Archive
from dssr.worlds.cooking import recipe as text
from dssr.worlds.cooking import textworld
from dssr.worlds.shipped import SUFFIX, unpack

PACKED = Path(__file__).parent / "tests" / "games"
PARTS = ("one", "six", "large")
LIMITS = {"slow": 3600, "smol": 3600, "browser": 3600}
"""Seconds for tests of one mark, instead of the common limit in pyproject.toml. A limit only ends what hangs: it is
many times what a test takes on a busy machine, and no test's outcome may depend on the speed of the machine."""

# Two test processes share the cores already, and tests replace parts of this process that others would not have; tests
# of workers say how many they want.
os.environ.setdefault("DSSR_WORKERS", "1")

# Both judge a test by the clock: how long one example takes, and how long making examples takes.
hypothesis.settings.register_profile(
    "any speed", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("any speed")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Gives each kind of test its limit; a test's own mark counts first."""
    for item in items:
        limits = [seconds for mark, seconds in LIMITS.items() if item.get_closest_marker(mark)]
        if limits and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(max(limits)))


@pytest.fixture(scope="session")
def archive(pytestconfig: pytest.Config) -> Archive:
    """The shared small archive; see the top of this file."""
    cache = pytestconfig.rootpath / ".pytest-games"
    cache.mkdir(exist_ok=True)
    (cache / ".gitignore").write_text("*\n")
    folder = cache / version()
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


def version() -> str:
    """Changes with the games, and with the code that turns TextWorld's answers into the stored steps."""
    digest = hashlib.sha256()
    for file in (*(packed(part) for part in PARTS), Path(text.__file__), Path(textworld.__file__)):
        digest.update(file.read_bytes())
    return digest.hexdigest()[:12]


def packed(part: str) -> Path:
    """The file that holds one part of the shared archive."""
    return PACKED / f"{part}{SUFFIX}"


def build(folder: Path) -> None:
    """Unpacks the parts and lists all their games in one manifest."""
    lines = []
    for part in PARTS:
        unpack(packed(part), folder / part)
        games = [json.loads(line) for line in (folder / part / MANIFEST).read_bytes().splitlines()]
        lines += [json.dumps({**game, "file": f"{part}/{game['file']}"}) + "\n" for game in games]
    (folder / "trees").mkdir(exist_ok=True)
    shutil.copy(folder / "six" / SETTINGS, folder / SETTINGS)
    (folder / MANIFEST).write_text("".join(lines))
