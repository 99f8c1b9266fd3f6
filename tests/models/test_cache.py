"""The response cache: exact, shared between processes, and never trusted when damaged."""

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from dssr.errors import ModelError
from dssr.models.base import Choose, Chosen, Generate, Generated, Message, Tokenizer
from dssr.models.cache import OVERHEAD, Cache, CachedModel, remembered
from dssr.models.scripted import ScriptedModel

BIG = 1 << 30
WRITER = """
import sys, pathlib
from dssr.models.cache import Cache
cache = Cache(pathlib.Path(sys.argv[1]), 1 << 30)
who, number = sys.argv[2], 0
print("ready", flush=True)
while number < int(sys.argv[3]):
    cache.put(f"{who}-{number}".encode(), f"value {who} {number}".encode() * 20)
    cache.put(f"shared-{number}".encode(), f"shared value {number}".encode())
    number += 1
    if number % 100 == 0:
        cache.flush()
    if number == 100:
        print("stored", flush=True)
cache.close()
"""


def write_elsewhere(folder: Path, who: str, count: int) -> "subprocess.Popen[bytes]":
    return subprocess.Popen([sys.executable, "-c", WRITER, str(folder), who, str(count)], stdout=subprocess.PIPE)


def test_values_come_back_in_a_new_process(tmp_path: Path) -> None:
    """Catches values kept in memory only, or changed by storage."""
    cache = Cache(tmp_path, BIG)
    cache.put(b"key", b"\x00value\xff")
    assert cache.get(b"key") == b"\x00value\xff"
    assert cache.get(b"other") is None
    cache.close()
    assert Cache(tmp_path, BIG).get(b"key") == b"\x00value\xff"


def test_processes_write_at_the_same_time(tmp_path: Path) -> None:
    """Catches lost writes and `database is locked` when several runs share the cache."""
    writers = [write_elsewhere(tmp_path, who, 400) for who in "abc"]
    assert [writer.wait() for writer in writers] == [0, 0, 0]
    cache = Cache(tmp_path, BIG)
    assert cache.stats().entries == 4 * 400
    assert cache.get(b"b-399") == b"value b 399" * 20
    assert cache.get(b"shared-17") == b"shared value 17"


def test_kill_leaves_a_cache_that_works(tmp_path: Path) -> None:
    """Catches a file left unusable, or a half-written value served, after kill -9 in the middle of writing."""
    for pause in (0.0, 0.1, 0.3):
        writer = write_elsewhere(tmp_path, "a", 10**9)
        assert writer.stdout is not None
        assert [writer.stdout.readline() for _ in range(2)] == [b"ready\n", b"stored\n"]
        time.sleep(pause)
        os.kill(writer.pid, signal.SIGKILL)
        writer.wait()
    cache = Cache(tmp_path, BIG)
    entries = cache.stats().entries
    assert entries > 0
    assert cache.damaged == 0
    stored = [cache.get(f"a-{number}".encode()) for number in range(entries)]
    assert all(value in (None, f"value a {number}".encode() * 20) for number, value in enumerate(stored))
    assert stored[0] is not None


def test_a_changed_value_counts_as_absent(tmp_path: Path) -> None:
    """Catches a checksum that is not checked, or that does not cover which key the value belongs to."""
    cache = Cache(tmp_path, BIG)
    for name in (b"one", b"two", b"three"):
        cache.put(name, b"value of " + name)
    cache.close()
    with sqlite3.connect(tmp_path / "responses.db") as db:
        swapped = db.execute("SELECT value FROM responses WHERE key = ?", (b"two",)).fetchone()[0]
        db.execute("UPDATE responses SET value = ? WHERE key = ?", (swapped, b"one"))
        db.execute("UPDATE responses SET value = ? WHERE key = ?", (swapped[:-1], b"three"))
    db.close()
    cache = Cache(tmp_path, BIG)
    assert [cache.get(name) for name in (b"one", b"two", b"three")] == [None, b"value of two", None]
    assert cache.damaged == 2
    cache.put(b"one", b"again")
    assert cache.get(b"one") == b"again"


