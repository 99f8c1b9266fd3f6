"""The vllm backend on a real engine: the conformance suite, and the hf backend on the same weights."""

import asyncio
import math
import os
from pathlib import Path

import pytest
from tests.vllm.checkpoint import MODELS, PROMPTS, WORKING
from tests.vllm.conftest import distance, refusal, settings

from dssr.errors import ModelError
from dssr.models.base import Choose, Generate, Message, Model
from dssr.models.load import load_model
from dssr.testing import ModelSubject, ModelSuite, ask
from dssr.types import LABELS

pytestmark = pytest.mark.vllm
pytest.importorskip("vllm.sampling_params", reason="vLLM is not installed here; run `make test-vllm`")


@pytest.fixture(scope="module")
def subject(engine: Model) -> ModelSubject:
    """Batch-invariant kernels leave no difference; a CPU has none of those, and rounds in the last digits."""
    invariant = os.environ["VLLM_BATCH_INVARIANT"] == "1"
    return ModelSubject(engine, adapters=WORKING, tolerance=0.0 if invariant else 1e-4)


@pytest.mark.parametrize("adapter", MODELS)
def test_choices_agree_with_transformers(engine: Model, reference: Model, adapter: str | None) -> None:
    """Catches another prompt, other label tokens, or an adapter that is not applied (random ones move nats)."""
    requests = [Choose(prompt, LABELS, adapter) for prompt in PROMPTS]
    for mine, theirs in zip(ask(engine, requests), ask(reference, requests), strict=True):
        assert distance(mine.logprobs, theirs.logprobs) < 1e-3
        assert math.fsum(map(math.exp, mine.logprobs)) == pytest.approx(1, abs=1e-9)


@pytest.mark.parametrize("adapter", MODELS)
def test_greedy_texts_agree_with_transformers(engine: Model, reference: Model, adapter: str | None) -> None:
    """Catches other ends of a reply, other counts of tokens, or sampling where none was asked for."""
    requests = [Generate(prompt, 12, 0.0, 7, adapter) for prompt in PROMPTS]
    assert ask(engine, requests) == ask(reference, requests)


def test_company_changes_no_text(engine: Model) -> None:
    """Catches samples that depend on the batch, its order, or on prefixes cached before. Base requests beside
    adapter requests are the case that vLLM gets wrong when it has too few slots."""
    requests = [Generate(prompt, 12, 1.0, n, MODELS[n % 3]) for n, prompt in enumerate(PROMPTS)]
    alone = [ask(engine, [request])[0] for request in requests]
    assert ask(engine, requests) == alone
    assert ask(engine, requests[::-1]) == alone[::-1]


def test_adapters_differ_from_the_base_and_each_other(engine: Model) -> None:
    """Catches one adapter answering in the name of another."""
    for prompt in PROMPTS[:3]:
        base, first, second = (r.logprobs for r in ask(engine, [Choose(prompt, LABELS, a) for a in MODELS]))
        assert min(distance(base, first), distance(base, second), distance(first, second)) > 0.1
    assert len({engine.fingerprint(adapter) for adapter in MODELS}) == 3


def test_seeds_decide_samples(engine: Model) -> None:
    """Catches a shared generator: equal seeds must agree and different ones differ, whoever asks when."""
    texts = ask(engine, [Generate(PROMPTS[0], 16, 1.0, seed) for seed in (5, 6, 5, 2**63 - 1)])
    assert texts[0] == texts[2]
    assert len({text.text for text in texts}) == 3


def test_bad_requests_are_refused_before_the_engine_sees_them(engine: Model) -> None:
    """Catches a prompt that is cut, an unknown adapter that falls back to the base, and labels we cannot score."""
    long = (Message("user", "\n" * 2000),)
    assert "takes 1024 in all" in refusal(engine, Choose(long, ("A",)))
    assert "takes 1024 in all" in refusal(engine, Generate(PROMPTS[0], 1020, 0.0, 0))
    assert "Adapter third is not loaded" in refusal(engine, Choose(PROMPTS[0], ("A",), "third"))
    assert "Cannot choose among" in refusal(engine, Choose(PROMPTS[0], ("A", "AB")))
    assert "Cannot choose among" in refusal(engine, Choose(PROMPTS[0], ()))
    assert "Cannot generate" in refusal(engine, Generate(PROMPTS[0], 0, 0.0, 0))


def test_a_cancelled_request_leaves_the_engine_well(engine: Model) -> None:
    """Catches an abandoned request that blocks or breaks those after it."""

    async def give_up() -> None:
        asked = asyncio.ensure_future(engine.generate(Generate(PROMPTS[0], 900, 1.0, 1)))
        for _ in range(3):  # until it is on its way
            await asyncio.sleep(0)
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked

    asyncio.run(give_up())
    assert len(ask(engine, [Choose(PROMPTS[0], LABELS)])[0].logprobs) == len(LABELS)


@pytest.mark.parametrize("place", ["foreign", "absent"])
def test_adapters_that_do_not_fit_are_refused_at_once(checkpoint: Path, place: str) -> None:
    """Catches an adapter of another base, or none at all, found only after the engine's minute of loading."""
    config = settings(checkpoint, "vllm", adapters=(place,))
    with pytest.raises(ModelError, match=f"Adapter {place}"):
        load_model(config)


def test_scores_that_are_not_numbers_are_errors(engine: Model) -> None:
    """Catches a broken model whose answers look like text and choices. Last, as it may spoil cached prefixes."""
    assert "not finite" in refusal(engine, Generate(PROMPTS[1], 4, 0.0, 0, "broken"))
    assert "not finite" in refusal(engine, Generate(PROMPTS[1], 4, 1.0, 0, "broken"))
    refusal(engine, Choose(PROMPTS[1], LABELS[:4], "broken"))


class TestModel(ModelSuite):
    """The whole suite, through the fixture above."""
