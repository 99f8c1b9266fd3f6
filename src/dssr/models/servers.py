"""Several addresses of one model: each request goes to the one with the least under way, and past those that are gone.

All must serve the same: the same card, and the same answer to the probe. The model is known by its first address, so
one that grows from one server to several keeps its stored answers.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import msgspec

from dssr.config import ModelConfig
from dssr.errors import ModelError
from dssr.models.base import Choose, Chosen, Generate, Generated, Likelihood, Message, TokenScores
from dssr.models.guard import AbsentServerError
from dssr.models.server import FIRST_PAUSE, ServerModel
from dssr.models.tokenizers import HFTokenizer

log = logging.getLogger("dssr")
T = TypeVar("T")

AWAY = 30.0
"""Seconds for which a server that did not answer is asked only if no other can be."""


class SpreadModel:
    """Implements `dssr.models.base.Model` over several servers. Use `load_server` to make one."""

    def __init__(self, config: ModelConfig, tokenizer: HFTokenizer, first_pause: float = FIRST_PAUSE) -> None:
        self.name, self.tokenizer = config.path, tokenizer
        self._rounds, self._pause = config.retries + 1, first_pause
        self._servers: list[ServerModel] = []
        self._under_way: list[int] = []
        self._away: list[float] = []
        trouble: ModelError | None = None
        try:
            for url in (config.url, *config.urls):
                # Another server is the better next try.
                one = msgspec.structs.replace(config, url=url, retries=min(config.retries, 1))
                try:
                    self._servers.append(ServerModel(one, tokenizer, first_pause))
                    self._servers[-1].address = config.url or ""
                except AbsentServerError as error:
                    trouble = error
                    log.warning("The server at %s does not answer and is left out: %s", url, error)
            if not self._servers:
                raise trouble or ModelError(f"{self.name} has no server.")
            self._check_alike((None, *config.adapters))
        except BaseException:
            for server in self._servers:
                server.stop()
            raise
        self.context_length = min(server.context_length for server in self._servers)
        self._under_way = [0] * len(self._servers)
        self._away = [0.0] * len(self._servers)

    def _check_alike(self, adapters: Sequence[str | None]) -> None:
        prints = [([one.fingerprint(name) for name in adapters], one.probes) for one in self._servers]
        for other, found in zip(self._servers, prints, strict=True):
            if found != prints[0]:
                raise ModelError(
                    f"{other.url} serves another {self.name} than {self._servers[0].url}: its card or its answer to "
                    "the same question differs; list only servers of one model with the same settings."
                )

    def fingerprint(self, adapter: str | None = None) -> str:
        """Of the first address."""
        return self._servers[0].fingerprint(adapter)

    def prompt_tokens(self, messages: Sequence[Message]) -> int:
        """Length of the prompt under the chat template, counted here."""
        return self._servers[0].prompt_tokens(messages)

    async def generate(self, request: Generate) -> Generated:
        """By whichever server has the least to do."""
        return await self._ask(lambda server: server.generate(request))

    async def choose(self, request: Choose) -> Chosen:
        """By whichever server has the least to do."""
        return await self._ask(lambda server: server.choose(request))

    async def likelihood(self, request: Likelihood) -> TokenScores:
        """By whichever server has the least to do."""
        return await self._ask(lambda server: server.likelihood(request))

    async def close(self) -> None:
        """End all clients."""
        for server in self._servers:
            await server.close()

    async def _ask(self, call: Callable[[ServerModel], Awaitable[T]]) -> T:
        trouble: AbsentServerError | None = None
        for attempt in range(self._rounds):
            untried = set(range(len(self._servers)))
            while untried:
                now = time.monotonic()
                place = min(untried, key=lambda place: (self._away[place] > now, self._under_way[place], place))
                untried.remove(place)
                self._under_way[place] += 1
                try:
                    return await call(self._servers[place])
                except AbsentServerError as error:
                    trouble, self._away[place] = error, time.monotonic() + AWAY
                finally:
                    self._under_way[place] -= 1
            if attempt + 1 < self._rounds:
                await asyncio.sleep(self._pause * 2**attempt)
        raise ModelError(f"None of the {len(self._servers)} servers of {self.name} answers; the last: {trouble}")
