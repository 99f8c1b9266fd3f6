"""Answers of pure calls found again by content: on disk, with any model behind them, and a few in memory.

`CachedModel` makes each distinct call once, ever, and identical calls under way once, now. `Cache` is one SQLite file
in write-ahead mode: several processes may share it, and a killed one loses only what it had not written yet. Every
value carries a checksum; a damaged entry counts as absent, a damaged file is set aside.
"""

import asyncio
import hashlib
import os
import sqlite3
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import update_wrapper
from pathlib import Path
from threading import Lock
from typing import Any, Generic, ParamSpec, TypeVar

import msgspec

from dssr.errors import RecordError
from dssr.models.base import (
    Choose,
    Chosen,
    Generate,
    Generated,
    Likelihood,
    Message,
    Model,
    Tokenizer,
    TokenScores,
    ask_likelihood,
)
from dssr.record.log import PRIVATE_FILE, PRIVATE_FOLDER
from dssr.types import Counts, Record

# ---------------------------------------------------------------- answers on disk

FILE = "responses.db"
WRITE_EVERY = 256
"""Entries gathered before they are written together."""
WRITE_SECONDS = 2.0
CHECK = 8
"""Bytes of the checksum before each value."""
KEEP_SHARE = 0.9
"""When the limit is passed, the least recently used entries go until this share of it is left."""

_SCHEMA = """
CREATE TABLE IF NOT EXISTS responses (
  key BLOB PRIMARY KEY, value BLOB NOT NULL, used INTEGER NOT NULL);
CREATE INDEX IF NOT EXISTS by_use ON responses (used);
"""


class CacheStats(Record, frozen=True):
    """What `dssr cache show` prints."""

    path: str
    entries: int
    bytes: int


