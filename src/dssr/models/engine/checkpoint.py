"""Reads a transformers checkpoint and its adapters, and settles the numerics it runs with.

Every process lets a model prove, when it is first loaded, that it is understood and that a batch changes no bit. A
command that opens the same model again, as training does before and after every round, need not prove it again; nor
must each of ten adapters of one shape: which kernel runs, and so how it rounds, follows from shapes, not from values.
"""

import os
import platform
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

from dssr.config import ModelConfig
from dssr.errors import ModelError
from dssr.models.adapters import Adapters, weights_digest
from dssr.models.engine.decode import GROUP, LONG_PREFIX, Reply
from dssr.models.engine.hf import HFModel
from dssr.models.engine.network import ATTENTION
from dssr.models.engine.prefill import BLOCK, LONG, Ids
from dssr.models.tokenizers import open_tokenizer

ENGINE = 6
"""Raised whenever the same weights may give other bits than before, so that stored answers are not mixed."""
LEAST_KV, MOST_KV = 2**27, 2**29
"""Bounds of the memory for keys and values, in bytes; between them a quarter of what is free."""
CASES = (
    (BLOCK // 3, 1),
    (BLOCK + 9, 1),
    (BLOCK, 1),
    (2 * BLOCK + 17, 1),
    (LONG_PREFIX + 5, 8),
    (LONG_PREFIX + 5, 8),
    (LONG_PREFIX + BLOCK, 8),
    (LONG_PREFIX + BLOCK, 1),
    (LONG + BLOCK + 3, 1),
)
"""Lengths of the prompts that a model is tried with, and of how many samples each is one: all ways that replies are
computed."""
STEPS = 2
PROVEN: set[tuple[object, ...]] = set()
"""What models have shown in this process: by their weights, numerics, way of running and the shape of an adapter."""
CLOSE = {torch.float32: 1e-3, torch.bfloat16: 0.4}
"""How far scores may lie from the stock forward pass, relative to their spread."""


@torch.inference_mode()
def same_in_batch(model: HFModel, adapter: str | None) -> bool:
    """Whether prompts scored and continued alone and together give identical bits."""
    cases = _cases(model)
    together = _bits(model, cases, adapter)
    alone = [bits for case in cases for bits in _bits(model, [case], adapter)]
    return together == alone


@torch.inference_mode()
def agrees_with_stock(model: HFModel, causal: Any) -> bool:
    """Whether the packed pass computes what transformers' own does, up to rounding."""
    ids = max((ids for ids, _ in _cases(model)), key=len)
    model.packed.use(None)
    model.adapters.use(None)
    model.prefiller.clear()
    (prefilled,) = model.prefiller.run([ids], None, keep=False)
    ours = model.packed.logits(prefilled.state[None])[0]
    causal.set_attn_implementation("sdpa")
    try:
        # A second row that ends at the far position puts the rotary embeddings in the state they have in our passes.
        ends = [len(ids) - 1, model.packed.far if model.packed.far is not None else len(ids) - 1]
        positions = torch.tensor([list(range(end - len(ids) + 1, end + 1)) for end in ends]).to(model.packed.device)
        rows = torch.from_numpy(ids.astype(np.int64))[None].expand(2, -1).to(model.packed.device)
        output = causal(input_ids=rows, position_ids=positions, logits_to_keep=1, use_cache=False)
        stock = output.logits[0, -1].float()
    finally:
        causal.set_attn_implementation(ATTENTION)
    return float((ours - stock).abs().max()) <= CLOSE[model.packed.dtype] * (float(stock.std()) + 1e-6)


def _cases(model: HFModel) -> list[tuple[Ids, int]]:
    """Prompts that share a prefix and one that does not, each with the samples asked of it."""
    rng = random.Random(0)
    most = min(model.tokenizer.inner.vocab_size, 1 << 30) - 1
    shared = [rng.randint(0, most) for _ in range(max(length for length, _ in CASES))]
    other = [rng.randint(0, most) for _ in range(BLOCK // 2)]
    longest = model.context_length - STEPS - 1
    cases = [*((shared[:length], samples) for length, samples in CASES), (other, 1)]
    return [(np.array(ids[:longest], dtype=np.int32), samples) for ids, samples in cases]


def _bits(model: HFModel, cases: list[tuple[Ids, int]], adapter: str | None) -> list[bytes]:
    """Scores after each prompt, then the states of a few written tokens."""
    model.packed.use(adapter)
    model.prefiller.clear()
    prefilled = model.prefiller.run([ids for ids, _ in cases], adapter, keep=True)
    scores = model.packed.logits(torch.stack([done.state for done in prefilled]))
    bits = [row.cpu().numpy().tobytes() for row in scores]
    replies = [
        Reply(place, done.blocks, len(ids), STEPS + 1, 0.0, samples, random.Random(0), tokens=[0])
        for place, ((ids, samples), done) in enumerate(zip(cases, prefilled, strict=True))
    ]
    model.decoder.admit(replies)
    for _ in range(STEPS):
        states = model.decoder.step()
        for reply, state in zip(model.decoder.replies, states, strict=True):
            bits[reply.request] += state.float().cpu().numpy().tobytes()
            reply.tokens[-1], reply.done = 0, False
    model.decoder.clear()
    return bits


def load_hf(config: ModelConfig, folder: str) -> HFModel:
    """The model, after it has shown that it is understood and that a batch changes no bit."""
    device = config.device if config.device != "auto" else "cuda" if torch.cuda.is_available() else "cpu"
    causal = _read(folder, config, device)
    tokenizer = open_tokenizer(folder, config.path, config.revision)
    weights = weights_digest(folder, config.revision)
    adapters = Adapters(causal, config.path, weights, config.adapters)
    longest = int(causal.config.max_position_embeddings)
    model = HFModel(
        name=config.path,
        model=causal,
        tokenizer=tokenizer,
        adapters=adapters,
        weights=weights,
        numerics="",
        context_length=min(config.context_length, longest),
        batch_tokens=config.batch_tokens,
        kv_bytes=_kv_bytes(device),
    )
    try:
        model.numerics = model.batcher.call(lambda: _settle(model, causal, config, device))
    except BaseException:
        model.batcher.close()
        raise
    return model


def _read(folder: str, config: ModelConfig, device: str) -> Any:
    if Path(folder).is_dir() and not list(Path(folder).glob("*.safetensors")):
        raise ModelError(f"{folder} holds no *.safetensors weights; dssr loads no other kind.")
    transformers.utils.logging.disable_progress_bar()
    try:
        causal = transformers.AutoModelForCausalLM.from_pretrained(
            folder,
            revision=config.revision,
            dtype=getattr(torch, config.dtype),
            attn_implementation=ATTENTION,
            use_safetensors=True,
            trust_remote_code=False,
        )
    except Exception as error:  # transformers raises many kinds for missing or broken weights
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ModelError(f"No model could be read from {folder}: {reason.rstrip('.')}.") from error
    window = getattr(causal.config, "sliding_window", None)
    if window and getattr(causal.config, "use_sliding_window", True) and window < config.context_length:
        raise ModelError(f"{config.path} attends only {window} tokens back; dssr runs models with full attention.")
    return causal.to(device).eval().requires_grad_(False)


def _settle(model: HFModel, causal: Any, config: ModelConfig, device: str) -> str:
    """Picks the fastest way to run the network that agrees with the stock one and whose results do not depend on the
    batch; returns the numerics, for the fingerprint."""
    # On a CPU one: cores are used by workers, and what is computed must not depend on how many there are.
    threads = config.threads or (1 if device == "cpu" else torch.get_num_threads())
    torch.set_num_threads(threads)
    understood = invariant = False

    def proven(what: str, prove: Callable[[], bool]) -> bool:
        key = (model.weights, config.dtype, device, threads, model.context_length, config.batch_tokens, way, what)
        if key not in PROVEN and prove():
            PROVEN.add(key)
        return key in PROVEN

    for way in model.packed.ways():
        if not model.packed.take(way) or not proven("understood", lambda: agrees_with_stock(model, causal)):
            continue
        understood = True
        shapes: dict[str, str | None] = {"bare": None, **model.adapters.shapes}
        invariant = all(proven(shape, partial(same_in_batch, model, adapter)) for shape, adapter in shapes.items())
        if invariant or device != "cpu":
            break
    if not understood:
        raise ModelError(f"{config.path} computes something dssr does not know; use the vllm backend for it.")
    model.packed.let_go()
    model.prefiller.clear()
    if not invariant and device == "cpu":
        raise ModelError(
            f"On this machine {config.path} answers differently alone and in a batch "
            f"({threads} threads, {config.dtype}); set threads = 1."
        )
    if not invariant and config.batch_invariant:
        raise ModelError(
            f"{config.path} answers differently alone and in a batch on {device}, and its configuration says that it "
            "must not; use another device or leave batch_invariant out."
        )
    kind = platform.machine() if device == "cpu" else torch.cuda.get_device_name()
    level = torch.backends.cpu.get_cpu_capability() if device == "cpu" else ""
    return (
        f"engine={ENGINE} {config.dtype} {kind} {level} threads={threads} {way} block={BLOCK}/{LONG} "
        f"prefix={LONG_PREFIX}/{GROUP} invariant={invariant} context={model.context_length} "
        f"torch={torch.__version__} transformers={transformers.__version__}"
    )


def _kv_bytes(device: str) -> int:
    if device == "cpu":
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        return min(max(free // 4, LEAST_KV), MOST_KV)
    free, _ = torch.cuda.mem_get_info()
    return max(free // 4, LEAST_KV)
