"""Decoding against other engines and against an earlier version of dssr: who writes most tokens in a CPU second?

Rows whose baseline is not installed are left out, and said so.
"""

import asyncio
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file

from benchmarks.common import Ratio, by_turns
from benchmarks.engine import against, nano_model, plain_of
from benchmarks.floor import least_seconds, shape_of
from dssr.models.engine.decode import Reply
from dssr.models.engine.hf import HFModel
from dssr.models.load import weights_folder

UNSHARED, UNSHARED_TOKENS, UNSHARED_REPLY, DECODE = 128, 400, 80, 1.5
"""Different prompts, their tokens, the tokens of each reply, and the least ratio against every other engine."""
SMALL, STEP = (1, 4, 16), 2.0
"""Rows of small batches, and the least ratio of a step's speed to that of version BEFORE."""
BEFORE = "69cea24"
OTHERS = {
    "vllm": ("vLLM on the CPU", ".venv-vllm/bin/python"),
    "llama": ("llama.cpp through xllamacpp", ".venv-llama/bin/python"),
}
"""Other engines, and the Python of the environment that each has; DSSR_BENCH_VLLM and DSSR_BENCH_LLAMA name others."""
SIZES = (32, 64)
"""Batch sizes tried for the plain ways."""
HERE = Path(__file__).parent


def run() -> Iterator[Ratio]:
    """The rows."""
    torch.set_num_threads(1)
    yield from _steps()
    writer = nano_model("writer")
    try:
        yield from _unshared(writer)
    finally:
        asyncio.run(writer.close())


def _unshared(model: HFModel) -> Iterator[Ratio]:
    """Prompts that share nothing, replies of one length: all engines write the same number of tokens."""
    rng = random.Random(0)
    asked = [[rng.randrange(4000) for _ in range(UNSHARED_TOKENS)] for _ in range(UNSHARED)]
    plain, ends = plain_of(model), model.decoder.ends
    plain.end, plain.model.generation_config.eos_token_id = -1, None

    def ours(order: Sequence[int]) -> list[list[int]]:
        model.prefiller.clear()
        written = model.batcher.call(lambda: _decoded(model, [asked[place] for place in order]))
        return [written[order.index(place)] for place in range(len(order))]

    ways: dict[str, Callable[[], list[list[int]]]] = {
        **{
            f"stock generate, batches of {size}": partial(plain.write_stock, asked, UNSHARED_REPLY, size)
            for size in SIZES
        },
        **{f"lean loop, batches of {size}": partial(plain.write_lean, asked, UNSHARED_REPLY, size) for size in SIZES},
    }
    model.decoder.ends = frozenset()
    try:
        took = by_turns({"ours": lambda: ours(range(UNSHARED)), **ways}, repeat=1)
        again = by_turns({"ours": lambda: ours(range(UNSHARED))}, repeat=1)
        took["ours"] = min(took["ours"], again["ours"], key=lambda one: one[0])
        reordered = ours(list(range(UNSHARED))[::-1])
        some = (0, 77)
        alone = [text for place in some for text in _alone(model, asked[place])]
        assert reordered == took["ours"][1], "the order changes texts"
        assert alone == [took["ours"][1][place] for place in some], "the batch changes texts"
    finally:
        model.decoder.ends = ends
    for name, (title, _) in OTHERS.items():
        if (found := _other(name, model, asked)) is not None:
            rows, spent, written = found
            # Replies to random prompts part at the first near tie; their first tokens show that it is the same model.
            same = sum(one[0] == other[0] for one, other in zip(written, took["ours"][1], strict=True))
            assert same > 0.9 * UNSHARED, f"{title} begins {UNSHARED - same} replies with another token"
            took[f"{title}, {rows} rows"] = spent, written
    name = f"{UNSHARED} replies of {UNSHARED_REPLY} tokens to unshared prompts of {UNSHARED_TOKENS}"
    best = {way.partition(",")[0]: way for way in sorted(took, key=lambda way: -took[way][0])}  # of each, the fastest
    yield from against(name, {way: took[way] for way in best.values()}, dict.fromkeys(took, DECODE))
    config = json.loads((Path(weights_folder(model.name)) / "config.json").read_text())
    least, rate, bandwidth = least_seconds(shape_of(config), UNSHARED, UNSHARED_TOKENS, UNSHARED_REPLY)
    floor = f"the floor: products at {rate / 1e9:.0f} GFLOPS, keys and values read once at {bandwidth / 1e9:.0f} GB/s"
    yield from against(name, {"ours": took["ours"], floor: (least, None)}, {})


