"""Prompts cut into blocks, and the prefix cache that keeps the keys and values of computed ones.

Prompts are cut at fixed positions, so the bits of a block depend on its prefix alone and a kept block equals a
fresh one exactly. What is kept changes speed, never results.
"""

import hashlib
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

BLOCK = 64
"""Positions per block. Part of the numerics: another size gives other roundings."""

Ids = np.ndarray[Any, np.dtype[np.int32]]


@dataclass(eq=False, slots=True)
class Block:
    """One block of a prompt, together with everything before it."""

    key: bytes
    """Digest of the adapter and of all tokens up to the block's end."""
    tokens: Ids
    position: int
    """Of the block's first token."""
    kv: torch.Tensor | None = None
    """[layers, 2, key heads, tokens, width], once computed."""


def cut(ids: Ids, adapter: str | None) -> list[Block]:
    """The prompt's blocks: full ones, then a last one of 1 to BLOCK tokens that is always the prompt's own."""
    blocks: list[Block] = []
    key = repr(adapter).encode()
    for position in range(0, len(ids), BLOCK):
        tokens = ids[position : position + BLOCK]
        key = hashlib.blake2b(key + tokens.tobytes(), digest_size=16).digest()
        blocks.append(Block(key, tokens, position))
    return blocks


def kv_of(blocks: list[Block]) -> list[torch.Tensor]:
    """The keys and values of computed blocks."""
    kept = [block.kv for block in blocks if block.kv is not None]
    assert len(kept) == len(blocks), "these blocks were computed with their keys kept"
    return kept


class PrefixCache:
    """Computed blocks, the least recently used dropped beyond a size in bytes."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.size = 0
        self._blocks: OrderedDict[bytes, Block] = OrderedDict()

    def __len__(self) -> int:
        return len(self._blocks)

    def known(self, blocks: list[Block]) -> list[Block]:
        """The kept blocks among a prompt's leading ones."""
        found: list[Block] = []
        for block in blocks:
            kept = self._blocks.get(block.key)
            if kept is None:
                break
            found.append(kept)
        return found

    def add(self, blocks: list[Block]) -> None:
        """Keeps the computed blocks of one prompt, and drops others down to the limit."""
        for block in reversed(blocks):  # a prefix is worth more than what follows it
            assert block.kv is not None, "only computed blocks are kept"
            if block.key not in self._blocks:
                self._blocks[block.key] = block
                self.size += block.kv.nbytes
            self._blocks.move_to_end(block.key)
        while self.size > self.limit and self._blocks:
            _, block = self._blocks.popitem(last=False)
            self.size -= block.kv.nbytes if block.kv is not None else 0

    def clear(self) -> None:
        """Drops everything."""
        self._blocks.clear()
        self.size = 0
