"""The fault harness: kills at durable operations, and mutations of whatever dssr reads. Each takes minutes, so most are
slow; `python -m tests.faults` runs them in full and keeps the figures that docs/trust.md shows."""

import json
from pathlib import Path

import msgspec
import pytest
from tests.faults import cases, fuzz, kills
from tests.tiny import make_tiny

from dssr.worlds.archive import Archive

RESULTS = Path(__file__).with_name("results.json")
PAGE = Path(__file__).parents[2] / "docs" / "trust.md"


def test_a_kill_anywhere_in_a_lag_run_loses_nothing(archive: Archive, tmp_path: Path) -> None:
    """Catches a durable operation whose loss a resume does not mend; the cheapest verb, at every fifth operation."""
    case = next(one for one in cases.cheap_cases(archive, tmp_path) if one.name == "lag")
    found = kills.kill_everywhere(case, tmp_path / case.slug, 5)
    assert found.kills > 0
    assert (found.same, found.left_over) == (found.kills, 0)


@pytest.mark.slow
def test_kills_without_weights(archive: Archive, tmp_path: Path) -> None:
    """Catches records lost, doubled or joined by a kill in diagnose, lag, continuation and games make."""
    for case in cases.cheap_cases(archive, tmp_path):
        found = kills.kill_everywhere(case, tmp_path / case.slug, 3 * case.stride)
        assert found.kills > 0, case.name
        assert (found.same, found.left_over) == (found.kills, 0), case.name


@pytest.mark.slow
def test_kills_in_training(archive: Archive, tmp_path: Path) -> None:
    """Catches another adapter or other rows after a kill in a line of the writer or in the reader's training."""
    for case in cases.training_cases(archive, make_tiny(tmp_path / "base"), tmp_path):
        found = kills.kill_everywhere(case, tmp_path / case.slug, 3 * case.stride)
        assert found.kills > 0, case.name
        assert found.same == found.kills, case.name


@pytest.mark.slow
def test_a_served_model_that_never_repeats_itself_leaves_no_mixed_record(archive: Archive, tmp_path: Path) -> None:
    """Catches steps of one try beside audits of another, which no comparison of bytes can show."""
    found = cases.killed_served(archive, tmp_path, 8)
    assert found["kills"] == 8
    assert found["episodes"] > 0
    assert found["mixed"] == 0


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


def test_the_page_shows_the_stored_figures() -> None:
    """Catches a table on the page that no run of the harness stands behind."""
    stored = json.loads(RESULTS.read_text())
    page = PAGE.read_text()
    for row in stored["fuzz"]["figures"]:
        cells = (row["cases"], row["refused"], row["same"], row["other"], row["changed"], row["tracebacks"])
        assert f"| {row['target']} | {' | '.join(f'{cell:,}' for cell in cells)} |" in page
    for row in stored.get("kills", {}).get("figures", []):
        found = msgspec.convert(row, kills.Killed)
        assert f"| {found.case} | {found.kills} | {found.same} | {found.left_over} |" in page
    for name in ("line", "served"):
        if name in stored:
            assert f"{stored[name]['figures']['kills']} kills" in page
    for one in stored.values():
        assert one["command"] in page
