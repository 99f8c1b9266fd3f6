"""Models behind any OpenAI-compatible address.

A request is sent again after transport errors, 429 and 5xx only. What comes back is checked (`wire.py`) and
refused rather than repaired. The key lives in the environment and reaches nothing but the request's header.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar
from urllib.parse import urlsplit

import msgspec

from dssr.config import ModelConfig
from dssr.errors import ConfigError, ModelError
from dssr.models.background import Background
from dssr.models.base import Choose, Chosen, Generate, Generated, Message
from dssr.models.labels import label_ids
from dssr.models.load import weights_folder
from dssr.models.tokenizers import HFTokenizer, open_tokenizer
from dssr.models.wire import Card, Cards, chosen, generated, parse
from dssr.seeds import digest_of, rng_of

FIRST_PAUSE = 0.5
LONGEST_PAUSE = 60.0
MOST_SCORES = 20
"""Of `top_logprobs`, where the server takes no list of tokens."""
SEED_BITS = 31
"""Many servers keep no more of a seed."""

T = TypeVar("T")


class ServerModel:
    """Implements `dssr.models.base.Model`. Use `load_server` to make one."""

    def __init__(self, config: ModelConfig, tokenizer: HFTokenizer, first_pause: float = FIRST_PAUSE) -> None:
        self.name = config.path
        self.tokenizer = tokenizer
        self.context_length = config.context_length
        self._config = config
        self._key = os.environ.get(config.key_variable)
        self._first_pause = first_pause
        self._background = Background(f"the client of {self.name}")
        self._cards: dict[str, Card] = {}
        self._labels: dict[str, int] | None = None
        try:
            self._background.wait(self._start())
        except BaseException:
            self._background.stop()
            raise

    async def _start(self) -> None:
        import openai

        self._client = openai.AsyncOpenAI(
            base_url=self._config.url, api_key=self._key or "none", timeout=self._config.timeout, max_retries=0
        )
        self._places = asyncio.Semaphore(self._config.concurrency)
        body = await self._send("models", lambda: self._client.models.with_raw_response.list())
        self._cards = {card.id: card for card in parse(body, Cards).data}
        for served in (self.name, *self._config.adapters.values()):
            if served not in self._cards:
                raise ModelError(
                    f"the server has no model {served!r}; it has {', '.join(sorted(self._cards)) or 'none'}"
                )
        limit = self._cards[self.name].max_model_len
        self.context_length = min(self.context_length, limit or self.context_length)

    @property
    def _vllm(self) -> bool:
        return self._cards[self.name].owned_by == "vllm"

    def fingerprint(self, adapter: str | None = None) -> str:
        """From what the server says of the model; its numerics are its own."""
        card = msgspec.to_builtins(self._cards[self._served(adapter)])
        return digest_of("server", self.name, card, self.tokenizer.digest)

    def prompt_tokens(self, messages: Sequence[Message]) -> int:
        return len(self.tokenizer.chat(messages))

    async def generate(self, request: Generate) -> Generated:
        prompt = self._check_length(request.messages, request.max_tokens)
        asked = {
            "max_tokens": request.max_tokens,
            "temperature": request.temperature,
            "seed": request.seed % (1 << SEED_BITS),
        }
        body = await self._complete(request, asked, {})
        return generated(body, prompt if self._vllm else None, request.max_tokens, self.tokenizer)

    async def choose(self, request: Choose) -> Chosen:
        prompt = self._check_length(request.messages, 1)
        asked = {"max_tokens": 1, "temperature": 1.0, "logprobs": True, "top_logprobs": MOST_SCORES}
        extra = {}
        if self._vllm:
            if self._labels is None:
                self._labels = label_ids(self.tokenizer)
            extra["logprob_token_ids"] = [self._labels[label] for label in request.labels]
        return chosen(await self._complete(request, asked, extra), prompt if self._vllm else None, request.labels)

    async def close(self) -> None:
        self._background.stop(self._client.close)

    def _served(self, adapter: str | None) -> str:
        if adapter is None:
            return self.name
        if adapter not in self._config.adapters:
            known = ", ".join(sorted(self._config.adapters)) or "none"
            raise ModelError(f"no adapter is called {adapter!r}; the configuration names {known}")
        return self._config.adapters[adapter]

    def _check_length(self, messages: Sequence[Message], reply: int) -> int:
        """Tokens of the prompt, which must leave room for the reply."""
        prompt = self.prompt_tokens(messages)
        if prompt + reply > self.context_length:
            raise ModelError(
                f"a prompt of {prompt} tokens and a reply of {reply} exceed the context of {self.name}, "
                f"{self.context_length} tokens; shorten the history or raise `context_length`"
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
                    return bytes(answer.http_response.content)
                except Exception as error:
                    trouble, again, asked_pause = self._judge(error)
                if not again or attempt == self._config.retries:
                    break
                spread = 0.5 + 0.5 * rng_of("pause", content, attempt).random()
                await asyncio.sleep(min(max(self._first_pause * 2**attempt * spread, asked_pause), LONGEST_PAUSE))
            tries = f" after {attempt + 1} tries" if attempt else ""
            raise ModelError(f"the server of {self.name} {trouble}{tries}")

    def _judge(self, error: Exception) -> tuple[str, bool, float]:
        """What went wrong, whether to send again, and how long the server asks to wait."""
        import openai

        if isinstance(error, asyncio.TimeoutError | TimeoutError | openai.APITimeoutError):
            return f"did not answer within {self._config.timeout:g} s", True, 0.0
        if isinstance(error, openai.APIConnectionError):
            return "could not be reached or cut the connection", True, 0.0
        if not isinstance(error, openai.APIStatusError):
            return f"could not be used: {self._told(str(error))}", False, 0.0
        status = error.status_code
        if status in (401, 403):
            return f"refused the key (status {status}); set {self._config.key_variable}", False, 0.0
        again = status == 429 or status >= 500
        wait = error.response.headers.get("retry-after", "")
        return f"answered {status}: {self._told(str(error.message))}", again, float(wait) if wait.isdigit() else 0.0

    def _told(self, text: str) -> str:
        """A server's own words, short, on one line, and without the key should it repeat it."""
        hidden = text.replace(self._key, "[key]") if self._key else text
        return " ".join(hidden.split())[:300]


def _sendable(text: str) -> str:
    """Lone surrogates have no place in JSON; they are replaced as the tokenizer replaces them."""
    return text.encode("utf-8", "replace").decode("utf-8")


def load_server(config: ModelConfig, first_pause: float = FIRST_PAUSE) -> ServerModel:
    """Connect to the server of a configuration; refuses what could only fail later."""
    try:
        import openai  # noqa: F401
    except ImportError:
        raise ModelError("the server backend needs openai; install it with: pip install 'dssr[server]'") from None
    parts = urlsplit(config.url or "")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(f"a server model needs `url`, such as http://localhost:8000/v1, not {config.url!r}")
    if parts.username or parts.password:
        raise ConfigError("`url` holds a user or password, which would be recorded; put the key in the environment")
    if config.tokenizer is None:
        raise ConfigError(
            f"the server model {config.path} needs `tokenizer`, a folder or hub name, to count the budgets of states"
        )
    tokenizer = open_tokenizer(weights_folder(config.tokenizer), config.path, config.revision)
    return ServerModel(config, tokenizer, first_pause)
