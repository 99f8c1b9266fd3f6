"""Writes many replies at once, one token each per pass.

Every reply has its own row in the buffers of keys and values. Replies whose rows round up to the same multiple of
BLOCK attend together; the rounding is a matter of the reply alone, so its batch changes no bit.

Samples of one long prompt share it: the keys of its full blocks, the *shared prefix*, are kept once and read once for
GROUP replies. Whether a reply has one is a matter of its request alone, which says that it is one of several, and a
group always has the same number of rows, so the batch changes no bit here either.
"""

import math
import mmap
import random
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import torch

from dssr.models.engine.network import PackedModel
from dssr.models.engine.prefill import BLOCK, Block, kv_of

LONG_PREFIX = 384
"""Shortest shared prefix, in tokens. Shorter prompts differ from reply to reply, and copies of them are cheap."""
GROUP = 8
"""Replies that read a prefix together; missing ones are computed in vain."""
MOST_REPLIES = 128
"""Replies under way at once."""
SPARE = 2 * BLOCK
"""Most tokens that a row has room for beyond those it holds."""
KEPT = 2**26
"""Bytes up to which a buffer is kept for the next layout: fresh memory costs time, but large layouts are rare."""

PAGE = 2**21
"""Bytes of a large page."""


def shared_prefix(blocks: Sequence[Block], samples: int) -> tuple[bytes | None, int]:
    """Key and length of a reply's shared prefix: all but the prompt's last block, if that is long enough and others
    are asked of the same prompt. A prefix that only one reply reads would cost a whole group of rows."""
    length = blocks[-1].position if blocks else 0
    return (blocks[-2].key, length) if samples > 1 and length >= LONG_PREFIX else (None, 0)


