"""The model card that lies beside the weights."""

from collections.abc import Mapping

from dssr.learn.nano.network import Network
from dssr.learn.nano.pretrain import Progress

CARD = """# nano

The built-in model of dssr: {parameters:.2f} million parameters, stock Qwen3 architecture ({depth} layers, width
{width}, {heads} heads, inner width {inner}), tied embeddings, its own byte-level BPE tokenizer ({vocabulary} tokens),
8,192 tokens of context, bfloat16 safetensors.

## What it is for

Both roles of the study on a CPU: as **reader** it picks one lettered option of a TextWorld cooking game; as **writer**
it rewrites a short state in the formats `summary`, `belief`, `slots` and `guide`. It knows nothing else.

## Data

- Transcripts of training games only: the scripted walk, then the optimal policy with 12 % random slips.
- Cooking drills from a small simulation of the game's kitchen (`learn/nano/drill.py`).
- Demonstrations of the scripted writers, whose forgetting is documented in `models/scripted/writer.py`: each rewrite
  loses some claims, older ones more often, more under budget pressure. This imperfection is made by a script; it
  stands in for that of a prompted language model, and nano imitates it.
- Foods are renamed word by word and the compass turned in every sample, so names can only be read from the text.

## Recipe

`dssr nano build`: one core, {hours:.2f} hours of training, {steps} steps, {tokens:.1f} million tokens; Muon for the
matrices, AdamW for the rest; a curriculum from drills to oracle, written states and whole histories. Beside the label
loss, linear probes on the ends of the option lines learn which option is right and what is true of each; they are not
part of the exported weights. The data stream runs beside the training, so the point at which the curriculum moves on
depends on timing: a rebuild is the same recipe, not the same bits.

## Measured

{measured}
"""


def card(network: Network, progress: Progress, measured: Mapping[str, str]) -> str:
    """The card's text; `measured` maps what was measured to its figure."""
    vocabulary, width = network.model.embed_tokens.weight.shape
    rows = [f"| {what} | {figure} |" for what, figure in measured.items()]
    table = ["| measure | figure |", "|---|---|", *rows] if rows else ["Nothing yet: see `dssr reader accept`."]
    return CARD.format(
        parameters=sum(weight.numel() for weight in network.model.parameters()) / 1e6,
        depth=network.shape.depth,
        width=width,
        heads=network.shape.heads,
        inner=network.shape.inner,
        vocabulary=vocabulary,
        hours=progress.seconds / 3600,
        steps=progress.step,
        tokens=progress.tokens / 1e6,
        measured="\n".join(table),
    )