class Cache:
    """A folder with one file of answers. Used from one thread."""

    def __init__(self, folder: Path, limit_bytes: int) -> None:
        self.path = folder / FILE
        self.limit = limit_bytes
        self.damaged = 0
        """Entries or files found damaged and dropped."""
        self._new: dict[bytes, bytes] = {}
        self._used: set[bytes] = set()
        self._written = time.monotonic()
        folder.mkdir(PRIVATE_FOLDER, parents=True, exist_ok=True)
        self._db = self._open()

    def get(self, key: bytes) -> bytes | None:
        """The stored value; None when there is none or it is damaged."""
        fresh = self._new.get(key)
        if fresh is not None:
            return fresh[CHECK:]
        found: tuple[bytes] | None = None
        with self._guarded():
            found = self._db.execute("SELECT value FROM responses WHERE key = ?", (key,)).fetchone()
        if found is None:
            return None
        value = bytes(found[0])
        if value[:CHECK] != _checksum(key, value[CHECK:]):
            self.damaged += 1
            with self._guarded():
                self._db.execute("DELETE FROM responses WHERE key = ?", (key,))
            return None
        self._used.add(key)
        if len(self._used) >= 16 * WRITE_EVERY:
            self.flush()
        return value[CHECK:]

    def put(self, key: bytes, value: bytes) -> None:
        """Keep a value; it is on disk after the next `flush`."""
        self._new[key] = _checksum(key, value) + value
        if len(self._new) >= WRITE_EVERY or time.monotonic() - self._written > WRITE_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Writes what is gathered and keeps the file under its limit."""
        self._written = time.monotonic()
        if not self._new and not self._used:
            return
        now = int(time.time())
        new, used = self._new, self._used
        self._new, self._used = {}, set()
        with self._guarded():
            self._db.execute("BEGIN IMMEDIATE")
            self._db.executemany(
                "INSERT OR REPLACE INTO responses VALUES (?, ?, ?)", [(key, new[key], now) for key in sorted(new)]
            )
            self._db.executemany("UPDATE responses SET used = ? WHERE key = ?", [(now, key) for key in sorted(used)])
            self._db.execute("COMMIT")
            self._evict()

    def stats(self) -> CacheStats:
        """Entries and size, what is gathered included."""
        self.flush()
        entries = 0
        with self._guarded():
            entries = self._db.execute("SELECT count(*) FROM responses").fetchone()[0]
        return CacheStats(str(self.path), entries, self._size())

    def clear(self) -> None:
        """Drop every entry and give the space back."""
        self._new, self._used = {}, set()
        with self._guarded():
            self._db.execute("DELETE FROM responses")
            self._db.execute("VACUUM")

    def close(self) -> None:
        """Write what is gathered and let go of the file."""
        self.flush()
        self._db.close()

    def _size(self) -> int:
        """Bytes in use, free pages not counted."""
        pages, free, page = 0, 0, 0
        with self._guarded():
            pages = self._pragma("page_count")
            free = self._pragma("freelist_count")
            page = self._pragma("page_size")
        return (pages - free) * page

    def _pragma(self, name: str) -> int:
        return int(self._db.execute(f"PRAGMA {name}").fetchone()[0])

    def _evict(self) -> None:
        size = self._size()
        if size <= self.limit:
            return
        entries = self._db.execute("SELECT count(*) FROM responses").fetchone()[0]
        surplus = int(entries * (1 - KEEP_SHARE * self.limit / size)) + 1
        self._db.execute(
            "DELETE FROM responses WHERE key IN (SELECT key FROM responses ORDER BY used, key LIMIT ?)", (surplus,)
        )

    def _open(self) -> sqlite3.Connection:
        try:
            return self._connect()
        except sqlite3.DatabaseError as error:
            self._set_aside(error)
            return self._connect()

    def _connect(self) -> sqlite3.Connection:
        # Made here, as SQLite would make it for all to read; its side files take the mode of this one. Where this fails
        # SQLite fails too, and says why.
        with suppress(OSError):
            os.close(os.open(self.path, os.O_WRONLY | os.O_CREAT, PRIVATE_FILE))
        db = sqlite3.connect(self.path, timeout=60.0, isolation_level=None, check_same_thread=False)
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = NORMAL")
        db.executescript(_SCHEMA)
        return db

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        """A damaged file is set aside and the work goes on without what it held."""
        try:
            yield
        except sqlite3.DatabaseError as error:
            if self._db.in_transaction:
                self._db.rollback()
            self._set_aside(error)
            self._db = self._connect()

    def _set_aside(self, error: sqlite3.DatabaseError) -> None:
        damage = getattr(error, "sqlite_errorname", None) or str(error)
        if not any(word in damage for word in ("CORRUPT", "NOTADB", "malformed", "not a database")):
            raise RecordError(
                f"The response cache {self.path} cannot be used ({error}); free it or name another."
            ) from (error)
        self.damaged += 1
        number = 1
        while (aside := self.path.with_name(f"{FILE}.damaged-{number}")).exists():
            number += 1
        self.path.replace(aside)
        for tail in ("-wal", "-shm"):
            self.path.with_name(FILE + tail).unlink(missing_ok=True)


def _checksum(key: bytes, value: bytes) -> bytes:
    return hashlib.blake2b(value, digest_size=CHECK, key=key).digest()


# ---------------------------------------------------------------- a model behind a cache

Answer = TypeVar("Answer", Generated, Chosen, TokenScores)


class Counters(Record, frozen=True):
    """What became of the calls so far."""

    calls: int
    """Asked of this wrapper."""
    hits: int
    """Answered from the disk."""
    merged: int
    """Answered together with an identical call under way."""
    misses: int
    """Asked of the model."""
    written_tokens: int
    """Generated by the model."""
    read_tokens: int
    """Of the prompts asked of the model, and of given replies. A prompt counts whole in each call, whatever an engine
    that knows its beginning already was spared."""


class CachedModel:
    """Implements `dssr.models.base.Model` over another. Without a cache it still merges identical calls."""

    def __init__(self, model: Model, cache: Cache | None) -> None:
        self.model = model
        self.cache = cache
        self._under_way: dict[bytes, asyncio.Task[Any]] = {}
        self._prints: dict[str | None, bytes] = {}
        self._calls = self._hits = self._merged = self._misses = 0
        self._answered = self._written = self._read = 0
        self._encode = msgspec.msgpack.Encoder().encode

    @property
    def name(self) -> str:
        """The wrapped model's."""
        return self.model.name

    @property
    def tokenizer(self) -> Tokenizer:
        """The wrapped model's."""
        return self.model.tokenizer

    @property
    def context_length(self) -> int:
        """The wrapped model's."""
        return self.model.context_length

    @property
    def counters(self) -> Counters:
        """The counts so far."""
        return Counters(self._calls, self._hits, self._merged, self._misses, self._written, self._read)

    @property
    def counts(self) -> Counts:
        """The same, as workers tell it; a call is computed when its answer is there, as its tokens are."""
        return Counts(self._calls, self._hits, self._written, self._answered, self._read)

    def fingerprint(self, adapter: str | None = None) -> str:
        """The wrapped model's: a cache changes no answer."""
        return self.model.fingerprint(adapter)

    def prompt_tokens(self, messages: Sequence[Message]) -> int:
        """By the wrapped model, once: a stored count needs neither its template nor its weights."""
        if self.cache is None:
            return self.model.prompt_tokens(messages)
        key = self._digest((self._print(None), ("prompt tokens", tuple(messages))))
        stored = self.cache.get(key)
        if stored is not None:
            return msgspec.msgpack.decode(stored, type=int)
        count = self.model.prompt_tokens(messages)
        self.cache.put(key, self._encode(count))
        return count

    async def generate(self, request: Generate) -> Generated:
        """From the cache, from an identical call under way, or from the model."""
        return await self._ask(request, Generated, lambda: self.model.generate(request))

    async def choose(self, request: Choose) -> Chosen:
        """From the cache, from an identical call under way, or from the model."""
        return await self._ask(request, Chosen, lambda: self.model.choose(request))

    async def likelihood(self, request: Likelihood) -> TokenScores:
        """From the cache, from an identical call under way, or from the model, if it can."""
        return await self._ask(request, TokenScores, lambda: ask_likelihood(self.model, request))

    async def close(self) -> None:
        """Close the cache, then the model."""
        if self.cache is not None:
            self.cache.close()
        await self.model.close()

    async def _ask(
        self, request: Generate | Choose | Likelihood, kind: type[Answer], call: Callable[[], Awaitable[Answer]]
    ) -> Answer:
        self._calls += 1
        key = self._key(request)
        stored = self.cache.get(key) if self.cache is not None else None
        if stored is not None:
            self._hits += 1
            return msgspec.msgpack.decode(stored, type=kind)
        task = self._under_way.get(key)
        if task is not None and task.get_loop() is asyncio.get_running_loop():
            self._merged += 1
        else:
            task = asyncio.ensure_future(self._compute(key, request, call))
            self._under_way[key] = task
        # Shielded: a caller that gives up must not take the others with it.
        answer: Answer = await asyncio.shield(task)
        return answer

    async def _compute(
        self, key: bytes, request: Generate | Choose | Likelihood, call: Callable[[], Awaitable[Answer]]
    ) -> Answer:
        try:
            self._misses += 1
            # Just before the call: tokenizers keep the ids of the newest prompts, so that none is tokenised twice.
            prompt = self.model.prompt_tokens(request.messages)
            answer = await call()
            self._answered += 1
            self._read += prompt + (len(answer.starts) if isinstance(answer, TokenScores) else 0)
            if isinstance(answer, Generated):
                self._written += answer.tokens
            if self.cache is not None:
                self.cache.put(key, self._encode(answer))
            return answer
        finally:
            self._under_way.pop(key, None)

    def _key(self, request: Generate | Choose | Likelihood) -> bytes:
        """Of the fingerprint and the request; an adapter counts by content, not by name."""
        if isinstance(request, Choose):
            parts: tuple[object, ...] = ("choose", request.messages, request.labels)
        elif isinstance(request, Likelihood):
            parts = ("likelihood", request.messages, request.reply)
        else:
            seed = request.seed if request.temperature > 0 else 0
            parts = ("generate", request.messages, request.max_tokens, request.temperature, seed)
        return self._digest((self._print(request.adapter), parts))

    def _print(self, adapter: str | None) -> bytes:
        if adapter not in self._prints:
            self._prints[adapter] = self.fingerprint(adapter).encode()
        return self._prints[adapter]

    def _digest(self, whole: tuple[object, ...]) -> bytes:
        try:
            content = self._encode(whole)
        except UnicodeEncodeError:  # an unpaired surrogate in a message
            content = repr(whole).encode("utf-8", "backslashreplace")
        return hashlib.blake2b(content, digest_size=16).digest()


