"""Proves on this machine, when a model is loaded, that company changes no bit and that the shape is understood."""

import random
from typing import Any

import numpy as np
import torch

from dssr.models.decode import Reply
from dssr.models.hf import HFModel
from dssr.models.kv import BLOCK, Ids
from dssr.models.packed import ATTENTION
from dssr.models.stems import LONG

LENGTHS = (BLOCK // 3, BLOCK + 9, BLOCK, 2 * BLOCK + 17, LONG + 5, LONG + 5, LONG + BLOCK)
STEPS = 2
CLOSE = {torch.float32: 1e-3, torch.bfloat16: 0.2}
"""How far scores may lie from the stock forward pass, relative to their spread."""


@torch.inference_mode()
def same_in_company(model: HFModel, adapter: str | None) -> bool:
    """Whether prompts scored and continued alone and together give identical bits."""
    prompts = _prompts(model)
    together = _bits(model, prompts, adapter)
    alone = [bits for prompt in prompts for bits in _bits(model, [prompt], adapter)]
    return together == alone


@torch.inference_mode()
def agrees_with_stock(model: HFModel, causal: Any) -> bool:
    """Whether the packed pass computes what transformers' own does, up to rounding."""
    ids = max(_prompts(model), key=len)
    model.adapters.use(None)
    ((_, states),) = model.prefiller.run([ids], None, keep=False)
    ours = model.body.logits(states)[0]
    causal.set_attn_implementation("sdpa")
    try:
        # A second row that ends at the far position puts the rotary embeddings in the state they have in our passes.
        ends = [len(ids) - 1, model.body.far if model.body.far is not None else len(ids) - 1]
        positions = torch.tensor([list(range(end - len(ids) + 1, end + 1)) for end in ends]).to(model.body.device)
        rows = torch.from_numpy(ids.astype(np.int64))[None].expand(2, -1).to(model.body.device)
        output = causal(input_ids=rows, position_ids=positions, logits_to_keep=1, use_cache=False)
        stock = output.logits[0, -1].float()
    finally:
        causal.set_attn_implementation(ATTENTION)
    return float((ours - stock).abs().max()) <= CLOSE[model.body.dtype] * (float(stock.std()) + 1e-6)


def _prompts(model: HFModel) -> list[Ids]:
    """Some that share a prefix and one that does not."""
    rng = random.Random(0)
    most = min(model.tokenizer.inner.vocab_size, 1 << 30) - 1
    stem = [rng.randint(0, most) for _ in range(max(LENGTHS))]
    other = [rng.randint(0, most) for _ in range(BLOCK // 2)]
    longest = model.context_length - STEPS - 1
    return [np.array(ids[:longest], dtype=np.int32) for ids in (*(stem[:length] for length in LENGTHS), other)]


def _bits(model: HFModel, prompts: list[Ids], adapter: str | None) -> list[bytes]:
    """Scores after each prompt, then the states of a few written tokens."""
    model.adapters.use(adapter)
    model.prefiller.store.clear()
    bits = [b""] * len(prompts)
    replies: list[Reply] = []
    for finished, states in model.prefiller.run(prompts, adapter, keep=True):
        fresh = [
            Reply(done.index, done.path, len(prompts[done.index]), STEPS + 1, 0.0, random.Random(0))
            for done in finished
        ]
        for reply, scores in zip(fresh, model.body.logits(states), strict=True):
            bits[reply.ticket] = scores.cpu().numpy().tobytes()
            reply.tokens.append(0)
        replies += fresh
    model.decoder.admit(replies)
    for _ in range(STEPS):
        states = model.decoder.step()
        for reply, state in zip(model.decoder.replies, states, strict=True):
            bits[reply.ticket] += state.float().cpu().numpy().tobytes()
            reply.tokens[-1], reply.done = 0, False
    model.decoder.clear()
    return bits
