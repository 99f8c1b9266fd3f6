"""The reader's label loss against cross-entropy with logits at every position: the same gradient, time and memory.

One episode's decisions as training sees them: a history that grows, asked at several points. With nano's vocabulary,
and with one of an ordinary model's size, where logits are most of the memory.
"""

import random
from collections.abc import Callable
from typing import Any

from benchmarks.common import Ratio, faster, seconds

SMALL, LARGE, WIDTH, LAYERS = 4096, 32768, 192, 6
HISTORY, QUESTION, POINTS = 660, 60, 12
TOLERANCE = 1e-4
"""Of a gradient's largest entry: two ways of summing in float32."""
GOAL = 2.0


def run() -> list[Ratio]:
    import torch

    torch.set_num_threads(1)
    model, prompts = _model(SMALL), _prompts()
    ours, same_row, padded = _ours(model, prompts), _everywhere(model, prompts), _padded(model, prompts)
    _same_gradient(model, ours, same_row, padded)
    memory = [_peak(model, work) for work in (ours, same_row, padded)]
    time = [seconds(lambda work=work: _step(model, work), repeat=3) for work in (ours, same_row, padded)]  # type: ignore[misc]
    what = f"label loss, {POINTS} points of a {HISTORY}-token history"
    names = ("same row, logits everywhere", "padded batch, logits everywhere")
    return [
        *(
            Ratio(f"{what}: peak memory", memory[0], baseline, name, baseline / memory[0], goal, "MiB")
            for name, baseline, goal in zip(names, memory[1:], (None, GOAL), strict=True)
        ),
        _large(f"{what}: peak memory, {LARGE} tokens", names[0]),
        *(
            faster(f"{what}: time", time[0], baseline, name, goal)
            for name, baseline, goal in zip(names, time[1:], (None, GOAL), strict=True)
        ),
    ]


def _large(what: str, name: str) -> Ratio:
    """What keeping logits to the label positions saves by itself."""
    model, prompts = _model(LARGE), _prompts()
    works = (_ours(model, prompts), _everywhere(model, prompts))
    _same_gradient(model, *works)
    ours, baseline = (_peak(model, work) for work in works)
    return Ratio(what, ours, baseline, name, baseline / ours, GOAL, "MiB")


def _model(vocabulary: int) -> Any:
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(0)
    return Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=vocabulary,
            hidden_size=WIDTH,
            intermediate_size=3 * WIDTH,
            num_hidden_layers=LAYERS,
            num_attention_heads=6,
            num_key_value_heads=6,
            head_dim=WIDTH // 6,
            tie_word_embeddings=True,
        )
    )


def _prompts() -> list[Any]:
    """The last points of one history, each followed by a question of its own."""
    from dssr.training.reader_fit import Prompt

    draw = random.Random(0)
    history = [draw.randrange(SMALL) for _ in range(HISTORY)]
    return [
        Prompt((*history[: HISTORY - 20 * point], *(draw.randrange(SMALL) for _ in range(QUESTION))), point)
        for point in range(POINTS)
    ]


def _ours(model: Any, prompts: list[Any]) -> Callable[[], Any]:
    from dssr.training.reader_fit import ATTENTION, PromptTree, label_losses

    def loss() -> Any:
        model.set_attn_implementation(ATTENTION)
        tree = PromptTree()
        tree.add(prompts)
        return label_losses(model, tree).sum()

    return loss


def _everywhere(model: Any, prompts: list[Any]) -> Callable[[], Any]:
    """Our row, but with logits at all its tokens."""
    import torch
    from torch.nn import functional

    from dssr.training.reader_fit import ATTENTION, PromptTree

    def loss() -> Any:
        model.set_attn_implementation(ATTENTION)
        tree = PromptTree()
        tree.add(prompts)
        labels = torch.full((len(tree.ids),), -100)
        labels[tree.ends] = torch.tensor(tree.labels)
        row = {"input_ids": torch.tensor([tree.ids]), "position_ids": torch.tensor([tree.positions])}
        logits = model(**row, use_cache=False, tree=tree).logits[0]
        return functional.cross_entropy(logits.float(), labels, reduction="sum")

    return loss


def _padded(model: Any, prompts: list[Any]) -> Callable[[], Any]:
    """What a stock trainer does: one prompt per line, filled up, logits at every token."""
    import torch
    from torch.nn import functional

    length = max(len(prompt.ids) for prompt in prompts)
    ids, labels = torch.zeros(len(prompts), length, dtype=torch.long), torch.full((len(prompts), length), -100)
    mask = torch.zeros_like(ids)
    for line, prompt in enumerate(prompts):
        end = len(prompt.ids)
        ids[line, :end], mask[line, :end] = torch.tensor(prompt.ids), 1
        labels[line, end - 1] = prompt.label

    def loss() -> Any:
        model.set_attn_implementation("sdpa")
        logits = model(input_ids=ids, attention_mask=mask, use_cache=False).logits
        return functional.cross_entropy(logits.float().flatten(0, 1), labels.flatten(), reduction="sum")

    return loss


def _step(model: Any, loss: Callable[[], Any]) -> dict[str, Any]:
    model.zero_grad(set_to_none=True)
    loss().backward()
    return {name: weight.grad for name, weight in model.named_parameters()}


def _same_gradient(model: Any, ours: Callable[[], Any], *others: Callable[[], Any]) -> None:
    mine = _step(model, ours)
    for other in others:
        for name, gradient in _step(model, other).items():
            if (gradient - mine[name]).abs().max() > TOLERANCE * gradient.abs().max():
                raise AssertionError(f"the gradients of {name} differ, so the ways cannot be compared")


def _peak(model: Any, loss: Callable[[], Any]) -> float:
    """Most memory that tensors held at once during one step, in MiB, as the allocator reports it."""
    from torch.profiler import ProfilerActivity, profile

    model.zero_grad(set_to_none=True)  # what is freed in the step would hide as much of what is taken
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as watched:
        _step(model, loss)
    events = [one for one in watched.profiler.kineto_results.events() if one.name() == "[memory]"]
    held = peak = 0
    for event in sorted(events, key=lambda one: one.start_ns()):
        held += event.nbytes()
        peak = max(peak, held)
    return peak / 2**20
