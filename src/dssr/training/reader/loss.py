"""The label loss: cross-entropy of the answer's label at the last prompt position, over the full vocabulary.

Prompts of one episode are laid out as a tree (`PromptTree`): what they have in common is computed once, and
logits exist only where a label is predicted, so that long histories need no truncation and little memory.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional
from transformers import AttentionInterface

ATTENTION = "dssr_tree"


@dataclass(frozen=True)
class Prompt:
    """A tokenised question and the token that answers it."""

    ids: tuple[int, ...]
    label: int


@dataclass(frozen=True)
class Span:
    """Tokens first..last of a row; they see trunk..seen, and themselves causally."""

    first: int
    last: int
    trunk: int
    seen: int


class PromptTree:
    """Prompts in one row: the longest is the trunk, each other branches off where it differs."""

    def __init__(self) -> None:
        self.ids: list[int] = []
        self.positions: list[int] = []
        self.spans: list[Span] = []
        self.ends: list[int] = []
        self.labels: list[int] = []
        self._masks: dict[tuple[int, int], torch.Tensor] = {}

    def add(self, prompts: Sequence[Prompt]) -> None:
        """A group of prompts with a common beginning."""
        ranked = sorted(prompts, key=lambda prompt: -len(prompt.ids))
        trunk, root = ranked[0], len(self.ids)
        self._branch(trunk, 0, root)
        for prompt in ranked[1:]:
            # At least one own token: a prompt that is a beginning of the trunk would have no place to be asked from.
            self._branch(prompt, min(common(trunk.ids, prompt.ids), len(prompt.ids) - 1), root)

    def _branch(self, prompt: Prompt, start: int, root: int) -> None:
        first = len(self.ids)
        self.ids += prompt.ids[start:]
        self.positions += range(start, len(prompt.ids))
        self.spans.append(Span(first, len(self.ids), root, root + start))
        self.ends.append(len(self.ids) - 1)
        self.labels.append(prompt.label)

    def attend(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float) -> torch.Tensor:
        """[heads, row, width] in, the same out; nothing sees across prompts beyond the shared trunk."""
        parts = []
        for span in self.spans:
            own, seen = slice(span.first, span.last), slice(span.trunk, span.seen)
            alone = span.trunk == span.seen
            keys = key[:, own] if alone else torch.cat([key[:, seen], key[:, own]], 1)
            values = value[:, own] if alone else torch.cat([value[:, seen], value[:, own]], 1)
            parts.append(
                functional.scaled_dot_product_attention(
                    query[None, :, own],
                    keys[None],
                    values[None],
                    attn_mask=None if alone else self._mask(span, query),
                    is_causal=alone,
                    scale=scale,
                    enable_gqa=True,
                )[0]
            )
        return torch.cat(parts, 1)

    def _mask(self, span: Span, like: torch.Tensor) -> torch.Tensor:
        size, seen = span.last - span.first, span.seen - span.trunk
        if (size, seen) not in self._masks:
            own = torch.ones(size, size, dtype=torch.bool, device=like.device).tril()
            before = torch.ones(size, seen, dtype=torch.bool, device=like.device)
            self._masks[size, seen] = torch.cat([before, own], 1)
        return self._masks[size, seen]


def common(one: Sequence[int], other: Sequence[int]) -> int:
    """Length of the common beginning."""
    shortest = min(len(one), len(other))
    low, high = 0, shortest
    while low < high:  # prefixes compare fast as slices, so halve
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _attention(
    module: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: object, **options: Any
) -> tuple[torch.Tensor, None]:
    scale = options.get("scaling") or query.shape[-1] ** -0.5
    out = options["tree"].attend(query[0], key[0], value[0], scale)
    return out.transpose(0, 1).unsqueeze(0), None


AttentionInterface.register(ATTENTION, _attention)


def label_losses(model: Any, tree: PromptTree) -> torch.Tensor:
    """One loss per prompt, in the order of adding. The model's attention must be `ATTENTION`."""
    device = next(model.parameters()).device
    logits = model(
        input_ids=torch.tensor([tree.ids], device=device),
        position_ids=torch.tensor([tree.positions], device=device),
        use_cache=False,
        logits_to_keep=torch.tensor(tree.ends, device=device),
        tree=tree,
    ).logits[0]
    return functional.cross_entropy(logits.float(), torch.tensor(tree.labels, device=device), reduction="none")


def prompt_trees(groups: Sequence[Sequence[Prompt]], most_tokens: int) -> list[PromptTree]:
    """As few rows as fit the limit; a group that alone is longer gets a row of its own."""
    made = [PromptTree()]
    for group in groups:
        lone = PromptTree()
        lone.add(group)
        if made[-1].ids and len(made[-1].ids) + len(lone.ids) > most_tokens:
            made.append(PromptTree())
        made[-1].add(group)
    return made