class SharedPrefixes:
    """The rows that have a shared prefix, in groups of one prefix each."""

    def __init__(self, prefixes: dict[bytes, torch.Tensor], keys: Sequence[bytes], device: torch.device) -> None:
        """`keys` names the prefix of each row."""
        rows: dict[bytes, list[int]] = {}
        for row, key in enumerate(keys):
            rows.setdefault(key, []).append(row)
        cut = [(key, mine[at : at + GROUP]) for key, mine in rows.items() for at in range(0, len(mine), GROUP)]
        self.prefixes = [prefixes[key] for key, _ in cut]
        filled = [row for _, mine in cut for row in (*mine, *[mine[0]] * (GROUP - len(mine)))]
        places = {row: group * GROUP + at for group, (_, mine) in enumerate(cut) for at, row in enumerate(mine)}
        self.filled = torch.tensor(filled, device=device)
        """The row at each place of each group."""
        self.places = torch.tensor([places[row] for row in range(len(keys))], device=device)
        """Where each row stands among them."""

    def read(self, layer: int, q: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """What the rows `q` [rows, heads, width] see in their prefixes, as `attention` gives it."""
        _, heads, width = q.shape
        key_heads = self.prefixes[0].shape[2]
        asked = q[self.filled].view(len(self.prefixes), GROUP, heads, width).transpose(1, 2)
        asked = asked.reshape(len(self.prefixes), key_heads, -1, width)
        found = [attention(one, *prefix[layer]) for one, prefix in zip(asked, self.prefixes, strict=True)]
        values, weights = (self._rows(parts, heads) for parts in zip(*found, strict=True))
        return values, weights

    def _rows(self, groups: tuple[torch.Tensor, ...], heads: int) -> torch.Tensor:
        """From one tensor per group to one row per reply."""
        return torch.stack(groups).reshape(len(groups), heads, GROUP, -1).transpose(1, 2).flatten(0, 1)[self.places]


def attention(q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention of each batch entry, and the logarithm of the weight that it gives to all of these keys together."""
    scores = torch.bmm(q, keys.transpose(1, 2))
    weights = torch.softmax(scores, -1)
    return torch.bmm(weights, values), _logsumexp(scores, weights)


def _logsumexp(scores: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Over the last dimension, kept, from the weights that softmax made of them: no second pass of exponentials."""
    return scores.amax(-1, keepdim=True).float() - weights.amax(-1, keepdim=True).float().log()


def joined(one: tuple[torch.Tensor, torch.Tensor], other: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """Attention over the keys of both."""
    share = torch.sigmoid(other[1] - one[1]).to(one[0].dtype)
    return torch.lerp(one[0], other[0], share)


@dataclass(eq=False, slots=True)
class Reply:
    """One text being written."""

    request: Any
    """Whoever waits for it."""
    blocks: list[Block]
    """The prompt's, computed; let go of once they are in the decoder's buffers."""
    length: int
    """Tokens whose keys and values are known."""
    max_tokens: int
    temperature: float
    samples: int
    """How many replies to the same prompt are asked together."""
    noise: random.Random
    """One number per sampled token, so that sampling depends on the request alone."""
    tokens: list[int] = field(default_factory=list)
    done: bool = False
    broken: bool = False
    """The model's scores were not numbers."""
    prefix: bytes | None = field(init=False)
    """Key of its shared prefix; None when all of the prompt stands in the reply's row."""
    prefix_length: int = field(init=False)
    """Length of the shared prefix; what follows it stands in the reply's row."""

    def __post_init__(self) -> None:
        self.prefix, self.prefix_length = shared_prefix(self.blocks, self.samples)

    @property
    def own(self) -> int:
        """Tokens in its row."""
        return self.length - self.prefix_length

    @property
    def most(self) -> int:
        """Tokens its row may come to hold."""
        return self.own + self.max_tokens - len(self.tokens)


class Decoder:
    """Replies under way. `admit` new ones, then `step` until all are done."""

    def __init__(self, model: PackedModel, ends: frozenset[int], kv_bytes: int) -> None:
        self.model = model
        self.ends = ends
        self.most_tokens = kv_bytes // model.token_bytes
        self.replies: list[Reply] = []
        self._kv = torch.empty(0)
        """[layers, 2, rows, key heads, width, tokens]: tokens last, so that both products of a step read in order."""
        self._memory = [torch.empty(0), torch.empty(0)]
        """Of the buffers now and of those before, by turns."""
        self._prefixes: dict[bytes, torch.Tensor] = {}
        self._shared: SharedPrefixes | None = None
        """Of the replies with a shared prefix, whose rows come first."""
        self._runs: list[tuple[int, int, int, torch.Tensor]] = []
        """Rows of one rounded length, with or without a shared prefix: first row, end, rounded length, mask."""

    @property
    def active(self) -> int:
        """Replies that are not done."""
        return sum(not reply.done for reply in self.replies)

    def room(self, replies: list[Reply]) -> int:
        """How many of the replies can join now; at least one when nothing is under way."""
        under_way = [reply for reply in self.replies if not reply.done]
        prefixes = {reply.prefix: reply.prefix_length for reply in under_way}
        longest, count, fits = max((reply.most for reply in under_way), default=0), len(under_way), 0
        for reply in replies:
            prefixes[reply.prefix] = reply.prefix_length
            longest, count = max(longest, reply.most), count + 1
            tokens = count * _rounded(longest) + sum(prefixes.values())
            if count > MOST_REPLIES or (count > 1 and tokens > self.most_tokens):
                break
            fits += 1
        return fits

    def wasteful(self) -> bool:
        """Whether finished replies cost more than to lay out the rest anew."""
        return len(self.replies) - self.active > len(self.replies) // 4

    def clear(self) -> None:
        """Forgets all replies."""
        self.replies, self._prefixes, self._shared = [], {}, None
        self._kv = torch.empty(0)

    def release(self) -> None:
        """Gives back the memory kept for replies to come."""
        self.clear()
        self._memory = [torch.empty(0), torch.empty(0)]

    def admit(self, replies: list[Reply]) -> None:
        """Lays the buffers out anew for the unfinished replies and the new ones, by length."""
        old_row = {id(reply): row for row, reply in enumerate(self.replies)}
        both = [reply for reply in (*self.replies, *replies) if not reply.done]
        both.sort(key=lambda reply: (reply.prefix is None, reply.own))
        self.replies = both
        if not both:
            self.clear()
            return
        spare = min(max(reply.most - reply.own for reply in both), SPARE)
        longest = max(reply.own for reply in both)
        fresh = self._room_for(len(both), _rounded(longest + spare))
        prefixes: dict[bytes, torch.Tensor] = {}
        for row, reply in enumerate(both):
            if reply.prefix is not None and reply.prefix not in prefixes:
                known = self._prefixes.get(reply.prefix)
                prefixes[reply.prefix] = torch.cat(kv_of(reply.blocks[:-1]), 3) if known is None else known
            if id(reply) in old_row:
                fresh[:, :, row, ..., : reply.own] = self._kv[:, :, old_row[id(reply)], ..., : reply.own]
            for block, kv in zip(reply.blocks, kv_of(reply.blocks), strict=True):
                if block.position >= reply.prefix_length:
                    place = block.position - reply.prefix_length
                    fresh[:, :, row, ..., place : place + len(block.tokens)] = kv.transpose(-1, -2)
            fresh[:, :, row, ..., reply.own :] = 0  # seen with weight zero, so it must be a number
            reply.blocks = []
        self._kv, self._prefixes = fresh, prefixes
        if self._memory[1].nbytes > KEPT:
            self._memory[1] = torch.empty(0)
        keys = [reply.prefix for reply in both if reply.prefix is not None]
        self._shared = SharedPrefixes(prefixes, keys, self.model.device) if keys else None

    def _room_for(self, rows: int, tokens: int) -> torch.Tensor:
        """Buffers for so many rows, not filled."""
        self._memory.reverse()
        model = self.model
        shape = (model.layers, 2, rows, model.key_heads, model.width, tokens)
        size = math.prod(shape)
        if len(self._memory[0]) < size:
            self._memory[0] = torch.empty(0)  # let go of before, so that there are never three
            self._memory[0] = _memory(size, model.dtype, model.device)
        return self._memory[0][:size].view(shape)

    def step(self) -> torch.Tensor:
        """One more token for every reply; returns the states they were picked from."""
        if max(reply.own for reply in self.replies) + 1 > self._kv.shape[-1]:
            self.admit([])
        self._prepare()
        states = self.model.forward(
            [reply.tokens[-1] for reply in self.replies], [reply.length for reply in self.replies], self
        )
        for reply in self.replies:
            reply.length += 1
        self.sample(self.replies, states)
        return states

    def sample(self, replies: list[Reply], states: torch.Tensor) -> None:
        """Picks each reply's next token from its last hidden state."""
        logits = self.model.logits(states)
        sane = torch.isfinite(logits.amax(-1)).tolist()
        greedy = logits.argmax(-1).tolist()
        warm = [row for row, one in enumerate(replies) if not one.done and sane[row] and one.temperature > 0]
        drawn = dict(zip(warm, _draw(logits[warm], [replies[row] for row in warm]), strict=True)) if warm else {}
        for row, reply in enumerate(replies):
            if reply.done:
                continue
            if not sane[row]:
                reply.done = reply.broken = True
                continue
            token = drawn.get(row, greedy[row])
            if token in self.ends:
                reply.done = True
                continue
            reply.tokens.append(token)
            reply.done = len(reply.tokens) >= reply.max_tokens

    def _prepare(self) -> None:
        """What all layers of a step need: where the new keys go, and which rows attend together."""
        own = [reply.own for reply in self.replies]
        lengths = torch.tensor(own, device=self.model.device)
        self._places = torch.arange(len(own), device=self.model.device), lengths
        places = torch.arange(_rounded(max(own) + 1), device=self.model.device)
        mask = torch.zeros(len(own), len(places), dtype=self.model.dtype, device=self.model.device)
        mask.masked_fill_(places > lengths[:, None], float("-inf"))
        self._sharing = sum(reply.prefix is not None for reply in self.replies)
        self._runs, first = [], 0
        for (_, length), group in groupby(self.replies, key=lambda one: (one.prefix is None, _rounded(one.own + 1))):
            last = first + sum(1 for _ in group)
            own_mask = mask[first:last, :length].repeat_interleave(self.model.key_heads, 0)[:, None]
            self._runs.append((first, last, length, own_mask))
            first = last

    def attend(self, layer: int, q: torch.Tensor, kv: torch.Tensor) -> torch.Tensor:
        """The `AttentionPlan` of a step: each row adds its own key, then sees all of its reply."""
        keys, values = self._kv[layer]
        self._kv[layer].permute(1, 4, 0, 2, 3).index_put_(self._places, kv)
        _, heads, width = q.shape
        key_heads = keys.shape[1]
        found, weights = [], []
        for first, last, length, mask in self._runs:
            asked = q[first:last].reshape(-1, heads // key_heads, width)
            scores = torch.baddbmm(mask, asked, keys[first:last].flatten(0, 1)[..., :length])
            weight = torch.softmax(scores, -1)
            if first < self._sharing:
                weights.append(_logsumexp(scores, weight).view(last - first, heads, 1))
            value = torch.bmm(values[first:last].flatten(0, 1)[..., :length], weight.transpose(1, 2)).transpose(1, 2)
            found.append(value.reshape(last - first, heads, width))
        out = torch.cat(found) if len(found) > 1 else found[0]
        if self._shared is not None:
            tails = out[: self._sharing], torch.cat(weights)
            out[: self._sharing] = joined(tails, self._shared.read(layer, q[: self._sharing]))
        return out


def _memory(size: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Room for so many numbers, not filled; in large pages where the system has them, since it takes longer to be given
    many small ones than to fill them."""
    if device.type != "cpu" or not hasattr(mmap, "MADV_HUGEPAGE") or size * dtype.itemsize < PAGE:
        return torch.empty(size, dtype=dtype, device=device)
    pages = mmap.mmap(-1, size * dtype.itemsize, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(OSError):  # a system without them
        pages.madvise(mmap.MADV_HUGEPAGE)
    return torch.frombuffer(pages, dtype=dtype)


def _rounded(length: int) -> int:
    return -(-length // BLOCK) * BLOCK


def _draw(logits: torch.Tensor, replies: list[Reply]) -> list[int]:
    """A token for each reply, by inverse of the cumulative distribution, from one uniform number each."""
    heat = torch.tensor([reply.temperature for reply in replies], device=logits.device)
    steps = torch.softmax((logits / heat[:, None]).double(), -1).cumsum(-1)
    noise = torch.tensor([reply.noise.random() for reply in replies], dtype=torch.float64, device=logits.device)
    places = torch.searchsorted(steps, (noise * steps[:, -1])[:, None], right=True)
    return [min(place, steps.shape[1] - 1) for place in places[:, 0].tolist()]
