import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from dssr.config import ModelConfig
from dssr.models.base import Model
from dssr.models.load import load_model
from dssr.worlds.archive import Archive, Worlds

LENGTH = 32768
"""Room for the whole history at the longest lag, in the tiny tokenizer's short tokens."""


@pytest.fixture(scope="session")
def worlds(archive: Archive) -> Iterator[Worlds]:
    made = Worlds(archive)
    yield made
    made.close()


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    """A real hf model with random weights."""
    from tests.tiny import make_tiny

    folder: Path = make_tiny(tmp_path_factory.mktemp("tiny"), hidden=32, layers=1)
    shape = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(shape | {"max_position_embeddings": LENGTH}))
    settings = ModelConfig(
        backend="hf", path=str(folder), dtype="float32", device="cpu", threads=1, context_length=LENGTH
    )
    return load_model(settings)
