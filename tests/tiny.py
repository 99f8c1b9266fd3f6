"""A tiny random model on disk: an ordinary Qwen3-shaped checkpoint with its own tokenizer, made in a second.

Elsewhere: `from tests.tiny import tiny, tiny_adapters` in a conftest gives the fixtures of the same names.
"""

from pathlib import Path
from typing import Any

import pytest

TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
CORPUS = [
    "You are in the kitchen. You can see a fridge, an oven and a stove. There is a closed door to the north.",
    "Goal: cook the meal. Previous state: (empty) Last action: (none) New observation: You carry nothing.",
    "Options: A: go north B: take the knife C: open the fridge D: chop the red apple with the knife Action:",
    "ABCDEFGHIJKLMNOPQRSTUVWXYZ abcdefghijklmnopqrstuvwxyz 0123456789",
]


def make_tokenizer(vocabulary: int = 400) -> Any:
    """Byte-level BPE with chat control tokens."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    inner = Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    inner.train_from_iterator(CORPUS, trainer)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=inner,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        additional_special_tokens=["<|im_start|>"],
    )
    tokenizer.chat_template = TEMPLATE
    return tokenizer


def make_tiny(folder: Path, seed: int = 0, hidden: int = 64, layers: int = 2, kind: str = "qwen3") -> Path:
    """Writes the checkpoint and returns its folder."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    tokenizer = make_tokenizer()
    config = AutoConfig.for_model(
        kind,
        vocab_size=len(tokenizer),
        hidden_size=hidden,
        intermediate_size=3 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=8192,
        initializer_range=0.2,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        **({"head_dim": hidden // 4} if kind == "qwen3" else {}),
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(config)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def make_adapter(folder: Path, base: Path, seed: int, rank: int = 4) -> Path:
    """Writes a random LoRA adapter of the base, strong enough to change its answers."""
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(base)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        peft = get_peft_model(
            model, LoraConfig(r=rank, lora_alpha=2 * rank, target_modules="all-linear", init_lora_weights=False)
        )
    peft.save_pretrained(str(folder))
    return folder


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a tiny model."""
    return make_tiny(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="session")
def tiny_adapters(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Folders of two adapters of it, by name."""
    place = tmp_path_factory.mktemp("adapters")
    return {name: str(make_adapter(place / name, tiny, seed)) for seed, name in enumerate(("first", "second"), start=1)}


def finished_again(path: Path) -> Path:
    """A finished run that a test changed on purpose, with digests that fit: as if it had been made so."""
    from dssr.record.log import Content, write_digests

    files = [*path.glob("*.jsonl"), path / "run.json", path / "summary.json"]
    write_digests(path, {file.name: Content.in_file(file) for file in files})
    return path
