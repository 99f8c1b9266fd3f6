"""Training a LoRA adapter: what one training is, the writer's two methods, and adapters on disk.

Adapters are on all linear layers, without dropout or weight decay. Examples come in a fixed order, and a killed
training goes on from its last checkpoint. The writer is trained with trl:

Round 0 is supervised (`train_sft`): a fresh adapter learns to write the best candidate.

Rounds 1 and on are direct preference optimisation (`train_dpo`) with a likelihood term on the chosen state:

    L = -log sigmoid(beta * [(log p(c) - log p_ref(c)) - (log p(r) - log p_ref(r))]) - weight * mean log p(c_token)

The previous round's adapter is where training starts and what it is measured against. trl does exactly this when it
is given a model with a loaded adapter and no `peft_config`: it keeps a frozen copy of that adapter as the reference.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from datasets import Dataset, disable_progress_bars
from peft import LoraConfig, PeftModel, get_peft_model, set_peft_model_state_dict
from safetensors.torch import load_file
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedModel,
    PrinterCallback,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)
from trl import DPOConfig, DPOTrainer, SFTConfig, SFTTrainer

from dssr.errors import ModelError
from dssr.models.adapters import SETTINGS, WEIGHTS, check_adapter, fits_base, stamp_adapter, weights_digest
from dssr.models.base import Message
from dssr.models.tokenizers import first_line
from dssr.training.round import Example, Preference
from dssr.types import Record

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}

OnStep = Callable[[int, int], None]
"""Called after each optimizer step: (done, of)."""


def nobody(done: int, of: int) -> None:
    """Listens to no step."""


class Fit(Record, frozen=True):
    """One training of one adapter: on what, how, and where. The same for the writer and the reader."""

    base: str
    """Folder or hub name of the base model's weights."""
    seed: int
    """Of the order of examples, and of a fresh adapter's first matrices if `start` is unset."""
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
    """Of the adapter's matrices."""
    alpha: int
    """The adapter's output is scaled by alpha / rank."""
    dtype: str = "float32"
    """Of the base; on a GPU, bfloat16 is also what is computed in."""
    revision: str | None = None
    device: str = "auto"
    """As in the model's configuration: `auto` takes a GPU where there is one."""
    start: int | None = None
    """Seed of a fresh adapter's first matrices, where several trainings are to start alike."""
    card: Mapping[str, Any] = {}
    """What is written beside the adapter, besides what training adds."""

    @property
    def place(self) -> str:
        """The device that is trained on."""
        return self.device if self.device != "auto" else "cuda" if torch.cuda.is_available() else "cpu"

    @property
    def on_cpu(self) -> bool:
        """Whether it trains without a GPU."""
        return self.place == "cpu"

    @property
    def half(self) -> bool:
        """Whether the base is in half precision."""
        return DTYPES[self.dtype] is torch.bfloat16


# ---------------------------------------------------------------- the writer's methods


def train_sft(fit: Fit, examples: Sequence[Example], on_step: OnStep = nobody, previous: Path | None = None) -> str:
    """Train a fresh adapter, or the previous round's further; save to `fit.out`, and return the content hash.

    A killed call goes on from its checkpoint.
    """
    if not examples:
        raise ModelError("There is nothing to train on: no write point has a candidate; collect more episodes.")
    rows = [{"prompt": chat(one.messages), "completion": assistant(one.reply)} for one in examples]
    trainer = SFTTrainer(
        model=fresh(fit) if previous is None else load(fit, previous),
        args=SFTConfig(**trainer_settings(fit), completion_only_loss=True),
        train_dataset=dataset(rows),
        processing_class=AutoTokenizer.from_pretrained(fit.base, revision=fit.revision, trust_remote_code=False),
    )
    run_trainer(trainer, fit.work, on_step)
    return save(trainer.model, fit, {"examples": len(rows), "method": "sft"})


class PreferenceLoss(Record, frozen=True):
    """The constants of the preference loss, as in the head of this file."""

    beta: float
    chosen_weight: float
    """Of the likelihood term."""


def train_dpo(
    fit: Fit, preferences: Sequence[Preference], previous: Path, loss: PreferenceLoss, on_step: OnStep = nobody
) -> str:
    """Train from the previous round's adapter, save to `fit.out`, and return the content hash."""
    if not preferences:
        raise ModelError("There is no pair to train on; see the gap distribution of this round's candidates.")
    trainer = preference_trainer(fit, load(fit, previous), preferences, loss)
    run_trainer(trainer, fit.work, on_step)
    facts = {"pairs": len(preferences), "method": "dpo", "previous": content_hash(previous)}
    return save(trainer.model, fit, facts)


def preference_trainer(
    fit: Fit, model: PeftModel, preferences: Sequence[Preference], loss: PreferenceLoss
) -> DPOTrainer:
    """A trainer of the model's adapter against a frozen copy of itself."""
    rows = [
        {"prompt": chat(one.messages), "chosen": assistant(one.chosen), "rejected": assistant(one.rejected)}
        for one in preferences
    ]
    return DPOTrainer(
        model=model,
        ref_model=None,
        args=DPOConfig(
            **trainer_settings(fit),
            beta=loss.beta,
            loss_type=["sigmoid", "sft"],
            loss_weights=[1.0, loss.chosen_weight],
        ),
        train_dataset=dataset(rows),
        processing_class=AutoTokenizer.from_pretrained(fit.base, revision=fit.revision, trust_remote_code=False),
    )


class Replies(NamedTuple):
    """Summed log-probabilities of the two replies of each pair, under one model."""

    chosen: torch.Tensor
    rejected: torch.Tensor