@pytest.mark.parametrize("damage", ["garbage", "torn"])
def test_a_damaged_file_is_set_aside(tmp_path: Path, damage: str) -> None:
    """Catches a run that dies of, or trusts, a broken cache file; the old file is kept for inspection."""
    cache = Cache(tmp_path, BIG)
    for number in range(2000):
        cache.put(b"key %d" % number, b"value" * 50)
    cache.close()
    file = tmp_path / "responses.db"
    whole = file.read_bytes()
    torn = whole[: len(whole) // 3] + b"\xa5" * (len(whole) // 3) + whole[2 * (len(whole) // 3) :]
    file.write_bytes(b"not a database at all" * 1000 if damage == "garbage" else torn)
    cache = Cache(tmp_path, BIG)
    found = [cache.get(b"key %d" % number) for number in range(2000)]
    assert set(found) <= {None, b"value" * 50}
    assert cache.damaged > 0
    cache.put(b"fresh", b"works")
    cache.flush()
    assert cache.get(b"fresh") == b"works"
    assert damage == "torn" or (tmp_path / "responses.db.damaged-1").exists()


def test_the_oldest_used_entries_go_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a cache that grows without bound, or that evicts what is in use."""
    clock = [1000.0]
    monkeypatch.setattr("dssr.models.cache.time.time", lambda: clock[0])
    limit = 1 << 20
    cache = Cache(tmp_path, limit)
    cache.put(b"favourite", b"x")
    for number in range(4000):
        cache.put(b"key %d" % number, os.urandom(1000))
        if number % 100 == 0:
            clock[0] += 10
            assert cache.get(b"favourite") == b"x"
            cache.flush()
    stats = cache.stats()
    assert stats.bytes <= limit
    assert cache.get(b"favourite") == b"x"
    assert cache.get(b"key 3999") is not None
    assert cache.get(b"key 0") is None
    cache.clear()
    assert cache.stats().entries == 0


class Counting(ScriptedModel):
    """A model that counts the calls that reach it and takes its time."""

    def __init__(self) -> None:
        super().__init__(0.5)
        self.reached = 0

    async def generate(self, request: Generate) -> Generated:
        self.reached += 1
        await asyncio.sleep(0.01)
        if request.max_tokens == 13:
            raise ModelError("unlucky")
        return Generated(f"text {request.seed if request.temperature else 0}", 2)

    async def choose(self, request: Choose) -> Chosen:
        self.reached += 1
        return Chosen((-0.1, -2.352168461))


def prompt(text: str = "hello") -> Sequence[Message]:
    return (Message("user", text),)


def generate(text: str = "hello", tokens: int = 8, temperature: float = 1.0, seed: int = 0) -> Generate:
    return Generate((Message("user", text),), tokens, temperature, seed)


def test_each_distinct_call_is_made_once(tmp_path: Path) -> None:
    """Catches calls that are repeated, or different calls that share an answer."""
    inner = Counting()
    model = CachedModel(inner, Cache(tmp_path, BIG))
    requests = [generate(text, tokens, 1.0, seed) for text in "ab" for tokens in (8, 9) for seed in (1, 2)]

    async def everything() -> list[Generated]:
        return await asyncio.gather(*(model.generate(request) for request in requests * 3))

    first = asyncio.run(everything())
    assert inner.reached == len(requests) == model.counters.misses
    assert model.counters.merged == 2 * len(requests)
    assert asyncio.run(everything()) == first
    assert inner.reached == len(requests)
    assert model.counters.hits == 3 * len(requests)
    asyncio.run(model.close())

    later = CachedModel(Counting(), Cache(tmp_path, BIG))
    assert asyncio.run(later.generate(requests[0])) == first[0]
    assert later.counters.misses == 0


def test_greedy_calls_share_an_answer_whatever_their_seed(tmp_path: Path) -> None:
    """Catches a seed that splits the cache where it has no effect."""
    inner = Counting()
    model = CachedModel(inner, Cache(tmp_path, BIG))
    for seed in range(3):
        asyncio.run(model.generate(generate(temperature=0.0, seed=seed)))
    assert inner.reached == 1


def test_errors_are_not_stored_and_giving_up_hurts_nobody(tmp_path: Path) -> None:
    """Catches a stored failure, and a merged call that dies with the first of its callers."""
    inner = Counting()
    model = CachedModel(inner, Cache(tmp_path, BIG))
    for _ in range(2):
        with pytest.raises(ModelError, match="unlucky"):
            asyncio.run(model.generate(generate(tokens=13)))
    assert inner.reached == 2

    async def one_gives_up() -> Generated:
        first = asyncio.ensure_future(model.generate(generate("shared")))
        second = asyncio.ensure_future(model.generate(generate("shared")))
        await asyncio.sleep(0)
        first.cancel()
        return await second

    assert asyncio.run(one_gives_up()).text == "text 0"


def test_another_fingerprint_is_another_model(tmp_path: Path) -> None:
    """Catches answers of one model served as another's."""
    cache = Cache(tmp_path, BIG)
    answers = [CachedModel(ScriptedModel(retention), cache).fingerprint() for retention in (0.5, 0.6)]
    assert answers[0] != answers[1]
    one, other = Counting(), Counting()
    other.retention = 0.9
    for model in (one, other):
        asyncio.run(CachedModel(model, cache).choose(Choose((Message("user", "x"),), ("A", "B"))))
    assert (one.reached, other.reached) == (1, 1)


def test_lookups_are_fast(tmp_path: Path) -> None:
    """Catches a lookup that costs much more than asking the database: twice is what the check of the value costs."""
    cache = Cache(tmp_path, BIG)
    for number in range(5000):
        cache.put(b"key %d" % number, b"v" * 300)
    cache.flush()
    begin = time.process_time()
    for number in range(5000):
        assert cache.get(b"key %d" % number) is not None
    ours = time.process_time() - begin
    db = sqlite3.connect(tmp_path / "responses.db")
    begin = time.process_time()
    for number in range(5000):
        assert db.execute("SELECT value FROM responses WHERE key = ?", (b"key %d" % number,)).fetchone()
    assert ours < 20 * (time.process_time() - begin)
    db.close()


def test_a_model_without_a_cache_still_merges() -> None:
    """Catches duplicate work when the cache is switched off."""
    inner = Counting()
    model = CachedModel(inner, None)

    async def twice() -> Sequence[Generated]:
        return await asyncio.gather(model.generate(generate()), model.generate(generate()))

    one, other = asyncio.run(twice())
    assert one == other
    assert inner.reached == 1
    assert isinstance(model.tokenizer.encode("a"), list)
    tokenizer: Tokenizer = model.tokenizer
    assert tokenizer is inner.tokenizer


def test_the_cache_is_private_to_its_user(tmp_path: Path) -> None:
    """Catches stored replies that every user of the machine can read, also in the file that SQLite writes beside."""
    before = os.umask(0o022)
    try:
        cache = Cache(tmp_path / "cache", BIG)
        cache.put(b"key", b"value")
        cache.flush()
        modes = {file.name: file.stat().st_mode & 0o777 for file in (tmp_path / "cache").iterdir()}
    finally:
        os.umask(before)
    cache.close()
    assert {"responses.db", "responses.db-wal"} <= modes.keys()
    assert set(modes.values()) == {0o600}
    assert (tmp_path / "cache").stat().st_mode & 0o777 == 0o700


def test_what_is_remembered_has_a_size() -> None:
    """Catches a memo that grows with the length of the texts it is asked about, forgets the newest first, or answers
    with another question's answer."""
    asked: list[str] = []

    @remembered(3 * (OVERHEAD + 10), len)
    def doubled(text: str) -> str:
        asked.append(text)
        return text * 2

    letters = "abcabcdcba"
    assert [doubled(letter * 10) for letter in letters] == [letter * 20 for letter in letters]
    assert [text[0] for text in asked] == ["a", "b", "c", "d", "a"], "c, b were kept, a had been pushed out by d"
    long = "x" * 1000
    assert doubled(long) == doubled(long) == long * 2
    assert asked.count(long) == 2, "longer than all there is room for, so it is not kept"
    assert doubled("a" * 10) == "a" * 20
    assert asked.count("a" * 10) == 2, "and pushed nothing out"
