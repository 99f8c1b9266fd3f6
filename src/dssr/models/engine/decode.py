"""Writes many replies at once, in each pass one token of each and as many more as could be guessed.

A reply holds the blocks of its prompt, which samples of one prompt and prompts with one beginning share, and has blocks
of its own from the last, begun one on. Replies that share blocks stand next to each other: the compiled part then reads
a block once for several of them, and a reply's bits are the same either way.

A rewrite mostly repeats what stands in its prompt. So the tokens that followed there are guessed and computed in the
same pass as rows of their own; those up to the first wrong one are what single steps would have written, bit for bit,
since a row does not depend on the rows beside it. What was computed after a wrong one is written over.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from dssr.models.engine.blocks import BlockPool, Ids, blocks_for
from dssr.models.engine.native import BLOCK
from dssr.models.engine.network import PASS, PackedModel, Rows

MOST_REPLIES = 128
"""Replies under way at once."""
FIRST_GUESS, MOST_GUESSED = 2, 8
"""Tokens guessed ahead at first, and at most."""


class Guess:
    """The tokens that may come next: those that followed where the last two, or the last one, first stood in the
    prompt. More are guessed after guesses that were right, fewer after wrong ones; when none are, it is still watched
    whether the first would have been right."""

    def __init__(self, prompt: list[int]) -> None:
        self._prompt = prompt
        places = range(len(prompt) - 1, 0, -1)  # from the end, so that the first place stays
        self._after_one = {prompt[at - 1]: at for at in places}
        self._after_two = {(prompt[at - 2], prompt[at - 1]): at for at in places[:-1]}
        self._length = FIRST_GUESS
        self._watched: int | None = None

    def following(self, tokens: Sequence[int], room: int) -> Sequence[int]:
        """At most so many tokens that may follow these, the reply so far."""
        before = tokens[-2] if len(tokens) > 1 else self._prompt[-1]
        at = self._after_two.get((before, tokens[-1])) or self._after_one.get(tokens[-1])
        self._watched = None if at is None else self._prompt[at]
        return () if at is None else self._prompt[at : at + min(self._length, room)]

    def learn(self, guessed: int, written: Sequence[int]) -> None:
        """How many were guessed, and the tokens that came: one more than were right."""
        right = len(written) - 1
        if not guessed:
            self._length = FIRST_GUESS if written[0] == self._watched else self._length
        elif right == guessed:
            self._length = min(2 * self._length, MOST_GUESSED)
        else:
            self._length = right or self._length // 2


@dataclass(eq=False, slots=True)
class Reply:
    """One text being written."""

    request: Any
    """Whoever waits for it."""
    blocks: list[int]
    """Held by it: the prompt's, then its own."""
    prompt: Ids
    max_tokens: int
    temperature: float
    noise: random.Random
    """One number per sampled token, so that sampling depends on the request alone."""
    tokens: list[int] = field(default_factory=list)
    length: int = field(init=False)
    """Tokens whose keys and values are known."""
    guess: Guess = field(init=False)
    drawn: list[float] = field(init=False, default_factory=list)
    """Numbers of the noise that no token has used yet."""
    done: bool = False
    broken: bool = False
    """The model's scores were not numbers."""

    def __post_init__(self) -> None:
        self.length, self.guess = len(self.prompt), Guess(self.prompt.tolist())

    def guesses(self) -> Sequence[int]:
        """Tokens that may come next, with room left for one after them."""
        return self.guess.following(self.tokens, self.max_tokens - len(self.tokens) - 1)


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

    def states(self, replies: Sequence[Reply], guesses: Sequence[Sequence[int]]) -> torch.Tensor:
        """Last hidden states of every reply's last token, each followed by those of its guesses; in one pass."""
        first = self.replies.index(replies[0])
        ids = [token for reply, guess in zip(replies, guesses, strict=True) for token in (reply.tokens[-1], *guess)]
        counts = [1 + len(guess) for guess in guesses]
        starts = [reply.length for reply in replies]
        positions = np.concatenate([np.arange(at, at + count) for at, count in zip(starts, counts, strict=True)])
        tables = np.repeat(self._tables[first : first + len(replies)], counts, axis=0)
        rows = Rows(np.array(ids, np.int32), positions.astype(np.int32), tables, self.pool.memory)
        return self.model.forward(rows)

    def step(self) -> list[Reply]:
        """One more token for every reply, or more; returns those that are done now."""
        guesses = [reply.guesses() for reply in self.replies]
        first = 0
        while first < len(self.replies):
            until, rows = first, 0
            while until < len(self.replies) and rows + 1 + len(guesses[until]) <= PASS:
                rows += 1 + len(guesses[until])
                until += 1
            going, guessed = self.replies[first:until], guesses[first:until]
            self.sample(going, guessed, self.states(going, guessed))
            first = until
        done = [reply for reply in self.replies if reply.done]
        if done:
            for reply in done:
                self.pool.let_go(reply.blocks)
            self.replies = [reply for reply in self.replies if not reply.done]
            self._lay_out()
        return done

    def sample(self, replies: Sequence[Reply], guesses: Sequence[Sequence[int]], states: torch.Tensor) -> None:
        """Picks each reply's next tokens from the states of its last token and of its guesses, up to the first guess
        that is not what was picked."""
        heat: list[float] = []
        noise: list[float] = []
        for reply, guess in zip(replies, guesses, strict=True):
            count = 1 + len(guess)
            if reply.temperature > 0:
                reply.drawn += [reply.noise.random() for _ in range(count - len(reply.drawn))]
            heat += [reply.temperature] * count
            noise += reply.drawn[:count] if reply.temperature > 0 else [0.0] * count
        picked = self.model.pick(states, heat, noise)
        at = 0
        for reply, guess in zip(replies, guesses, strict=True):
            written = picked[at : at + 1]
            for guessed, token in zip(guess, picked[at + 1 :], strict=False):
                if written[-1] != guessed:
                    break
                written.append(token)
            at += 1 + len(guess)
            self._write(reply, written)
            reply.guess.learn(len(guess), written)

    def _write(self, reply: Reply, written: Sequence[int]) -> None:
        """Appends tokens to a reply, until one ends it."""
        reply.length += len(written) if reply.tokens else 0  # the first is picked from the prompt's own state
        del reply.drawn[: len(written)]
        for token in written:
            if token < 0:
                reply.done = reply.broken = True
            elif token in self.ends:
                reply.done = True
            else:
                reply.tokens.append(token)
                reply.done = len(reply.tokens) >= reply.max_tokens
            if reply.done:
                return

    def _lay_out(self) -> None:
        most = max((len(reply.blocks) for reply in self.replies), default=0)
        self._tables = np.zeros((len(self.replies), most), np.int32)
        for row, reply in zip(self._tables, self.replies, strict=True):
            row[: len(reply.blocks)] = reply.blocks
