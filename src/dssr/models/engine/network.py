"""The network: one pass over rows of any number of requests, each of which gets the bits it would get alone.

All rows stand in one sequence, so there is no padding between requests. How rows attend is an `AttentionPlan`. Models
built like Llama (Llama, SmolLM2, Mistral, Qwen2, Qwen3, Phi-3, Phi-4-mini) run in a `LeanNetwork`: layers that read the
same rows are one matrix product on weights packed by oneDNN, whose results do not depend on the number of rows. Any
other causal model runs in the `StockNetwork`, through transformers' own code.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, Protocol

import torch
from torch.nn.functional import embedding, linear
from transformers import AttentionInterface

from dssr.models.adapters import Adapters

ROWS = 16
"""Row counts are multiples of this where matrix products on few rows round differently."""
ATTENTION = "dssr_packed"
onednn = torch.ops.mkldnn


class AttentionPlan(Protocol):
    """How the rows of one pass attend."""

    def attend(self, layer: int, q: torch.Tensor, kv: torch.Tensor) -> torch.Tensor:
        """[rows, heads, width], from `q` of that shape, scaled already, and `kv` [rows, 2, key heads, width]."""
        ...


def product(rows: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """`linear` by oneDNN, which uses the widest vectors of any CPU; torch gives float32 to a library that may not."""
    found: torch.Tensor = onednn._linear_pointwise.default(rows, weight, bias, "none", [], "")
    return found


def can_pack(device: torch.device) -> bool:
    """Whether torch can multiply by oneDNN here."""
    known = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    return device.type == "cpu" and bool(known) and hasattr(onednn, "_linear_pointwise")


class Unit:
    """RMS norm without its weights, which the layer that follows has taken in (`scale`).

    Four short passes; torch's own norm takes six. Each step of it rounds alike wherever a row stands.
    """

    def __init__(self, norm: Any) -> None:
        self.scale: torch.Tensor = norm.weight * math.sqrt(len(norm.weight))
        self._least = len(norm.weight) * float(norm.variance_epsilon)

    def __call__(self, rows: torch.Tensor) -> torch.Tensor:
        """The rows, each of length one."""
        size: torch.Tensor = torch.linalg.vector_norm(rows, dim=-1, keepdim=True, dtype=torch.float32)
        return (rows * size.square_().add_(self._least).rsqrt_()).to(rows.dtype)


class Linear:
    """Linear layers that read the same rows, as one matrix product, and their adapters."""

    def __init__(
        self,
        layers: Sequence[Any],
        pack: bool,
        adapters: Mapping[str, str] | None = None,
        order: torch.Tensor | None = None,
        scale: torch.Tensor | None = None,
    ) -> None:
        """`adapters`: their names and peft's own for them; `order`: of the outputs, if not as they come; `scale`: what
        the norm before it leaves to it, for each input."""
        base = [getattr(layer, "base_layer", layer) for layer in layers]
        weight = torch.cat([layer.weight for layer in base])
        weight = weight if scale is None else weight * scale
        order = torch.arange(len(weight)) if order is None else order
        biases = [torch.zeros_like(one.weight[:, 0]) if one.bias is None else one.bias for one in base]
        self._bias = torch.cat(biases)[order] if any(one.bias is not None for one in base) else None
        self._multiply: Callable[..., torch.Tensor] = product if pack else linear
        self._pack: Callable[[torch.Tensor], torch.Tensor] = onednn._reorder_linear_weight if pack else torch.clone
        self._weight = self._pack(weight[order].contiguous())
        self._adapters: dict[str | None, tuple[torch.Tensor, torch.Tensor]] = {}
        self._active: tuple[torch.Tensor, torch.Tensor] | None = None
        ends = torch.tensor([len(one.weight) for one in base]).cumsum(0).tolist()
        for name, inner in (adapters or {}).items():
            parts = [(e, one) for e, one in zip(ends, layers, strict=True) if inner in getattr(one, "lora_A", {})]
            if parts:
                down = torch.cat([one.lora_A[inner].weight for _, one in parts])
                down = down if scale is None else down * scale
                up, at = down.new_zeros(len(weight), len(down)), 0
                for end, one in parts:
                    part = one.lora_B[inner].weight * one.scaling[inner]
                    up[end - len(part) : end, at : at + part.shape[1]] = part
                    at += part.shape[1]
                self._adapters[name] = self._pack(down), self._pack(up[order].contiguous())

    def use(self, adapter: str | None) -> None:
        """Puts an adapter in force, or none."""
        self._active = self._adapters.get(adapter)

    def __call__(self, rows: torch.Tensor) -> torch.Tensor:
        """[rows, outputs]."""
        found = self._multiply(rows, self._weight, self._bias)
        if self._active is not None:
            down, up = self._active
            found += self._multiply(self._multiply(rows, down), up)
        return found


class LeanNetwork:
    """A Llama-like network: RMS norms, rotary positions, gated feed-forward layers, full attention."""

    def __init__(self, model: Any, context_length: int, adapters: Mapping[str, str], pack: bool) -> None:
        base, config = model.base_model, model.config
        self._embed: torch.Tensor = base.embed_tokens.weight
        self._last = Unit(base.norm)
        self._heads, self._keys, self._width = shape_of(config)
        cos, sin = base.rotary_emb(torch.empty(1), torch.arange(context_length, device=self._embed.device)[None])
        half = cos.shape[-1] // 2
        table = torch.ones(context_length, 1, self._width // 2, dtype=torch.complex64, device=self._embed.device)
        table[:, 0, :half] = torch.complex(cos[0, :, :half].float(), sin[0, :, :half].float())
        self._turns = table
        """Rotary embeddings as complex numbers; where only a part of the width is turned, the rest is times one."""
        # They turn dimension i together with i + half; side by side, the two are the parts of one complex number.
        pairs = torch.cat((torch.arange(2 * half).view(2, -1).t().flatten(), torch.arange(2 * half, self._width)))
        turned = (self._heads + self._keys) * self._width
        order = torch.cat(
            (
                (torch.arange(0, turned, self._width)[:, None] + pairs).flatten(),
                torch.arange(turned, turned + self._keys * self._width),
            )
        )
        self._layers = [_Layer(layer, self._heads, self._keys, order, pairs, pack, adapters) for layer in base.layers]
        self._factors = torch.ones(self._heads + self._keys, 1, device=self._embed.device)
        self._factors[: self._heads] = float(base.layers[0].self_attn.scaling)
        """Queries are scaled while they are turned."""
        self._linears = [one for layer in self._layers for one in (layer.qkv, layer.out, layer.gates, layer.down)]

    def use(self, adapter: str | None) -> None:
        """Puts an adapter in force, or the bare base."""
        for one in self._linears:
            one.use(adapter)

    def forward(self, ids: torch.Tensor, positions: torch.Tensor, plan: AttentionPlan) -> torch.Tensor:
        """Last hidden states of the rows."""
        states = embedding(ids, self._embed)
        turns = self._turns[positions] * self._factors
        rows, seen = len(ids), self._heads + self._keys
        for number, layer in enumerate(self._layers):
            qkv = layer.qkv(layer.before(states)).view(rows, -1, self._width)
            qk = qkv[:, :seen]
            if layer.head_norm is not None:
                torch.mul(layer.head_norm(qk), layer.head_scale, out=qk)
            pairs = torch.view_as_complex(qk.float().view(rows, seen, -1, 2)).mul_(turns)
            if qk.dtype != torch.float32:  # otherwise they were turned where they stand
                qk.copy_(torch.view_as_real(pairs).view(rows, seen, -1))
            kv = qkv[:, self._heads :].view(rows, 2, self._keys, self._width)
            attended = plan.attend(number, qkv[:, : self._heads], kv)
            states = states + layer.out(attended.reshape(rows, -1))
            gates = layer.gates(layer.between(states))
            half = gates.shape[1] // 2
            states = states + layer.down(layer.activation(gates[:, :half]) * gates[:, half:])
        return self._last(states) * self._last.scale


class _Layer:
    """The parts of one decoder layer."""

    def __init__(
        self,
        layer: Any,
        heads: int,
        keys: int,
        order: torch.Tensor,
        pairs: torch.Tensor,
        pack: bool,
        adapters: Mapping[str, str],
    ) -> None:
        """`order`: of the outputs of queries, keys and values; `pairs`: of one head's."""
        attention, mlp = layer.self_attn, layer.mlp
        fused = hasattr(attention, "qkv_proj")
        asked = [attention.qkv_proj] if fused else [attention.q_proj, attention.k_proj, attention.v_proj]
        self.before, self.between = Unit(layer.input_layernorm), Unit(layer.post_attention_layernorm)
        self.qkv = Linear(asked, pack, adapters, order, self.before.scale)
        self.out = Linear([attention.o_proj], pack, adapters)
        gates = [mlp.gate_up_proj] if hasattr(mlp, "gate_up_proj") else [mlp.gate_proj, mlp.up_proj]
        self.gates = Linear(gates, pack, adapters, scale=self.between.scale)
        self.down = Linear([mlp.down_proj], pack, adapters)
        self.activation = mlp.act_fn if hasattr(mlp, "act_fn") else mlp.activation_fn
        self.head_norm: Unit | None = None
        """For models that norm queries and keys."""
        if hasattr(attention, "q_norm"):
            self.head_norm = Unit(attention.q_norm)
            queries, known = (
                Unit(norm).scale[pairs].expand(count, -1)
                for norm, count in ((attention.q_norm, heads), (attention.k_norm, keys))
            )
            self.head_scale = torch.cat((queries, known))


