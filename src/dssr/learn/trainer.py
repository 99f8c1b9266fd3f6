"""What supervised and preference training share: fixed order, checkpoints, and going on after a kill."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from datasets import Dataset, disable_progress_bars
from peft import set_peft_model_state_dict
from safetensors.torch import load_file
from transformers import PrinterCallback, TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from dssr.models.adapters import WEIGHTS
from dssr.models.base import Message
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


def settings(
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


class Restored(TrainerCallback):  # type: ignore[misc]
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


class Told(TrainerCallback):  # type: ignore[misc]
    """Tells a function the number of each finished optimizer step."""

    def __init__(self, on_step: Callable[[int], None]) -> None:
        self.on_step = on_step

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **rest: Any) -> None:
        self.on_step(state.global_step)


def nobody(step: int) -> None:
    """Listens to no step."""


def run(trainer: Any, work: Path, on_step: Callable[[int], None]) -> None:
    """Train to the end, from the last whole checkpoint if there is one."""
    found = [path for path in work.glob("checkpoint-*") if (path / "trainer_state.json").is_file()]
    newest = str(max(found, key=lambda path: int(path.name.split("-")[1]))) if found else None
    trainer.remove_callback(PrinterCallback)  # it prints to stdout, where programs read our output
    trainer.add_callback(Restored(newest))
    trainer.add_callback(Told(on_step))
    trainer.train(resume_from_checkpoint=newest)
