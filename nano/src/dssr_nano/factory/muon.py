"""Muon for the matrices inside the layers, AdamW for the rest.

Muon orthogonalises the momentum of a matrix before it is added. Written here in float32, with the matrices of
one shape stacked: the library's version works in bfloat16, ten times slower on processors without units for it.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from dssr_nano.factory.network import Network

MOMENTUM = 0.95
DECAY = 0.01
ROUNDS = 5
OUTER = 0.003
"""Rate of the embeddings."""
GAIN = 3.0
"""Rate of gains and biases, relative to the embeddings."""
COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Of the quintic iteration that draws all singular values towards one."""


class MatrixGroup(NamedTuple):
    """Matrices of one shape."""

    weights: list[Tensor]
    momentum: Tensor


def orthogonal(matrices: Tensor) -> Tensor:
    """Stacked matrices with all singular values near one."""
    tall = matrices.shape[-2] > matrices.shape[-1]
    out: Tensor = matrices.mT if tall else matrices
    out = out / (out.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    first, second, third = COEFFICIENTS
    for _ in range(ROUNDS):
        square = out @ out.mT
        out = first * out + (second * square + third * square @ square) @ out
    return out.mT if tall else out


class Optimizer:
    """Both optimizers behind one step."""

    def __init__(self, network: Network, rate: float) -> None:
        shapes: dict[tuple[int, ...], list[Tensor]] = {}
        outer: list[Tensor] = []
        gains: list[Tensor] = []
        for name, weight in network.named_parameters():
            if weight.dim() == 2 and "layers" in name:
                shapes.setdefault(tuple(weight.shape), []).append(weight)
            else:
                (gains if weight.dim() == 1 else outer).append(weight)
        self.groups = [MatrixGroup(weights, torch.zeros(len(weights), *shape)) for shape, weights in shapes.items()]
        self.rate, self.outer_rate = rate, OUTER
        parts = [{"params": outer, "scale": 1.0}, {"params": gains, "scale": GAIN}]
        self.adam = torch.optim.AdamW(parts, lr=self.outer_rate, betas=(0.9, 0.98), weight_decay=0.0)

    @torch.no_grad()
    def step(self, factor: float) -> None:
        """One step at `factor` times the full rate; clears the gradients."""
        for group in self.groups:
            gradient = torch.stack([w.grad if w.grad is not None else torch.zeros_like(w) for w in group.weights])
            group.momentum.lerp_(gradient, 1 - MOMENTUM)
            update = orthogonal(gradient.lerp(group.momentum, MOMENTUM))
            rows, columns = update.shape[-2:]
            rate = self.rate * factor
            for weight, change in zip(group.weights, update, strict=True):
                weight.mul_(1 - rate * DECAY).sub_(change, alpha=rate * max(1.0, rows / columns) ** 0.5)
                weight.grad = None
        for adam_group in self.adam.param_groups:
            adam_group["lr"] = self.outer_rate * factor * adam_group["scale"]
        self.adam.step()
        self.adam.zero_grad(set_to_none=True)

    def state(self) -> dict[str, Tensor]:
        """Tensors by name, for a checkpoint."""
        stored = {f"muon/{number}": group.momentum for number, group in enumerate(self.groups)}
        for place, values in self.adam.state_dict()["state"].items():
            stored |= {f"adam/{place}/{name}": value for name, value in values.items()}
        return stored

    def restore(self, stored: dict[str, Tensor]) -> None:
        """Takes up the state of a checkpoint."""
        for number, group in enumerate(self.groups):
            group.momentum.copy_(stored[f"muon/{number}"])
        state = self.adam.state_dict()
        state["state"] = {}
        for key, value in stored.items():
            owner, *rest = key.split("/")
            if owner == "adam":
                state["state"].setdefault(int(rest[0]), {})[rest[1]] = value
        self.adam.load_state_dict(state)