class StockNetwork:
    """Any causal model of transformers, whose own code calls the plan through one registered attention function."""

    def __init__(self, model: Any, adapters: Adapters) -> None:
        self._network = model.base_model
        self._adapters = adapters
        self.use = adapters.use

    def forward(self, ids: torch.Tensor, positions: torch.Tensor, plan: AttentionPlan) -> torch.Tensor:
        """Last hidden states of the rows."""
        output = self._network(input_ids=ids[None], position_ids=positions[None], use_cache=False, plan=plan)
        states: torch.Tensor = output.last_hidden_state[0]
        return states


def _attention(
    module: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: object, **options: Any
) -> tuple[torch.Tensor, None]:
    q, k, v = (one[0].transpose(0, 1) for one in (query, key, value))
    return options["plan"].attend(module.layer_idx, q * options["scaling"], torch.stack((k, v), 1))[None], None


AttentionInterface.register(ATTENTION, _attention)


class _WithoutPadding:
    """A plan for the first rows of a pass; the rest is padding."""

    def __init__(self, plan: AttentionPlan, count: int) -> None:
        self.plan = plan
        self.count = count

    def attend(self, layer: int, q: torch.Tensor, kv: torch.Tensor) -> torch.Tensor:
        found = torch.zeros_like(q)
        found[: self.count] = self.plan.attend(layer, q[: self.count], kv[: self.count])
        return found


