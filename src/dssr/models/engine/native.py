"""The compiled part of the engine (`kernels.cpp`): its structures, its functions, and weights laid out for it."""

import ctypes
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch

from dssr.errors import ModelError

BLOCK = 64
"""Positions in a block of keys and values, as in `kernels.cpp`."""
LEVELS = {"AVX512": "v4", "AVX2": "v3"}
"""By torch's name for what the processor can do: the library built for it; for others `base`."""

Pointer = ctypes.c_void_p


class LinearFields(ctypes.Structure):
    """A linear layer with the adapter in force."""

    _fields_ = (
        *((name, ctypes.c_int32) for name in ("outputs", "inputs", "rank")),
        *((name, Pointer) for name in ("weight", "bias", "down", "up")),
    )


class LayerFields(ctypes.Structure):
    """A decoder layer."""

    _fields_ = (
        *((name, Pointer) for name in ("before", "between", "query_norm", "key_norm")),
        *((name, LinearFields) for name in ("qkv", "out", "gates", "back")),
    )


class Shape(ctypes.Structure):
    """Sizes of a network."""

    _fields_ = (
        *((name, ctypes.c_int32) for name in ("layers", "hidden", "heads", "key_heads", "width", "inner", "turned")),
        ("epsilon", ctypes.c_float),
        ("scale", ctypes.c_float),
    )


class NetworkFields(ctypes.Structure):
    """A network."""

    _fields_ = (
        ("shape", Shape),
        *((name, Pointer) for name in ("embed", "cosines", "sines", "last")),
        ("layers", ctypes.POINTER(LayerFields)),
    )


@cache
def library() -> Any:
    """The library built for this processor."""
    names = (LEVELS.get(torch.backends.cpu.get_cpu_capability(), "base"), "base")
    files = (Path(__file__).parent / f"kernels.{name}.so" for name in names)
    found = next((file for file in files if file.exists()), None)
    if found is None:
        raise ModelError(
            "The compiled part of the engine is not there: install dssr again where there is a C++ compiler "
            "(`pip install .`, or `pip install --editable .` for a checkout)."
        )
    loaded = ctypes.CDLL(str(found))
    whole, long, shape, linear = ctypes.c_int, ctypes.c_long, ctypes.POINTER(Shape), ctypes.POINTER(LinearFields)
    rows = (Pointer, Pointer, long, Pointer)
    """The pool, tables of blocks, the step from row to row in them, positions."""
    loaded.dssr_apply.argtypes = (linear, Pointer, whole, Pointer, Pointer)
    loaded.dssr_attend.argtypes = (shape, whole, whole, Pointer, Pointer, Pointer, *rows, Pointer)
    network = ctypes.POINTER(NetworkFields)
    loaded.dssr_forward.argtypes = (network, whole, Pointer, *rows, whole, Pointer, Pointer, Pointer)
    loaded.dssr_pick.argtypes = (Pointer, whole, whole, Pointer, Pointer, Pointer, Pointer)
    return loaded


def packed(weight: torch.Tensor) -> torch.Tensor:
    """A weight [outputs, inputs] in the order in which products read it: [panels, inputs, outputs of a panel]."""
    panel = library().dssr_panel()
    weight = torch.cat((weight.float(), weight.new_zeros(-len(weight) % panel, weight.shape[1]).float()))
    return weight.view(-1, panel, weight.shape[1]).transpose(1, 2).contiguous()


class Linear:
    """Linear layers that read the same rows, as one matrix product, and their adapters."""

    def __init__(self, layers: Sequence[Any], adapters: Mapping[str, str] | None = None) -> None:
        """`adapters`: their names and peft's own for them."""
        base = [getattr(layer, "base_layer", layer) for layer in layers]
        self.outputs, self.inputs = sum(len(one.weight) for one in base), base[0].weight.shape[1]
        self._weight = packed(torch.cat([one.weight for one in base]))
        biases = [torch.zeros_like(one.weight[:, 0]) if one.bias is None else one.bias for one in base]
        self._bias = None
        if any(one.bias is not None for one in base):
            self._bias = torch.zeros(len(self._weight) * self._weight.shape[2])
            self._bias[: self.outputs] = torch.cat(biases)
        self._adapters: dict[str | None, tuple[int, torch.Tensor, torch.Tensor]] = {}
        ends = torch.tensor([len(one.weight) for one in base]).cumsum(0).tolist()
        for name, inner in (adapters or {}).items():
            parts = [(e, one) for e, one in zip(ends, layers, strict=True) if inner in getattr(one, "lora_A", {})]
            if parts:
                down = torch.cat([one.lora_A[inner].weight for _, one in parts])
                up, at = down.new_zeros(self.outputs, len(down)), 0
                for end, one in parts:
                    part = one.lora_B[inner].weight * one.scaling[inner]
                    up[end - len(part) : end, at : at + part.shape[1]] = part
                    at += part.shape[1]
                self._adapters[name] = len(down), packed(down), packed(up)
        self.most_rank = max((rank for rank, _, _ in self._adapters.values()), default=0)

    def fields(self, adapter: str | None = None) -> LinearFields:
        """For the library, with an adapter in force or none."""
        rank, down, up = self._adapters.get(adapter, (0, None, None))
        weights = (None if one is None else one.data_ptr() for one in (self._weight, self._bias, down, up))
        return LinearFields(self.outputs, self.inputs, rank, *weights)

    def __call__(self, rows: torch.Tensor) -> torch.Tensor:
        """[rows, outputs], without adapters."""
        rows = rows.contiguous()
        found = torch.empty(len(rows), self.outputs)
        fields = self.fields()
        library().dssr_apply(ctypes.byref(fields), rows.data_ptr(), len(rows), found.data_ptr(), None)
        return found


def pick(scores: torch.Tensor, temperatures: Sequence[float], noise: Sequence[float]) -> list[int]:
    """A token for each row of scores, -1 where they are not numbers; `noise`: a uniform number for each row."""
    rows, size = scores.shape
    tokens, space = torch.empty(rows, dtype=torch.int32), torch.empty(size)
    heat, drawn = torch.tensor(temperatures, dtype=torch.float32), torch.tensor(noise, dtype=torch.float64)
    places = (one.data_ptr() for one in (heat, drawn, space, tokens))
    library().dssr_pick(scores.data_ptr(), rows, size, *places)
    found: list[int] = tokens.tolist()
    return found
