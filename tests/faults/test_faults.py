"""The fault harness: kills at durable operations, and mutations of whatever dssr reads. Each takes minutes, so most are
slow; `python -m tests.faults` runs them in full and keeps the figures that docs/trust.md shows."""

import importlib
import json
import os
import re
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from tests.faults import cases, fuzz, kills, warm

from dssr.measure.diagnose import diagnose
from dssr.worlds.archive import Archive

RESULTS = Path(__file__).with_name("results.json")
PAGE = Path(__file__).parents[2] / "docs" / "trust.md"


VERBS = ("diagnose", "lag", "continuation", "games make", "train", "reader train")


@pytest.fixture(scope="module")
def kill_cases(archive: Archive, tmp_path_factory: pytest.TempPathFactory) -> dict[str, kills.Case]:
    return {case.name: case for case in cases.kill_cases(archive, tmp_path_factory.mktemp("cases"))}


@pytest.fixture(scope="module")
def warm_workers() -> Iterator[None]:
    with warm.workers():
        yield


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name == "lag" else pytest.mark.slow)
        for verb in VERBS
        for name in (verb, f"{verb}, 2 workers")
    ],
)
def test_a_kill_anywhere_loses_nothing(
    name: str, kill_cases: dict[str, kills.Case], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Catches records lost, doubled or joined, other rows and other adapters after a kill; at a share of the
    operations, since each is tried by `python -m tests.faults kills --every`."""
    if name.endswith("workers"):
        request.getfixturevalue("warm_workers")
    case = kill_cases[name]
    found = kills.kill_everywhere(case, tmp_path, case.stride)
    assert 0 < found.kills <= found.operations
    assert (found.same, found.left_over) == (found.kills, 0)


@pytest.mark.slow
def test_a_served_model_that_never_repeats_itself_leaves_no_mixed_record(archive: Archive, tmp_path: Path) -> None:
    """Catches steps of one try beside audits of another, which no comparison of bytes can show."""
    found = cases.killed_served(archive, tmp_path, 8)
    assert found["kills"] == 8
    assert found["episodes"] > 0
    assert found["mixed"] == 0


PLUGGED = """
LIMIT = 3
class Memory:
    def __init__(self, kit):
        pass
    async def write(self, view, previous):
        return "word " * LIMIT
"""


def test_a_plug_in_edited_between_kill_and_resume_is_refused(
    archive: Archive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches a run that is half by one memory and half by another although only a constant beside the class differs:
    refused by name, and continued once the module is as it was."""
    monkeypatch.syspath_prepend(tmp_path)
    config, module = cases.scripted(archive, tmp_path / "data"), tmp_path / "edited_memory.py"

    def work(place: Path, resume: bool) -> None:
        diagnose(config, ["edited_memory:Memory"], [24], [0], out=place, resume=resume)

    def attempt(text: str, name: str, resume: bool = False, kill_at: int | None = None) -> tuple[int, str]:
        module.write_text(text)
        importlib.invalidate_caches()
        shutil.rmtree(tmp_path / "__pycache__", ignore_errors=True)
        return kills.attempt(work, tmp_path / name, resume, kill_at), (tmp_path / "told").read_text()

    assert attempt(PLUGGED, "whole", kill_at=kills.NEVER) == (0, "")  # also plays all steps, which are stored then
    half = int((tmp_path / kills.COUNT).read_text()) // 2
    assert attempt(PLUGGED, "run", kill_at=half)[0] == -signal.SIGKILL
    ended, told = attempt(PLUGGED.replace("3", "4"), "run", resume=True)
    assert ended == 1
    assert "other settings (the content of edited_memory:Memory)" in told
    assert attempt(PLUGGED, "run", resume=True) == (0, "")
    assert kills.content(tmp_path / "run") == kills.content(tmp_path / "whole")


@pytest.mark.slow
def test_mutations_are_refused_or_change_nothing(archive: Archive, tmp_path: Path) -> None:
    """Catches tracebacks and numbers that change without a word, in 10,000 seeded cases."""
    for row in fuzz.table(archive, tmp_path, fuzz.CASES):
        assert row["tracebacks"] == 0, row
        assert row["changed"] == 0, row
        assert row["refused"], row


def test_the_harness_notices_a_changed_number(archive: Archive, tmp_path: Path) -> None:
    """Catches a fuzzer that could not fail: a reader that checks nothing, and one that breaks, are both found."""
    files = {"a": b"1 2 3\n", "b": b"4 5 6\n"}

    def careless(place: Path) -> object:
        return sum(int(word) for file in sorted(place.iterdir()) for word in file.read_bytes().split())

    found = fuzz.fuzz(fuzz.Target("careless", files, careless), tmp_path / "case", 200, 0)
    assert found.changed > 0
    assert found.tracebacks > 0


def test_the_harness_notices_lost_work(tmp_path: Path) -> None:
    """Catches kills that could not fail: work that takes a half-written file for a whole one comes out otherwise, be it
    written by `os` or by a file of Python's."""

    def careless(place: Path, resume: bool) -> None:
        place.mkdir(exist_ok=True)
        if not (place / "plain").exists():
            (place / "plain").write_text("some words\n")
        if not (place / "low").exists():
            descriptor = os.open(place / "low", os.O_WRONLY | os.O_CREAT)
            os.write(descriptor, b"more words\n")
            os.close(descriptor)

    case, notes = kills.Case("careless", careless), tmp_path / "notes"
    found = kills.kill_everywhere(case, tmp_path / "case", 1, notes)
    assert (found.operations, found.kills, found.same) == (5, 5, 1)  # new files and writes; a folder's loss is none
    notes.write_bytes(b"".join(notes.read_bytes().splitlines(keepends=True)[:3]))  # a sweep that ended there goes on
    assert kills.kill_everywhere(case, tmp_path / "again", 1, notes) == found
    assert len(notes.read_bytes().splitlines()) == 5


def test_the_page_shows_the_stored_figures() -> None:
    """Catches a table on the page that no run of the harness stands behind."""
    stored = json.loads(RESULTS.read_text())
    page = PAGE.read_text()
    for row in stored["fuzz"]["figures"]:
        cells = (row["cases"], row["refused"], row["same"], row["other"], row["changed"], row["tracebacks"])
        assert f"| {row['target']} | {' | '.join(f'{cell:,}' for cell in cells)} |" in page
    assert {row["case"].partition(",")[0] for row in stored["kills"]["figures"]} == set(VERBS)
    for row in stored["kills"]["figures"]:
        found = msgspec.convert(row, kills.Killed)
        figures = (found.operations, found.kills, found.same, found.left_over)
        assert f"| {found.case} | {' | '.join(map(str, figures))} |" in page
    for name in ("line", "served"):
        if name in stored:
            assert f"{stored[name]['figures']['kills']} kills" in page
    for one in stored.values():
        assert one["command"] in page


def test_the_page_names_tests_that_exist() -> None:
    """Catches a promise whose test was renamed or taken away."""
    written = "\n".join(file.read_text() for file in PAGE.parents[1].glob("tests/**/test_*.py"))
    for promise in [line for line in PAGE.read_text().splitlines() if "`test_" in line]:
        for name in re.findall(r"`(test_\w+)`", promise):
            assert f"def {name}(" in written, name
