"""Computes prompts one after the other, each from the longest beginning that is known.

The bits of a token's keys and values depend on the tokens before it alone, so what is kept equals what would be
computed anew: it changes speed, never results. Sorted prompts find the beginnings of the ones before them, so most
tokens that prompts have in common are computed once.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from dssr.models.engine.blocks import BlockPool, Ids, blocks_for, keys_of
from dssr.models.engine.native import BLOCK
from dssr.models.engine.network import PASS, PackedModel, Rows

WORTH = 4
"""Least tokens of a begun block for which it is copied from the prompt before, not computed."""


@dataclass(eq=False, slots=True)
class Prefilled:
    """A computed prompt."""

    blocks: list[int]
    """Of its keys and values, held for whoever asked; none if nobody did."""
    state: torch.Tensor
    """Last hidden state of its last token."""


class Prefiller:
    """Runs prompts through the model up to their last token."""

    def __init__(self, model: PackedModel, pool: BlockPool, batch_tokens: int) -> None:
        self.model = model
        self.pool = pool
        self.most_rows = min(batch_tokens, PASS)
        """Of one pass."""
        self._adapter: str | None = None
        self._before: Ids = np.empty(0, np.int32)
        self._blocks: list[int] = []
        """Of the prompt before, which the next one shares for the most part; held."""

    def clear(self) -> None:
        """Forgets all prompts."""
        self._remember(None, np.empty(0, np.int32), [])
        self.pool.forget()

    def run(self, prompts: Sequence[Ids], adapter: str | None, keep: bool) -> list[Prefilled]:
        """The prompts, in their order. With `keep`, their keys and values are held, for decoding."""
        places: dict[bytes, list[int]] = {}
        for place, ids in enumerate(prompts):
            places.setdefault(sort_key(ids), []).append(place)
        found: dict[int, Prefilled] = {}
        for _, same in sorted(places.items()):  # equal prompts are one
            ids = prompts[same[0]]
            state = self.states(ids, adapter, len(ids) - 1)[0]
            for place in same:
                if keep:
                    self.pool.hold(self._blocks)
                found[place] = Prefilled(list(self._blocks) if keep else [], state)
        return [found[place] for place in range(len(prompts))]

    def states(self, ids: Ids, adapter: str | None, first: int) -> torch.Tensor:
        """Last hidden states of the tokens from number `first` on."""
        keys = keys_of(ids, adapter)
        blocks = self.pool.find(keys[: first // BLOCK])
        at, begun = len(blocks) * BLOCK, len(blocks)
        shared = min(self._shared(ids, adapter), first, at + BLOCK)
        if shared - at >= WORTH:
            blocks.append(self.pool.copy(self._blocks[begun]))
            at = shared
        blocks += self.pool.take(blocks_for(len(ids)) - len(blocks))
        self._remember(adapter, ids[:at], blocks)
        table = np.array(blocks, np.int32)
        states: list[torch.Tensor] = []
        while at < len(ids):
            until = min(at + self.most_rows, len(ids))
            rows = Rows(ids[at:until], np.arange(at, until, dtype=np.int32), table, self.pool.memory)
            wanted = min(max(first - at, 0), until - at)
            done = self.model.forward(rows, wanted)
            states += [done] if len(done) else []
            at = until
        self._before = ids
        self.pool.keep(keys, blocks)
        return torch.cat(states)

    def _shared(self, ids: Ids, adapter: str | None) -> int:
        """Tokens that the prompt has in common with the one before."""
        if adapter != self._adapter:
            return 0
        length = min(len(ids), len(self._before))
        other = np.flatnonzero(ids[:length] != self._before[:length])
        return int(other[0]) if len(other) else length

    def _remember(self, adapter: str | None, ids: Ids, blocks: list[int]) -> None:
        self.pool.let_go(self._blocks)
        self._adapter, self._before, self._blocks = adapter, ids, blocks


def sort_key(ids: Ids) -> bytes:
    """Sorts prompts with a common prefix next to each other."""
    return ids.astype(">i4").tobytes()
