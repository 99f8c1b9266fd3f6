"""Writes many replies at once, one token each per pass.

A reply holds the blocks of its prompt, which samples of one prompt and prompts with one beginning share, and has blocks
of its own from the last, begun one on. Replies that share blocks stand next to each other: the compiled part then reads
a block once for several of them, and a reply's bits are the same either way.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from dssr.models.engine.blocks import BlockPool, Ids, blocks_for
from dssr.models.engine.native import BLOCK
from dssr.models.engine.network import PackedModel, Rows

MOST_REPLIES = 128
"""Replies under way at once."""


@dataclass(eq=False, slots=True)
class Reply:
    """One text being written."""

    request: Any
    """Whoever waits for it."""
    blocks: list[int]
    """Held by it: the prompt's, then its own."""
    length: int
    """Tokens whose keys and values are known."""
    max_tokens: int
    temperature: float
    noise: random.Random
    """One number per sampled token, so that sampling depends on the request alone."""
    tokens: list[int] = field(default_factory=list)
    done: bool = False
    broken: bool = False
    """The model's scores were not numbers."""


class Decoder:
    """Replies under way. `admit` new ones, then `step` until all are done."""

    def __init__(self, model: PackedModel, pool: BlockPool, ends: frozenset[int]) -> None:
        self.model = model
        self.pool = pool
        self.ends = ends
        self.replies: list[Reply] = []
        """Not done yet."""
        self._tables = np.empty((0, 0), np.int32)

    def fitting(self, asked: Sequence[tuple[Ids, int]]) -> int:
        """How many of the prompts, with the tokens their replies may have, can join now; at least one when nothing is
        under way. Equal prompts stand next to each other and share their blocks."""
        room, before = self.pool.available, None
        for count, (ids, most) in enumerate(asked):
            same = before is not None and np.array_equal(ids, before)
            room -= 0 if same else blocks_for(len(ids))
            room -= blocks_for(most) + 1
            before = ids
            under_way = len(self.replies) + count
            if under_way >= MOST_REPLIES or (under_way and room < 0):
                return count
        return len(asked)

    def admit(self, replies: Sequence[Reply]) -> None:
        """Takes in new replies, whose first token is picked."""
        for reply in replies:
            if reply.done:
                self.pool.let_go(reply.blocks)
                continue
            if reply.length % BLOCK:  # others hold this block too
                begun = reply.blocks.pop()
                reply.blocks.append(self.pool.copy(begun))
                self.pool.let_go([begun])
            most = reply.length + reply.max_tokens - len(reply.tokens)
            reply.blocks += self.pool.take(max(blocks_for(most) - len(reply.blocks), 0))
            self.replies.append(reply)
        self.replies.sort(key=lambda reply: reply.blocks)
        self._lay_out()

    def clear(self) -> None:
        """Forgets all replies."""
        for reply in self.replies:
            self.pool.let_go(reply.blocks)
        self.replies = []

    def states(self) -> torch.Tensor:
        """Last hidden states of every reply's last token."""
        ids = np.array([reply.tokens[-1] for reply in self.replies], np.int32)
        positions = np.array([reply.length for reply in self.replies], np.int32)
        for reply in self.replies:
            reply.length += 1
        return self.model.forward(Rows(ids, positions, self._tables, self.pool.memory))

    def step(self) -> list[Reply]:
        """One more token for every reply; returns those that are done now."""
        going = self.replies
        self.sample(going, self.states())
        done = [reply for reply in going if reply.done]
        if done:
            for reply in done:
                self.pool.let_go(reply.blocks)
            self.replies = [reply for reply in going if not reply.done]
            self._lay_out()
        return done

    def sample(self, replies: Sequence[Reply], states: torch.Tensor) -> None:
        """Picks each reply's next token from its last hidden state."""
        heat = [reply.temperature for reply in replies]
        noise = [reply.noise.random() if reply.temperature > 0 else 0.0 for reply in replies]
        for reply, token in zip(replies, self.model.pick(states, heat, noise), strict=True):
            if token < 0:
                reply.done = reply.broken = True
            elif token in self.ends:
                reply.done = True
            else:
                reply.tokens.append(token)
                reply.done = len(reply.tokens) >= reply.max_tokens

    def _lay_out(self) -> None:
        most = max((len(reply.blocks) for reply in self.replies), default=0)
        self._tables = np.zeros((len(self.replies), most), np.int32)
        for row, reply in zip(self._tables, self.replies, strict=True):
            row[: len(reply.blocks)] = reply.blocks