class PackedModel:
    """A causal language model, run on rows that each attend as a plan says."""

    def __init__(self, model: Any, adapters: Adapters, context_length: int, labels: Sequence[int]) -> None:
        """`labels`: the tokens that choices are made among."""
        self._model, self._adapters, self._context, self._labels = model, adapters, context_length, list(labels)
        self.layers = int(model.config.num_hidden_layers)
        _, self.key_heads, self.width = shape_of(model.config)
        self.dtype: torch.dtype = model.get_output_embeddings().weight.dtype
        self.device: torch.device = model.get_output_embeddings().weight.device
        self.token_bytes = 2 * self.layers * self.key_heads * self.width * self.dtype.itemsize
        """Of the keys and values of one token."""
        self.tokens = 0
        """Rows computed so far, without padding."""
        rope = (getattr(model.config, "rope_parameters", None) or {}).get("rope_type", "default")
        # These rotary embeddings change with the largest position of a pass: then every pass gets the same largest.
        self.far = context_length - 1 if rope in ("longrope", "dynamic") else None
        """That largest position; None for embeddings that do not care."""

    def ways(self) -> list[str]:
        """How the network can be run here, the best first."""
        packed = ["lean, packed"] if can_pack(self.device) else []
        return [*packed, "lean", "stock"]

    def take(self, way: str) -> bool:
        """Runs the network so from now on; whether it is built in a way that allows it."""
        model, pack = self._model, way == "lean, packed"
        self._active: str | None = None
        self.rows = 1 if pack else ROWS
        """Row counts are multiples of this."""
        self.network: LeanNetwork | StockNetwork
        if way == "stock":
            self.network = StockNetwork(model, self._adapters)
        else:
            try:
                self.network = LeanNetwork(model, self._context, self._adapters.inner, pack)
            except AttributeError:  # a part that Llama has is not there
                return False
        head = model.get_output_embeddings()
        few = SimpleNamespace(
            weight=head.weight[self._labels], bias=None if head.bias is None else head.bias[self._labels]
        )
        self._head, self._few = Linear([head], pack), Linear([few], pack)
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

    def forward(self, ids: Sequence[int], positions: Sequence[int], plan: AttentionPlan) -> torch.Tensor:
        """Last hidden states of the rows."""
        count = len(ids)
        self.tokens += count
        far = self.far if isinstance(self.network, StockNetwork) else None
        missing = -(-(count + (far is not None)) // self.rows) * self.rows - count
        tokens = torch.tensor([*ids, *[0] * missing], device=self.device)
        places = torch.tensor([*positions, *[far or 0] * missing], device=self.device)
        return self.network.forward(tokens, places, _WithoutPadding(plan, count) if missing else plan)[:count]

    def logits(self, states: torch.Tensor, labels: bool = False) -> torch.Tensor:
        """Scores of the next token for each state, of all tokens or of the labels, in float32."""
        count, missing = len(states), -len(states) % self.rows
        if missing:
            states = torch.cat((states, states.new_zeros(missing, states.shape[1])))
        return (self._few if labels else self._head)(states)[:count].float()

    def new_kv(self, *shape: int) -> torch.Tensor:
        """Room for the keys and values of all layers: [layers, 2, *shape, width]."""
        return torch.zeros(self.layers, 2, *shape, self.width, dtype=self.dtype, device=self.device)


def shape_of(config: Any) -> tuple[int, int, int]:
    """Query heads, key heads, and the width of a head."""
    heads = int(config.num_attention_heads)
    width = int(getattr(config, "head_dim", None) or config.hidden_size // heads)
    return heads, int(getattr(config, "num_key_value_heads", None) or heads), width
