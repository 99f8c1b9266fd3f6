"""Tiny real models for the engine's tests, and a server that fails on request for those of the server backend."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.models.faulty import FaultyServer
from tests.models.serving import KEY, Open
from tests.tiny import make_tokenizer, tiny, tiny_adapters

from dssr.config import ModelConfig
from dssr.models.engine.hf import HFModel
from dssr.models.load import load_model
from dssr.models.server import ServerModel, load_server

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


@pytest.fixture(scope="module")
def tokenizer_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All that this backend keeps of a model."""
    folder = tmp_path_factory.mktemp("tokenizer")
    make_tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture
def server() -> Iterator[FaultyServer]:
    with FaultyServer() as running:
        yield running
        running.shutdown()


@pytest.fixture
def opened(server: FaultyServer, tokenizer_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Open]:
    """Opens models on the faulty server, with short pauses, and closes them again."""
    monkeypatch.setenv("FAULTY_KEY", KEY)
    models: list[ServerModel] = []

    def make(**settings: Any) -> ServerModel:
        plain = {"url": server.url, "path": "tiny", "tokenizer": str(tokenizer_folder), "timeout": 600.0, "retries": 2}
        config = ModelConfig(backend="server", key_variable="FAULTY_KEY", **{**plain, **settings})
        models.append(load_server(config, first_pause=0.01))
        server.requests.clear()  # the probe
        return models[-1]

    yield make
    for model in models:
        asyncio.run(model.close())