@torch.inference_mode()
def _decoded(model: HFModel, prompts: Sequence[Sequence[int]]) -> list[list[int]]:
    """Replies by the engine's own parts, without a tokenizer."""
    ids = [np.array(prompt, dtype=np.int32) for prompt in prompts]
    prefilled = model.prefiller.run(ids, None, keep=True)
    noise = random.Random(0)
    replies = [
        Reply(None, done.blocks, one, UNSHARED_REPLY, 0.0, noise) for one, done in zip(ids, prefilled, strict=True)
    ]
    model.decoder.sample(replies, [()] * len(replies), torch.stack([done.state for done in prefilled]))
    model.decoder.admit(replies)
    while model.decoder.replies:
        model.decoder.step()
    return [reply.tokens for reply in replies]


def _alone(model: HFModel, prompt: Sequence[int]) -> list[list[int]]:
    model.prefiller.clear()
    return model.batcher.call(lambda: _decoded(model, [prompt]))


def _other(name: str, model: HFModel, prompts: Sequence[Sequence[int]]) -> tuple[int, float, list[list[int]]] | None:
    """Another engine's best batch size, its CPU seconds there and what it wrote; None where it is not installed."""
    title, usual = OTHERS[name]
    python = os.environ.get(f"DSSR_BENCH_{name.upper()}", usual)
    if not Path(python).exists():
        print(f"left out: {title}, since there is no {python}", file=sys.stderr)
        return None
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        shutil.copytree(weights_folder(model.name), place / "model")
        weights = load_file(place / "model" / "model.safetensors")
        np.savez(place / "weights.npz", **{key: one.float().numpy() for key, one in weights.items()})
        rows = (UNSHARED,) if name == "vllm" else (64,)
        asked = {"prompts": prompts, "tokens": UNSHARED_REPLY, "rows": rows}
        (place / "asked.json").write_text(json.dumps(asked))
        told = _run([python, str(HERE / "foreign.py"), name, folder], {"PYTHONPATH": ""})
    rows_of = {int(rows): float(spent) for rows, spent in told["seconds"].items()}
    best = min(rows_of, key=rows_of.__getitem__)
    return best, rows_of[best], told["written"]


def _steps() -> Iterator[Ratio]:
    """Decoding steps of few rows, against an earlier version of dssr from its own folder."""
    before = os.environ.get("DSSR_BENCH_BEFORE", "")
    if not Path(before, "src").is_dir():
        print(f"left out: steps of {BEFORE}; give its folder (git worktree) as DSSR_BENCH_BEFORE", file=sys.stderr)
        return
    found: list[dict[str, float]] = []
    for root in (str(HERE.parent), before):
        command = [sys.executable, str(HERE / "steps.py"), *map(str, SMALL)]
        found.append(_run(command, {"PYTHONPATH": f"{root}/src:{root}/nano/src"}))
    for rows in map(str, SMALL):
        ours, theirs = (1000 * one[rows] for one in found)
        name = f"a decoding step of {rows} rows, 120 to 240 tokens"
        yield Ratio(name, ours, theirs, f"version {BEFORE}", theirs / ours, STEP, "CPU ms")


def _run(command: list[str], settings: Mapping[str, str]) -> Any:
    """The last line that a script prints, in another environment."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **settings}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise AssertionError(f"{' '.join(command)} failed: {done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])
