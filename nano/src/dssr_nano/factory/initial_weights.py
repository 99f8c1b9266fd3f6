"""First weights of nano. Small random weights would have to find copying by chance, which takes hours on a CPU; so
the first layers start with heads that already do what copying is made of. Everything is trained from there.

Layer 1      four heads look one, two, three and four tokens back; one looks at what opened the part of the prompt
Layer 2      one head looks at the letter that opened the line
Layers 2-4   one head finds earlier names like the one just read, one finds what followed the last four tokens,
             rather in the previous state than elsewhere
Layers 3-4   two heads look one and two tokens back again, so that the end of a line learns what its name met
Layers 5-6   one head says the letter of a line it finds
"""

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple

import torch
from torch import Tensor, nn

from dssr_nano.factory.hints import FETCH, HEADS, HELD, HOME, LINE, MATCH, WORD

SIZE = 1.3
"""First length of an embedding, and of what a made head writes."""
CONSTANT = 0.3
"""First coordinate of every embedding, the second one of every label, and the third one of what opens a part."""
KEPT = 0.5
"""How much rather the previous state is copied from than other text, relative to three matching tokens."""
TWIN = 0.3
"""How far a word at the start of a line is from the same word inside it."""
SHARP = 1.8
"""First gain of the query and key norms: attention singles out one token among hundreds from the start."""
PART = 8
"""Coordinates that tell the part of the prompt."""
FADE = (1.0, 0.7, 0.6, 0.6)
"""Weights of the last four tokens, the last one first, in finding what followed them."""
NEAR = (0.5, 0.25, 0.15, 0.1)
"""Weights of the fastest rotary pairs in telling neighbours apart."""


class InitVocabulary(NamedTuple):
    """What the first weights know of the vocabulary."""

    size: int
    labels: tuple[int, ...] = ()
    twins: tuple[tuple[int, int], ...] = ()
    """Tokens that are the same word with and without a space before it."""
    parts: tuple[int, ...] = ()
    """Tokens that open a part of a prompt; the first one opens the previous state."""


class Subspaces(NamedTuple):
    """Which coordinates of the residual stream hold what: what the made heads write is not mistaken for a token. The
    first three are marks: one for every token, one for labels, one for what opens a part."""

    word: slice
    backs: tuple[slice, ...]
    label: slice
    part: slice

    @classmethod
    def of(cls, width: int) -> "Subspaces":
        """The layout for a width of the network."""
        share = (width - 3 - PART) // 11
        sizes = (4 * share, 2 * share, 2 * share, share, share, width - 3 - PART - 10 * share, PART)
        ends = accumulate(sizes, initial=3)
        word, *backs, label, part = (slice(first, last) for first, last in pairwise(ends))
        return cls(word, tuple(backs), label, part)


class Head:
    """The slices of one head's weights in an attention part with `q_proj`, `k_proj`, `v_proj`, `o_proj`."""

    def __init__(self, part: nn.Module, number: int, width: int) -> None:
        own = slice(number * width, (number + 1) * width)
        self.query: Tensor = part.q_proj.weight.data[own]  # type: ignore[union-attr,index]
        self.key: Tensor = part.k_proj.weight.data[own]  # type: ignore[union-attr,index]
        self.value: Tensor = part.v_proj.weight.data[own]  # type: ignore[union-attr,index]
        self.out: Tensor = part.o_proj.weight.data[:, own]  # type: ignore[union-attr,index]


def rates(width: int, theta: float) -> Tensor:
    """How fast each rotary pair turns."""
    out: Tensor = theta ** -(torch.arange(0, width, 2) / width)
    return out


def slow(width: int, theta: float, reach: float = 1000.0) -> Tensor:
    """1 for the coordinates that turn little over `reach` tokens: content is compared in these."""
    still = (rates(width, theta) * reach < 1.6).float()
    return torch.cat([still, still])[:, None]


