"""Records on shelves: what is read later is what was stored, wherever it lies."""

from pathlib import Path

import pytest

from dssr.measure import shelves
from dssr.measure.shelves import Logs, Shelf
from dssr.record.log import Log
from dssr.types import Record


class Note(Record, frozen=True):
    """Something to store."""

    name: str
    text: str


FIRST = [Note("d", "same"), Note("a", "one é"), Note("a", "two"), Note("b", "three"), Note("a", "four")]
SECOND = [Note("c", "long"), Note("d", "here"), Note("a", "five")]
"""Its `d` begins at the byte at which that of the other log ends."""


def stored(path: Path, notes: list[Note]) -> Path:
    """A log with these notes."""
    log = Log(path)
    log.append([(f"{place:04d}", note) for place, note in enumerate(notes)])
    log.close()
    return path


def test_shelves_give_back_what_lies_in_several_logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a place that is off by a byte or in the wrong log, stretches that are joined across a gap or a log, and
    records that are lost or mixed up when a shelf is put away for another."""
    monkeypatch.setattr(shelves, "HELD", 2)
    logs = Logs(Note)
    whole, halves = Shelf(logs, list), [Shelf(logs, list), Shelf(logs, list)]
    for number, notes in enumerate((FIRST, SECOND)):
        for note, place in logs.scan(stored(tmp_path / f"{number}.jsonl", notes)):
            whole.put(note.name, place)
            halves[number].put(note.name, place)
    for _ in range(2):
        for shelf, notes in ((whole, FIRST + SECOND), *zip(halves, (FIRST, SECOND), strict=True)):
            expected = {one.name: [other for other in notes if other.name == one.name] for one in notes}
            assert dict(shelf.items()) == expected
            assert [*shelf.values()] == [*expected.values()]
            assert {name: shelf[name] for name in shelf} == expected
    assert whole.path("c") == tmp_path / "1.jsonl"
    with pytest.raises(KeyError):
        whole["e"]
