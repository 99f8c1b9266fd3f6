"""The reader's training: cross-entropy of the answer's label at the last prompt position, over the full vocabulary.

`train_reader` is the loop: LoRA, AdamW, warm-up and linear decay, checkpoints from which a killed job goes on. Prompts
of one episode are laid out as a tree (`PromptTree`): what they have in common is computed once, and logits exist only
where a label is predicted, so that long histories need no truncation and little memory.
"""

import io
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional
from transformers import AttentionInterface

from dssr.agent.prompts import reader_messages
from dssr.errors import ModelError
from dssr.models.tokenizers import HFTokenizer, label_ids
from dssr.record.log import clear_drafts, write_whole
from dssr.training.fit import Fit, OnStep, fresh, nobody, save
from dssr.training.reader_points import HeldOut, PointAnswer, ReaderPoint, batches, variant_accuracies
from dssr.types import LABELS

# ---------------------------------------------------------------- prompt trees


@dataclass(frozen=True)
class Prompt:
    """A tokenised question and the token that answers it."""

    ids: tuple[int, ...]
    label: int
    """Token of the reference action's label."""
    shown: tuple[int, ...] = ()
    """Tokens of all labels shown, in their order."""
    place: int = 0
    """Of its point among those asked together."""


@dataclass(frozen=True)
class Span:
    """Tokens first..last of a row; they see trunk..seen, and themselves causally."""

    first: int
    last: int
    trunk: int
    seen: int


class PromptTree:
    """Prompts in one row: the longest is the trunk, each other branches off where it differs."""

    def __init__(self) -> None:
        self.ids: list[int] = []
        self.positions: list[int] = []
        self.spans: list[Span] = []
        self.ends: list[int] = []
        self.prompts: list[Prompt] = []
        """In the order of `ends`, which is not that of the points: longer prompts come first."""
        self._masks: dict[tuple[int, int], torch.Tensor] = {}

    def add(self, prompts: Sequence[Prompt]) -> None:
        """A group of prompts with a common beginning."""
        ranked = sorted(prompts, key=lambda prompt: -len(prompt.ids))
        trunk, root = ranked[0], len(self.ids)
        self._branch(trunk, 0, root)
        for prompt in ranked[1:]:
            # At least one own token: a prompt that is a beginning of the trunk would have no place to be asked from.
            self._branch(prompt, min(common(trunk.ids, prompt.ids), len(prompt.ids) - 1), root)

    def _branch(self, prompt: Prompt, start: int, root: int) -> None:
        first = len(self.ids)
        self.ids += prompt.ids[start:]
        self.positions += range(start, len(prompt.ids))
        self.spans.append(Span(first, len(self.ids), root, root + start))
        self.ends.append(len(self.ids) - 1)
        self.prompts.append(prompt)

    @property
    def labels(self) -> list[int]:
        """Right answers, in the order of `ends`."""
        return [prompt.label for prompt in self.prompts]

    def attend(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float) -> torch.Tensor:
        """[heads, row, width] in, the same out; nothing sees across prompts beyond the shared trunk."""
        parts = []
        for span in self.spans:
            own, seen = slice(span.first, span.last), slice(span.trunk, span.seen)
            alone = span.trunk == span.seen
            keys = key[:, own] if alone else torch.cat([key[:, seen], key[:, own]], 1)
            values = value[:, own] if alone else torch.cat([value[:, seen], value[:, own]], 1)
            parts.append(
                functional.scaled_dot_product_attention(
                    query[None, :, own],
                    keys[None],
                    values[None],
                    attn_mask=None if alone else self._mask(span, query),
                    is_causal=alone,
                    scale=scale,
                    enable_gqa=True,
                )[0]
            )
        return torch.cat(parts, 1)

    def _mask(self, span: Span, like: torch.Tensor) -> torch.Tensor:
        size, seen = span.last - span.first, span.seen - span.trunk
        if (size, seen) not in self._masks:
            own = torch.ones(size, size, dtype=torch.bool, device=like.device).tril()
            before = torch.ones(size, seen, dtype=torch.bool, device=like.device)
            self._masks[size, seen] = torch.cat([before, own], 1)
        return self._masks[size, seen]


def prompt_trees(groups: Sequence[Sequence[Prompt]], most_tokens: int) -> list[PromptTree]:
    """As few rows as fit the limit; a group that alone is longer gets a row of its own."""
    made = [PromptTree()]
    for group in groups:
        lone = PromptTree()
        lone.add(group)
        if made[-1].ids and len(made[-1].ids) + len(lone.ids) > most_tokens:
            made.append(PromptTree())
        made[-1].add(group)
    return made


def common(one: Sequence[int], other: Sequence[int]) -> int:
    """Length of the common beginning."""
    shortest = min(len(one), len(other))
    low, high = 0, shortest
    while low < high:  # prefixes compare fast as slices, so halve
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


# ---------------------------------------------------------------- the label loss

ATTENTION = "dssr_tree"


def _attention(
    module: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: object, **options: Any
) -> tuple[torch.Tensor, None]:
    scale = options.get("scaling") or query.shape[-1] ** -0.5
    out = options["tree"].attend(query[0], key[0], value[0], scale)
    return out.transpose(0, 1).unsqueeze(0), None


AttentionInterface.register(ATTENTION, _attention)


