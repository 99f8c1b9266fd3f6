"""Tiny real models for the engine's tests."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.tiny import tiny, tiny_adapters

from dssr.config import ModelConfig
from dssr.models.engine.hf import HFModel
from dssr.models.load import load_model

__all__ = ["tiny", "tiny_adapters"]


@pytest.fixture(scope="session", params=["float32", "bfloat16"])
def model(request: pytest.FixtureRequest, tiny: Path, tiny_adapters: dict[str, str]) -> Iterator[HFModel]:
    """A tiny model with two adapters, once per number type."""
    settings = ModelConfig(
        backend="hf", path=str(tiny), dtype=request.param, device="cpu", batch_tokens=512, adapters=tiny_adapters
    )
    loaded = load_model(settings)
    assert isinstance(loaded, HFModel)
    yield loaded
    asyncio.run(loaded.close())
