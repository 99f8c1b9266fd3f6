"""The Qwen3 network in the few lines that training over trees needs; parameter names are those of transformers."""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import Qwen3Config

from dssr.learn.nano.tree import Choice, Row, attend, masks

SHARP = 1.5
"""First gain of the query and key norms: attention singles out one token among hundreds from the start."""
MARKS = 4.0
"""Weight of the marks of options, relative to which option is right."""
LOUD = 0.1
"""First size of the embeddings' coordinates."""
CONSTANT = 0.3
"""First coordinate of every embedding."""


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
        rope_parameters={"rope_type": "default", "rope_theta": 10_000.0},
        tie_word_embeddings=True,
        rms_norm_eps=1e-6,
        eos_token_id=end,
        pad_token_id=pad,
        bos_token_id=None,
        dtype="bfloat16",
        architectures=["Qwen3ForCausalLM"],
    )


class Norm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, states: Tensor) -> Tensor:
        return functional.rms_norm(states, (states.shape[-1],), self.weight, 1e-6)


class Attention(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.heads = shape.heads
        self.q_proj = nn.Linear(shape.width, shape.width, bias=False)
        self.k_proj = nn.Linear(shape.width, shape.width, bias=False)
        self.v_proj = nn.Linear(shape.width, shape.width, bias=False)
        self.o_proj = nn.Linear(shape.width, shape.width, bias=False)
        self.q_norm = Norm(shape.width // shape.heads)
        self.k_norm = Norm(shape.width // shape.heads)

    def forward(self, states: Tensor, turned: tuple[Tensor, Tensor], row: Row, mask: list[Tensor | None]) -> Tensor:
        def split(projected: Tensor) -> Tensor:
            return projected.view(len(row.ids), self.heads, -1).transpose(0, 1)

        query = turn(self.q_norm(split(self.q_proj(states))), *turned)
        key = turn(self.k_norm(split(self.k_proj(states))), *turned)
        mixed = attend(query, key, split(self.v_proj(states)), row.spans, mask)
        out: Tensor = self.o_proj(mixed.transpose(0, 1).reshape(len(row.ids), -1))
        return out


class Mlp(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(shape.width, shape.inner, bias=False)
        self.up_proj = nn.Linear(shape.width, shape.inner, bias=False)
        self.down_proj = nn.Linear(shape.inner, shape.width, bias=False)

    def forward(self, states: Tensor) -> Tensor:
        out: Tensor = self.down_proj(functional.silu(self.gate_proj(states)) * self.up_proj(states))
        return out


class Layer(nn.Module):
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


class Body(nn.Module):
    def __init__(self, shape: Shape, vocabulary: int) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(vocabulary, shape.width)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.depth))
        self.norm = Norm(shape.width)


class Network(nn.Module):
    """`model.*` is exported; `probes` exist in training only."""

    def __init__(self, shape: Shape, vocabulary: int, probed: tuple[int, ...] = ()) -> None:
        super().__init__()
        self.shape, self.probed = shape, probed
        self.model = Body(shape, vocabulary)
        self.probes = nn.ModuleList(nn.Linear(shape.width, 4) for _ in probed)
        self.start()

    def start(self) -> None:
        """First weights. Embeddings outweigh the first layers' noise, so names are told apart; one head of the first
        two layers looks one token back, one head of the next looks for the same token, one for what followed it:
        what copying is made of."""
        for name, weight in self.named_parameters():
            if name.endswith(("q_norm.weight", "k_norm.weight")):
                nn.init.constant_(weight, SHARP)
            elif name.endswith(("o_proj.weight", "down_proj.weight")):
                nn.init.normal_(weight, std=0.02 / (2 * self.shape.depth) ** 0.5)
            elif weight.dim() == 2:
                nn.init.normal_(weight, std=0.02)
        with torch.no_grad():
            self.model.embed_tokens.weight.normal_(std=LOUD)
            self.model.embed_tokens.weight[:, 0] = CONSTANT
            for number, layer in enumerate(self.model.layers):
                assert isinstance(layer, Layer)
                if number < 2:
                    look_back(layer.self_attn, self.shape.width // self.shape.heads)
                if 0 < number < 4:
                    look_alike(layer.self_attn, self.shape.width // self.shape.heads)
                    look_after(layer.self_attn, first_of(self.model), self.shape.width // self.shape.heads)

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


@torch.no_grad()
def look_back(part: Attention, width: int) -> None:
    """Makes the first head attend to the token before: it asks with the constant part of every embedding, and the
    rotary positions do the rest."""
    fast = torch.zeros(width)
    fast[: width // 8] = 1.0
    cos, sin = turns(torch.tensor([1.0]), width)
    part.q_proj.weight[:width, 0] = turn(fast, cos[0], -sin[0])
    part.k_proj.weight[:width, 0] = fast
    pass_on(part, slice(0, width))


@torch.no_grad()
def look_alike(part: Attention, width: int) -> None:
    """Makes the second head attend to tokens like this one: keys equal queries, and only the slowly turning
    coordinates are used, so that distance does not matter."""
    own = slice(width, 2 * width)
    query = torch.randn_like(part.q_proj.weight[own]) / part.q_proj.weight.shape[1] ** 0.5
    slow = torch.arange(width) % (width // 2) >= width // 5
    query = query * slow[:, None]
    query[:, 0] = 0.0
    part.q_proj.weight[own] = query
    part.k_proj.weight[own] = query
    pass_on(part, own)


@torch.no_grad()
def look_after(part: Attention, back: Attention, width: int) -> None:
    """Makes the third head attend to what followed earlier tokens like this one: its keys read what the look-back
    head of the first layer wrote about the token before, its queries say the same of the token itself."""
    own = slice(2 * width, 3 * width)
    written = back.o_proj.weight[:, :width]
    slow = (torch.arange(width) % (width // 2) >= width // 5)[:, None]
    key = written.T * slow
    query = (key @ written @ back.v_proj.weight[:width]) * slow
    part.q_proj.weight[own] = query / query.norm() * width**0.5
    part.k_proj.weight[own] = key / key.norm() * width**0.5
    pass_on(part, own)


def first_of(body: Body) -> Attention:
    layer = body.layers[0]
    assert isinstance(layer, Layer)
    return layer.self_attn


def pass_on(part: Attention, own: slice) -> None:
    """Makes a head write what it finds as loudly as an embedding speaks, so that later layers hear it at once."""
    part.v_proj.weight[own].normal_(std=part.v_proj.weight.shape[1] ** -0.5)
    part.o_proj.weight[:, own].normal_(std=LOUD * (own.stop - own.start) ** -0.5)


def turns(positions: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """Cosines and sines of the rotary positions."""
    rates = 10_000.0 ** -(torch.arange(0, width, 2) / width)
    angles = positions[:, None] * rates
    both = torch.cat([angles, angles], 1)
    return both.cos(), both.sin()


def turn(states: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    half = states.shape[-1] // 2
    return states * cos + torch.cat([-states[..., half:], states[..., :half]], -1) * sin


def answer_losses(logits: Tensor, row: Row) -> tuple[Tensor, Tensor]:
    """Weighted mean loss of all predicted tokens; share of questions answered right among their own labels."""
    targets, weights = torch.tensor(row.targets), torch.tensor(row.weights)
    losses = functional.cross_entropy(logits, targets, reduction="none")
    return (losses * weights).sum() / weights.sum().clamp(min=1.0), losses


def probe_loss(probed: list[Tensor], choices: list[Choice]) -> Tensor:
    """Which option is right (one of the list), and what is true of each option by itself."""
    total = torch.zeros(())
    for view in probed:
        place = 0
        for choice in choices:
            count = len(choice.ends)
            mine = view[place : place + count]
            place += count
            total = total + functional.cross_entropy(mine[:, 0][None], torch.tensor([choice.right]))
            marks = torch.tensor(choice.marks)
            given = mine[:, 1 : 1 + marks.shape[1]]
            total = total + MARKS * functional.binary_cross_entropy_with_logits(given, marks)
    return total / max(1, len(choices) * len(probed))
