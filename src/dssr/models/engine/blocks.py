"""Keys and values in blocks of one size, in one piece of memory: who holds which, and which prompts are still there."""

import hashlib
import mmap
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import torch

from dssr.errors import ModelError
from dssr.models.engine.native import BLOCK

Ids = np.ndarray[Any, np.dtype[np.int32]]
FLOAT = 4
"""Bytes of a number."""


def blocks_for(tokens: int) -> int:
    """How many blocks so many tokens take."""
    return -(-tokens // BLOCK)


def keys_of(ids: Ids, adapter: str | None) -> list[bytes]:
    """A key for each full block of a prompt: of the adapter and of all tokens up to the block's end."""
    keys: list[bytes] = []
    key = repr(adapter).encode()
    for position in range(0, len(ids) - BLOCK + 1, BLOCK):
        key = hashlib.blake2b(key + ids[position : position + BLOCK].tobytes(), digest_size=16).digest()
        keys.append(key)
    return keys


class BlockPool:
    """Blocks of keys and values, each held by any number of holders. The memory of a block is used from the first time
    that it is taken; those let go of last are taken first, so no more is used than was ever needed at once."""

    def __init__(self, numbers: int, count: int) -> None:
        """`numbers`: in a block."""
        self.count = count
        self._numbers = numbers
        self._holders = [0] * count
        self._free = list(range(count - 1, -1, -1))
        self._known: OrderedDict[bytes, int] = OrderedDict()
        """Full blocks of prompts by their key, the least recently used first."""
        self._memory: torch.Tensor | None = None

    @property
    def memory(self) -> torch.Tensor:
        """[blocks, numbers]."""
        if self._memory is None:
            self._memory = _memory(self.count * self._numbers).view(self.count, self._numbers)
        return self._memory

    @property
    def available(self) -> int:
        """Blocks that can be taken: free ones, and those that are only kept in case a prompt comes again."""
        return len(self._free) + sum(self._holders[block] == 1 for block in self._known.values())

    @property
    def kept(self) -> int:
        """Blocks kept in case a prompt comes again."""
        return len(self._known)

    def take(self, count: int) -> list[int]:
        """Blocks to fill, held once; prompts least recently used are forgotten for them."""
        while len(self._free) < count and self._known:
            self.let_go([self._known.popitem(last=False)[1]])
        if len(self._free) < count:
            raise ModelError(
                f"There is no room for {count} more blocks of {BLOCK} tokens; ask for fewer or shorter texts at once."
            )
        taken = [self._free.pop() for _ in range(count)]
        for block in taken:
            self._holders[block] = 1
        return taken

    def hold(self, blocks: Iterable[int]) -> None:
        """Holds blocks once more."""
        for block in blocks:
            self._holders[block] += 1

    def let_go(self, blocks: Iterable[int]) -> None:
        """Holds blocks once less; those that nobody holds are free."""
        for block in blocks:
            self._holders[block] -= 1
            if not self._holders[block]:
                self._free.append(block)

    def copy(self, source: int) -> int:
        """A new block with the same contents."""
        (block,) = self.take(1)
        self.memory[block] = self.memory[source]
        return block

    def find(self, keys: Sequence[bytes]) -> list[int]:
        """The leading blocks of a prompt that are still there, held once more."""
        found: list[int] = []
        for key in keys:
            if key not in self._known:
                break
            found.append(self._known[key])
        self.hold(found)
        return found

    def keep(self, keys: Sequence[bytes], blocks: Sequence[int]) -> None:
        """Keeps a prompt's full blocks while there is room."""
        for key, block in reversed(
            list(zip(keys, blocks, strict=False))
        ):  # a prefix is worth more than what follows it
            if key not in self._known:
                self._known[key] = block
                self.hold([block])
            self._known.move_to_end(key)

    def forget(self) -> None:
        """Forgets all prompts."""
        self.let_go(self._known.values())
        self._known.clear()

    def release(self) -> None:
        """Gives the memory back; what was in it is lost."""
        self.forget()
        self._memory = None


def _memory(size: int) -> torch.Tensor:
    """Room for so many numbers, which takes memory where it is written to; in large pages where the system has them."""
    pages = mmap.mmap(-1, size * FLOAT, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(AttributeError, OSError):  # a system without them
        pages.madvise(mmap.MADV_HUGEPAGE)
    return torch.frombuffer(pages, dtype=torch.float32)
