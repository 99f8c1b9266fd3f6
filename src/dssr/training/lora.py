"""LoRA adapters: what a training needs to know, and adapters made fresh, loaded to go on, saved with a card.

Adapters are on all linear layers, without dropout or weight decay.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM, PreTrainedModel

from dssr.errors import ModelError
from dssr.models.adapters import SETTINGS, WEIGHTS, fits_base, stamp_adapter, weights_digest
from dssr.types import Record

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}

OnStep = Callable[[int, int], None]
"""Is told after each optimizer step: (done, of)."""


class Fit(Record, frozen=True):
    """One training of one adapter: on what, how, and where. The same for the writer and the reader."""

    base: str
    """Folder or hub name of the base model's weights."""
    seed: int
    work: Path
    """Checkpoints, from which a killed training goes on; can be deleted afterwards."""
    out: Path
    """The adapter's folder; must not exist yet."""
    rate: float
    """Highest learning rate: it rises during the warm-up and falls to zero at the end, both in a straight line."""
    epochs: int
    batch: int
    """Examples per optimizer step."""
    warmup: float
    """Share of the steps."""
    rank: int
    alpha: int
    dtype: str = "float32"
    """Of the base; on a GPU, bfloat16 is also what is computed in."""
    revision: str | None = None
    device: str = "auto"
    """As in the model's configuration: `auto` takes a GPU where there is one."""
    card: Mapping[str, Any] = {}
    """What is written beside the adapter, besides what training adds."""

    @property
    def place(self) -> str:
        """The device that is trained on."""
        return self.device if self.device != "auto" else "cuda" if torch.cuda.is_available() else "cpu"

    @property
    def on_cpu(self) -> bool:
        return self.place == "cpu"

    @property
    def half(self) -> bool:
        """Whether the base is in half precision."""
        return DTYPES[self.dtype] is torch.bfloat16


def nobody(done: int, of: int) -> None:
    """Listens to no step."""


def load_base(fit: Fit) -> PreTrainedModel:
    """The base model, ready to be trained on."""
    model = AutoModelForCausalLM.from_pretrained(
        fit.base, revision=fit.revision, dtype=DTYPES[fit.dtype], use_safetensors=True
    )
    model.config.use_cache = False
    return model


def fresh(fit: Fit) -> PeftModel:
    """The base with a new adapter. Its first matrices are random, so they come from the seed."""
    base = load_base(fit)
    torch.manual_seed(fit.seed)
    settings = LoraConfig(
        r=fit.rank,
        lora_alpha=fit.alpha,
        lora_dropout=0.0,
        bias="none",
        target_modules="all-linear",
        task_type="CAUSAL_LM",
    )
    return get_peft_model(base, settings)


def load(fit: Fit, folder: Path) -> PeftModel:
    """The base with an existing adapter, to be trained further."""
    if not (folder / WEIGHTS).is_file():
        raise ModelError(f"{folder} holds no {WEIGHTS}; give the folder of an adapter that dssr or peft saved.")
    base = load_base(fit)
    if not fits_base(folder, _weights(base)):
        raise ModelError(f"The adapter {folder} was not trained on {base.name_or_path}; continue it on its own base.")
    try:
        return PeftModel.from_pretrained(base, str(folder), is_trainable=True)
    except (RuntimeError, ValueError, KeyError) as error:
        first = str(error).strip().splitlines()[0]
        raise ModelError(
            f"The adapter {folder} does not fit the base model ({first}); continue it on its own base."
        ) from error


def save(model: PeftModel, fit: Fit, facts: Mapping[str, Any]) -> str:
    """Write the adapter so that its folder appears whole; returns the content hash of its weights.

    `facts` go to the card: what training found out.
    """
    folder = fit.out
    draft = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(draft, ignore_errors=True)
    model.save_pretrained(str(draft), selected_adapters=["default"], safe_serialization=True)
    _sort_layers(draft / SETTINGS)
    digest, weights = content_hash(draft), _weights(model.get_base_model())
    stamp_adapter(draft, weights)
    described = {**fit.card, **facts, "seed": fit.seed, "sha256": digest, "base_weights": weights}
    (draft / "card.json").write_text(json.dumps(described, indent=1, sort_keys=True) + "\n")
    (draft / "README.md").write_text(_readme(described))
    if folder.exists():
        raise ModelError(f"{folder} exists; an adapter is never overwritten, choose another folder.")
    os.replace(draft, folder)
    return digest


def content_hash(folder: Path) -> str:
    """Of an adapter's weights."""
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
