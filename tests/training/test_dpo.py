"""Preference training is the stated loss, from and against the previous round's adapter."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tests.tiny import make_tiny
from transformers import AutoTokenizer

from dssr.config import ModelConfig
from dssr.errors import ModelError
from dssr.models.adapters import adapter_digest
from dssr.models.base import Message
from dssr.models.load import load_model
from dssr.training import fit as lora
from dssr.training.fit import (
    Fit,
    PreferenceLoss,
    Replies,
    assistant,
    chat,
    preference_loss,
    preference_trainer,
    train_dpo,
    train_sft,
    trainer_settings,
)
from dssr.training.round import Example, Preference

LOSS = PreferenceLoss(beta=0.1, chosen_weight=0.5)


def sft(base: str, folder: Path, **changes: Any) -> Fit:
    """A short training in one folder."""
    settings: dict[str, Any] = {
        "rate": 1e-2, "epochs": 1, "batch": 4, "warmup": 0.03, "rank": 4, "alpha": 8, "seed": 3, "device": "cpu",
        "work": folder / "work", "out": folder / "adapter", "card": {"name": "test"},
    }  # fmt: skip
    return Fit(base=base, **(settings | changes))


def dpo(base: str, folder: Path, **changes: Any) -> Fit:
    return sft(base, folder, **({"rate": 1e-3, "epochs": 2, "seed": 5} | changes))


def asked(number: int) -> tuple[Message, ...]:
    return (Message("system", "You keep the state."), Message("user", f"New observation:\nkitchen {number}"))


EXAMPLES = [Example(asked(number), f"the knife is in room {number}") for number in range(16)]
PAIRS = [Preference(asked(number), f"the knife is in room {number}", f"nothing seen {number}") for number in range(48)]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(make_tiny(tmp_path_factory.mktemp("tiny") / "model"))


@pytest.fixture(scope="module")
def round0(base: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("round0")
    train_sft(sft(base, folder), EXAMPLES)
    return folder / "adapter"


def logprob(model: torch.nn.Module, base: str, messages: tuple[Message, ...], reply: str) -> tuple[torch.Tensor, int]:
    """Summed log-probability of the reply under the chat template, and its number of tokens."""
    tokenizer = AutoTokenizer.from_pretrained(base)
    prompt = tokenizer.apply_chat_template(chat(messages), add_generation_prompt=True, return_dict=False)
    whole = tokenizer.apply_chat_template([*chat(messages), *assistant(reply)], return_dict=False)
    logits = model(input_ids=torch.tensor([whole])).logits[0, :-1].log_softmax(-1)
    chosen = logits.gather(1, torch.tensor(whole[1:])[:, None])[len(prompt) - 1 :, 0]
    return chosen.sum(), len(whole) - len(prompt)


def test_loss_reference_and_gradient_equal_the_pure_function(base: str, round0: Path, tmp_path: Path) -> None:
    """Catches a reference that is the base model, a wrong weight of the chosen term, or a wrong normalisation.

    The policy is moved away from the reference first: at the start all margins are zero and any reference would do.
    """
    fit = dpo(base, tmp_path, seed=0)
    trainer = preference_trainer(fit, lora.load(fit, round0), PAIRS[:1], LOSS)
    torch.manual_seed(1)
    with torch.no_grad():
        for name, weight in trainer.model.named_parameters():
            if weight.requires_grad:
                assert ".default." in name
                weight.add_(0.05 * torch.randn_like(weight))
    trainer.model.eval()
    batch = next(iter(trainer.get_train_dataloader()))
    loss = trainer.compute_loss(trainer.model, batch)
    loss.backward()
    weights = {n: w for n, w in trainer.model.named_parameters() if w.requires_grad}
    theirs = {name: weight.grad.clone() for name, weight in weights.items()}
    trainer.model.zero_grad()

    previous = lora.load(fit, round0).eval()
    pair = PAIRS[0]
    chosen, tokens = logprob(trainer.model, base, pair.messages, pair.chosen)
    rejected, _ = logprob(trainer.model, base, pair.messages, pair.rejected)
    with torch.no_grad():
        reference_chosen, _ = logprob(previous, base, pair.messages, pair.chosen)
        reference_rejected, _ = logprob(previous, base, pair.messages, pair.rejected)
    assert abs(float(chosen.detach() - reference_chosen)) > 0.1
    policy, reference = Replies(chosen, rejected), Replies(reference_chosen, reference_rejected)
    ours = preference_loss(policy, reference, torch.tensor(tokens), LOSS)
    assert float(loss.detach()) == pytest.approx(float(ours.detach()), abs=2e-4)
    ours.backward()  # type: ignore[no-untyped-call]
    for name, weight in weights.items():
        assert weight.grad is not None
        assert torch.allclose(weight.grad, theirs[name], atol=2e-4), name


def test_killed_and_resumed_training_ends_in_the_same_bytes(base: str, round0: Path, tmp_path: Path) -> None:
    """Catches an order of examples, a learning rate or an optimizer state that a resume does not restore."""
    torch.set_num_threads(1)
    told: list[tuple[int, int]] = []
    whole = train_dpo(dpo(base, tmp_path / "a"), PAIRS, round0, LOSS, lambda *step: told.append(step))
    assert told == [(step + 1, 24) for step in range(24)]

    class Killed(Exception):
        pass

    def kill(step: int, of: int) -> None:
        if step == 13:
            raise Killed

    with pytest.raises(Killed):
        train_dpo(dpo(base, tmp_path / "b"), PAIRS, round0, LOSS, kill)
    assert not (tmp_path / "b" / "adapter").exists()
    again = train_dpo(dpo(base, tmp_path / "b"), PAIRS, round0, LOSS)
    assert again == whole
    assert again != lora.content_hash(round0)


def test_imitation_goes_on_from_the_previous_adapter(base: str, round0: Path, tmp_path: Path) -> None:
    """Catches chains whose rounds start afresh: with next to no learning rate the adapter stays where it was, and a
    fresh one, whose second matrices are zero, is far from there."""
    before = load_file(round0 / "adapter_model.safetensors")
    train_sft(sft(base, tmp_path, rate=1e-12), EXAMPLES, previous=round0)
    after = load_file(tmp_path / "adapter" / "adapter_model.safetensors")
    assert after.keys() == before.keys()
    assert all(torch.allclose(after[name], before[name], atol=1e-6) for name in before)
    assert max(float(tensor.abs().max()) for name, tensor in before.items() if "lora_B" in name) > 1e-3


def test_adapter_of_another_base_is_refused(base: str, round0: Path, tmp_path: Path) -> None:
    """Catches an adapter used on another base than its own: of another shape, or of the same shape and other weights.

    The second fits in every dimension, so only the stamp that saving leaves beside the weights can tell.
    """
    for name, other in (
        ("narrow", make_tiny(tmp_path / "narrow", hidden=32)),
        ("reseeded", make_tiny(tmp_path / "reseeded", seed=1)),
    ):
        with pytest.raises(ModelError, match=f"was not trained on .*{name}"):
            lora.load(sft(str(other), tmp_path), round0)
        config = ModelConfig(
            backend="hf", path=str(other), dtype="float32", device="cpu", threads=1, adapters={"r0": str(round0)}
        )
        with pytest.raises(ModelError, match=r"Adapter r0 was trained on .*; use its own base"):
            load_model(config)
    lora.load(sft(base, tmp_path), round0)


def test_an_adapter_is_known_by_what_it_computes(base: str, round0: Path, tmp_path: Path) -> None:
    """Catches a fingerprint that follows the order in which peft happens to list the layers, which changes with every
    process, or the folder in which the base lay: equal trainings would then collect different data."""
    copy = tmp_path / "copy"
    shutil.copytree(round0, copy)
    settings = json.loads((copy / "adapter_config.json").read_text())
    settings["target_modules"].reverse()
    settings["base_model_name_or_path"] = "elsewhere/base"
    (copy / "adapter_config.json").write_text(json.dumps(settings))
    assert adapter_digest(copy) == adapter_digest(round0)
    settings["lora_alpha"] += 1
    (copy / "adapter_config.json").write_text(json.dumps(settings))
    assert adapter_digest(copy) != adapter_digest(round0)


def test_training_uses_the_gpu_where_there_is_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Catches an hf model sent to the CPU on a machine with a GPU, and half precision for a base in single."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert [sft("b", tmp_path, device=device).place for device in ("cpu", "cuda", "auto")] == ["cpu", "cuda", "cuda"]
    settings = [
        trainer_settings(sft("b", tmp_path, device=device, dtype=dtype))["bf16"]
        for device in ("cpu", "auto")
        for dtype in ("bfloat16", "float32")
    ]
    assert settings == [False, False, True, False]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert sft("b", tmp_path).place == "cpu"
    assert sft("b", tmp_path, device="auto").on_cpu


def test_an_adapter_is_never_overwritten(base: str, round0: Path, tmp_path: Path) -> None:
    """Catches a second training that replaces what a run has recorded by hash."""
    with pytest.raises(ModelError, match="never overwritten"):
        train_sft(sft(base, tmp_path, out=round0), EXAMPLES[:4])
