"""SmolLM2 with a LoRA reader, played and audited through vLLM and through the hf backend: the same numbers."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.tiny import make_adapter
from tests.training.study import study

import dssr
from dssr.agent.episode import stored
from dssr.config import ModelConfig
from dssr.models.load import weights_folder
from dssr.record.run import Run
from dssr.types import Audit
from dssr.worlds.archive import Archive

pytestmark = pytest.mark.vllm
pytest.importorskip("vllm.sampling_params", reason="vLLM is not installed here; run `make test-vllm`")

CLOSE = 5e-3
"""Nats between two engines in float32, which add in another order; an adapter that is not applied moves far more."""


def gentle(folder: Path) -> Path:
    """A random adapter of SmolLM2 that changes its answers and leaves it a language model."""
    from safetensors.torch import load_file, save_file

    make_adapter(folder, Path(weights_folder("smol")), seed=1, rank=8)
    file = folder / "adapter_model.safetensors"
    weights = {name: one * (0.05 if "lora_B" in name else 1.0) for name, one in load_file(file).items()}
    save_file(weights, file, metadata={"format": "pt"})
    return folder


def test_a_game_played_through_vllm_has_the_numbers_of_the_hf_backend(archive: Archive, tmp_path: Path) -> None:
    """Catches another chat template, a reader whose adapter vLLM leaves out, options in another order, and audits that
    differ by backend: on SmolLM2, whose own template and tokenizer no toy checkpoint has."""
    small = study(archive, tmp_path, tmp_path / "data")
    agent = msgspec.structs.replace(small.agent, reader_adapter="reader")
    adapter = str(gentle(tmp_path / "adapter"))
    found: dict[str, Any] = {}
    for backend in ("hf", "vllm", "bare"):
        model = ModelConfig(
            backend="vllm" if backend == "vllm" else "hf",
            path="smol",
            dtype="float32",
            device="cpu",
            threads=1,
            context_length=2048,
            adapters={} if backend == "bare" else {"reader": adapter},
        )
        reading = small.agent if backend == "bare" else agent
        config = msgspec.structs.replace(small, name=backend, writer_model=model, agent=reading)
        place = tmp_path / backend
        dssr.diagnose(config, ["full", "lastk"], [24], [0], games=1, out=place)
        run = Run.open(place)
        decisions = [step.decision for one in stored(run) for step in one.steps if step.decision]
        losses = [loss for one in run.read("audits", Audit) for loss in (one.nll_full, one.nll_state)]
        found[backend] = [*(value for one in decisions for value in one.logprobs), *losses]
    assert len(found["hf"]) > 20
    assert found["vllm"] == pytest.approx(found["hf"], abs=CLOSE)
    first = slice(0, 4)  # of the first decision, which has the same prompt whoever reads
    assert found["bare"][first] != pytest.approx(found["hf"][first], abs=20 * CLOSE)
