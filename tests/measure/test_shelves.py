"""Records on shelves: what is read later is what was stored, wherever it lies."""

from collections import Counter
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
    records that are lost or mixed up when a shelf is put away for another, or has too many to be held."""
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


def test_what_is_held_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a shelf that is held however long it is, shelves that add up, and a short one that is read anew each time
    a table goes through it."""
    monkeypatch.setattr(shelves, "HELD", 3)
    logs, made = Logs(Note), Counter[str]()

    def counted(notes: list[Note]) -> list[Note]:
        made[notes[0].name] += 1
        return notes

    long, short, other = (Shelf(logs, counted) for _ in range(3))
    for note, place in logs.scan(stored(tmp_path / "log.jsonl", FIRST + SECOND)):
        long.put(note.name, place)
        {"a": short, "b": short, "c": other, "d": other}[note.name].put(note.name, place)
    for _ in range(3):
        assert len([*short.items()]) == 2
    assert made == {"a": 1, "b": 1}
    assert len([*long.values()]) == 4
    assert len([*other.values()]) == 2
    assert made == {"a": 2, "b": 2, "c": 2, "d": 2}
    assert len([*short.values()]) == 2
    assert made["a"] == 3, "its place was given to the other"