def label_logits(model: Any, tree: PromptTree) -> torch.Tensor:
    """[prompts, vocabulary], ordered as `tree.prompts`. The model's attention must be `ATTENTION`."""
    device = next(model.parameters()).device
    logits: torch.Tensor = model(
        input_ids=torch.tensor([tree.ids], device=device),
        position_ids=torch.tensor([tree.positions], device=device),
        use_cache=False,
        logits_to_keep=torch.tensor(tree.ends, device=device),
        tree=tree,
    ).logits[0]
    return logits.float()


def label_losses(model: Any, tree: PromptTree) -> torch.Tensor:
    """One loss per prompt, ordered as `tree.prompts`."""
    return losses_of(label_logits(model, tree), tree)


def losses_of(logits: torch.Tensor, tree: PromptTree) -> torch.Tensor:
    """Cross-entropy of each prompt's label, over the full vocabulary."""
    return functional.cross_entropy(logits, torch.tensor(tree.labels, device=logits.device), reduction="none")


def is_right(logits: torch.Tensor, prompt: Prompt) -> bool:
    """Whether the likeliest of the labels shown is the prompt's; among equals the first shown, as the reader acts."""
    shown = logits[list(prompt.shown)].tolist()
    return prompt.shown[shown.index(max(shown))] == prompt.label


# ---------------------------------------------------------------- training

SAVE_EVERY = 25
"""Optimizer steps between checkpoints, and between looks at the held-out points, which cost a pass over all of them."""
STATE = "state.pt"

Row = dict[str, Any]
"""Step, of how many, loss, and how held-out points are answered: one point of the learning curve."""


class Questions:
    """Decision points as the reader's tokenised questions, packed for the model."""

    def __init__(self, tokenizer: HFTokenizer, instruction: str, micro_tokens: int) -> None:
        self.tokenizer, self.instruction = tokenizer, instruction
        self.micro_tokens = micro_tokens
        """Most tokens per forward pass."""
        self.labels = label_ids(tokenizer)

    def prompt(self, point: ReaderPoint, place: int = 0) -> Prompt:
        """One point's question, the label of its reference action, and those of all its options."""
        actions = point.options.actions
        messages = reader_messages(self.instruction, point.goal, point.context, point.observation, actions)
        shown = tuple(self.labels[label] for label in LABELS[: len(actions)])
        right = shown[actions.index(point.options.reference)]
        return Prompt(tuple(self.tokenizer.chat(messages)), right, shown, place)

    def trees(self, points: Sequence[ReaderPoint]) -> list[PromptTree]:
        """Rows for the model; prompts of one episode share a trunk."""
        groups: dict[str, list[Prompt]] = defaultdict(list)
        for place, point in enumerate(points):
            groups[point.episode].append(self.prompt(point, place))
        return prompt_trees(list(groups.values()), self.micro_tokens)


def train_reader(
    fit: Fit,
    points: Sequence[ReaderPoint],
    held_out: HeldOut,
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
    done = _restore_state(fit, model, optimizer, curve)
    if done == 0 and held_out.points:
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
            _save_state(fit, model, optimizer, curve, step + 1)
        on_step(step + 1, len(plan))
    return save(model, fit, {"points": len(points), "epochs": fit.epochs, "curve": curve})


def evaluate(model: Any, questions: Questions, held_out: HeldOut) -> Row:
    """Mean loss and top-1 accuracy on held-out games, in all and by context variant; empty when there are none."""
    rows = variant_accuracies(answers_to(model, questions, held_out.points), held_out.sampler)
    if not rows:
        return {}
    return {"held_out_loss": rows[0]["loss"], "held_out_accuracy": rows[0]["accuracy"], "held_out": rows}


@torch.no_grad()
def answers_to(model: Any, questions: Questions, points: Sequence[ReaderPoint]) -> list[PointAnswer]:
    """Loss and top-1 answer at every point, without training on it."""
    found: list[PointAnswer] = []
    for tree in questions.trees(points) if points else ():
        logits = label_logits(model, tree)
        losses = losses_of(logits, tree).tolist()
        for prompt, loss, row in zip(tree.prompts, losses, logits, strict=True):
            found.append(PointAnswer(points[prompt.place], loss, is_right(row, prompt)))
    return found


def _trainable(fit: Fit) -> Any:
    """The base with a fresh adapter, on the device it trains on, with the attention that prompt trees need."""
    model = fresh(fit)
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


def _pace(step: int, steps: int, warmup: float) -> float:
    """Share of the learning rate: linear warm-up, then linear decay to zero at the end."""
    rise = max(1, round(steps * warmup))
    return (step + 1) / rise if step < rise else (steps - step) / max(1, steps - rise)


def _save_state(fit: Fit, model: Any, optimizer: torch.optim.Optimizer, curve: list[Row], step: int) -> None:
    fit.work.mkdir(parents=True, exist_ok=True)
    trained = {name: weight.detach() for name, weight in model.named_parameters() if weight.requires_grad}
    buffer = io.BytesIO()
    torch.save({"step": step, "weights": trained, "optimizer": optimizer.state_dict(), "curve": curve}, buffer)
    write_whole(fit.work / STATE, buffer.getvalue())


def _restore_state(fit: Fit, model: Any, optimizer: torch.optim.Optimizer, curve: list[Row]) -> int:
    """Go back to the last checkpoint, if there is one; returns the steps done."""
    clear_drafts(fit.work)  # of a state that a kill cut short
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
