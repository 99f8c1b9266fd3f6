"""One forward pass over rows of any number of requests, each of which gets the bits it would get alone.

All rows stand in one sequence, so there is no padding between requests; the row count is rounded up because
matrix products on few rows round differently. How rows attend to each other is an `AttentionPlan`, handed through the
stock model to one registered attention function.
"""

from typing import Any, Protocol

import torch
from torch.nn.functional import linear
from transformers import AttentionInterface

ROWS = 16
"""Row counts are multiples of this."""
ATTENTION = "dssr_packed"


class AttentionPlan(Protocol):
    """How the rows of one forward pass attend."""

    def attend(
        self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, out: torch.Tensor, scale: float
    ) -> None:
        """Fills `out` [rows, heads, width] from `q` [heads, rows, width] and `k`, `v` [key heads, rows, width]."""
        ...


def _attention(
    module: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: object, **options: Any
) -> tuple[torch.Tensor, None]:
    _, heads, rows, width = query.shape
    out = query.new_zeros(rows, heads, width)
    options["plan"].attend(module.layer_idx, query[0], key[0], value[0], out, options["scaling"])
    return out.unsqueeze(0), None


AttentionInterface.register(ATTENTION, _attention)


def padded(count: int) -> int:
    """The row count rounded up."""
    return -(-count // ROWS) * ROWS


class PackedModel:
    """A stock transformers causal language model, run on rows that each attend as a plan says."""

    def __init__(self, model: Any, context_length: int) -> None:
        config = model.config
        self._network = model.base_model
        self._head = model.get_output_embeddings()
        self.layers = int(config.num_hidden_layers)
        self.key_heads = int(config.num_key_value_heads)
        self.width = int(getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads)
        self.dtype: torch.dtype = self._head.weight.dtype
        self.device: torch.device = self._head.weight.device
        self.token_bytes = 2 * self.layers * self.key_heads * self.width * self.dtype.itemsize
        """Of the keys and values of one token."""
        self.tokens = 0
        """Rows computed so far, without padding."""
        rope = (getattr(config, "rope_parameters", None) or {}).get("rope_type", "default")
        # These rotary embeddings change with the largest position of a pass: then every pass gets the same largest.
        self.far = context_length - 1 if rope in ("longrope", "dynamic") else None
        """That largest position; None for embeddings that do not care."""

    def forward(self, ids: list[int], positions: list[int], plan: AttentionPlan) -> torch.Tensor:
        """Last hidden states of the rows."""
        self.tokens += len(ids)
        missing = padded(len(ids) + (self.far is not None)) - len(ids)
        states: torch.Tensor = self._network(
            input_ids=torch.tensor([ids + [0] * missing], device=self.device),
            position_ids=torch.tensor([positions + [self.far or 0] * missing], device=self.device),
            use_cache=False,
            plan=plan,
        ).last_hidden_state
        return states[0]

    def logits(self, states: torch.Tensor, tokens: torch.Tensor | None = None) -> torch.Tensor:
        """Scores of the next token for each state, of all tokens or of those given, in float32."""
        filled = states.new_zeros(padded(len(states)), states.shape[1])
        filled[: len(states)] = states
        weight, bias = self._head.weight, self._head.bias
        if tokens is not None:
            weight, bias = weight[tokens], None if bias is None else bias[tokens]
        return linear(filled, weight, bias)[: len(states)].float()

    def new_kv(self, *shape: int) -> torch.Tensor:
        """Room for the keys and values of all layers: [layers, 2, *shape, width]."""
        return torch.zeros(self.layers, 2, *shape, self.width, dtype=self.dtype, device=self.device)
