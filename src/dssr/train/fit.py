"""What supervised and preference training share: fixed order, checkpoints, and going on after a kill.

Round 0: a fresh adapter learns to write the best candidate.

Rounds 1 and on: direct preference optimisation with a likelihood term on the chosen state.

    L = -log sigmoid(beta * [(log p(c) - log p_ref(c)) - (log p(r) - log p_ref(r))]) - weight * mean log p(c_token)

The previous round's adapter is where training starts and what it is measured against. trl does exactly this when it
is given a model with a loaded adapter and no `peft_config`: it keeps a frozen copy of that adapter as the reference.

"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset, disable_progress_bars
from peft import PeftModel, set_peft_model_state_dict
from safetensors.torch import load_file
from transformers import (
    AutoTokenizer,
    PrinterCallback,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)
from trl import DPOConfig, DPOTrainer, SFTConfig, SFTTrainer

from dssr.config import WriterConfig
from dssr.errors import ModelError
from dssr.models.adapters import WEIGHTS
from dssr.models.base import Message
from dssr.train import lora
from dssr.types import Record


class Example(Record, frozen=True):
    """A request to the writer and the reply it should have given."""

    messages: tuple[Message, ...]
    reply: str


class Preference(Record, frozen=True):
    """A request to the writer, a better and a worse reply."""

    messages: tuple[Message, ...]
    chosen: str
    rejected: str


def chat(messages: Sequence[Message]) -> list[dict[str, str]]:
    return [{"role": message.role, "content": message.content} for message in messages]


def assistant(reply: str) -> list[dict[str, str]]:
    return [{"role": "assistant", "content": reply}]


def dataset(rows: list[dict[str, Any]]) -> Dataset:
    """Rows for a trl trainer, which prepares them without a progress bar of its own."""
    disable_progress_bars()
    return Dataset.from_list(rows)


def trainer_settings(
    work: Path, rate: float, epochs: int, batch: int, warmup: float, seed: int, cpu: bool, half: bool
) -> dict[str, Any]:
    """Arguments for any trl trainer. One sequence per forward pass: its `sft` term is then a mean per sequence.

    `half`: the base is in bfloat16. On a GPU the computation then is too; on a CPU only the stored weights are.
    """
    return {
        "output_dir": str(work),
        "per_device_train_batch_size": 1,
        "gradient_accumulation_steps": batch,
        "learning_rate": rate,
        "num_train_epochs": epochs,
        "lr_scheduler_type": "linear",
        "warmup_steps": warmup,
        "seed": seed % (1 << 31),
        "data_seed": seed % (1 << 31),
        "max_length": None,
        "bf16": half and not cpu,
        "use_cpu": cpu,
        "gradient_checkpointing": not cpu,
        "save_strategy": "steps",
        "save_steps": 10,
        "save_total_limit": 2,
        "logging_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
        "dataloader_num_workers": 0,
    }


class CheckpointRestorer(TrainerCallback):  # type: ignore[misc]
    """Loads the trained adapter of a checkpoint.

    transformers restores a checkpoint's adapters from its sub-folders alone; when a frozen reference lies beside the
    trained adapter, the trained one stands at the top, is passed over, and training would start again from scratch.
    """

    def __init__(self, checkpoint: str | None) -> None:
        self.checkpoint = checkpoint

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **rest: Any
    ) -> None:
        if self.checkpoint is not None:
            set_peft_model_state_dict(rest["model"], load_file(f"{self.checkpoint}/{WEIGHTS}"), adapter_name="default")


class StepReporter(TrainerCallback):  # type: ignore[misc]
    """Tells a function the number of each finished optimizer step."""

    def __init__(self, on_step: Callable[[int], None]) -> None:
        self.on_step = on_step

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **rest: Any) -> None:
        self.on_step(state.global_step)


def nobody(step: int) -> None:
    """Listens to no step."""


def run_trainer(trainer: Any, work: Path, on_step: Callable[[int], None]) -> None:
    """Train to the end, from the last whole checkpoint if there is one."""
    found = [path for path in work.glob("checkpoint-*") if (path / "trainer_state.json").is_file()]
    newest = str(max(found, key=lambda path: int(path.name.split("-")[1]))) if found else None
    trainer.remove_callback(PrinterCallback)  # it prints to stdout, where programs read our output
    trainer.add_callback(CheckpointRestorer(newest))
    trainer.add_callback(StepReporter(on_step))
    trainer.train(resume_from_checkpoint=newest)


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
    common = trainer_settings(
        work, config.sft_learning_rate, config.sft_epochs, config.sft_batch, WARMUP, seed, cpu, dtype == "bfloat16"
    )
    trainer = SFTTrainer(
        model=model,
        args=SFTConfig(**common, completion_only_loss=True),
        train_dataset=dataset(rows),
        processing_class=AutoTokenizer.from_pretrained(base, revision=revision),
    )
    run_trainer(trainer, work, on_step)
    return lora.save(trainer.model, out, {**card, "examples": len(rows), "method": "sft", "seed": seed})


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
    common = trainer_settings(
        work, config.dpo_learning_rate, config.dpo_epochs, config.dpo_batch, WARMUP, seed, cpu, half
    )
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
    run_trainer(trainer, work, on_step)
    described = {**card, "pairs": len(preferences), "method": "dpo", "seed": seed}
    return lora.save(trainer.model, out, {**described, "previous": lora.content_hash(previous)})
