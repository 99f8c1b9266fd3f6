"""The conformance suite on the backends that run everywhere."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from dssr.config import ModelConfig
from dssr.models.cache import Cache, CachedModel
from dssr.models.load import load_model
from dssr.testing import ModelSubject, ModelSuite


@pytest.fixture(scope="module", params=["scripted", "hf-float32", "hf-bfloat16", "hf-cached"])
def subject(
    request: pytest.FixtureRequest, tiny: Path, tiny_adapters: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ModelSubject]:  # fmt: skip
    if request.param == "scripted":
        yield ModelSubject(load_model(ModelConfig(backend="scripted", retention=0.5)))
        return
    settings = ModelConfig(
        backend="hf",
        path=str(tiny),
        dtype="bfloat16" if request.param == "hf-bfloat16" else "float32",
        device="cpu",
        context_length=2048,
        adapters=tiny_adapters,
    )
    model = load_model(settings)
    if request.param == "hf-cached":
        model = CachedModel(model, Cache(tmp_path_factory.mktemp("cache"), 1 << 24))
    yield ModelSubject(model, adapters=tuple(tiny_adapters))
    asyncio.run(model.close())


class TestModels(ModelSuite):
    """Every backend, through the fixture above."""
