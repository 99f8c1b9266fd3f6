"""The label loss over trees is the plain loss over separate prompts."""

import torch
from torch.nn import functional
from transformers import Qwen3Config, Qwen3ForCausalLM

from dssr.training.reader_fit import ATTENTION, Prompt, PromptTree, common, label_losses, prompt_trees


def tiny() -> Qwen3ForCausalLM:
    torch.manual_seed(0)
    return Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=97,
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=8,
            tie_word_embeddings=True,
        )
    )


def prompts() -> list[Prompt]:
    """One history asked at four points, each with its own question, and one unrelated prompt."""
    draw = torch.Generator().manual_seed(1)
    tokens = torch.randint(0, 97, (200,), generator=draw).tolist()
    made = [
        Prompt(tuple(tokens[:cut] + tokens[150 + number : 160 + number]), number)
        for number, cut in enumerate((30, 60, 61, 120))
    ]
    return [*made, Prompt(tuple(tokens[100:130]), 7)]


def plain_losses(model: Qwen3ForCausalLM, asked: list[Prompt]) -> torch.Tensor:
    losses = []
    for prompt in asked:
        logits = model(input_ids=torch.tensor([prompt.ids])).logits[0, -1]
        losses.append(functional.cross_entropy(logits[None], torch.tensor([prompt.label])))
    return torch.stack(losses)


def test_tree_gives_the_loss_and_gradient_of_separate_prompts_with_full_logits() -> None:
    """Catches a branch that sees its siblings, a wrong position, or logits taken at the wrong place."""
    asked = prompts()
    model = tiny()
    plain = plain_losses(model, asked)
    plain.sum().backward()  # type: ignore[no-untyped-call]
    wanted = {name: weight.grad.clone() for name, weight in model.named_parameters() if weight.grad is not None}
    model.zero_grad()
    model.set_attn_implementation(ATTENTION)
    tree = PromptTree()
    tree.add(asked[:4])
    tree.add(asked[4:])
    assert len(tree.ids) < sum(len(prompt.ids) for prompt in asked) - 100
    losses = label_losses(model, tree)
    order = {prompt.label: loss for prompt, loss in zip(asked, plain, strict=True)}
    for label, loss in zip(tree.labels, losses, strict=True):
        assert torch.allclose(loss, order[label], atol=1e-5)
    losses.sum().backward()  # type: ignore[no-untyped-call]
    for name, weight in model.named_parameters():
        assert weight.grad is not None
        assert torch.allclose(weight.grad, wanted[name], atol=1e-5), name


def test_a_prompt_that_begins_another_is_still_asked() -> None:
    """Catches an empty branch: the shorter prompt has no token of its own left."""
    model = tiny()
    asked = [Prompt(tuple(range(20)), 3), Prompt(tuple(range(12)), 5)]
    plain = plain_losses(model, asked)
    model.set_attn_implementation(ATTENTION)
    tree = PromptTree()
    tree.add(asked)
    assert torch.allclose(label_losses(model, tree), plain, atol=1e-5)


def test_rows_respect_the_token_limit() -> None:
    """Catches groups piled into one row beyond memory."""
    group = [Prompt(tuple(range(30)), 0)]
    assert [len(row.ids) for row in prompt_trees([group] * 5, 70)] == [60, 60, 30]
    assert [len(row.ids) for row in prompt_trees([group] * 2, 10)] == [30, 30]


def test_common_beginning() -> None:
    """Catches an off-by-one in the halving."""
    for cut in range(12):
        assert common(list(range(11)), [*range(cut), 99, *range(cut + 1, 11)]) == min(cut, 11)
