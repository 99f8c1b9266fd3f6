"""CPU seconds of a token of every reply at small batches: `python steps.py ROWS...` prints one line of JSON.

A script of its own, so that it can run on another version of dssr (PYTHONPATH decides which).
"""

import json
import random
import sys
import time
from typing import Any

import numpy as np
import torch

from dssr.config import ModelConfig
from dssr.models.engine.decode import Reply
from dssr.models.load import load_model

PROMPT, STEPS, ROUNDS = 120, 60, 5


@torch.inference_mode()
def seconds_per_step(model: Any, rows: int) -> float:
    """One token of so many greedy replies to prompts of about PROMPT tokens, the best of several rounds."""
    best = float("inf")
    rng = random.Random(rows)
    for _ in range(ROUNDS):
        lengths = [PROMPT + rng.randrange(60) for _ in range(rows)]
        prompts = [np.array([rng.randrange(4000) for _ in range(length)], np.int32) for length in lengths]
        prefilled = model.prefiller.run(prompts, None, keep=True)
        settings: dict[str, Any] = {"max_tokens": STEPS + 1, "temperature": 0.0, "noise": random.Random(0)}
        if "samples" in Reply.__slots__:
            settings["samples"] = 1
        states, made = torch.stack([one.state for one in prefilled]), []
        for ids, one in zip(prompts, prefilled, strict=True):
            known: Any = ids if "prompt" in Reply.__slots__ else len(ids)
            made.append(Reply(0, one.blocks, known, **settings))
        guesses = [[()] * rows] if "prompt" in Reply.__slots__ else []
        model.decoder.sample(made, *guesses, states)
        model.decoder.admit(made)
        begin = time.process_time()
        while not all(reply.done for reply in made):
            model.decoder.step()
        best = min(best, (time.process_time() - begin) / STEPS)
        model.decoder.clear()
    return best


if __name__ == "__main__":
    torch.set_num_threads(1)
    loaded: Any = load_model(ModelConfig(backend="hf", path="nano/writer", dtype="float32", device="cpu", threads=1))
    loaded.decoder.ends = frozenset()
    print(json.dumps({rows: seconds_per_step(loaded, int(rows)) for rows in sys.argv[1:]}))
    loaded.batcher.close()
