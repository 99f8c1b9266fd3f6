"""The least time in which one core could decode in float32: its matrix products and its reads, each at the best rate
measured here, and nothing else.

Counted: the products of every token with every weight (the head's for written tokens alone), the attention of prompts
up to their own position, and one read of all keys and values for each written token. Not counted: norms, activations,
softmax, rotary positions, the picking of tokens, Python.
"""

from types import SimpleNamespace

import torch

from benchmarks.common import seconds
from dssr.models.engine.native import Linear

ROWS, WIDTH, OUTPUTS = 256, 160, 832
"""A product of nano's shape that stays in the processor's own memory."""
READ = 2**29
"""Bytes read at once, more than any cache holds."""
FLOAT = 4


def product_rate() -> float:
    """Floating-point operations in a CPU second, by the engine's own product."""
    product = Linear([SimpleNamespace(weight=torch.randn(OUTPUTS, WIDTH), bias=None)])
    rows = torch.randn(ROWS, WIDTH)
    times = 200

    def work() -> None:
        for _ in range(times):
            product(rows)

    return 2 * ROWS * WIDTH * OUTPUTS * times / seconds(work, repeat=5)


def read_rate() -> float:
    """Bytes in a CPU second, from memory."""
    numbers = torch.ones(READ // FLOAT)
    return READ / seconds(numbers.sum, repeat=5)


def least_seconds(shape: dict[str, int], replies: int, prompt: int, written: int) -> tuple[float, float, float]:
    """CPU seconds of so many replies to unshared prompts, and the two rates they were computed from.

    `shape`: the network's `layers`, `weights` of one layer, weights of the `head`, and `width` of all keys of a token.
    """
    steps = written - 1  # the first token comes with the prompt
    layers, width = shape["layers"], shape["width"]
    products = 2 * shape["weights"] * layers * replies * (prompt + steps) + 2 * shape["head"] * replies * written
    prompts = 4 * width * layers * replies * prompt * (prompt + 1) // 2
    held = sum(prompt + step + 1 for step in range(steps))
    read = 2 * FLOAT * width * layers * replies * held
    rate, bandwidth = product_rate(), read_rate()
    return (products + prompts) / rate + read / bandwidth, rate, bandwidth


def shape_of(config: dict[str, int]) -> dict[str, int]:
    """Of a checkpoint's `config.json`, for networks with gated feed-forward layers."""
    hidden, width = config["hidden_size"], config["head_dim"]
    queries, keys = config["num_attention_heads"] * width, config["num_key_value_heads"] * width
    weights = hidden * (queries + 2 * keys) + queries * hidden + 3 * hidden * config["intermediate_size"]
    head = hidden * config["vocab_size"]
    return {"layers": config["num_hidden_layers"], "weights": weights, "head": head, "width": keys}
