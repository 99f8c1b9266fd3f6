"""Computes prompts, each distinct prefix block once.

Waiting prompts form a tree of blocks (see `kv.py`). A pass takes new blocks in depth-first order until it is
full. In every layer the keys of all its rows exist before any row attends, so a block and its descendants can
share a pass.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch.nn.functional import scaled_dot_product_attention

from dssr.models.engine.kv import BLOCK, Block, Ids, Store, cut
from dssr.models.engine.packed import Body


@dataclass(eq=False, slots=True)
class Chain:
    """Blocks of one prompt that follow each other and are computed in the same pass."""

    row: int
    """Where the chain's rows start in the pass."""
    past: int
    """Positions before the chain."""
    before: "list[Block] | Chain"
    """What holds the keys of those positions: computed blocks, or an earlier chain of the same pass."""
    nodes: list[Block]
    users: int = 0
    """Later chains of the pass that start from this one."""

    def row_of_last(self, node: Block) -> int:
        return self.row + node.position + len(node.tokens) - self.past - 1


@dataclass(eq=False, slots=True)
class Prefilled:
    """A prompt whose every block is computed."""

    index: int
    path: list[Block]
    row: int
    """Of its last token in the pass."""


class Pass:
    """The `Plan` of one forward pass over new blocks."""

    def __init__(self) -> None:
        self.chains: list[Chain] = []
        self.finished: list[Prefilled] = []
        self.path: list[Block] = []
        """Blocks of the prompt added last, and who computes each: None when it was computed before."""
        self.owners: list[Chain | None] = []
        self.ids: list[int] = []
        self.positions: list[int] = []
        self.mask = torch.empty(0)

    def follow(self, nodes: list[Block], stored: list[Block]) -> int:
        """Turns the path to another prompt; returns how many of its blocks need no computing."""
        shared = 0
        while shared < min(len(nodes), len(self.path)) and nodes[shared].key == self.path[shared].key:
            shared += 1
        if len(stored) >= shared:
            self.path, self.owners = stored, [None] * len(stored)
        else:
            self.path, self.owners = self.path[:shared], self.owners[:shared]
        return len(self.path)

    def extend(self, nodes: list[Block]) -> None:
        """Adds new blocks at the end of the path."""
        owner = self.owners[-1] if self.owners else None
        chain = Chain(len(self.ids), nodes[0].position, list(self.path) if owner is None else owner, nodes)
        if owner is not None:
            owner.users += 1
        self.chains.append(chain)
        self.path = self.path + nodes
        self.owners = self.owners + [chain] * len(nodes)
        for node in nodes:
            self.ids.extend(node.tokens.tolist())
            self.positions.extend(range(node.position, node.position + len(node.tokens)))

    def finish(self, index: int) -> None:
        """The path is a whole prompt: its last block is in this pass."""
        owner = self.owners[-1]
        assert owner is not None, "the last block of a prompt is never taken from the store"
        self.finished.append(Prefilled(index, self.path, owner.row_of_last(self.path[-1])))

    def attend(
        self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, out: torch.Tensor, scale: float
    ) -> None:
        kv = torch.stack((k, v))
        kept: dict[int, torch.Tensor] = {}
        left = {id(chain): chain.users for chain in self.chains}
        for chain in self.chains:
            held = _held(chain, layer, kv, kept)
            if chain.users:
                kept[id(chain)] = held
            if isinstance(chain.before, Chain):
                left[id(chain.before)] -= 1
                if not left[id(chain.before)]:
                    del kept[id(chain.before)]
            self._attend_chain(chain, layer, held, q, out, scale)

    def _attend_chain(
        self, chain: Chain, layer: int, held: torch.Tensor, q: torch.Tensor, out: torch.Tensor, scale: float
    ) -> None:
        heads, _, width = q.shape
        groups = heads // held.shape[1]
        widest = self.mask.shape[1] - BLOCK
        row = chain.row
        for node in chain.nodes:
            count, past = len(node.tokens), node.position
            keys, values = held[:, :, None, : past + count].expand(-1, -1, groups, -1, -1)
            block = scaled_dot_product_attention(
                q[:, row : row + count].reshape(-1, groups, count, width),
                keys,
                values,
                attn_mask=self.mask[:count, widest - past : widest + count],
                scale=scale,
            )
            out[row : row + count] = block.reshape(heads, count, width).transpose(0, 1)
            if node.kv is not None:
                node.kv[layer] = held[:, :, past : past + count]
            row += count