# ---------------------------------------------------------------- answers in memory

P = ParamSpec("P")
R = TypeVar("R")
OVERHEAD = 64
"""Characters that an entry counts for besides its text."""


class Remembered(Generic[P, R]):
    """A function with its newest answers, as long as the texts they were asked with have at most so many characters
    together. Unlike a number of entries, this bounds memory whatever the length of the texts."""

    def __init__(self, function: Callable[P, R], characters: int, size: Callable[..., int]) -> None:
        self.function, self.characters, self.size = function, characters, size
        self.computed = 0
        """Questions that were not answered from memory."""
        self._known: OrderedDict[tuple[object, ...], tuple[R, int]] = OrderedDict()
        self._held = 0
        self._lock = Lock()
        update_wrapper(self, function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """From memory, or computed; a text longer than all there is room for is answered and not kept."""
        assert not kwargs, "a question is its positional arguments"
        with self._lock:
            if (entry := self._known.get(args)) is not None:
                self._known.move_to_end(args)
                return entry[0]
            self.computed += 1
        found, size = self.function(*args, **kwargs), OVERHEAD + self.size(*args, **kwargs)
        with self._lock:
            if size <= self.characters and args not in self._known:
                self._known[args] = found, size
                self._held += size
            while self._held > self.characters:
                self._held -= self._known.popitem(last=False)[1][1]
        return found

    def forget(self) -> None:
        """Begin anew."""
        with self._lock:
            self._known.clear()
            self._held = self.computed = 0


def remembered(characters: int, size: Callable[..., int]) -> Callable[[Callable[P, R]], Remembered[P, R]]:
    """Decorates a function whose answers are worth keeping; `size` counts the characters of one question."""
    return lambda function: Remembered(function, characters, size)
