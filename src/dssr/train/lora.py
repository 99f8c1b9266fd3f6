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
from dssr.models.adapters import SETTINGS, WEIGHTS, fits_base, stamp_adapter, weights_digest

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def on_cpu(device: str) -> bool:
    """Whether a model with this setting trains on the CPU: `auto` takes a GPU where there is one."""
    return device == "cpu" or (device == "auto" and not torch.cuda.is_available())


def load_base(folder: str, dtype: str, revision: str | None = None) -> PreTrainedModel:
    """The base model, ready to be trained on."""
    model = AutoModelForCausalLM.from_pretrained(folder, revision=revision, dtype=DTYPES[dtype], use_safetensors=True)
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
    if not fits_base(folder, _weights(base)):
        raise ModelError(f"The adapter {folder} was not trained on {base.name_or_path}; continue it on its own base.")
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
    _sort_layers(draft / SETTINGS)
    digest, weights = content_hash(draft), _weights(model.get_base_model())
    stamp_adapter(draft, weights)
    described = {**card, "sha256": digest, "base_weights": weights}
    (draft / "card.json").write_text(json.dumps(described, indent=1, sort_keys=True) + "\n")
    (draft / "README.md").write_text(_readme(described))
    if folder.exists():
        raise ModelError(f"{folder} exists; an adapter is never overwritten, choose another folder.")
    os.replace(draft, folder)
    return digest


def content_hash(folder: Path) -> str:
    return hashlib.sha256((folder / WEIGHTS).read_bytes()).hexdigest()


def _sort_layers(file: Path) -> None:
    """peft lists the adapted layers in the order of a set, which changes with every process."""
    settings = json.loads(file.read_text())
    settings["target_modules"] = sorted(settings["target_modules"])
    file.write_text(json.dumps(settings, indent=1, sort_keys=True) + "\n")


def _weights(base: PreTrainedModel) -> str:
    return weights_digest(base.name_or_path, getattr(base.config, "_commit_hash", None))


def _readme(card: Mapping[str, Any]) -> str:
    lines = [f"# Adapter {card.get('name', '')}".rstrip(), "", "| field | value |", "|---|---|"]
    lines += [f"| {name} | {json.dumps(value, ensure_ascii=False)} |" for name, value in sorted(card.items())]
    return "\n".join(lines) + "\n"