def _held(chain: Chain, layer: int, kv: torch.Tensor, kept: dict[int, torch.Tensor]) -> torch.Tensor:
    """Keys and values from position 0 to the chain's end: [2, key heads, positions, width]."""
    own = kv[:, :, chain.row : chain.row + sum(len(node.tokens) for node in chain.nodes)]
    if chain.past == 0:
        return own
    if isinstance(chain.before, Chain):
        return torch.cat((kept[id(chain.before)][:, :, : chain.past], own), 2)
    return torch.cat([*(node.kv[layer] for node in chain.before if node.kv is not None), own], 2)


class Prefiller:
    """Runs prompts through the model in as few, full passes as they need."""

    def __init__(self, body: Body, store: Store, batch_tokens: int) -> None:
        self.body = body
        self.store = store
        self.batch_tokens = max(batch_tokens, BLOCK)
        self._mask = torch.empty(BLOCK, 0)

    def run(
        self, prompts: Sequence[Ids], adapter: str | None, keep: bool
    ) -> Iterator[tuple[list[Prefilled], torch.Tensor]]:
        """Yields, after each pass, the prompts it finished and their last hidden states.

        With `keep`, keys and values of last blocks are kept too, for decoding.
        """
        order = sorted(range(len(prompts)), key=lambda index: prompts[index].astype(">i4").tobytes(), reverse=True)
        waiting = [(index, cut(prompts[index], adapter)) for index in order]
        while waiting:
            plan = self._next(waiting, keep)
            plan.mask = self._mask_for(max(chain.nodes[-1].position for chain in plan.chains))
            states = self.body.forward(plan.ids, plan.positions, plan)
            self.store.add([node for chain in plan.chains for node in chain.nodes if len(node.tokens) == BLOCK])
            self.store.shrink(keep=plan.path)
            if plan.finished:
                yield plan.finished, states[[done.row for done in plan.finished]]

    def _next(self, waiting: list[tuple[int, list[Block]]], keep: bool) -> Pass:
        """Takes prompts off the end until a pass is full; one that does not fit stays, computed in part."""
        plan = Pass()
        while waiting:
            index, nodes = waiting[-1]
            done = plan.follow(nodes, self.store.known(nodes[:-1]))
            new = _fitting(nodes[done:], self.batch_tokens - len(plan.ids), force=not plan.ids)
            for node in new:
                if keep or len(node.tokens) == BLOCK:
                    node.kv = self.body.new_kv(self.body.key_heads, len(node.tokens))
            if new:
                plan.extend(new)
            if done + len(new) < len(nodes):
                break
            plan.finish(index)
            waiting.pop()
        return plan

    def _mask_for(self, past: int) -> torch.Tensor:
        """[BLOCK, at least past + BLOCK]: all of the past is seen, and each row up to itself of its own block."""
        if self._mask.shape[1] < past + BLOCK:
            own = torch.full((BLOCK, BLOCK), float("-inf"), dtype=self.body.dtype).triu(1)
            self._mask = torch.cat((torch.zeros(BLOCK, past, dtype=self.body.dtype), own), 1).to(self.body.device)
        return self._mask


def _fitting(nodes: list[Block], room: int, force: bool) -> list[Block]:
    """The leading blocks that fit; at least one when forced."""
    count = 0
    for node in nodes:
        room -= len(node.tokens)
        if room < 0 and not (force and count == 0):
            break
        count += 1
    return nodes[:count]
