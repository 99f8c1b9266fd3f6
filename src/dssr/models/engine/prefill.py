"""Computes prompts one after the other, each from the longest prefix that is known, and keeps computed blocks.

Prompts are cut into blocks at fixed positions, and how a row attends is a matter of its position alone, so the bits of
a block depend on its prefix alone and a kept block equals a fresh one. What is kept changes speed, never results.
Sorted prompts find the prefixes of the ones before them, so each distinct block is computed once.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.nn.functional import scaled_dot_product_attention

from dssr.models.engine.network import PackedModel, product

BLOCK = 64
"""Positions per block. Part of the numerics, as LONG is: another size gives other roundings."""
LONG = 512
"""Keys beyond which attention is a matrix product for each head; below, one call for all heads is faster."""
PASS = 1024
"""Most rows of one pass: more would not stay in the processor's own memory."""

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


@dataclass(eq=False, slots=True)
class Prefilled:
    """A computed prompt."""

    blocks: list[Block]
    """Kept only when asked for."""
    state: torch.Tensor
    """Last hidden state of its last token."""


class PromptAttention:
    """The `AttentionPlan` of a prompt's next rows: they add their keys to the prompt's and see all up to theirs."""

    def __init__(self, held: torch.Tensor, first: int, rows: int, mask: torch.Tensor, products: bool) -> None:
        """`mask` [BLOCK, BLOCK]: each row up to itself."""
        self.held = held
        """[layers, 2, key heads, positions, width]."""
        self.first = first
        self.end = first + rows
        self.parts: list[tuple[slice, int, torch.Tensor, bool]] = []
        """Of each block: its rows, the end of the keys it sees, its mask, and whether it takes a product a head."""
        at = first
        while at < self.end:
            last = at // BLOCK * BLOCK + BLOCK
            until = min(last, self.end)
            mine = mask[at - last + BLOCK : until - last + BLOCK]
            apart = products and last > LONG
            seen = mine if apart else torch.cat((mine.new_zeros(until - at, last - BLOCK), mine), 1)
            self.parts.append((slice(at - first, until - first), last, seen, apart))
            at = until

    def attend(self, layer: int, q: torch.Tensor, kv: torch.Tensor) -> torch.Tensor:
        """One call per block, or per block and head; how many keys it sees is a matter of the block's place alone."""
        held = self.held[layer]
        held[:, :, self.first : self.end] = kv.permute(1, 2, 0, 3)
        keys, values = held
        rows, heads, width = q.shape
        groups = heads // len(keys)
        asked = q.view(rows, len(keys), groups, width).permute(1, 2, 0, 3)
        found = q.new_empty(rows, heads, width)
        filled = found.view(rows, len(keys), groups, width).permute(1, 2, 0, 3)
        for mine, last, mask, apart in self.parts:
            if apart:
                for head in range(len(keys)):
                    filled[head, :, mine] = self._head(
                        asked[head, :, mine], keys[head, :last], values[head, :last], mask
                    )
            else:
                filled[:, :, mine] = scaled_dot_product_attention(
                    asked[:, :, mine],
                    keys[:, None, :last].expand(-1, groups, -1, -1),
                    values[:, None, :last].expand(-1, groups, -1, -1),
                    attn_mask=mask,
                    scale=1.0,
                )
        return found

    def _head(self, q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        groups, rows, width = q.shape
        scores = product(q.reshape(-1, width), keys)
        scores.view(groups, rows, -1)[:, :, -BLOCK:] += mask
        return product(torch.softmax(scores, -1), values.t()).view(groups, rows, width)


class Prefiller:
    """Runs prompts through the model up to their last token."""

    def __init__(self, model: PackedModel, cache: PrefixCache, batch_tokens: int) -> None:
        self.model = model
        self.cache = cache
        self.most_rows = max(min(batch_tokens, PASS) // BLOCK, 1) * BLOCK
        """Of one pass."""
        self._held = model.new_kv(model.key_heads, 0)
        """The keys and values of the prompt before, which the next one shares for the most part."""
        self._held_keys: list[bytes] = []
        """Of its full blocks."""
        self._mask = torch.full((BLOCK, BLOCK), float("-inf"), dtype=model.dtype, device=model.device).triu(1)

    def clear(self) -> None:
        """Drops all that was kept."""
        self.cache.clear()
        self._held, self._held_keys = self.model.new_kv(self.model.key_heads, 0), []

    def run(self, prompts: Sequence[Ids], adapter: str | None, keep: bool) -> list[Prefilled]:
        """The prompts, in their order. With `keep`, their keys and values are there too, for decoding."""
        places: dict[bytes, list[int]] = {}
        for place, ids in enumerate(prompts):
            places.setdefault(sort_key(ids), []).append(place)
        found: dict[int, Prefilled] = {}
        for _, same in sorted(places.items()):  # equal prompts are one
            ids = prompts[same[0]]
            blocks, states = self._one(cut(ids, adapter), len(ids) - 1, keep)
            found |= dict.fromkeys(same, Prefilled(blocks, states[0]))
        return [found[place] for place in range(len(prompts))]

    def states(self, ids: Ids, adapter: str | None, first: int) -> torch.Tensor:
        """Last hidden states of the tokens from number `first` on."""
        return self._one(cut(ids, adapter), first, False)[1]

    def _one(self, blocks: list[Block], first: int, keep: bool) -> tuple[list[Block], torch.Tensor]:
        known = self.cache.known(blocks[: first // BLOCK])
        blocks = known + blocks[len(known) :]
        here = self._from_known(blocks, len(known), first // BLOCK)
        at, end = here * BLOCK, blocks[-1].position + len(blocks[-1].tokens)
        ids = np.concatenate([block.tokens for block in blocks[here:]]).tolist()
        self._held[:, :, :, at : _whole(end)] = 0  # seen with weight zero, so it must be a number
        states: list[torch.Tensor] = []
        while at < end:
            until = min(at + self.most_rows, end)
            plan = PromptAttention(self._held, at, until - at, self._mask, self.model.rows == 1)
            done = self.model.forward(ids[: until - at], range(at, until), plan)
            # A copy: a view of few rows would keep the whole pass in memory.
            states += [done[max(first - at, 0) :].clone()] if until > first else []
            ids, at = ids[until - at :], until
        full = [block for block in blocks if len(block.tokens) == BLOCK]
        self._held_keys = [block.key for block in full]
        for block in blocks if keep else full:
            if block.kv is None:
                block.kv = self._held[:, :, :, block.position : block.position + len(block.tokens)].clone()
        self.cache.add(full)
        return blocks if keep else [], torch.cat(states)

    def _from_known(self, blocks: list[Block], cached: int, most: int) -> int:
        """Brings the known blocks to where the next rows see them; returns how many there are."""
        pairs = zip(self._held_keys, blocks[:most], strict=False)
        here = next(
            (place for place, (key, block) in enumerate(pairs) if key != block.key), min(len(self._held_keys), most)
        )
        self._held_keys = self._held_keys[:here]
        wanted = _whole(len(blocks) * BLOCK)
        if self._held.shape[3] < wanted:
            larger = self.model.new_kv(self.model.key_heads, max(wanted, 2 * self._held.shape[3]))
            larger[:, :, :, : here * BLOCK] = self._held[:, :, :, : here * BLOCK]
            self._held = larger
        for block, kv in zip(blocks[here:cached], kv_of(blocks[here:cached]), strict=True):
            self._held[:, :, :, block.position : block.position + BLOCK] = kv
        return max(here, cached)


def _whole(length: int) -> int:
    return -(-length // BLOCK) * BLOCK


def sort_key(ids: Ids) -> bytes:
    """Sorts prompts with a common prefix next to each other."""
    return ids.astype(">i4").tobytes()
