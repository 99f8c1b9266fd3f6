"""The network: one pass over rows of any number of requests, each of which gets the bits it would get alone.

All rows stand in one sequence, so there is no padding between requests; a row sees the blocks of keys and values that
its table names. Models built like Llama (Llama, SmolLM2, Mistral, Qwen2, Qwen3, Phi-3, Phi-4-mini) run in a
`LeanNetwork`, whose whole pass is one call of the compiled part. Any other causal model runs in the `StockNetwork`,
through transformers' own code, and only its attention is ours.
"""

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch.nn.functional import pad
from transformers import AttentionInterface

from dssr.models.adapters import Adapters
from dssr.models.engine.native import (
    BLOCK,
    LayerFields,
    Linear,
    NetworkFields,
    Shape,
    library,
    pick,
)

PASS = 256
"""Most rows of one pass: more would not stay in the processor's own memory."""
ROWS = 16
"""Row counts of transformers' own code are multiples of this: its products on fewer rows round differently."""
ATTENTION = "dssr_blocks"

Whole = np.ndarray[Any, np.dtype[np.int32]]


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of one pass and where each looks."""

    ids: Whole
    positions: Whole
    tables: Whole
    """Numbers of the blocks of each row's sequence: [rows, blocks], or [blocks] where all rows are of one."""
    pool: torch.Tensor
    """[blocks, numbers of a block]."""

    def __len__(self) -> int:
        return len(self.ids)

    def held(self) -> tuple[int, int, int, int]:
        """For the library: pool, tables, the step from row to row in them, positions."""
        step = self.tables.shape[1] if self.tables.ndim == 2 else 0
        return self.pool.data_ptr(), self.tables.ctypes.data, step, self.positions.ctypes.data


class LeanNetwork:
    """A Llama-like network: RMS norms, rotary positions, gated feed-forward layers, full attention."""

    def __init__(self, model: Any, context_length: int, adapters: Mapping[str, str]) -> None:
        """Raises AttributeError for a model that is built otherwise."""
        base, config = model.base_model, model.config
        heads, keys, width = shape_of(config)
        cos, sin = base.rotary_emb(torch.empty(1), torch.arange(context_length)[None])
        half = cos.shape[-1] // 2
        layers = [_Layer(layer, adapters) for layer in base.layers]
        self._layers = layers
        self._kept = [base.embed_tokens.weight, cos[0, :, :half], sin[0, :, :half], base.norm.weight]
        self._kept = [one.float().contiguous() for one in self._kept]
        self.shape = Shape(
            *(len(layers), layers[0].qkv.inputs, heads, keys, width, layers[0].back.inputs, 2 * half),
            float(base.norm.variance_epsilon),
            float(base.layers[0].self_attn.scaling),
        )
        numbers = self.shape.hidden + layers[0].qkv.outputs + heads * width + 3 * self.shape.inner
        rank = max(one.most_rank for layer in layers for one in layer.linears)
        self._states = torch.empty(PASS, self.shape.hidden)
        self._space = torch.empty(PASS, numbers + rank)
        self.use(None)

    def use(self, adapter: str | None) -> None:
        """Puts an adapter in force, or the bare base."""
        self._fields = (LayerFields * len(self._layers))(*(layer.fields(adapter) for layer in self._layers))
        self._network = NetworkFields(self.shape, *(one.data_ptr() for one in self._kept), self._fields)

    def forward(self, rows: Rows, wanted: int) -> torch.Tensor:
        """Last hidden states of the rows from `wanted` on; at most PASS rows."""
        found = torch.empty(len(rows) - wanted, self.shape.hidden)
        places = (one.data_ptr() for one in (self._states, self._space, found))
        library().dssr_forward(
            ctypes.byref(self._network), len(rows), rows.ids.ctypes.data, *rows.held(), wanted, *places
        )
        return found


class _Layer:
    """The parts of one decoder layer."""

    def __init__(self, layer: Any, adapters: Mapping[str, str]) -> None:
        attention, mlp = layer.self_attn, layer.mlp
        fused = hasattr(attention, "qkv_proj")
        asked = [attention.qkv_proj] if fused else [attention.q_proj, attention.k_proj, attention.v_proj]
        gates = [mlp.gate_up_proj] if hasattr(mlp, "gate_up_proj") else [mlp.gate_proj, mlp.up_proj]
        self.qkv, self.out = Linear(asked, adapters), Linear([attention.o_proj], adapters)
        self.gates, self.back = Linear(gates, adapters), Linear([mlp.down_proj], adapters)
        self.linears = self.qkv, self.out, self.gates, self.back
        norms = [layer.input_layernorm, layer.post_attention_layernorm]
        # For models that norm queries and keys.
        norms += [attention.q_norm, attention.k_norm] if hasattr(attention, "q_norm") else []
        self._norms = [norm.weight.float().contiguous() for norm in norms]

    def fields(self, adapter: str | None) -> LayerFields:
        norms = [one.data_ptr() for one in self._norms]
        return LayerFields(*norms, *[None] * (4 - len(norms)), *(one.fields(adapter) for one in self.linears))


