"""Round 0: a fresh adapter learns to write the best candidate."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer
from trl import SFTConfig, SFTTrainer

from dssr.config import WriterConfig
from dssr.errors import ModelError
from dssr.learn import lora
from dssr.learn.trainer import Example, assistant, chat, dataset, nobody, run, settings

WARMUP = 0.03


def train_sft(
    base: str,
    dtype: str,
    examples: Sequence[Example],
    config: WriterConfig,
    work: Path,
    out: Path,
    seed: int,
    card: Mapping[str, Any],
    cpu: bool = True,
    on_step: Callable[[int], None] = nobody,
    revision: str | None = None,
) -> str:
    """Train, save to `out`, and return the adapter's content hash. A killed call goes on from its checkpoint."""
    if not examples:
        raise ModelError("There is nothing to train on: no write point has a candidate; collect more episodes.")
    model = lora.fresh(lora.load_base(base, dtype, revision), config.rank, config.alpha, seed)
    rows = [{"prompt": chat(one.messages), "completion": assistant(one.reply)} for one in examples]
    common = settings(
        work, config.sft_learning_rate, config.sft_epochs, config.sft_batch, WARMUP, seed, cpu, dtype == "bfloat16"
    )
    trainer = SFTTrainer(
        model=model,
        args=SFTConfig(**common, completion_only_loss=True),
        train_dataset=dataset(rows),
        processing_class=AutoTokenizer.from_pretrained(base, revision=revision),
    )
    run(trainer, work, on_step)
    return lora.save(trainer.model, out, {**card, "examples": len(rows), "method": "sft", "seed": seed})
