"""Writes a trained network as an ordinary Hugging Face folder: bfloat16 safetensors, configuration, tokenizer."""

import json
import shutil
from pathlib import Path

import torch
from safetensors.torch import save_file

from dssr_nano.factory.mixture import scribe_of
from dssr_nano.factory.network import Network, config_of
from dssr_nano.factory.tokenizer import FILES

CONTEXT_LENGTH = 8192
WEIGHTS = "model.safetensors"


def export(network: Network, tokenizer: Path, folder: Path) -> None:
    """A folder that transformers, peft and vLLM load as they load any Qwen3."""
    folder.mkdir(parents=True, exist_ok=True)
    scribe = scribe_of(str(tokenizer))
    config = config_of(
        network.shape,
        scribe.tokenizer.get_vocab_size(),
        end=scribe.end,
        pad=scribe.special("<|pad|>"),
        context_length=CONTEXT_LENGTH,
    )
    config.save_pretrained(folder)
    weights = {f"model.{name}": value for name, value in network.model.state_dict().items()}
    save_file(
        {name: value.to(torch.bfloat16).contiguous() for name, value in weights.items()},
        folder / WEIGHTS,
        metadata={"format": "pt"},
    )
    for name in FILES:
        shutil.copyfile(tokenizer / name, folder / name)
    ends = {"eos_token_id": config.eos_token_id, "pad_token_id": config.pad_token_id}
    (folder / "generation_config.json").write_text(json.dumps(ends, indent=2) + "\n", encoding="utf-8")
