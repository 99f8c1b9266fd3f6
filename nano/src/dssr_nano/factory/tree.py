"""Training sequences as trees: one trunk paid for once, and branches that grow from it.

An episode's history is the trunk; the question at each decision point is a branch that sees the trunk up to
where it grows, and itself. Many trees lie in one row; nothing sees across trees or across branches.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor
from torch.nn import functional

from dssr_nano.factory.hints import AttentionHint


@dataclass(frozen=True)
class OptionSet:
    """The options of a question: where each option line ends, and which of them is right."""

    ends: tuple[int, ...]
    right: int
    marks: tuple[tuple[float, ...], ...] = ()
    """What is true of each option, 1 or 0: see `drill.marks_of`."""
    letters: tuple[int, ...] = ()
    """Place of each option's letter among the labels."""


@dataclass(frozen=True)
class Branch:
    """Tokens that grow from the trunk after its first `start` tokens."""

    start: int
    ids: tuple[int, ...]
    learn: tuple[tuple[int, float], ...]
    """(position in `ids`, weight): the token there is to be predicted from the one before it."""
    choice: OptionSet | None = None
    hints: tuple[AttentionHint, ...] = ()
    """With places in the whole prompt, trunk included."""


@dataclass(frozen=True)
class Tree:
    """A trunk and the branches that grow from it."""

    trunk: tuple[int, ...]
    branches: tuple[Branch, ...] = ()
    learn: tuple[tuple[int, float], ...] = ()
    """As in `Branch`, for the trunk."""
    hints: tuple[AttentionHint, ...] = ()

    def __len__(self) -> int:
        return len(self.trunk) + sum(len(branch.ids) for branch in self.branches)


@dataclass
class Row:
    """Trees laid out in one row."""

    ids: list[int] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    spans: list[tuple[int, int, int, int]] = field(default_factory=list)
    """(first, last, trunk first, trunk last): tokens first..last see trunk first..last and, causally, themselves."""
    sources: list[int] = field(default_factory=list)
    """Positions in the row from which a token is predicted."""
    targets: list[int] = field(default_factory=list)
    weights: list[float] = field(default_factory=list)
    answers: list[int] = field(default_factory=list)
    """Indices into `sources` of the answers to questions."""
    choices: list[OptionSet] = field(default_factory=list)
    """With ends as positions in the row; one per answer."""
    hints: dict[tuple[str, int], set[int]] = field(default_factory=dict)
    """(kind, source) to targets, as positions in the row."""

    def add(self, tree: Tree) -> None:
        """Appends a tree, its places turned into places of the row."""
        base = len(self.ids)
        self._span(tree.trunk, 0, (base, base))
        self._learn(base, base - 1, tree.trunk, tree.learn)
        self._hint(tree.hints, base, base, 0)
        for branch in tree.branches:
            first = len(self.ids)
            self._span(branch.ids, branch.start, (base, base + branch.start))
            self._learn(first, base + branch.start - 1, branch.ids, branch.learn)
            if branch.choice is not None:
                self.answers.append(len(self.sources) - 1)
                ends = tuple(first + end for end in branch.choice.ends)
                self.choices.append(replace(branch.choice, ends=ends))
            self._hint(branch.hints, base, first, branch.start)

    def _hint(self, hints: Sequence[AttentionHint], base: int, first: int, start: int) -> None:
        def at(place: int) -> int:
            return base + place if place < start else first + place - start

        for kind, source, targets in hints:
            self.hints.setdefault((kind, at(source)), set()).update(map(at, targets))

    def _span(self, ids: Sequence[int], start: int, seen: tuple[int, int]) -> None:
        first = len(self.ids)
        self.ids.extend(ids)
        self.positions.extend(range(start, start + len(ids)))
        self.spans.append((first, first + len(ids), *seen))

    def _learn(self, first: int, before: int, ids: Sequence[int], learn: Sequence[tuple[int, float]]) -> None:
        for place, weight in learn:
            self.sources.append(first + place - 1 if place else before)
            self.targets.append(ids[place])
            self.weights.append(weight)


def agreed(left: Sequence[int], right: Sequence[int]) -> int:
    """How many tokens two sequences begin with alike."""
    most = min(len(left), len(right))
    return next((place for place in range(most) if left[place] != right[place]), most)


def lay_out(trees: Sequence[Tree]) -> Row:
    """Trees one after the other in a new row."""
    row = Row()
    for tree in trees:
        row.add(tree)
    return row


def masks(spans: Sequence[tuple[int, int, int, int]]) -> list[Tensor | None]:
    """One mask per span that sees a trunk; None where plain causal attention does it."""
    made: dict[tuple[int, int], Tensor] = {}
    out: list[Tensor | None] = []
    for first, last, trunk_first, trunk_last in spans:
        size, seen = last - first, trunk_last - trunk_first
        if not seen:
            out.append(None)
            continue
        if (size, seen) not in made:
            own = torch.full((size, size), float("-inf")).triu(1)
            made[size, seen] = torch.cat([torch.zeros(size, seen), own], 1)
        out.append(made[size, seen])
    return out


def attend(
    query: Tensor, key: Tensor, value: Tensor, spans: Sequence[tuple[int, int, int, int]], mask: Sequence[Tensor | None]
) -> Tensor:
    """Attention of one row, (heads, tokens, width), span by span."""
    # Split once: the gradient of many slices would each be as long as the row.
    sizes = [last - first for first, last, _, _ in spans]
    queries, keys, values = (torch.split(part, sizes, 1) for part in (query, key, value))
    trunks = {first: number for number, (first, _, _, _) in enumerate(spans)}
    out = []
    for number, ((_, _, trunk_first, trunk_last), shape) in enumerate(zip(spans, mask, strict=True)):
        own_key, own_value = keys[number], values[number]
        if shape is not None:
            trunk, seen = trunks[trunk_first], trunk_last - trunk_first
            own_key = torch.cat([keys[trunk][:, :seen], own_key], 1)
            own_value = torch.cat([values[trunk][:, :seen], own_value], 1)
        mixed = functional.scaled_dot_product_attention(
            queries[number][None], own_key[None], own_value[None], attn_mask=shape, is_causal=shape is None
        )
        out.append(mixed[0])
    return torch.cat(out, 1)
