"""Models behind any OpenAI-compatible address; `load_server` connects to one.

A request is sent again after transport errors, 429 and 5xx only. Anything that comes back and is not exactly what was
asked for is refused rather than repaired: a guess would look like a measurement. The key lives in the environment and
reaches nothing but the request's header; should a server repeat it, `guard` takes it out before anything is read.

`SpreadModel` has several addresses of one model: each request goes to the one with the least under way, and past those
that are gone. All must serve the same: the same card, and the same answer to the probe. The model is known by its first
address, so one that grows from one server to several keeps its stored answers.
"""

import asyncio
import logging
import os
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar
from urllib.parse import urlsplit

import msgspec

from dssr.config import ModelConfig
from dssr.errors import ConfigError, ModelError
from dssr.models.base import Background, Choose, Chosen, Generate, Generated, Likelihood, Message, TokenScores
from dssr.models.guard import (
    AbsentServerError,
    Card,
    Cards,
    Mask,
    UnfitAnswerError,
    chosen,
    echoed,
    generated,
    limit_body,
    parse,
)
from dssr.models.load import weights_folder
from dssr.models.tokenizers import HFTokenizer, label_ids, open_tokenizer
from dssr.seeds import digest_of, rng_of

# ---------------------------------------------------------------- the client

FIRST_PAUSE = 0.5
LONGEST_PAUSE = 60.0
MOST_SCORES = 20
"""Of `top_logprobs`, where the server takes no list of tokens."""
SEED_BITS = 31
"""Many servers keep no more of a seed."""
PROBE = (Message("user", "What is a kitchen for?"),)
PROBE_TOKENS = 16
"""Enough to tell models apart; a longer reply would sooner differ by a server's rounding alone."""
PORTS = {"http": 80, "https": 443}


