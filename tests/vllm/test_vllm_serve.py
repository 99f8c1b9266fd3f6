"""The server backend against vLLM's own server (`vllm serve`): the conformance suite and more."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.vllm.checkpoint import CONTEXT, MODELS, PROMPTS, WORKING
from tests.vllm.conftest import distance, refusal

from dssr.config import ModelConfig
from dssr.errors import ModelError
from dssr.models.base import Choose, Generate, Message, Model
from dssr.models.load import load_model
from dssr.testing import ModelSubject, ModelSuite, ask
from dssr.types import LABELS

pytestmark = pytest.mark.vllm
pytest.importorskip("vllm.sampling_params", reason="vLLM is not installed here; run `make test-vllm`")


@pytest.fixture(scope="module")
def client(address: str, checkpoint: Path) -> Iterator[Model]:
    config = ModelConfig(
        backend="server",
        path="tiny",
        url=address,
        tokenizer=str(checkpoint / "base"),
        adapters={name: name for name in WORKING},
    )
    model = load_model(config)
    yield model
    asyncio.run(model.close())


@pytest.fixture(scope="module")
def subject(client: Model) -> ModelSubject:
    return ModelSubject(client, adapters=WORKING, tolerance=1e-4)


@pytest.mark.parametrize("adapter", MODELS)
def test_all_labels_are_scored_as_transformers_does(client: Model, reference: Model, adapter: str | None) -> None:
    """Catches a server's limit of twenty scores, its own prompt, or the wrong adapter."""
    requests = [Choose(prompt, LABELS, adapter) for prompt in PROMPTS]
    for mine, theirs in zip(ask(client, requests), ask(reference, requests), strict=True):
        assert distance(mine.logprobs, theirs.logprobs) < 1e-3


def test_seeds_reach_the_server(client: Model) -> None:
    """Catches sampling that cannot be repeated."""
    texts = ask(client, [Generate(PROMPTS[0], 16, 1.0, seed) for seed in (5, 6, 5)])
    assert texts[0] == texts[2] != texts[1]


def test_the_server_tells_its_limits(client: Model) -> None:
    """Catches a context length that is ours alone."""
    assert client.context_length == CONTEXT
    assert "exceed the context" in refusal(client, Choose((Message("user", "\n" * 2000),), ("A",)))


def test_broken_scores_are_errors(address: str, checkpoint: Path) -> None:
    """Catches scores that are not numbers coming out of a server as a choice; the probe may refuse them before."""
    with pytest.raises(ModelError):
        ask(
            load_model(
                ModelConfig(
                    backend="server",
                    path="tiny",
                    url=address,
                    tokenizer=str(checkpoint / "base"),
                    adapters={"broken": "broken"},
                )
            ),
            [Choose(PROMPTS[1], LABELS[:4], "broken")],
        )


def test_an_unknown_model_is_named(address: str, checkpoint: Path) -> None:
    """Catches a spelling mistake that would fail on every request of a run."""
    config = ModelConfig(backend="server", path="tny", url=address, tokenizer=str(checkpoint / "base"))
    with pytest.raises(ModelError, match="it has broken, first, second, tiny"):
        load_model(config)


class TestModel(ModelSuite):
    """The whole suite, through the fixture above."""