def preference_loss(
    policy: Replies, reference: Replies, chosen_tokens: torch.Tensor, loss: PreferenceLoss
) -> torch.Tensor:
    """The loss in the head of this file, per pair; what training must equal."""
    margin = (policy.chosen - reference.chosen) - (policy.rejected - reference.rejected)
    return -torch.nn.functional.logsigmoid(loss.beta * margin) - loss.chosen_weight * policy.chosen / chosen_tokens


# ---------------------------------------------------------------- trl

SAVE_EVERY = 10
"""Optimizer steps between checkpoints: what a kill costs at most, and more than saving takes."""
KEPT = 2
"""Checkpoints kept: the newest may be half-written when a kill comes."""


def run_trainer(trainer: Any, work: Path, on_step: OnStep) -> None:
    """Train to the end, from the last whole checkpoint if there is one."""
    found = [path for path in work.glob("checkpoint-*") if (path / "trainer_state.json").is_file()]
    newest = str(max(found, key=lambda path: int(path.name.split("-")[1]))) if found else None
    trainer.remove_callback(PrinterCallback)  # it prints to stdout, where programs read our output
    trainer.add_callback(CheckpointRestorer(newest))
    trainer.add_callback(StepReporter(on_step))
    trainer.train(resume_from_checkpoint=newest)


def trainer_settings(fit: Fit) -> dict[str, Any]:
    """Arguments for any trl trainer. One sequence per forward pass: its `sft` term is then a mean per sequence.

    With a base in half precision the computation on a GPU is too; on a CPU only the stored weights are.
    """
    return {
        "output_dir": str(fit.work),
        "per_device_train_batch_size": 1,
        "gradient_accumulation_steps": fit.batch,
        "learning_rate": fit.rate,
        "num_train_epochs": fit.epochs,
        "lr_scheduler_type": "linear",
        "warmup_steps": fit.warmup,
        "seed": fit.seed % (1 << 31),
        "data_seed": fit.seed % (1 << 31),
        "max_length": None,
        "bf16": fit.half and not fit.on_cpu,
        "use_cpu": fit.on_cpu,
        "gradient_checkpointing": not fit.on_cpu,
        "save_strategy": "steps",
        "save_steps": SAVE_EVERY,
        "save_total_limit": KEPT,
        "logging_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
        "dataloader_num_workers": 0,
    }


def chat(messages: Sequence[Message]) -> list[dict[str, str]]:
    """A request as trl wants it."""
    return [{"role": message.role, "content": message.content} for message in messages]


def assistant(reply: str) -> list[dict[str, str]]:
    """A reply as trl wants it."""
    return [{"role": "assistant", "content": reply}]


def dataset(rows: list[dict[str, Any]]) -> Dataset:
    """Rows for a trl trainer, which prepares them without a progress bar of its own."""
    disable_progress_bars()
    return Dataset.from_list(rows)


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
        """After transformers has restored what it restores."""
        if self.checkpoint is not None:
            set_peft_model_state_dict(rest["model"], load_file(f"{self.checkpoint}/{WEIGHTS}"), adapter_name="default")


class StepReporter(TrainerCallback):  # type: ignore[misc]
    """Tells how many optimizer steps are done."""

    def __init__(self, on_step: OnStep) -> None:
        self.on_step = on_step

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **rest: Any) -> None:
        """Called by the trainer after each optimizer step."""
        self.on_step(state.global_step, state.max_steps)


# ---------------------------------------------------------------- adapters


def load_base(fit: Fit) -> PreTrainedModel:
    """The base model, ready to be trained on."""
    try:
        model = AutoModelForCausalLM.from_pretrained(
            fit.base,
            revision=fit.revision,
            dtype=DTYPES[fit.dtype],
            use_safetensors=True,
            trust_remote_code=False,
        )
    except (OSError, ValueError) as error:  # also a folder that wants its own code to run
        raise ModelError(f"No model could be read from {fit.base}: {first_line(error)}.") from error
    model.config.use_cache = False
    return model


def fresh(fit: Fit) -> PeftModel:
    """The base with a new adapter. Its first matrices are random, so they come from the seed."""
    base = load_base(fit)
    torch.manual_seed(fit.seed if fit.start is None else fit.start)
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
    check_adapter(folder, folder.name, base, fit.base, _weights(base))
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


def copy_adapter(source: Path, folder: Path, facts: Mapping[str, Any]) -> str:
    """The same adapter in another place, which appears whole; `facts` go to its card. Returns its content hash."""
    draft = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(draft, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    shutil.copytree(source, draft)
    described = {**json.loads((draft / "card.json").read_text()), **facts}
    (draft / "card.json").write_text(json.dumps(described, indent=1, sort_keys=True) + "\n")
    (draft / "README.md").write_text(_readme(described))
    os.replace(draft, folder)
    return content_hash(folder)


def _sort_layers(file: Path) -> None:
    """peft lists the adapted layers in the order of a set, which changes with every process."""
    settings = json.loads(file.read_text())
    settings["target_modules"] = sorted(settings["target_modules"])
    file.write_text(json.dumps(settings, indent=1, sort_keys=True) + "\n")


def _weights(base: PreTrainedModel) -> str:
    return weights_digest(base.name_or_path, getattr(base.config, "_commit_hash", None))


def _readme(card: Mapping[str, Any]) -> str:
    lines = [f"# Adapter {card.get('name', '')}".rstrip(), "", "| field | value |", "|---|---|"]
    lines += [
        f"| {name} | {json.dumps(value, ensure_ascii=False)} |"
        for name, value in sorted(card.items())
        if name != "curve"
    ]
    return "\n".join(lines) + "\n"
