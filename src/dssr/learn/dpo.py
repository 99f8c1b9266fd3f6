"""Rounds 1 and on: direct preference optimisation with a likelihood term on the chosen state.

    L = -log sigmoid(beta * [(log p(c) - log p_ref(c)) - (log p(r) - log p_ref(r))]) - weight * mean log p(c_token)

The previous round's adapter is where training starts and what it is measured against. trl does exactly this when it
is given a model with a loaded adapter and no `peft_config`: it keeps a frozen copy of that adapter as the reference.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel
from transformers import AutoTokenizer
from trl import DPOConfig, DPOTrainer

from dssr.config import WriterConfig
from dssr.errors import ModelError
from dssr.learn import lora
from dssr.learn.trainer import Preference, assistant, chat, dataset, nobody, run, settings

WARMUP = 0.03


def preference_loss(
    chosen: torch.Tensor,
    rejected: torch.Tensor,
    reference_chosen: torch.Tensor,
    reference_rejected: torch.Tensor,
    chosen_tokens: torch.Tensor,
    beta: float,
    weight: float,
) -> torch.Tensor:
    """The loss above, per pair, from summed log-probabilities; what training must equal."""
    margin = (chosen - reference_chosen) - (rejected - reference_rejected)
    return -torch.nn.functional.logsigmoid(beta * margin) - weight * chosen / chosen_tokens


def build_trainer(
    model: PeftModel,
    base: str,
    preferences: Sequence[Preference],
    config: WriterConfig,
    work: Path,
    seed: int,
    cpu: bool,
    revision: str | None = None,
) -> DPOTrainer:
    rows = [
        {"prompt": chat(one.messages), "chosen": assistant(one.chosen), "rejected": assistant(one.rejected)}
        for one in preferences
    ]
    half = model.get_base_model().dtype == torch.bfloat16
    common = settings(work, config.dpo_learning_rate, config.dpo_epochs, config.dpo_batch, WARMUP, seed, cpu, half)
    return DPOTrainer(
        model=model,
        ref_model=None,
        args=DPOConfig(
            **common, beta=config.dpo_beta, loss_type=["sigmoid", "sft"], loss_weights=[1.0, config.chosen_weight]
        ),
        train_dataset=dataset(rows),
        processing_class=AutoTokenizer.from_pretrained(base, revision=revision),
    )


def train_dpo(
    base: str,
    dtype: str,
    previous: Path,
    preferences: Sequence[Preference],
    config: WriterConfig,
    work: Path,
    out: Path,
    seed: int,
    card: Mapping[str, Any],
    cpu: bool = True,
    on_step: Callable[[int], None] = nobody,
    revision: str | None = None,
) -> str:
    """Train from the previous round's adapter, save to `out`, and return the content hash."""
    if not preferences:
        raise ModelError("There is no pair to train on; see the gap distribution of this round's candidates.")
    model = lora.load(lora.load_base(base, dtype, revision), previous)
    trainer = build_trainer(model, base, preferences, config, work, seed, cpu, revision)
    run(trainer, work, on_step)
    described = {**card, "pairs": len(preferences), "method": "dpo", "seed": seed}
    return lora.save(trainer.model, out, {**described, "previous": lora.content_hash(previous)})
