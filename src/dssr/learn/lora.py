"""LoRA adapters: made fresh, loaded to go on, saved as safetensors with a card and a content hash."""

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM, PreTrainedModel

from dssr.errors import ModelError

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
WEIGHTS = "adapter_model.safetensors"


def load_base(folder: str, dtype: str) -> PreTrainedModel:
    """The base model, ready to be trained on."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=DTYPES[dtype], use_safetensors=True)
    model.config.use_cache = False
    return model


def fresh(base: PreTrainedModel, rank: int, alpha: int, seed: int) -> PeftModel:
    """A new adapter on all linear layers. Its first matrices are random, so they come from the seed."""
    torch.manual_seed(seed)
    settings = LoraConfig(
        r=rank, lora_alpha=alpha, lora_dropout=0.0, bias="none", target_modules="all-linear", task_type="CAUSAL_LM"
    )
    return get_peft_model(base, settings)


def load(base: PreTrainedModel, folder: Path) -> PeftModel:
    """An existing adapter, to be trained further."""
    if not (folder / WEIGHTS).is_file():
        raise ModelError(f"{folder} holds no {WEIGHTS}; give the folder of an adapter that dssr or peft saved.")
    try:
        return PeftModel.from_pretrained(base, str(folder), is_trainable=True)
    except (RuntimeError, ValueError, KeyError) as error:
        first = str(error).strip().splitlines()[0]
        raise ModelError(f"The adapter {folder} does not fit the base model: {first}") from error


def save(model: PeftModel, folder: Path, card: Mapping[str, Any]) -> str:
    """Write the adapter so that the folder appears whole; returns the content hash of its weights."""
    draft = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(draft, ignore_errors=True)
    model.save_pretrained(str(draft), selected_adapters=["default"], safe_serialization=True)
    digest = content_hash(draft)
    described = {**card, "sha256": digest}
    (draft / "card.json").write_text(json.dumps(described, indent=1, sort_keys=True) + "\n")
    (draft / "README.md").write_text(_readme(described))
    if folder.exists():
        raise ModelError(f"{folder} exists; an adapter is never overwritten, choose another folder.")
    os.replace(draft, folder)
    return digest


def content_hash(folder: Path) -> str:
    return hashlib.sha256((folder / WEIGHTS).read_bytes()).hexdigest()


def _readme(card: Mapping[str, Any]) -> str:
    lines = [f"# Adapter {card.get('name', '')}".rstrip(), "", "| field | value |", "|---|---|"]
    lines += [f"| {name} | {json.dumps(value, ensure_ascii=False)} |" for name, value in sorted(card.items())]
    return "\n".join(lines) + "\n"
