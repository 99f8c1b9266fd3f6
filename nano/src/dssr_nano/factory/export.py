"""Writes a trained network as an ordinary Hugging Face folder (bfloat16 safetensors, configuration, tokenizer), and the
card that lies beside the weights."""

import json
import shutil
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path

import torch
from safetensors.torch import save_file

from dssr.errors import RecordError
from dssr.record.run import Run
from dssr_nano.factory.mixture import load_encoder
from dssr_nano.factory.network import Network, config_of
from dssr_nano.factory.tokenizer import FILES
from dssr_nano.factory.training import Progress
from dssr_nano.networks import Role

CONTEXT_LENGTH = 8192
WEIGHTS = "model.safetensors"


def export(network: Network, tokenizer: Path, folder: Path) -> None:
    """A folder that transformers, peft and vLLM load as they load any Qwen3."""
    folder.mkdir(parents=True, exist_ok=True)
    encoder = load_encoder(str(tokenizer))
    config = config_of(
        network.shape,
        encoder.tokenizer.get_vocab_size(),
        end=encoder.end,
        pad=encoder.special("<|pad|>"),
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


# ---------------------------------------------------------------- card

CARD = """# nano, {role}

{what} of dssr's built-in model; [the family](../README.md) has its purpose, data and recipe.

| | |
|---|---|
| architecture | Qwen3, {depth} layers, width {width}, {heads} heads, inner width {inner}, tied embeddings |
| parameters | {parameters:.2f} million, bfloat16 |
| vocabulary, context | {vocabulary} tokens, 8,192 tokens |
| made by | `dssr nano build {role}{options}` |
| training | {steps} steps, {tokens:.1f} million tokens, {hours:.2f} hours on one core |
| sha256 of the weights | `{digest}` |

## Measured
"""
WHAT: dict[Role, str] = {
    "reader": "A reader",
    "writer": "A writer",
    "house": "A reader for houses of 9 and 12 rooms",
    "house-writer": "A writer for houses of 9 and 12 rooms",
}
CONFIG: dict[Role, str] = {"house": "nano-house", "house-writer": "nano-house"}
"""Whose games a network is made from, where they are not those of `nano`."""
NOTHING = "Nothing yet: `dssr nano card ROLE RUN…` fills this in from stored runs."


def measured(runs: Iterable[Run]) -> str:
    """The cells of finished runs as a table."""
    rows = ["| run | rooms | memory | B | F' | games | success |", "|---|---|---|---|---|---|---|"]
    for run in runs:
        if run.summary is None:
            raise RecordError(f"{run.path} is not finished, so it has nothing to show yet; finish it with --resume.")
        for cell in run.summary["cells"]:
            budget = cell["budget"] or "–"
            name = f"{run.info.command} {run.info.digest[:8]} | {', '.join(map(str, run.config.games.levels))}"
            rows.append(
                f"| {name} | {cell['memory']} | {budget} | {cell['filler']} | {cell['games']} | {cell['success']:.3f} |"
            )
    return "\n".join(rows)


def refill(text: str, table: str) -> str:
    """A card with another table of measurements."""
    head, _, _ = text.partition("## Measured")
    return f"{head}## Measured\n\n{table}\n"


def card(network: Network, progress: Progress, role: Role, seed: int, shape: str | None, weights: bytes) -> str:
    """The card of fresh weights."""
    vocabulary, width = network.model.embed_tokens.weight.shape
    given = {"--config": CONFIG.get(role), "--seed": seed, "--shape": shape}
    options = "".join(f" {name} {value}" for name, value in given.items() if value)
    text = CARD.format(
        role=role,
        what=WHAT[role],
        options=options,
        digest=sha256(weights).hexdigest(),
        parameters=sum(weight.numel() for weight in network.model.parameters()) / 1e6,
        depth=network.shape.depth,
        width=width,
        heads=network.shape.heads,
        inner=network.shape.inner,
        vocabulary=vocabulary,
        hours=progress.seconds / 3600,
        steps=progress.step,
        tokens=progress.tokens / 1e6,
    )
    return refill(text, NOTHING)