class StockNetwork:
    """Any causal model of transformers, whose own code calls our attention as a registered function."""

    def __init__(self, model: Any, adapters: Adapters, far: int | None) -> None:
        """`far`: a position that every pass must contain."""
        self._network, self._far = model.base_model, far
        self.use = adapters.use
        heads, keys, width = shape_of(model.config)
        self.shape = Shape(int(model.config.num_hidden_layers), 0, heads, keys, _whole_lanes(width), 0, 0, 0.0, 1.0)

    def forward(self, rows: Rows, wanted: int) -> torch.Tensor:
        """Last hidden states of the rows from `wanted` on."""
        count = len(rows)
        missing = -(-(count + (self._far is not None)) // ROWS) * ROWS - count
        ids = torch.tensor([*rows.ids.tolist(), *[0] * missing])[None]
        positions = torch.tensor([*rows.positions.tolist(), *[self._far or 0] * missing])[None]
        output = self._network(
            input_ids=ids, position_ids=positions, use_cache=False, attend=lambda *one: self._attend(rows, *one)
        )
        states: torch.Tensor = output.last_hidden_state[0, wanted:count]
        return states.contiguous()

    def _attend(self, rows: Rows, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """From and to [rows, heads, width]; rows beyond those of the pass are padding."""
        count, width = len(rows), q.shape[-1]
        asked, keys, values = (pad(one[:count], (0, self.shape.width - width)).contiguous() for one in (q, k, v))
        found, out = torch.empty_like(asked), torch.zeros_like(q)
        places = (one.data_ptr() for one in (asked, keys, values))
        library().dssr_attend(ctypes.byref(self.shape), layer, count, *places, *rows.held(), found.data_ptr())
        out[:count] = found[..., :width]
        return out


def _attention(
    module: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: object, **options: Any
) -> tuple[torch.Tensor, None]:
    q, k, v = (one[0].transpose(0, 1) for one in (query, key, value))
    return options["attend"](module.layer_idx, q * options["scaling"], k, v)[None], None


AttentionInterface.register(ATTENTION, _attention)


class PackedModel:
    """A causal language model, run on rows that each see the blocks of their own sequence."""

    def __init__(self, model: Any, adapters: Adapters, context_length: int, labels: Sequence[int]) -> None:
        """`labels`: the tokens that choices are made among."""
        self._model, self._adapters, self._context, self._labels = model, adapters, context_length, list(labels)
        _, keys, width = shape_of(model.config)
        self.block_numbers = int(model.config.num_hidden_layers) * 2 * keys * BLOCK * _whole_lanes(width)
        """Of the keys and values of one block."""
        self.vocabulary = int(model.get_input_embeddings().weight.shape[0])
        """Tokens that have an embedding; the compiled part looks no number up that is not below it."""
        self.tokens = 0
        """Rows computed so far, without padding."""
        rope = (getattr(model.config, "rope_parameters", None) or {}).get("rope_type", "default")
        # These rotary embeddings change with the largest position of a pass: then every pass gets the same largest.
        self.far = context_length - 1 if rope in ("longrope", "dynamic") else None
        """That largest position; None for embeddings that do not care."""
        head = model.get_output_embeddings()
        few = SimpleNamespace(
            weight=head.weight[self._labels], bias=None if head.bias is None else head.bias[self._labels]
        )
        self._head, self._few = Linear([head]), Linear([few])

    def ways(self) -> list[str]:
        """How the network can be run, the best first."""
        return ["lean", "stock"]

    def take(self, way: str) -> bool:
        """Runs the network so from now on; whether it is built in a way that allows it."""
        self._active: str | None = None
        self.network: LeanNetwork | StockNetwork
        if way == "stock":
            self.network = StockNetwork(self._model, self._adapters, self.far)
            return True
        try:
            if not _is_lean(self._model):
                return False
            self.network = LeanNetwork(self._model, self._context, self._adapters.inner)
        except AttributeError:  # a part that Llama has is not there
            return False
        return True

    def let_go(self) -> None:
        """Forgets the stock model, once it is not needed any more."""
        if isinstance(self.network, LeanNetwork):
            self._model = None
            self._adapters.let_go()

    def use(self, adapter: str | None) -> None:
        """Puts an adapter in force, or the bare base."""
        if adapter != self._active:
            self._active = None
            self.network.use(adapter)
            self._active = adapter

    def forward(self, rows: Rows, wanted: int = 0) -> torch.Tensor:
        """Last hidden states of the rows from `wanted` on."""
        self.tokens += len(rows)
        return self.network.forward(rows, wanted)

    def logits(self, states: torch.Tensor, labels: bool = False) -> torch.Tensor:
        """Scores of the next token for each state, of all tokens or of the labels."""
        return (self._few if labels else self._head)(states)

    def pick(self, states: torch.Tensor, temperatures: Sequence[float], noise: Sequence[float]) -> list[int]:
        """The next token of each state; -1 where its scores are not numbers."""
        return pick(self.logits(states), temperatures, noise)


def shape_of(config: Any) -> tuple[int, int, int]:
    """Query heads, key heads, and the width of a head."""
    heads = int(config.num_attention_heads)
    width = int(getattr(config, "head_dim", None) or config.hidden_size // heads)
    return heads, int(getattr(config, "num_key_value_heads", None) or heads), width


def _whole_lanes(width: int) -> int:
    lanes: int = library().dssr_lanes()
    return -(-width // lanes) * lanes


def _is_lean(model: Any) -> bool:
    """Whether sizes and the activation are ones that the compiled part knows."""
    config = model.config
    _, _, width = shape_of(config)
    sizes = (width, int(config.hidden_size), int(config.intermediate_size))
    act = getattr(config, "hidden_act", None)
    return act in ("silu", "swish") and all(size == _whole_lanes(size) for size in sizes)
