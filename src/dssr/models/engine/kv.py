"""Keys and values of prompt blocks, kept so that a prefix seen before is not computed again.

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
    nodes: list[Block] = []
    key = repr(adapter).encode()
    for position in range(0, len(ids), BLOCK):
        tokens = ids[position : position + BLOCK]
        key = hashlib.blake2b(key + tokens.tobytes(), digest_size=16).digest()
        nodes.append(Block(key, tokens, position))
    return nodes


class Store:
    """Computed blocks, the least recently used dropped beyond a size in bytes."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.size = 0
        self._nodes: OrderedDict[bytes, Block] = OrderedDict()

    def __len__(self) -> int:
        return len(self._nodes)

    def known(self, path: list[Block]) -> list[Block]:
        """The stored blocks among the path's leading ones."""
        found: list[Block] = []
        for node in path:
            stored = self._nodes.get(node.key)
            if stored is None:
                break
            found.append(stored)
        for node in reversed(found):  # a prefix is worth more than what follows it
            self._nodes.move_to_end(node.key)
        return found

    def add(self, nodes: list[Block]) -> None:
        for node in reversed(nodes):
            if node.kv is not None and node.key not in self._nodes:
                self._nodes[node.key] = node
                self.size += node.kv.nbytes

    def shrink(self, keep: list[Block]) -> None:
        """Drops blocks down to the limit, except those of the path in use."""
        for node in reversed(keep):
            if node.key in self._nodes:
                self._nodes.move_to_end(node.key)
        while self.size > self.limit and len(self._nodes) > len(keep):
            _, node = self._nodes.popitem(last=False)
            self.size -= node.kv.nbytes if node.kv is not None else 0

    def clear(self) -> None:
        self._nodes.clear()
        self.size = 0
