"""The model card that lies beside the weights."""

from collections.abc import Iterable

from dssr.errors import RecordError
from dssr.learn.nano.network import Network
from dssr.learn.nano.pretrain import Progress
from dssr.record.run import Run

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

`dssr nano build`: {hours:.2f} hours of training on two cores, {steps} steps, {tokens:.1f} million tokens; Muon for the
matrices, AdamW for the rest; a curriculum from drills to `oracle-b`, written states, whole histories and rewriting.

What makes hours enough is told to the network, not waited for:

- the first weights hold heads that look back, find earlier names and copy what followed them (`start.py`);
- while it learns, some heads are told where to look: from a food in an option to the recipe's line about it, from there
  to the verb, from the answer to the right line (`looks.py`);
- linear probes at the ends of the option lines learn which option is right and what is true of each.

All of this is made from the training text alone. Probes and looks are not part of the exported weights, which are an
ordinary Qwen3. What is taught at which step is fixed (`curriculum.py`), and every row of data follows from the seed and
its number: a rebuild with as many threads on an equal machine meets the same rows in the same order.

## Measured
"""
NOTHING = "Nothing yet: `dssr nano card RUN…` fills this in from stored runs."


def measured(runs: Iterable[Run]) -> str:
    """The cells of finished runs as a table."""
    rows = ["| run | memory | B | F' | games | success |", "|---|---|---|---|---|---|"]
    for run in runs:
        if run.summary is None:
            raise RecordError(f"{run.path} is not finished, so it has nothing to show yet; finish it with --resume.")
        for cell in run.summary["cells"]:
            budget = cell["budget"] or "–"
            name = f"{run.info.command} {run.info.digest[:8]}"
            rows.append(
                f"| {name} | {cell['memory']} | {budget} | {cell['filler']} | {cell['games']} | {cell['success']:.3f} |"
            )
    return "\n".join(rows)


def refill(text: str, table: str) -> str:
    """A card with another table of measurements."""
    head, _, _ = text.partition("## Measured")
    return f"{head}## Measured\n\n{table}\n"


def card(network: Network, progress: Progress) -> str:
    """The card of fresh weights."""
    vocabulary, width = network.model.embed_tokens.weight.shape
    text = CARD.format(
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
