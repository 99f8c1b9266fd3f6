"""Files of a run: whole or absent, one writer, no damage trusted."""

import errno
import os
from pathlib import Path

import pytest

from dssr.errors import RecordError
from dssr.record.log import Lock, Log, Spilled, read, write_whole
from dssr.types import Fact


def fact(number: int) -> tuple[str, Fact]:
    return f"k{number}", Fact(name="in", args=(f"apple {number}", "fridge"))


def test_write_whole_leaves_the_old_content_when_the_disk_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches writing in place: the old summary would be lost with the new one half written."""
    path = tmp_path / "summary.json"
    write_whole(path, b"old")

    def full(descriptor: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(RecordError, match="No space left on device"):
        write_whole(path, b"new")
    assert path.read_bytes() == b"old"
    assert [one.name for one in tmp_path.iterdir()] == ["summary.json"]


def test_append_on_a_full_disk_leaves_no_part_of_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a half line left behind by a failed append, and keys remembered though not written."""
    log = Log(tmp_path / "steps.jsonl")
    log.append([fact(1)])
    before = log.path.read_bytes()
    real = os.write
    calls = iter(range(10))

    def nearly_full(descriptor: int, data: bytes) -> int:
        if next(calls) == 0:
            return real(descriptor, bytes(data)[:7])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", nearly_full)
    with pytest.raises(RecordError, match=r"steps\.jsonl: No space left on device"):
        log.append([fact(2)])
    monkeypatch.undo()
    assert log.path.read_bytes() == before
    log.append([fact(2)])
    assert [key for key, _ in read(log.path, Fact)] == ["k1", "k2"]


def test_torn_last_line_is_set_aside(tmp_path: Path) -> None:
    """Catches trusting, or deleting, what a power cut left of a line."""
    path = tmp_path / "steps.jsonl"
    log = Log(path)
    log.append([fact(1), fact(2)])
    log.close()
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"key":"k3","name":"i')
    again = Log(path)
    assert "k2" in again
    assert "k3" not in again
    assert path.read_bytes() == whole
    assert path.with_suffix(".torn").read_bytes() == b'{"key":"k3","name":"i\n'
    again.append([fact(3)])
    assert [record for _, record in read(path, Fact)] == [fact(n)[1] for n in (1, 2, 3)]


def test_damage_inside_a_log_is_refused_with_its_line(tmp_path: Path) -> None:
    """Catches silently skipping a line that somebody or some disk has altered."""
    path = tmp_path / "steps.jsonl"
    log = Log(path)
    log.append([fact(n) for n in range(4)])
    log.close()
    lines = path.read_bytes().splitlines(keepends=True)
    lines[2] = lines[2][:10] + b"\x00\xff" + lines[2][12:]
    path.write_bytes(b"".join(lines))
    with pytest.raises(RecordError, match=r"steps\.jsonl line 3 is damaged"):
        Log(path)
    with pytest.raises(RecordError, match=r"steps\.jsonl line 3 is damaged"):
        list(read(path, Fact))


def test_a_known_key_is_not_written_twice(tmp_path: Path) -> None:
    """Catches duplicated lines after a resume."""
    path = tmp_path / "steps.jsonl"
    log = Log(path)
    log.append([fact(1), fact(2)])
    log.append([fact(2), fact(3)])
    assert [key for key, _ in read(path, Fact)] == ["k1", "k2", "k3"]


def test_one_writer_at_a_time(tmp_path: Path) -> None:
    """Catches two processes appending to one run; flock conflicts between descriptors even inside one process."""
    lock = Lock(tmp_path / "lock")
    with pytest.raises(RecordError, match="another process"):
        Lock(tmp_path / "lock")
    lock.release()
    Lock(tmp_path / "lock").release()


def test_spilled_texts_come_back() -> None:
    """Catches a text cut at characters instead of bytes, and one written over after an earlier one was read."""
    texts = ["", "pâté", "\n" * 3, "x" * 10_000]
    spilled = Spilled()
    for place, text in enumerate(texts):
        spilled.append(text)
        assert (spilled[0], spilled[-1], len(spilled)) == ("", text, place + 1)
    assert [*spilled] == texts
    with pytest.raises(IndexError):
        spilled[len(texts)]
