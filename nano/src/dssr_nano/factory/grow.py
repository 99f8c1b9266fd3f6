"""A network for houses starts as a shipped one: layers that do nothing yet are put between its own, and the vocabulary
gets the words that only houses have. What it could read before, it reads as before."""

import json
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer

from dssr.errors import UsageError
from dssr_nano.factory.initial_weights import SHARP
from dssr_nano.factory.network import Network
from dssr_nano.factory.tokenizer import cut

NORM = "self_attn.q_norm.weight"
BEFORE = 4
"""Layers of the smaller network that stay before the new ones; the others come after them."""
INDOORS = ("kitchen", "pantry", "livingroom", "bathroom", "bedroom", "corridor")
OUTDOORS = ("backyard", "garden", "shed", "driveway", "street", "supermarket")
HEADING = "-= {} =-\n"
SIMILAR: dict[str, tuple[str, ...]] = {
    **{HEADING.format(room.title()): tuple(HEADING.format(one.title()) for one in INDOORS) for room in OUTDOORS},
    **{f" {room}": tuple(f" {one}" for one in INDOORS) for room in OUTDOORS},
    " grill": (" fry", " roast"),
    "grill": ("fry", "roast"),
    " grilled": (" fried", " roasted"),
}
"""What becomes one token, and the tokens it is like."""


def extend_tokenizer(tokenizer: Tokenizer, wholes: Sequence[str] = tuple(SIMILAR)) -> Tokenizer:
    """The tokenizer with these texts as single tokens: merges after all others, so that other texts stay as cut."""
    for text in wholes:
        plain = json.loads(tokenizer.to_str())
        vocabulary, merges = plain["model"]["vocab"], plain["model"]["merges"]
        # Special tokens keep their places only if the model knows them.
        vocabulary |= {one["content"]: one["id"] for one in plain["added_tokens"]}
        pieces = [tokenizer.id_to_token(token) or "" for token in cut(tokenizer, text)]
        while len(pieces) > 1:
            merges.append(pieces[:2])
            pieces = ["".join(pieces[:2]), *pieces[2:]]
            vocabulary.setdefault(pieces[0], len(vocabulary))
        tokenizer = Tokenizer.from_str(json.dumps(plain))
    return tokenizer


@torch.no_grad()
def grow(network: Network, folder: Path, tokenizer: Tokenizer) -> None:
    """Fills a fresh network from the smaller one in the folder. `tokenizer` is the extended one."""
    stored = load_file(folder / "model.safetensors")
    old = {name.removeprefix("model."): value.float() for name, value in stored.items()}
    new = network.model.state_dict()
    depth = 1 + max(int(name.split(".")[1]) for name in old if name.startswith("layers."))
    added = network.shape.depth - depth
    same = [new[f"layers.0.{part}"].shape == old[f"layers.0.{part}"].shape for part in ("mlp.up_proj.weight", NORM)]
    if added < 0 or not all(same):
        raise UsageError(
            "A network that starts as a smaller one has its width, heads and inner width, and at least its layers."
        )
    for name, value in old.items():
        if name.startswith("layers."):
            _, number, rest = name.split(".", 2)
            new[f"layers.{int(number) + (added if int(number) >= BEFORE else 0)}.{rest}"].copy_(value)
        elif name != "embed_tokens.weight":
            new[name].copy_(value)
    for number in range(BEFORE, BEFORE + added):
        part = network.model.parts()[number]
        for weight in (part.self_attn.q_norm.weight, part.self_attn.k_norm.weight):
            weight.fill_(SHARP)
        for matrix in (part.self_attn.q_proj.weight, part.self_attn.k_proj.weight, part.self_attn.v_proj.weight):
            matrix.normal_(std=matrix.shape[1] ** -0.5)
        part.self_attn.o_proj.weight.zero_()
        part.mlp.down_proj.weight.zero_()
    _embed(new["embed_tokens.weight"], old["embed_tokens.weight"], tokenizer)


def _embed(new: torch.Tensor, old: torch.Tensor, tokenizer: Tokenizer) -> None:
    """New tokens begin near the mean of those they are like, as far from it as these are."""
    known = len(old)
    new[:known] = old
    new[known:].normal_(std=0.02)
    for text, like in SIMILAR.items():
        (token,) = cut(tokenizer, text)
        rows = old[[one for other in like for one in cut(tokenizer, other)]]
        centre = rows.mean(0)
        if token >= known:
            new[token] = centre + (rows - centre).std(0) * torch.randn(old.shape[1])
