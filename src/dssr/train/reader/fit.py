"""The reader's training loop: LoRA, AdamW, warm-up and linear decay, checkpoints from which a killed job goes on."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from dssr.agent.prompts import reader_messages
from dssr.config import ReaderConfig
from dssr.errors import ModelError
from dssr.models.tokenizers import HFTokenizer, label_ids
from dssr.record.files import write_whole
from dssr.train import lora
from dssr.train.reader.loss import ATTENTION, Prompt, label_losses, prompt_trees
from dssr.train.reader.mixture import ReaderPoint, batches
from dssr.types import LABELS

SAVE_EVERY = 25


@dataclass(frozen=True)
class Course:
    """What is trained, and where."""

    base: str
    """Folder or name of the base model's weights."""
    dtype: str
    tokenizer: HFTokenizer
    instruction: str
    config: ReaderConfig
    seed: int
    work: Path
    """Checkpoints; can be deleted afterwards."""
    out: Path
    """The adapter's folder."""


class Curve:
    """Loss and accuracy by step, on the training points and on the games held out."""

    def __init__(self) -> None:
        self.rows: list[dict[str, float]] = []

    def add(self, **row: float) -> None:
        self.rows.append(row)


def train(
    course: Course,
    points: Sequence[ReaderPoint],
    monitor: Sequence[ReaderPoint],
    card: Mapping[str, Any],
    on_step: Callable[[dict[str, float]], None] = lambda row: None,
) -> str:
    """Clone the reference action on `points`; returns the adapter's content hash."""
    if not points:
        raise ModelError("The reader has no decision points to learn from; collect episodes first.")
    config = course.config
    prepared = _Prompts(course)
    plan = [
        batch for epoch in range(config.epochs) for batch in batches(points, config.batch, course.seed, "epoch", epoch)
    ]
    model = lora.fresh(lora.load_base(course.base, course.dtype), config.rank, config.alpha, course.seed)
    model.set_attn_implementation(ATTENTION)
    if course.dtype == "bfloat16":
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        model.enable_input_require_grads()
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(weights, lr=config.learning_rate, weight_decay=0.0)
    curve = Curve()
    done = _restore(course, model, optimizer, curve)
    if done == 0 and monitor:
        curve.add(step=0, of=len(plan), **evaluate(model, prepared, monitor, config.micro_tokens))
    for step in range(done, len(plan)):
        for group in optimizer.param_groups:
            group["lr"] = config.learning_rate * _pace(step, len(plan), config.warmup)
        loss = _learn(model, prepared, plan[step], config.micro_tokens)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        row = {"step": step + 1, "of": len(plan), "loss": loss}
        if (step + 1) % SAVE_EVERY == 0 or step + 1 == len(plan):
            row |= evaluate(model, prepared, monitor, config.micro_tokens)
            curve.add(**row)
            _save(course, model, optimizer, curve, step + 1)
        on_step(row)
    described = {**card, "points": len(points), "epochs": config.epochs, "seed": course.seed, "curve": curve.rows}
    return lora.save(model, course.out, described)


class _Prompts:
    """Tokenises points once."""

    def __init__(self, course: Course) -> None:
        self.course = course
        self.labels = label_ids(course.tokenizer)

    def of(self, point: ReaderPoint) -> Prompt:
        commands = point.options.commands
        messages = reader_messages(self.course.instruction, point.goal, point.context, point.observation, commands)
        label = LABELS[commands.index(point.options.reference)]
        return Prompt(tuple(self.course.tokenizer.chat(messages)), self.labels[label])

    def groups(self, points: Sequence[ReaderPoint]) -> list[list[Prompt]]:
        """Prompts by episode: those share a trunk."""
        found: dict[str, list[Prompt]] = defaultdict(list)
        for point in points:
            found[point.episode].append(self.of(point))
        return list(found.values())


def _learn(model: Any, prepared: _Prompts, batch: Sequence[ReaderPoint], micro_tokens: int) -> float:
    """Accumulate the gradient of the batch's mean loss; returns that loss."""
    total = 0.0
    for grove in prompt_trees(prepared.groups(batch), micro_tokens):
        loss = label_losses(model, grove).sum() / len(batch)
        loss.backward()  # type: ignore[no-untyped-call]
        total += float(loss.detach())
    return total


@torch.no_grad()
def evaluate(model: Any, prepared: _Prompts, points: Sequence[ReaderPoint], micro_tokens: int) -> dict[str, float]:
    """Mean loss on held-out games; empty when there are none."""
    if not points:
        return {}
    losses = [label_losses(model, grove) for grove in prompt_trees(prepared.groups(points), micro_tokens)]
    return {"held_out_loss": float(torch.cat(losses).mean())}


def _pace(step: int, steps: int, warmup: float) -> float:
    """Share of the learning rate: linear warm-up, then linear decay to zero at the end."""
    rise = max(1, round(steps * warmup))
    return (step + 1) / rise if step < rise else (steps - step) / max(1, steps - rise)


def _state_file(course: Course) -> Path:
    return course.work / "state.pt"


def _save(course: Course, model: Any, optimizer: torch.optim.Optimizer, curve: Curve, step: int) -> None:
    import io

    course.work.mkdir(parents=True, exist_ok=True)
    trained = {name: weight.detach() for name, weight in model.named_parameters() if weight.requires_grad}
    buffer = io.BytesIO()
    torch.save({"step": step, "weights": trained, "optimizer": optimizer.state_dict(), "curve": curve.rows}, buffer)
    write_whole(_state_file(course), buffer.getvalue())


def _restore(course: Course, model: Any, optimizer: torch.optim.Optimizer, curve: Curve) -> int:
    if not _state_file(course).exists():
        return 0
    state = torch.load(_state_file(course), weights_only=True)
    own = dict(model.named_parameters())
    with torch.no_grad():
        for name, weight in state["weights"].items():
            own[name].copy_(weight)
    optimizer.load_state_dict(state["optimizer"])
    curve.rows = state["curve"]
    return int(state["step"])