class ServerModel:
    """Implements `dssr.models.base.Model`. Use `load_server` to make one."""

    def __init__(self, config: ModelConfig, tokenizer: HFTokenizer, first_pause: float = FIRST_PAUSE) -> None:
        self.name = config.path
        self.tokenizer = tokenizer
        self.url = self.address = config.url or ""
        """Where it is asked, and the address that it is known by, which several servers of one model share."""
        self.context_length = config.context_length
        self._config = config
        self._key = os.environ.get(config.key_variable, "").strip() or None
        self._mask = Mask(self._key, config.key_variable)
        self._first_pause = first_pause
        self._background = Background(f"The client of {self.name}")
        self._cards: dict[str, Card] = {}
        self.probes: dict[str, Generated] = {}
        self._labels: dict[str, int] | None = None
        try:
            self._background.wait(self._start())
        except BaseException:
            self._background.stop()
            raise

    async def _start(self) -> None:
        import openai

        # No redirect is followed: the key and the prompts go to the address of the configuration and to no other.
        http = openai.DefaultAsyncHttpxClient(
            follow_redirects=False,
            headers={"Accept-Encoding": "identity"},
            event_hooks={"response": [limit_body]},
            timeout=self._config.timeout,
        )
        self._client = openai.AsyncOpenAI(
            base_url=self._config.url,
            api_key=self._key or "none",
            timeout=self._config.timeout,
            max_retries=0,
            http_client=http,
        )
        self._places = asyncio.Semaphore(self._config.concurrency)
        body = await self._send("models", lambda: self._client.models.with_raw_response.list())
        self._cards = {card.id: card for card in parse(body, Cards).data}
        for served in (self.name, *self._config.adapters.values()):
            if served not in self._cards:
                known = self._mask.quoted(", ".join(sorted(self._cards))) or "none"
                raise ModelError(f"The server has no model {served!r}; it has {known}.")
        limit = self._cards[self.name].max_model_len
        self.context_length = min(self.context_length, limit or self.context_length)
        # A list of models proves nothing: every model that may be asked answers once before work is built on it.
        for adapter in (None, *self._config.adapters):
            served = self._served(adapter)
            self.probes[served] = await self.generate(Generate(PROBE, PROBE_TOKENS, 0.0, 0, adapter))

    @property
    def _vllm(self) -> bool:
        return self._cards[self.name].owned_by == "vllm"

    def fingerprint(self, adapter: str | None = None) -> str:
        """From what the server says of the model, where it is and what it answered to the probe, or from `identity` in
        place of the last two: another server of the same name must not be given this one's stored answers."""
        served = self._served(adapter)
        card = msgspec.to_builtins(self._cards[served])
        identity = self._config.identity
        found = (address(self.address), msgspec.to_builtins(self.probes[served])) if not identity else None
        return digest_of("server", self.name, card, self.tokenizer.digest, identity, found)

    def prompt_tokens(self, messages: Sequence[Message]) -> int:
        """Length of the prompt under the chat template, counted here."""
        return len(self.tokenizer.chat(messages))

    async def generate(self, request: Generate) -> Generated:
        """Ask for a reply; its text and token count are checked."""
        prompt = self._check_length(request.messages, request.max_tokens)
        asked = {
            "max_tokens": request.max_tokens,
            "temperature": request.temperature,
            "seed": request.seed % (1 << SEED_BITS),
        }
        body = await self._complete(request, asked, {})
        return generated(body, prompt if self._vllm else None, request.max_tokens, self.tokenizer)

    async def choose(self, request: Choose) -> Chosen:
        """Ask for one token and the scores of all labels; vLLM is told which those are."""
        prompt = self._check_length(request.messages, 1)
        asked = {"max_tokens": 1, "temperature": 1.0, "logprobs": True, "top_logprobs": MOST_SCORES}
        extra = {}
        if self._vllm:
            if self._labels is None:
                self._labels = label_ids(self.tokenizer)
            extra["logprob_token_ids"] = [self._labels[label] for label in request.labels]
        return chosen(await self._complete(request, asked, extra), prompt if self._vllm else None, request.labels)

    async def likelihood(self, request: Likelihood) -> TokenScores:
        """Send prompt and reply to the completion endpoint as token ids and have them echoed with their scores."""
        ids, starts = self.tokenizer.encode_with_starts(request.reply)
        prompt = self.tokenizer.chat(request.messages)
        if not ids:
            return TokenScores((), (), ())
        self._check_length(request.messages, len(ids) + 1)
        served = self._served(request.adapter)

        def send() -> Awaitable[Any]:
            create: Callable[..., Awaitable[Any]] = self._client.completions.with_raw_response.create
            return create(model=served, prompt=[*prompt, *ids], max_tokens=1, temperature=0.0, echo=True, logprobs=1)

        body = await self._background.run(lambda: self._send(digest_of(served, prompt, ids), send))
        return echoed(body, len(prompt), len(ids), starts)

    async def close(self) -> None:
        """End the client; requests under way are cancelled."""
        self.stop()

    def stop(self) -> None:
        """The same, from ordinary code."""
        self._background.stop(self._client.close)

    def _served(self, adapter: str | None) -> str:
        if adapter is None:
            return self.name
        if adapter not in self._config.adapters:
            known = ", ".join(sorted(self._config.adapters)) or "none"
            raise ModelError(f"No adapter is called {adapter!r}; the configuration names {known}.")
        return self._config.adapters[adapter]

    def _check_length(self, messages: Sequence[Message], reply: int) -> int:
        """Tokens of the prompt, which must leave room for the reply."""
        prompt = self.prompt_tokens(messages)
        if prompt + reply > self.context_length:
            raise ModelError(
                f"A prompt of {prompt} tokens and a reply of {reply} exceed the context of {self.name}, "
                f"{self.context_length} tokens; shorten the history or raise `context_length`."
            )
        return prompt

    async def _complete(self, request: Generate | Choose, asked: dict[str, Any], extra: dict[str, Any]) -> bytes:
        if self._vllm:
            # vLLM fills what is left open from the checkpoint's generation_config.json.
            extra = {"top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0, **extra}
        served = self._served(request.adapter)
        messages = [{"role": message.role, "content": _sendable(message.content)} for message in request.messages]

        def send() -> Awaitable[Any]:
            create: Callable[..., Awaitable[Any]] = self._client.chat.completions.with_raw_response.create
            return create(model=served, messages=messages, top_p=1.0, extra_body=extra, **asked)

        return await self._background.run(lambda: self._send(digest_of(served, messages, asked), send))

    async def _send(self, content: str, send: Callable[[], Awaitable[Any]]) -> bytes:
        """The body of a successful answer; `content` seeds the pauses, so that equal runs wait equally."""
        async with self._places:
            for attempt in range(self._config.retries + 1):
                try:
                    # The client's own limit is per read: an answer that trickles in would pass it for ever.
                    answer = await asyncio.wait_for(send(), self._config.timeout)
                    # The one place where a server's words come in: nothing beyond it can see the key.
                    return self._mask.body(bytes(answer.http_response.content))
                except ModelError:
                    raise
                except Exception as error:
                    trouble, again, asked_pause = self._judge(error)
                if not again or attempt == self._config.retries:
                    break
                spread = 0.5 + 0.5 * rng_of("pause", content, attempt).random()
                await asyncio.sleep(min(max(self._first_pause * 2**attempt * spread, asked_pause), LONGEST_PAUSE))
            tries = f" after {attempt + 1} tries" if attempt else ""
            kind = AbsentServerError if again else ModelError
            raise kind(f"The server of {self.name} {trouble.rstrip('.')}{tries}.")

    def _judge(self, error: Exception) -> tuple[str, bool, float]:
        """What went wrong, whether to send again, and how long the server asks to wait."""
        import openai

        if isinstance(error, asyncio.TimeoutError | TimeoutError | openai.APITimeoutError):
            return f"did not answer within {self._config.timeout:g} s", True, 0.0
        for found in (error, error.__cause__):
            if isinstance(found, UnfitAnswerError):
                return str(found), False, 0.0
        if isinstance(error, openai.APIConnectionError):
            return "could not be reached or cut the connection", True, 0.0
        if not isinstance(error, openai.APIStatusError):
            return f"could not be used: {self._mask.quoted(str(error))}", False, 0.0
        status = error.status_code
        if status in (401, 403):
            return f"refused the key (status {status}); set {self._config.key_variable}", False, 0.0
        if 300 <= status < 400:
            return f"sends requests elsewhere (status {status}); set `url` to the address that answers", False, 0.0
        again = status == 429 or status >= 500
        wait = error.response.headers.get("retry-after", "")
        words = self._mask.quoted(str(error.message))
        return f"answered {status}: {words}", again, float(wait) if wait.isdigit() else 0.0


def _sendable(text: str) -> str:
    """Lone surrogates have no place in JSON; they are replaced as the tokenizer replaces them."""
    return text.encode("utf-8", "replace").decode("utf-8")


def address(url: str) -> str:
    """An address in the one way it is compared: a default port or a last slash makes no other server."""
    parts = urlsplit(url)
    port = parts.port or PORTS.get(parts.scheme)
    return f"{parts.scheme}://{parts.hostname}:{port}{parts.path.rstrip('/')}?{parts.query}"


def load_server(config: ModelConfig, first_pause: float = FIRST_PAUSE) -> ServerModel:
    """Connect to the one server of a configuration."""
    return ServerModel(config, checked_tokenizer(config), first_pause)


def checked_tokenizer(config: ModelConfig) -> HFTokenizer:
    """The tokenizer of a served model; refuses a configuration that could only fail later."""
    try:
        import openai  # noqa: F401
    except ImportError:
        raise ModelError("The server backend needs openai; install it with `pip install 'dssr[server]'`.") from None
    for url in (config.url, *config.urls):
        parts = urlsplit(url or "")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(f"A server model needs `url`, such as http://localhost:8000/v1, not {url!r}.")
        if parts.username or parts.password:
            raise ConfigError("`url` holds a user or password, which would be recorded; use the key's variable.")
    if config.tokenizer is None:
        raise ConfigError(
            f"The server model {config.path} needs `tokenizer`, a folder or hub name, to count the budgets of states."
        )
    return open_tokenizer(weights_folder(config.tokenizer), config.path, config.revision)


# ---------------------------------------------------------------- several servers

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
