"""Adapters are whole and plain, or they are refused: half of one would pass for a trained model."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file
from tests.tiny import make_adapter

from dssr.errors import ModelError
from dssr.models.adapters import SETTINGS, WEIGHTS, check_adapter

FIRST = "base_model.model.model.layers.0.mlp.down_proj.lora_A.weight"
Check = Callable[[], None]


@pytest.fixture(scope="module")
def causal(tiny: Path) -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(tiny)


@pytest.fixture
def folder(tiny: Path, tmp_path: Path) -> Path:
    """An adapter of rank 4 on the 14 linear layers of the tiny model: 28 tensors."""
    return make_adapter(tmp_path / "adapter", tiny, 1)


@pytest.fixture
def check(folder: Path, tiny: Path, causal: Any) -> Check:
    return lambda: check_adapter(folder, "mine", causal, str(tiny), "any weights")


def alter(folder: Path, **settings: Any) -> None:
    file = folder / SETTINGS
    file.write_text(json.dumps(json.loads(file.read_text()) | settings))


@pytest.mark.parametrize(
    "targets",
    [
        "all-linear",
        r"model\.layers\..*_proj",
        ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
    ],
)
def test_a_whole_adapter_passes(check: Check, folder: Path, targets: object) -> None:
    """Catches a check that refuses what peft and others save: full names, ends of names, a pattern."""
    check()
    alter(folder, target_modules=targets, lora_dropout=0.1, init_lora_weights="gaussian")
    check()


@pytest.mark.parametrize("gone", [1, 14, 28])
def test_missing_tensors_are_refused(check: Check, folder: Path, gone: int) -> None:
    """Catches an adapter cut short: peft fills the gap with untrained values and says nothing that stops."""
    tensors = load_file(folder / WEIGHTS)
    save_file({key: tensors[key] for key in sorted(tensors)[gone:]}, folder / WEIGHTS)
    with pytest.raises(ModelError, match=rf"^Adapter mine lacks {gone} of 28 tensors .*{FIRST}.*\.$"):
        check()


def test_renamed_tensors_are_refused(check: Check, folder: Path) -> None:
    """Catches tensors without peft's prefix, which it skips: the base would answer in the adapter's name."""
    tensors = load_file(folder / WEIGHTS)
    save_file({key.removeprefix("base_model.model."): one for key, one in tensors.items()}, folder / WEIGHTS)
    with pytest.raises(ModelError, match="not part of a plain LoRA adapter"):
        check()


def test_tensors_beyond_the_settings_are_refused(check: Check, folder: Path) -> None:
    """Catches layers that one backend would apply and another leave out."""
    alter(folder, target_modules=["q_proj"])
    with pytest.raises(ModelError, match=r"holds .*down_proj.*, a layer that its target_modules do not name"):
        check()


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("use_rslora", True),
        ("use_dora", True),
        ("alpha_pattern", {"q_proj": 64}),
        ("rank_pattern", {"q_proj": 2}),
        ("modules_to_save", ["lm_head"]),
        ("bias", "all"),
        ("lora_bias", True),
        ("fan_in_fan_out", True),
        ("layers_to_transform", [0]),
        ("layer_replication", [[0, 2]]),
        ("init_lora_weights", "pissa"),
        ("init_lora_weights", 1),
        ("alora_invocation_tokens", [1]),
        ("a_variant_of_tomorrow", True),
    ],
)
def test_other_arithmetic_is_refused_by_name(check: Check, folder: Path, setting: str, value: object) -> None:
    """Catches a setting that changes what is computed, and not alike in every backend: rsLoRA scales by alpha/√r."""
    alter(folder, **{setting: value})
    with pytest.raises(ModelError, match=rf"^Adapter mine sets {setting} to .*not plain LoRA.*\.$"):
        check()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"r": 8}, r"has rank 4 at .*, but its settings say r = 8"),
        ({"r": 0}, r"rank \(r\) 0"),
        ({"r": "4"}, r"rank \(r\) '4'"),
        ({"r": None}, r"rank \(r\) None"),
        ({"lora_alpha": float("nan")}, "lora_alpha nan"),
        ({"lora_alpha": None}, "lora_alpha None"),
        ({"target_modules": None}, "target_modules"),
        ({"target_modules": "("}, "no pattern"),
    ],
)
def test_a_wrong_rank_or_scale_is_a_sentence(check: Check, folder: Path, settings: dict[str, Any], words: str) -> None:
    """Catches a size that ends in a traceback of the library: the tensors have rank 4 here."""
    alter(folder, **settings)
    with pytest.raises(ModelError, match=rf"^Adapter mine .*{words}.*\.$"):
        check()


def test_tensors_of_whole_numbers_are_refused(check: Check, folder: Path) -> None:
    """Catches weights that were rounded away."""
    save_file({key: one.int() for key, one in load_file(folder / WEIGHTS).items()}, folder / WEIGHTS)
    with pytest.raises(ModelError, match="not part of a plain LoRA adapter"):
        check()
