"""Computes prompts one after the other, each from the longest prefix that is in the cache.

Sorted prompts find the prefixes of the ones before them, so each distinct block is computed once.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch.nn.functional import scaled_dot_product_attention

from dssr.models.engine.blocks import BLOCK, Block, Ids, PrefixCache, cut, kv_of
from dssr.models.engine.forward import PackedModel


@dataclass(eq=False, slots=True)
class Prefilled:
    """A computed prompt."""

    blocks: list[Block]
    """Kept only when asked for."""
    state: torch.Tensor
    """Last hidden state of its last token."""


class BlockAttention:
    """The `AttentionPlan` of a prompt's next blocks: each sees the known ones, those before it, and itself."""

    def __init__(self, known: list[Block], new: list[Block], mask: torch.Tensor) -> None:
        self.known = known
        self.new = new
        self.mask = mask
        """[BLOCK, at least all positions]; its last BLOCK columns are those of the block that looks."""

    def attend(
        self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, out: torch.Tensor, scale: float
    ) -> None:
        """One call per block, whose shape is a matter of the block's place alone."""
        heads, _, width = q.shape
        first = self.new[0].position
        rows = self.new[-1].position + len(self.new[-1].tokens) - first
        kv = torch.stack((k[:, :rows], v[:, :rows]))
        held = torch.cat([*(kept[layer] for kept in kv_of(self.known)), kv], 2) if self.known else kv
        groups = heads // held.shape[1]
        widest = self.mask.shape[1] - BLOCK
        for block in self.new:
            past, end = block.position, block.position + len(block.tokens)
            keys, values = held[:, :, None, :end].expand(-1, -1, groups, -1, -1)
            seen = scaled_dot_product_attention(
                q[:, past - first : end - first].reshape(-1, groups, end - past, width),
                keys,
                values,
                attn_mask=self.mask[: end - past, widest - past : widest + end - past],
                scale=scale,
            )
            out[past - first : end - first] = seen.reshape(heads, end - past, width).transpose(0, 1)
            if block.kv is not None:
                block.kv[layer] = held[:, :, past:end]


class Prefiller:
    """Runs prompts through the model up to their last token."""

    def __init__(self, model: PackedModel, cache: PrefixCache, batch_tokens: int) -> None:
        self.model = model
        self.cache = cache
        self.most_blocks = max(batch_tokens // BLOCK, 1)
        """Of one forward pass."""
        self._mask = torch.empty(BLOCK, 0)

    def run(self, prompts: Sequence[Ids], adapter: str | None, keep: bool) -> list[Prefilled]:
        """The prompts, in their order. With `keep`, the keys and values of last blocks are there too, for decoding."""
        places: dict[bytes, list[int]] = {}
        for place, ids in enumerate(prompts):
            places.setdefault(sort_key(ids), []).append(place)
        found: dict[int, Prefilled] = {}
        for _, same in sorted(places.items()):  # equal prompts are one
            found |= dict.fromkeys(same, self._one(cut(prompts[same[0]], adapter), keep))
        return [found[place] for place in range(len(prompts))]

    def _one(self, blocks: list[Block], keep: bool) -> Prefilled:
        done = self.cache.known(blocks[:-1])
        states = torch.empty(0)
        while len(done) < len(blocks):
            new = blocks[len(done) : len(done) + self.most_blocks]
            for block in new:
                if keep or len(block.tokens) == BLOCK:
                    block.kv = self.model.new_kv(self.model.key_heads, len(block.tokens))
            ids = [token for block in new for token in block.tokens.tolist()]
            positions = list(range(new[0].position, new[0].position + len(ids)))
            plan = BlockAttention(done, new, self._mask_for(new[-1].position))
            states = self.model.forward(ids, positions, plan)[len(ids) - 1]
            done = done + new
        self.cache.add([block for block in done if len(block.tokens) == BLOCK])
        # A copy: a view of one row would keep the whole pass in memory.
        return Prefilled(done if keep else [], states.clone())

    def _mask_for(self, past: int) -> torch.Tensor:
        """[BLOCK, at least past + BLOCK]: all of the past is seen, and each row up to itself of its own block."""
        if self._mask.shape[1] < past + BLOCK:
            own = torch.full((BLOCK, BLOCK), float("-inf"), dtype=self.model.dtype).triu(1)
            self._mask = torch.cat((torch.zeros(BLOCK, past, dtype=self.model.dtype), own), 1).to(self.model.device)
        return self._mask


def sort_key(ids: Ids) -> bytes:
    """Sorts prompts with a common prefix next to each other."""
    return ids.astype(">i4").tobytes()
