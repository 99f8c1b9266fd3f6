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
from dssr.models.engine.blocks import Ids
from dssr.models.engine.decode import Reply
from dssr.models.engine.hf import HFModel
from dssr.models.engine.native import BLOCK
from dssr.models.engine.network import ATTENTION
from dssr.models.tokenizers import open_tokenizer

ENGINE = 7
"""Raised whenever the same weights may give other bits than before, so that stored answers are not mixed."""
LEAST_KV, MOST_KV = 2**27, 2**29
"""Bounds of the memory for keys and values, in bytes; between them a quarter of what is free."""
CASES = (BLOCK // 3, BLOCK + 9, BLOCK, 2 * BLOCK + 17, 6 * BLOCK + 5, 6 * BLOCK + 5, 7 * BLOCK, 9 * BLOCK + 3)
"""Lengths of the prompts that a model is tried with, of one text: around the ends of blocks, two alike, and more rows
than one pass has."""
STEPS = 2
PROVEN: set[tuple[object, ...]] = set()
"""What models have shown in this process: by their weights, numerics, way of running and the shape of an adapter."""
CLOSE = 1e-3
"""How far scores may lie from the stock forward pass, relative to their spread."""


@torch.inference_mode()
def same_in_batch(model: HFModel, adapter: str | None) -> bool:
    """Whether prompts scored and continued alone, token by token, and together, with all tokens guessed, give
    identical bits."""
    cases = _cases(model)
    together = _bits(model, cases, adapter, guessed=STEPS - 1)
    alone = [bits for case in cases for bits in _bits(model, [case], adapter, guessed=0)]
    return together == alone


@torch.inference_mode()
def agrees_with_stock(model: HFModel, causal: Any) -> bool:
    """Whether the packed pass computes what transformers' own does, up to rounding."""
    ids = max(_cases(model), key=len)
    model.packed.use(None)
    model.adapters.use(None)
    model.prefiller.clear()
    (prefilled,) = model.prefiller.run([ids], None, keep=False)
    ours = model.packed.logits(prefilled.state[None])[0]
    causal.set_attn_implementation("sdpa")
    try:
        # A second row that ends at the far position puts the rotary embeddings in the state they have in our passes.
        ends = [len(ids) - 1, model.packed.far if model.packed.far is not None else len(ids) - 1]
        positions = torch.tensor([list(range(end - len(ids) + 1, end + 1)) for end in ends])
        rows = torch.from_numpy(ids.astype(np.int64))[None].expand(2, -1)
        output = causal(input_ids=rows, position_ids=positions, logits_to_keep=1, use_cache=False)
        stock = output.logits[0, -1].float()
    finally:
        causal.set_attn_implementation(ATTENTION)
    return float((ours - stock).abs().max()) <= CLOSE * (float(stock.std()) + 1e-6)


def _cases(model: HFModel) -> list[Ids]:
    """Prompts that share a prefix and one that does not."""
    rng = random.Random(0)
    most = min(model.tokenizer.inner.vocab_size, model.packed.vocabulary) - 1
    shared = [rng.randint(0, most) for _ in range(max(CASES))]
    other = [rng.randint(0, most) for _ in range(BLOCK // 2)]
    longest = model.context_length - STEPS - 1
    return [np.array(ids[:longest], dtype=np.int32) for ids in (*(shared[:length] for length in CASES), other)]


def _bits(model: HFModel, cases: list[Ids], adapter: str | None, guessed: int) -> list[bytes]:
    """Scores after each prompt, then the states of a few written tokens, so many of them guessed in each pass."""
    model.packed.use(adapter)
    model.prefiller.clear()
    prefilled = model.prefiller.run(cases, adapter, keep=True)
    scores = model.packed.logits(torch.stack([done.state for done in prefilled]))
    bits = [row.numpy().tobytes() for row in scores]
    replies = [
        Reply(place, done.blocks, ids, STEPS + 1, 0.0, random.Random(0), tokens=[0])
        for place, (ids, done) in enumerate(zip(cases, prefilled, strict=True))
    ]
    model.decoder.admit(replies)
    guesses = [[0] * guessed] * len(replies)
    for _ in range(0, STEPS, 1 + guessed):
        states = model.decoder.states(model.decoder.replies, guesses).view(len(replies), 1 + guessed, -1)
        for reply, mine in zip(model.decoder.replies, states, strict=True):
            bits[reply.request] += mine.numpy().tobytes()
            reply.length += len(mine)
    model.decoder.clear()
    return bits


def load_hf(config: ModelConfig, folder: str) -> HFModel:
    """The model, after it has shown that it is understood and that a batch changes no bit."""
    if config.device not in ("auto", "cpu"):
        raise ModelError(
            f'The backend hf runs on the CPU, and {config.path} has device = "{config.device}"; '
            'set backend = "vllm" for a GPU.'
        )
    causal = _read(folder, config)
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
        kv_bytes=_kv_bytes(),
    )
    try:
        model.numerics = model.batcher.call(lambda: _settle(model, causal, config))
    except BaseException:
        model.batcher.close()
        raise
    return model


def _read(folder: str, config: ModelConfig) -> Any:
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
    return causal.float().eval().requires_grad_(False)


def _settle(model: HFModel, causal: Any, config: ModelConfig) -> str:
    """Picks the fastest way to run the network that agrees with the stock one and whose results do not depend on the
    batch; returns the numerics, for the fingerprint."""
    # One thread: cores are used by workers, and what is computed must not depend on how many there are.
    threads = config.threads or 1
    torch.set_num_threads(threads)
    understood = invariant = False

    def proven(what: str, prove: Callable[[], bool]) -> bool:
        key = (model.weights, config.dtype, threads, model.context_length, config.batch_tokens, way, what)
        if key not in PROVEN and prove():
            PROVEN.add(key)
        return key in PROVEN

    for way in model.packed.ways():
        if not model.packed.take(way) or not proven("understood", lambda: agrees_with_stock(model, causal)):
            continue
        understood = True
        shapes: dict[str, str | None] = {"bare": None, **model.adapters.shapes}
        invariant = all(proven(shape, partial(same_in_batch, model, adapter)) for shape, adapter in shapes.items())
        if invariant:
            break
    if not understood:
        raise ModelError(f"{config.path} computes something dssr does not know; use the vllm backend for it.")
    if not invariant:
        raise ModelError(
            f"On this machine {config.path} answers differently alone and in a batch "
            f"({threads} threads, {config.dtype}); set threads = 1."
        )
    model.packed.let_go()
    model.prefiller.clear()
    return (
        f"engine={ENGINE} {config.dtype} {platform.machine()} {torch.backends.cpu.get_cpu_capability()} "
        f"threads={threads} {way} context={model.context_length} "
        f"torch={torch.__version__} transformers={transformers.__version__}"
    )


def _kv_bytes() -> int:
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min(max(free // 4, LEAST_KV), MOST_KV)
