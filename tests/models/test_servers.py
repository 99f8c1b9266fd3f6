"""Several addresses as one model, on real sockets."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.models.faulty import FaultyServer, hang_up
from tests.models.serving import KEY, WRITE

from dssr.config import ModelConfig
from dssr.errors import ModelError
from dssr.models.base import Generate, Generated
from dssr.models.load import load_model
from dssr.models.server import SpreadModel, checked_tokenizer, load_server

CALLS = 12


@pytest.fixture
def servers(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[FaultyServer]]:
    monkeypatch.setenv("FAULTY_KEY", KEY)
    running = [FaultyServer(), FaultyServer()]
    yield running
    for one in running:
        one.shutdown()


def settings(servers: list[FaultyServer], tokenizer: Path, retries: int = 1) -> ModelConfig:
    return ModelConfig(
        backend="server",
        path="tiny",
        url=servers[0].url,
        urls=tuple(one.url for one in servers[1:]),
        tokenizer=str(tokenizer),
        key_variable="FAULTY_KEY",
        retries=retries,
    )


async def ask(model: SpreadModel) -> list[Generated]:
    requests = [Generate(WRITE.messages, 16, 0.7, seed) for seed in range(CALLS)]
    return list(await asyncio.gather(*(model.generate(one) for one in requests)))


def test_requests_are_spread_and_go_past_a_server_that_is_gone(
    servers: list[FaultyServer], tokenizer_folder: Path
) -> None:
    """Catches one server that gets everything, a request lost with its server, and a fingerprint that says how many
    servers there are: answers stored with one would be computed again with two."""
    config = settings(servers, tokenizer_folder)
    model = SpreadModel(config, checked_tokenizer(config), first_pause=0.01)
    alone = load_server(config, first_pause=0.01)
    assert model.fingerprint() == alone.fingerprint()
    asyncio.run(alone.close())
    for one in servers:
        one.requests.clear()
        one.delay = 0.05
    asyncio.run(ask(model))
    assert [len(one.requests) for one in servers] == [CALLS // 2, CALLS // 2]
    servers[0].script = [hang_up] * 1000
    assert len(asyncio.run(ask(model))) == CALLS
    servers[1].script = [hang_up] * 1000
    with pytest.raises(ModelError, match="None of the 2 servers of tiny answers; the last: The server of tiny could"):
        asyncio.run(ask(model))
    asyncio.run(model.close())


def test_servers_of_different_models_are_refused(servers: list[FaultyServer], tokenizer_folder: Path) -> None:
    """Catches answers of two models in one run, because one of the addresses serves another than it says."""
    servers[1].cards = [{**card, "max_model_len": 77} for card in servers[1].cards]
    with pytest.raises(ModelError, match=rf"^{servers[1].url} serves another tiny than {servers[0].url}"):
        load_model(settings(servers, tokenizer_folder))


def test_a_server_that_is_away_at_the_start_is_left_out(servers: list[FaultyServer], tokenizer_folder: Path) -> None:
    """Catches a run that cannot be continued while one of its servers is down, or is taken for one of another model."""
    config = settings(servers, tokenizer_folder, retries=0)
    known = load_model(config)
    servers[0].shutdown()
    servers[0].server_close()
    model = load_model(config)
    assert model.fingerprint() == known.fingerprint()
    assert asyncio.run(model.generate(WRITE)).text
    asyncio.run(known.close())
    asyncio.run(model.close())
