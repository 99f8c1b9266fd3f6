"""The Qwen3 network in the few lines that training over trees needs; parameter names are those of transformers."""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import Qwen3Config

from dssr_nano.factory.initial_weights import SHARP, InitVocabulary, rates, set_heads
from dssr_nano.factory.tree import Row, attend, masks

MARKED = 12
"""How many marks an option has: see `drill.marks_of`."""
PROBED = 1 + MARKED + 52
"""What a probe tells of an option: how right it is, its marks, its letter."""
THETA = 1e6
"""Base of the rotary positions, as in Qwen3: most coordinates turn slowly, so names far apart still compare."""


class Shape(NamedTuple):
    """Size of a network."""

    width: int = 192
    depth: int = 6
    heads: int = 6
    inner: int = 512


def config_of(shape: Shape, vocabulary: int, end: int, pad: int, context_length: int = 8192) -> Qwen3Config:
    """The transformers configuration of a shape."""
    return Qwen3Config(
        vocab_size=vocabulary,
        hidden_size=shape.width,
        num_hidden_layers=shape.depth,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.heads,
        head_dim=shape.width // shape.heads,
        intermediate_size=shape.inner,
        max_position_embeddings=context_length,
        rope_parameters={"rope_type": "default", "rope_theta": THETA},
        tie_word_embeddings=True,
        rms_norm_eps=1e-6,
        eos_token_id=end,
        pad_token_id=pad,
        bos_token_id=None,
        dtype="bfloat16",
        architectures=["Qwen3ForCausalLM"],
    )


class Norm(nn.Module):
    """RMSNorm."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, states: Tensor) -> Tensor:
        return functional.rms_norm(states, (states.shape[-1],), self.weight, 1e-6)


class Attention(nn.Module):
    """Attention with normed queries and keys, over rows of trees."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.heads = shape.heads
        self.q_proj = nn.Linear(shape.width, shape.width, bias=False)
        self.k_proj = nn.Linear(shape.width, shape.width, bias=False)
        self.v_proj = nn.Linear(shape.width, shape.width, bias=False)
        self.o_proj = nn.Linear(shape.width, shape.width, bias=False)
        self.q_norm = Norm(shape.width // shape.heads)
        self.k_norm = Norm(shape.width // shape.heads)
        self.queries_and_keys: tuple[Tensor, Tensor]
        """Queries and keys of the last call, by head."""

    def forward(self, states: Tensor, turned: tuple[Tensor, Tensor], row: Row, mask: list[Tensor | None]) -> Tensor:
        def split(projected: Tensor) -> Tensor:
            return projected.view(len(row.ids), self.heads, -1).transpose(0, 1)

        query = turn(self.q_norm(split(self.q_proj(states))), *turned)
        key = turn(self.k_norm(split(self.k_proj(states))), *turned)
        self.queries_and_keys = query, key
        mixed = attend(query, key, split(self.v_proj(states)), row.spans, mask)
        out: Tensor = self.o_proj(mixed.transpose(0, 1).reshape(len(row.ids), -1))
        return out


class Mlp(nn.Module):
    """SwiGLU."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(shape.width, shape.inner, bias=False)
        self.up_proj = nn.Linear(shape.width, shape.inner, bias=False)
        self.down_proj = nn.Linear(shape.inner, shape.width, bias=False)

    def forward(self, states: Tensor) -> Tensor:
        out: Tensor = self.down_proj(functional.silu(self.gate_proj(states)) * self.up_proj(states))
        return out


class Layer(nn.Module):
    """Attention, then the feed-forward part, each with its residual."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.self_attn = Attention(shape)
        self.mlp = Mlp(shape)
        self.input_layernorm = Norm(shape.width)
        self.post_attention_layernorm = Norm(shape.width)

    def forward(self, states: Tensor, turned: tuple[Tensor, Tensor], row: Row, mask: list[Tensor | None]) -> Tensor:
        states = states + self.self_attn(self.input_layernorm(states), turned, row, mask)
        out: Tensor = states + self.mlp(self.post_attention_layernorm(states))
        return out


class Backbone(nn.Module):
    """All that transformers calls `model`: embeddings, layers, last norm."""

    def __init__(self, shape: Shape, vocabulary: int) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(vocabulary, shape.width)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.depth))
        self.norm = Norm(shape.width)

    def parts(self) -> list[Layer]:
        """The layers, with their type."""
        return [layer for layer in self.layers if isinstance(layer, Layer)]


class Network(nn.Module):
    """`model.*` is exported; `probes` exist in training only."""

    def __init__(self, shape: Shape, tokens: InitVocabulary, probed: tuple[int, ...] = ()) -> None:
        super().__init__()
        self.shape, self.probed = shape, probed
        self.model = Backbone(shape, tokens.size)
        self.probes = nn.ModuleList(nn.Linear(shape.width, PROBED) for _ in probed)
        for name, weight in self.named_parameters():
            if name.endswith(("q_norm.weight", "k_norm.weight")):
                nn.init.constant_(weight, SHARP)
            elif name.endswith(("o_proj.weight", "down_proj.weight")):
                nn.init.normal_(weight, std=0.02 / (2 * self.shape.depth) ** 0.5)
            elif weight.dim() == 2:
                nn.init.normal_(weight, std=0.02)
        parts = [part.self_attn for part in self.model.parts()]
        set_heads(parts, self.model.embed_tokens.weight, tokens, shape.width // shape.heads, THETA)

    def forward(self, row: Row) -> tuple[Tensor, list[Tensor]]:
        """Logits at the row's sources, and the probes' view of the states at the option ends."""
        states = self.model.embed_tokens(torch.tensor(row.ids))
        turned = turns(torch.tensor(row.positions), self.shape.width // self.shape.heads)
        mask = masks(row.spans)
        ends = torch.tensor([end for choice in row.choices for end in choice.ends], dtype=torch.long)
        probed: list[Tensor] = []
        for number, layer in enumerate(self.model.layers):
            states = layer(states, turned, row, mask)
            if number + 1 in self.probed and len(ends):
                probe = self.probes[self.probed.index(number + 1)]
                seen = states[ends]
                probed.append(probe(functional.rms_norm(seen, (seen.shape[-1],))))
        heard = self.model.norm(states[torch.tensor(row.sources)])
        return heard @ self.model.embed_tokens.weight.T, probed


def turns(positions: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """Cosines and sines of the rotary positions."""
    angles = positions[:, None] * rates(width, THETA)
    both = torch.cat([angles, angles], 1)
    return both.cos(), both.sin()


def turn(states: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotates queries or keys to their positions."""
    half = states.shape[-1] // 2
    return states * cos + torch.cat([-states[..., half:], states[..., :half]], -1) * sin
