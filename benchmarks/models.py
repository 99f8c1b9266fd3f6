"""The engine against what it replaces, on a random model of a few million weights and one thread."""

import asyncio
import random
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tests.tiny import make_tiny

from benchmarks.common import Ratio, faster, rate, seconds
from dssr.config import ModelConfig
from dssr.models.base import Choose, Generate, Message
from dssr.models.cache import CachedModel
from dssr.models.engine import decode as stems
from dssr.models.engine.hf import HFModel
from dssr.models.engine.kv import Ids
from dssr.models.load import load_model
from dssr.types import LABELS

EPISODES, STEPS = 32, 4
REPLIES, REPLY_TOKENS = 64, 32
WORDS = ["kitchen", "fridge", "knife", "apple", "door", "north", "take", "open", "chop", "stove", "table", "carry"]


def run() -> list[Ratio]:
    import torch

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as place:
        folder = make_tiny(Path(place), hidden=128, layers=4)
        model = load_model(ModelConfig(backend="hf", path=str(folder), dtype="float32", device="cpu", threads=1))
        assert isinstance(model, HFModel)
        try:
            with torch.inference_mode():
                return [_overhead(model), *_decoding(model, folder), _trunk(model), _samples(model)]
        finally:
            asyncio.run(model.close())


def _story(seed: int, words: int) -> str:
    rng = random.Random(seed)
    return " ".join(rng.choice(WORDS) for _ in range(words))


def _overhead(model: HFModel) -> Ratio:
    """Episodes that ask step by step, against the engine given each step's prompts as one list."""
    prompts = [
        [(Message("user", f"{step} {_story(100 * episode + step, 60)}"),) for episode in range(EPISODES)]
        for step in range(STEPS)
    ]
    ids = [[_ids(model, messages) for messages in step] for step in prompts]
    tokens = sum(len(prompt) for step in ids for prompt in step)
    wrapped = CachedModel(model, None)

    async def episode(number: int) -> None:
        for step in range(STEPS):
            await wrapped.choose(Choose(prompts[step][number], LABELS[:8]))

    async def all_episodes() -> None:
        await asyncio.gather(*(episode(number) for number in range(EPISODES)))

    def through_dssr() -> None:
        model.prefiller.store.clear()
        asyncio.run(all_episodes())

    def as_lists() -> None:
        model.prefiller.store.clear()
        for step in ids:
            _score(model, step)

    ours, engine = seconds(through_dssr), seconds(as_lists)
    name = f"models, {EPISODES} episodes x {STEPS} choices through asyncio and batching"
    return rate(name, tokens / ours, tokens / engine, "engine given lists", 0.9, "tokens/s")


def _decoding(model: HFModel, folder: Path) -> list[Ratio]:
    """Our own loop and packed passes against transformers' left-padded batch."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    stock = AutoModelForCausalLM.from_pretrained(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder, padding_side="left")
    # Different beginnings: nothing to share, so that only the loops are compared.
    prompts = [(Message("user", f"{number} {_story(number, 20 + number)}"),) for number in range(REPLIES)]
    padded = tokenizer.pad({"input_ids": [model.tokenizer.chat(messages) for messages in prompts]}, return_tensors="pt")

    async def write() -> list[Any]:
        requests = [Generate(messages, REPLY_TOKENS, 0.0, 0) for messages in prompts]
        return await asyncio.gather(*(model.generate(request) for request in requests))

    def write_stock() -> None:
        stock.generate(**padded, max_new_tokens=REPLY_TOKENS, do_sample=False)

    def write_ours() -> None:
        model.prefiller.store.clear()
        asyncio.run(write())

    def score_ours() -> None:
        model.prefiller.store.clear()
        _score(model, [_ids(model, messages) for messages in prompts])

    def score_stock() -> None:
        with torch.inference_mode():
            stock(**padded, logits_to_keep=1)

    return [
        faster(
            f"models, {REPLIES} greedy replies",
            seconds(write_ours, repeat=2),
            seconds(write_stock, repeat=2),
            "stock generate",
            1.0,
        ),
        faster(
            f"models, batch-invariant scoring of {REPLIES} prompts",
            seconds(score_ours),
            seconds(score_stock),
            "stock padded batch, not invariant",
            None,
        ),
    ]


def _trunk(model: HFModel) -> Ratio:
    """Six points of one history of about 4k tokens, each with every chunk left out in turn."""
    chunks = [f"> go {number}\n" + _story(number, 70) + "\n" for number in range(24)]
    prompts: list[Ids] = []
    for point in range(6):
        shown = chunks[: len(chunks) - 5 + point]
        question = f"\nCurrent observation: {_story(point, 12)}\nOptions: A go B take\nAction:"
        for left_out in range(-1, len(shown)):
            history = "".join(chunk for number, chunk in enumerate(shown) if number != left_out)
            prompts.append(_ids(model, (Message("user", history + question),)))

    def together() -> None:
        model.prefiller.store.clear()
        _score(model, prompts)

    def apart() -> None:
        for prompt in sample:
            model.prefiller.store.clear()
            _score(model, [prompt])

    # Separate scoring is a plain sum over prompts, so a few stand for all.
    sample = prompts[::15]
    length = max(map(len, prompts))
    ours = seconds(together, repeat=1)
    separate = seconds(apart, repeat=1) * sum(map(len, prompts)) / sum(map(len, sample))
    return faster(
        f"models, {len(prompts)} leave-one-out prompts of a {length}-token history", ours, separate, "each alone", 4.0
    )


def _samples(model: HFModel) -> Ratio:
    """Eight samples of each of several whole histories, as the read-time oracle asks for them."""
    prompts = [(Message("user", f"{number} {_story(number, 500)}"),) for number in range(8)]
    requests = [Generate(messages, REPLY_TOKENS, 1.0, seed) for messages in prompts for seed in range(8)]

    async def write() -> list[Any]:
        return await asyncio.gather(*(model.generate(request) for request in requests))

    def shared() -> None:
        asyncio.run(write())

    def copied() -> None:
        usual, stems.LONG = stems.LONG, model.context_length
        try:
            asyncio.run(write())
        finally:
            stems.LONG = usual

    length = model.prompt_tokens(prompts[0])
    name = f"models, 8 samples of each of {len(prompts)} prompts of {length} tokens, read once for all"
    return faster(name, seconds(shared), seconds(copied), "a copy of the prompt for each", 1.0)


def _ids(model: HFModel, messages: Sequence[Message]) -> Ids:
    return np.array(model.tokenizer.chat(messages), dtype=np.int32)


def _score(model: HFModel, prompts: list[Ids]) -> None:
    """The engine itself, in the thread it lives in."""
    import torch

    def work() -> None:
        with torch.inference_mode():
            for _, states in model.prefiller.run(prompts, None, keep=False):
                model.body.logits(states)

    model.batcher.call(work)
