"""The plain ways to run a causal language model on many prompts, which the engine must beat to be worth its lines.

All take token ids and run the stock transformers model. None of them gives the same bits alone and in a batch.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch

Prompts = Sequence[Sequence[int]]
Choices = list[torch.Tensor]
"""Log-probabilities of the labels, one row per prompt."""
Texts = list[list[int]]
"""Written tokens, the ending one left out."""


class Plain:
    """A stock model, the tokens of the labels to score, and the token that ends a reply."""

    def __init__(self, folder: str, labels: Sequence[int]) -> None:
        from transformers import AutoModelForCausalLM

        self.model: Any = AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32, trust_remote_code=False
        ).eval()
        self.labels = torch.tensor(labels)
        self.end = int(self.model.generation_config.eos_token_id)
        self.filler = int(self.model.config.pad_token_id)

    @torch.inference_mode()
    def score_padded(self, prompts: Prompts, rows: int) -> Choices:
        """Batches of prompts of about the same length, padded on the left."""
        found: dict[int, torch.Tensor] = {}
        for batch in _batches(prompts, rows):
            ids, mask = self._padded([prompts[place] for place in batch])
            positions = (mask.cumsum(1) - 1).clamp(min=0)
            logits = self.model(ids, attention_mask=mask, position_ids=positions, logits_to_keep=1, use_cache=False)
            found |= zip(batch, self._labels(logits.logits), strict=True)
        return [found[place] for place in range(len(prompts))]

    @torch.inference_mode()
    def score_cached(self, prompts: Prompts) -> Choices:
        """One at a time, in sorted order; the cache is cropped to what the prompt shares with the one before."""
        from transformers import DynamicCache

        found: dict[int, torch.Tensor] = {}
        cache, before = DynamicCache(), list[int]()
        for place in sorted(range(len(prompts)), key=lambda place: list(prompts[place])):
            prompt = list(prompts[place])
            shared = _common(before, prompt[:-1])
            if len(before) > shared:
                cache.crop(shared - len(before))
            logits = self.model(torch.tensor([prompt[shared:]]), past_key_values=cache, logits_to_keep=1).logits
            (found[place],) = self._labels(logits)
            before = prompt
        return [found[place] for place in range(len(prompts))]

    @torch.inference_mode()
    def write_stock(self, prompts: Prompts, most: int, rows: int, **options: Any) -> Texts:
        """`generate` on batches of prompts of about the same length."""
        found: dict[int, list[int]] = {}
        for batch in _batches(prompts, rows):
            ids, mask = self._padded([prompts[place] for place in batch])
            written = self.model.generate(ids, attention_mask=mask, max_new_tokens=most, do_sample=False, **options)
            for place, row in zip(batch, written[:, ids.shape[1] :].tolist(), strict=True):
                found[place] = row[: row.index(self.end)] if self.end in row else row
        return [found[place] for place in range(len(prompts))]

    @torch.inference_mode()
    def write_lean(self, prompts: Prompts, most: int, rows: int, copies: int = 1) -> Texts:
        """A loop of one's own: batches as above, replies that have ended leave the batch, and a prompt that is asked
        `copies` times is computed once."""
        from transformers import DynamicCache

        found: dict[tuple[int, int], list[int]] = {}
        for batch in _batches(prompts, max(rows // copies, 1)):
            ids, mask = self._padded([prompts[place] for place in batch])
            positions, cache = (mask.cumsum(1) - 1).clamp(min=0), DynamicCache()
            logits = self.model(
                ids, attention_mask=mask, position_ids=positions, past_key_values=cache, logits_to_keep=1
            ).logits
            names = [(place, copy) for place in batch for copy in range(copies)]
            cache.batch_repeat_interleave(copies)
            logits, mask = logits.repeat_interleave(copies, 0), mask.repeat_interleave(copies, 0)
            found |= {name: [] for name in names}
            for _ in range(most):
                tokens = logits[:, -1].argmax(-1)
                going = [row for row, token in enumerate(tokens.tolist()) if token != self.end]
                if len(going) < len(names):
                    names, tokens, mask = [names[row] for row in going], tokens[going], mask[going]
                    cache.batch_select_indices(torch.tensor(going, dtype=torch.long))
                for name, token in zip(names, tokens.tolist(), strict=True):
                    found[name].append(token)
                if not names or len(found[names[0]]) == most:
                    break
                positions = mask.sum(1, keepdim=True)
                mask = torch.cat((mask, mask.new_ones(len(names), 1)), 1)
                logits = self.model(
                    tokens[:, None], attention_mask=mask, position_ids=positions, past_key_values=cache
                ).logits
        return [found[place, copy] for place in range(len(prompts)) for copy in range(copies)]

    def _padded(self, prompts: Prompts) -> tuple[torch.Tensor, torch.Tensor]:
        longest = max(map(len, prompts))
        ids = [[self.filler] * (longest - len(prompt)) + list(prompt) for prompt in prompts]
        mask = [[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts]
        return torch.tensor(ids), torch.tensor(mask)

    def _labels(self, logits: torch.Tensor) -> torch.Tensor:
        return logits[:, -1, self.labels].double().log_softmax(-1)


def best_of(
    work: Callable[[int], object], sizes: Sequence[int], measure: Callable[[Callable[[], object]], float]
) -> int:
    """The batch size with which the work takes least time."""
    return min(sizes, key=lambda size: measure(lambda: work(size)))


def _batches(prompts: Prompts, rows: int) -> list[list[int]]:
    order = sorted(range(len(prompts)), key=lambda place: len(prompts[place]))
    return [order[start : start + rows] for start in range(0, len(order), rows)]


def _common(one: Sequence[int], other: Sequence[int]) -> int:
    count = 0
    for left, right in zip(one, other, strict=False):
        if left != right:
            break
        count += 1
    return count
