"""Reads a transformers checkpoint and its adapters, and settles the numerics it runs with."""

import os
import platform
from pathlib import Path
from typing import Any

import torch
import transformers

from dssr.config import ModelConfig
from dssr.errors import ModelError
from dssr.models.adapters import Adapters, weights_digest
from dssr.models.hf import HFModel
from dssr.models.kv import BLOCK
from dssr.models.packed import ATTENTION, ROWS
from dssr.models.selftest import agrees_with_stock, same_in_company
from dssr.models.stems import LONG, TILE
from dssr.models.tokenizers import open_tokenizer

ENGINE = 2
"""Raised whenever the same weights may give other bits than before, so that stored answers are not mixed."""
LEAST_KV, MOST_KV = 2**28, 2**31
"""Bounds of the memory for keys and values, in bytes; between them a quarter of what is free."""


def load_hf(config: ModelConfig, folder: str) -> HFModel:
    """The model, after it has shown that it is understood and that company changes no bit."""
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
        raise ModelError(f"{folder} holds no *.safetensors weights; dssr loads no other kind")
    transformers.utils.logging.disable_progress_bar()
    try:
        causal = transformers.AutoModelForCausalLM.from_pretrained(
            folder,
            revision=config.revision,
            dtype=getattr(torch, config.dtype),
            attn_implementation=ATTENTION,
            use_safetensors=True,
        )
    except Exception as error:  # transformers raises many kinds for missing or broken weights
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ModelError(f"no model could be read from {folder}: {reason}") from error
    window = getattr(causal.config, "sliding_window", None)
    if window and getattr(causal.config, "use_sliding_window", True) and window < config.context_length:
        raise ModelError(f"{config.path} attends only {window} tokens back; dssr runs models with full attention")
    return causal.to(device).eval().requires_grad_(False)


def _settle(model: HFModel, causal: Any, config: ModelConfig, device: str) -> str:
    """Picks a thread count that keeps results independent of company; returns the numerics, for the fingerprint."""
    wanted = config.threads or torch.get_num_threads()
    if not agrees_with_stock(model, causal):
        raise ModelError(f"{config.path} computes something dssr does not know; use the vllm backend for it")
    invariant = False
    # Some matrix products round differently by row count on several threads, and none do on one.
    for threads in (wanted,) if config.threads or wanted == 1 or device != "cpu" else (wanted, 1):
        torch.set_num_threads(threads)
        invariant = all(same_in_company(model, adapter) for adapter in (None, *model.adapters.names))
        if invariant:
            break
    model.prefiller.store.clear()
    if not invariant and device == "cpu":
        raise ModelError(
            f"on this machine {config.path} answers differently alone and in a batch "
            f"({threads} threads, {config.dtype}); set threads = 1"
        )
    kind = platform.machine() if device == "cpu" else torch.cuda.get_device_name()
    level = torch.backends.cpu.get_cpu_capability() if device == "cpu" else ""
    return (
        f"engine={ENGINE} {config.dtype} {kind} {level} threads={threads} block={BLOCK} rows={ROWS} "
        f"stem={LONG}/{TILE} invariant={invariant} context={model.context_length} "
        f"torch={torch.__version__} transformers={transformers.__version__}"
    )


def _kv_bytes(device: str) -> int:
    if device == "cpu":
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        return min(max(free // 4, LEAST_KV), MOST_KV)
    free, _ = torch.cuda.mem_get_info()
    return max(free // 4, LEAST_KV)
