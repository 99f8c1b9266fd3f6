"""What an engine on a GPU is started with and what it must prove, on a stand-in for vLLM: no GPU is needed to see it
refused. The real library is tested in tests/vllm."""

import asyncio
import importlib.machinery
import importlib.util
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import pytest
import torch

from dssr.config import ModelConfig
from dssr.errors import ModelError
from dssr.models.engine import checkpoint
from dssr.models.load import load_model
from dssr.models.vllm import load_vllm


class Engine:
    """Scores a prompt by its length; with `drift`, also by how many requests are under way."""

    drift = 0.0
    started: ClassVar[dict[str, Any]] = {}
    stopped = 0

    def __init__(self) -> None:
        self.running = 0

    @classmethod
    def from_engine_args(cls, arguments: Any) -> "Engine":
        Engine.started = vars(arguments)
        return cls()

    async def reset_prefix_cache(self) -> bool:
        return True

    async def generate(self, prompt: Any, parameters: Any, number: str, lora_request: Any = None) -> AsyncIterator[Any]:
        self.running += 1
        await asyncio.sleep(0)  # lets the others of a batch arrive
        score = -len(prompt["prompt_token_ids"]) - self.drift * self.running
        await asyncio.sleep(0)
        self.running -= 1
        scores = {token: SimpleNamespace(logprob=score) for token in getattr(parameters, "allowed_token_ids", ())}
        output = SimpleNamespace(logprobs=[scores], token_ids=[1], cumulative_logprob=score, finish_reason="length")
        yield SimpleNamespace(outputs=[output])

    def shutdown(self) -> None:
        Engine.stopped += 1


@pytest.fixture
def on_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with a card, and a vLLM whose engine is the one above."""

    def module(name: str, **content: Any) -> None:
        made = ModuleType(name)
        made.__spec__ = importlib.machinery.ModuleSpec(name, None, origin="here")
        vars(made).update(content)
        monkeypatch.setitem(sys.modules, name, made)

    platform = SimpleNamespace(is_cpu=lambda: False, get_device_name=lambda: "a card")
    module("vllm", __version__="0", SamplingParams=SimpleNamespace)
    module("vllm.engine", arg_utils=None)
    module("vllm.engine.arg_utils", AsyncEngineArgs=SimpleNamespace)
    module("vllm.platforms", current_platform=platform)
    module("vllm.v1")
    module("vllm.v1.engine")
    module("vllm.v1.engine.async_llm", AsyncLLM=Engine)
    module("vllm.lora")
    module("vllm.lora.request", LoRARequest=lambda *parts: parts)
    module("vllm.sampling_params", RequestOutputKind=SimpleNamespace(FINAL_ONLY=2))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    for name in ("VLLM_BATCH_INVARIANT", "VLLM_NO_USAGE_STATS", "VLLM_LOGGING_STREAM", "VLLM_LOGGING_LEVEL"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setattr(Engine, "drift", 0.0)
    monkeypatch.setattr(Engine, "stopped", 0)


def settings(folder: Path, **more: Any) -> ModelConfig:
    return ModelConfig(backend="vllm", path=str(folder), context_length=512, **more)


@pytest.mark.usefixtures("on_gpu")
def test_an_engine_takes_its_share_of_the_card(tiny: Path) -> None:
    """Catches an engine that takes all of a card which a second reader's must share."""
    model = load_vllm(settings(tiny, gpu_memory=0.44, batch_invariant=True))
    asyncio.run(model.close())
    assert Engine.started["gpu_memory_utilization"] == 0.44
    assert Engine.started["enable_prefix_caching"]


@pytest.mark.usefixtures("on_gpu")
def test_a_claim_that_fails_its_test_is_refused(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a run that says batch-invariant and is not: with the claim it must not start, and its engine must end;
    without, it runs, and its fingerprint differs from that of an invariant one."""
    steady = load_vllm(settings(tiny))
    monkeypatch.setattr(Engine, "drift", 1e-6)
    with pytest.raises(ModelError, match=r"answers differently alone and in a batch here, and its configuration.*\.$"):
        load_vllm(settings(tiny, batch_invariant=True))
    assert Engine.stopped == 1
    drifting = load_vllm(settings(tiny))
    assert drifting.fingerprint() != steady.fingerprint()
    for model in (steady, drifting):
        asyncio.run(model.close())


@pytest.mark.usefixtures("on_gpu")
def test_a_claim_that_cannot_hold_is_refused_at_once(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a claim that the environment or the machine contradicts, found only after minutes of loading."""
    monkeypatch.setenv("VLLM_BATCH_INVARIANT", "0")
    with pytest.raises(ModelError, match="VLLM_BATCH_INVARIANT switches that off"):
        load_vllm(settings(tiny, batch_invariant=True))
    monkeypatch.delenv("VLLM_BATCH_INVARIANT")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ModelError, match="vLLM has no such kernels on a CPU"):
        load_vllm(settings(tiny, batch_invariant=True))


def test_the_hf_backend_is_refused_a_gpu_and_a_machine_where_a_batch_changes_bits(
    tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches a study that runs on a CPU although a GPU was asked for, and one whose numbers hang on the batch."""
    with pytest.raises(ModelError, match=r'hf runs on the CPU.*device = "cuda"; set backend = "vllm" for a GPU\.$'):
        load_model(ModelConfig(backend="hf", path=str(tiny), device="cuda"))
    monkeypatch.setattr(checkpoint, "PROVEN", set())
    monkeypatch.setattr(checkpoint, "same_in_batch", lambda model, adapter: False)
    with pytest.raises(ModelError, match="answers differently alone and in a batch"):
        load_model(ModelConfig(backend="hf", path=str(tiny), dtype="float32"))


def test_a_pinned_hub_model_needs_its_revision(tiny: Path) -> None:
    """Catches a paper run with whatever weights the hub has today; a folder is what it is."""
    with pytest.raises(ModelError, match=r"somebody/model is pinned and has no revision: name the commit.*\.$"):
        load_model(ModelConfig(backend="hf", path="somebody/model", pinned=True))
    model = load_model(ModelConfig(backend="hf", path=str(tiny), pinned=True, dtype="float32", threads=1))
    asyncio.run(model.close())