@torch.no_grad()
def look_back(head: Head, distance: int, theta: float) -> None:
    """Attend to the token so far before: asked with the constant part of every embedding, found by rotation."""
    width = head.query.shape[0]
    pairs = len(NEAR)
    amount = torch.tensor(NEAR) ** 0.5
    angle = rates(width, theta)[:pairs] * distance
    head.query.zero_()
    head.key.zero_()
    head.key[:pairs, 0] = amount
    # A query turned back by `distance` meets keys that lie `distance` earlier in phase.
    head.query[:pairs, 0] = amount * angle.cos()
    head.query[width // 2 : width // 2 + pairs, 0] = -amount * angle.sin()


@torch.no_grad()
def look_at_mark(head: Head, mark: int, theta: float) -> None:
    """Attend to the nearest token with a mark before: keys speak for these only, and turning favours the near."""
    width = head.query.shape[0]
    near = (rates(width, theta) < 0.1) & (rates(width, theta) > 0.004)
    head.query.zero_()
    head.key.zero_()
    head.query[: width // 2, 0] = near.float()
    head.key[: width // 2, mark] = near.float()


@torch.no_grad()
def carry(head: Head, read: slice, write: slice, eye: Tensor) -> None:
    """Take what is found in one subspace, seen through `eye`, to another, about as loud as a token."""
    rows = min(write.stop - write.start, len(eye))
    head.value.zero_()
    head.value[:rows, read] = eye[:rows]
    head.out.zero_()
    head.out[write, :rows] = torch.eye(write.stop - write.start, rows) * SIZE / head.out.shape[0] ** 0.5


@torch.no_grad()
def say(head: Head, word: slice, eye: Tensor) -> None:
    """Write what is found where tokens are read off."""
    head.value.zero_()
    head.value[: len(eye), word] = eye
    head.out.zero_()
    head.out[word, : len(eye)] = eye.T * SIZE / head.out.shape[0] ** 0.5


@torch.no_grad()
def fetch(head: Head, spaces: Subspaces, eye: Tensor) -> None:
    """Say the letter of the line that is found; which line to look for is learned."""
    rows = min(spaces.label.stop - spaces.label.start, len(eye))
    head.value.zero_()
    head.value[:rows, spaces.label] = torch.eye(rows, spaces.label.stop - spaces.label.start)
    head.out.zero_()
    head.out[spaces.word, :rows] = eye[:rows].T * SIZE / head.out.shape[0] ** 0.5


@torch.no_grad()
def mix(head: Head) -> None:
    """Write what is found anywhere, about as loud as a token."""
    head.value.normal_(std=head.value.shape[1] ** -0.5)
    head.out.normal_(std=SIZE * (head.out.shape[0] * head.out.shape[1]) ** -0.5)


@torch.no_grad()
def look_alike(head: Head, spaces: Subspaces, theta: float) -> None:
    """Attend to tokens that end the same few words: keys equal queries."""
    known = slow(head.query.shape[0], theta)
    head.query.zero_()
    for space, weight in ((spaces.word, 1.0), *zip(spaces.backs, (1.0, 0.6, 0.4, 0.3), strict=True)):
        size = space.stop - space.start
        head.query[:, space] = weight * torch.randn_like(head.query[:, space]) / size**0.5 * known
    head.key.copy_(head.query)


@torch.no_grad()
def look_after(head: Head, spaces: Subspaces, eye: Tensor, theta: float) -> None:
    """Attend to what followed the last four tokens where they stood before: keys read what the look-back heads wrote
    about the four tokens before, queries say the same of the token itself and the three before it."""
    width = head.query.shape[0]
    known = slow(width, theta)
    sizes = [space.stop - space.start for space in spaces.backs]
    asks = [torch.randn(width, size) / width**0.5 * known * weight for size, weight in zip(sizes, FADE, strict=True)]
    head.key.zero_()
    head.query.zero_()
    for space, ask in zip(spaces.backs, asks, strict=True):
        head.key[:, space] = ask
    head.query[:, spaces.word] = asks[0] @ eye
    for nearer, ask in zip(spaces.backs, asks[1:], strict=False):
        head.query[:, nearer.start : nearer.start + ask.shape[1]] = ask


@torch.no_grad()
def prefer(head: Head, part: slice, code: Tensor, theta: float) -> None:
    """Attend rather to the part of the prompt with this code: keys speak of it in a direction of their own, in which
    every query asks."""
    size = float(head.key.norm()) / head.key.shape[0] ** 0.5
    away = torch.randn(head.key.shape[0]) * slow(head.key.shape[0], theta)[:, 0]
    away /= away.norm()
    head.key[:, part] += KEPT * size * torch.outer(away, code / code.norm())
    head.query[:, 0] += KEPT * size * away / CONSTANT


@torch.no_grad()
def set_heads(layers: Sequence[nn.Module], embedding: Tensor, tokens: InitVocabulary, width: int, theta: float) -> None:
    """Set the made heads; `layers` are attention parts, already filled with small random weights."""
    spaces = Subspaces.of(embedding.shape[1])
    size = spaces.word.stop - spaces.word.start
    embedding.normal_(std=0.02)
    embedding[:, spaces.word].normal_(std=SIZE / size**0.5)
    embedding[:, 0] = CONSTANT
    embedding[:, 1] = 0.0
    embedding[:, 2] = 0.0
    embedding[list(tokens.labels), 1] = CONSTANT
    embedding[list(tokens.parts), 2] = CONSTANT
    for spaced, bare in tokens.twins:
        embedding[bare] = embedding[spaced] + TWIN * embedding[bare]
    rows = min(width, spaces.backs[0].stop - spaces.backs[0].start)
    eye = torch.linalg.qr(torch.randn(size, rows))[0].T
    for distance, space in enumerate(spaces.backs, 1):
        head = Head(layers[0], distance - 1, width)
        look_back(head, distance, theta)
        carry(head, spaces.word, space, eye)
    opened = Head(layers[1], 4, width)
    look_at_mark(opened, 1, theta)
    carry(opened, spaces.word, spaces.label, eye)
    opening = Head(layers[0], 4, width)
    look_at_mark(opening, 2, theta)
    carry(opening, spaces.word, spaces.part, eye)
    for part in layers[1:4]:
        alike, after = Head(part, 0, width), Head(part, 1, width)
        look_alike(alike, spaces, theta)
        mix(alike)
        look_after(after, spaces, eye, theta)
        if tokens.parts:
            prefer(after, spaces.part, eye[:PART] @ embedding[tokens.parts[0], spaces.word], theta)
        say(after, spaces.word, eye)
    for part in layers[2:4]:
        for distance in (1, 2):
            gather = Head(part, distance + 1, width)
            look_back(gather, distance, theta)
            mix(gather)
    for number, head_number in HEADS[FETCH]:
        fetch(Head(layers[number], head_number, width), spaces, eye)
    for kind in (WORD, LINE, MATCH, HELD, HOME):
        for number, head_number in HEADS[kind]:
            head = Head(layers[number], head_number, width)
            if kind in (MATCH, HELD):
                look_alike(head, spaces, theta)
            # A head that is told where to look must also be heard, or what it finds is lost.
            mix(head)
