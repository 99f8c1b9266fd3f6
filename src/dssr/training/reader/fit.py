"""The reader's training loop: LoRA, AdamW, warm-up and linear decay, checkpoints from which a killed job goes on."""

import io
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import torch

from dssr.agent.prompts import reader_messages
from dssr.errors import ModelError
from dssr.models.tokenizers import HFTokenizer, label_ids
from dssr.record.files import write_whole
from dssr.training import lora
from dssr.training.lora import Fit, OnStep, nobody
from dssr.training.reader.loss import ATTENTION, Prompt, PromptTree, label_losses, prompt_trees
from dssr.training.reader.mixture import ReaderPoint, batches
from dssr.types import LABELS

SAVE_EVERY = 25
"""Optimizer steps between checkpoints, and between looks at the held-out points, which cost a pass over all of them."""
STATE = "state.pt"

Row = dict[str, float]
"""Step, of how many, and losses: one point of the learning curve."""


class Questions:
    """Decision points as the reader's tokenised questions, packed for the model."""

    def __init__(self, tokenizer: HFTokenizer, instruction: str, micro_tokens: int) -> None:
        self.tokenizer, self.instruction = tokenizer, instruction
        self.micro_tokens = micro_tokens
        """Most tokens per forward pass."""
        self.labels = label_ids(tokenizer)

    def prompt(self, point: ReaderPoint) -> Prompt:
        """One point's question and the label of its reference action."""
        commands = point.options.commands
        messages = reader_messages(self.instruction, point.goal, point.context, point.observation, commands)
        label = LABELS[commands.index(point.options.reference)]
        return Prompt(tuple(self.tokenizer.chat(messages)), self.labels[label])

    def trees(self, points: Sequence[ReaderPoint]) -> list[PromptTree]:
        """Rows for the model; prompts of one episode share a trunk."""
        groups: dict[str, list[Prompt]] = defaultdict(list)
        for point in points:
            groups[point.episode].append(self.prompt(point))
        return prompt_trees(list(groups.values()), self.micro_tokens)


def train_reader(
    fit: Fit,
    points: Sequence[ReaderPoint],
    held_out: Sequence[ReaderPoint],
    questions: Questions,
    on_step: OnStep = nobody,
) -> str:
    """Clone the reference action on `points`; returns the adapter's content hash."""
    if not points:
        raise ModelError("The reader has no decision points to learn from; collect episodes first.")
    plan = [batch for epoch in range(fit.epochs) for batch in batches(points, fit.batch, fit.seed, "epoch", epoch)]
    model = _trainable(fit)
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(weights, lr=fit.rate, weight_decay=0.0)
    curve: list[Row] = []
    done = _restore(fit, model, optimizer, curve)
    if done == 0 and held_out:
        curve.append({"step": 0, "of": len(plan), **evaluate(model, questions, held_out)})
    for step in range(done, len(plan)):
        for group in optimizer.param_groups:
            group["lr"] = fit.rate * _pace(step, len(plan), fit.warmup)
        loss = _learn(model, questions, plan[step])
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if (step + 1) % SAVE_EVERY == 0 or step + 1 == len(plan):
            row = {"step": step + 1, "of": len(plan), "loss": loss}
            curve.append(row | evaluate(model, questions, held_out))
            _save(fit, model, optimizer, curve, step + 1)
        on_step(step + 1, len(plan))
    return lora.save(model, fit, {"points": len(points), "epochs": fit.epochs, "curve": curve})


def _trainable(fit: Fit) -> Any:
    """The base with a fresh adapter, on the device it trains on, with the attention that prompt trees need."""
    model = lora.fresh(fit)
    model.set_attn_implementation(ATTENTION)
    if fit.half:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        model.enable_input_require_grads()
    return model.to(fit.place)


def _learn(model: Any, questions: Questions, batch: Sequence[ReaderPoint]) -> float:
    """Accumulate the gradient of the batch's mean loss; returns that loss."""
    total = 0.0
    for tree in questions.trees(batch):
        loss = label_losses(model, tree).sum() / len(batch)
        loss.backward()  # type: ignore[no-untyped-call]
        total += float(loss.detach())
    return total


@torch.no_grad()
def evaluate(model: Any, questions: Questions, points: Sequence[ReaderPoint]) -> Row:
    """Mean loss on held-out games; empty when there are none."""
    if not points:
        return {}
    losses = [label_losses(model, tree) for tree in questions.trees(points)]
    return {"held_out_loss": float(torch.cat(losses).mean())}


def _pace(step: int, steps: int, warmup: float) -> float:
    """Share of the learning rate: linear warm-up, then linear decay to zero at the end."""
    rise = max(1, round(steps * warmup))
    return (step + 1) / rise if step < rise else (steps - step) / max(1, steps - rise)


def _save(fit: Fit, model: Any, optimizer: torch.optim.Optimizer, curve: list[Row], step: int) -> None:
    fit.work.mkdir(parents=True, exist_ok=True)
    trained = {name: weight.detach() for name, weight in model.named_parameters() if weight.requires_grad}
    buffer = io.BytesIO()
    torch.save({"step": step, "weights": trained, "optimizer": optimizer.state_dict(), "curve": curve}, buffer)
    write_whole(fit.work / STATE, buffer.getvalue())


def _restore(fit: Fit, model: Any, optimizer: torch.optim.Optimizer, curve: list[Row]) -> int:
    """Go back to the last checkpoint, if there is one; returns the steps done."""
    if not (fit.work / STATE).exists():
        return 0
    state = torch.load(fit.work / STATE, weights_only=True, map_location=fit.place)
    own = dict(model.named_parameters())
    with torch.no_grad():
        for name, weight in state["weights"].items():
            own[name].copy_(weight)
    optimizer.load_state_dict(state["optimizer"])
    curve[:] = state["curve"]
    return int(state["step"])
