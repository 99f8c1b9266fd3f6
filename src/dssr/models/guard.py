"""What a server sends, before anything here uses, stores or prints it: bounded, from one host, without the key, and
exactly what was asked for.
"""

import math
import re
from collections.abc import AsyncIterator, Sequence
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from dssr.errors import ConfigError, ModelError
from dssr.models.base import MOST_CHARACTERS, Chosen, Generated, Tokenizer, TokenScores

MOST_BYTES = 16 * 2**20
"""Of one answer; a list of thousands of models, or a reply with all its scores, is far smaller."""
LEAST_KEY = 8
"""Characters from which on a key is a secret; `none` or `EMPTY`, which local servers are given, are words."""
HIDDEN = "[key]"
MOST_QUOTED = 300
"""Characters of a server's own words in an error."""
# A token holds a digit, and prose such as "the bearer of it" seldom does.
_BEARER = re.compile(r"\bBearer\s+(?=\S*\d)[\w.~+/=-]{8,}", re.IGNORECASE)
# C0 and C1 controls but for tab and line feed; what terminals obey; and marks that reorder text.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def printable(text: str) -> str:
    """Text without what a terminal would obey rather than show."""
    return _CONTROL.sub("", text)


def spelled(text: str) -> str:
    """JSON with the same characters as escapes: nothing is lost to the program that reads it."""
    return _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


class Mask:
    """Takes a key out of whatever a server says, should it repeat the header."""

    def __init__(self, key: str | None, variable: str) -> None:
        if key is not None and not re.fullmatch(r"[\x21-\x7e]*", key):
            raise ConfigError(f"The key in {variable} holds a space or a character that no key has; set it again.")
        self._key = key if key is not None and len(key) >= LEAST_KEY else None

    def text(self, text: str) -> str:
        """The same text without the key or any bearer token."""
        hidden = text.replace(self._key, HIDDEN) if self._key else text
        return _BEARER.sub(f"Bearer {HIDDEN}", hidden)

    def quoted(self, text: str) -> str:
        """A server's own words for a sentence: short, on one line."""
        return printable(" ".join(self.text(text).split()))[:MOST_QUOTED]

    def body(self, body: bytes) -> bytes:
        """An answer without the key in any of its strings. They are looked at decoded: JSON can spell a letter in two
        ways. What is no JSON is returned as it is, to be refused by whoever reads it."""
        try:
            plain = msgspec.json.decode(body)
            hidden = self._walk(plain)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return body
        except RecursionError:
            raise ModelError("The server's answer is nested too deeply to be read.") from None
        return body if hidden == plain else msgspec.json.encode(hidden)

    def _walk(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list):
            return [self._walk(one) for one in value]
        if isinstance(value, dict):
            return {self.text(name): self._walk(one) for name, one in value.items()}
        return value


class AbsentServerError(ModelError):
    """A server that could not be reached, or kept failing: another of the same model may answer."""


class UnfitAnswerError(Exception):
    """An answer that is not read to its end; the text goes on from `The server of X`."""


async def limit_body(response: Any) -> None:
    """A hook for the client: ends an answer that is larger than `MOST_BYTES` while it comes in."""
    # A packed answer of this size can unfold to a thousand times as much, and none was asked for.
    if response.headers.get("content-encoding", "identity") != "identity":
        raise UnfitAnswerError("sent a compressed answer, which was not asked for")
    inner = response.stream
    # The client looks for its own base class, and which package that comes from depends on openai's version.
    base: Any = next(kind for kind in type(inner).__mro__ if kind.__name__ == "AsyncByteStream")

    async def parts(_: Any) -> AsyncIterator[bytes]:
        left = MOST_BYTES
        async for part in inner:
            left -= len(part)
            if left < 0:
                raise UnfitAnswerError(f"sent more than {MOST_BYTES // 2**20} MiB in one answer")
            yield part

    async def close(_: Any) -> None:
        await inner.aclose()

    response.stream = type("Limited", (base,), {"__aiter__": parts, "aclose": close})()


# ---------------------------------------------------------------- what a server answers


class Usage(Struct):
    """How many tokens the server counted."""

    completion_tokens: int
    prompt_tokens: int | None = None


class Score(Struct):
    """One token and its log-probability."""

    token: str
    logprob: float


class TokenPosition(Struct):
    """One written token with its alternatives."""

    token: str
    top_logprobs: list[Score] = []


class Logprobs(Struct):
    """The scores of a reply."""

    content: list[TokenPosition] | None = None


class ServerReply(Struct):
    """What the model said."""

    content: str | None = None


class Choice(Struct):
    """One reply of possibly several."""

    message: ServerReply
    finish_reason: str | None = None
    logprobs: Logprobs | None = None


class Completion(Struct):
    """The answer to a request."""

    choices: list[Choice]
    usage: Usage | None = None


class EchoScores(Struct):
    """The scores of an echoed prompt and what follows it; the first token has none."""

    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None] | None = None


class Echo(Struct):
    """The answer of the completion endpoint: one echoed prompt, as `logprobs` of its choice."""

    choices: list[dict[str, Any]]


class Card(Struct):
    """One model on the server's list, with the fields that tell models apart."""

    id: str
    owned_by: str | None = None
    root: str | None = None
    parent: str | None = None
    revision: str | None = None
    max_model_len: int | None = None


class Cards(Struct):
    """The server's list of models."""

    data: list[Card]


# ---------------------------------------------------------------- checked answers

UNKNOWN = -9999.0
"""Servers write this, or less, where they have no log-probability."""
FEW = 8
"""Tokens up to which a reply is too short for its count to be doubted."""
ROUNDING = 0.05
"""Nats by which rounded log-probabilities may add up to more than one."""
ENDINGS = frozenset({"stop", "length"})
T = TypeVar("T")


def parse(body: bytes, kind: type[T]) -> T:
    """The body as a record; anything else is refused in one sentence."""
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ModelError(f"The server's answer is not a usable {kind.__name__.lower()}: {error}.") from None


def generated(body: bytes, prompt: int | None, max_tokens: int, tokenizer: Tokenizer) -> Generated:
    """The text of a completion, with a token count that can be true."""
    completion = parse(body, Completion)
    choice = _only_choice(completion, prompt)
    text = choice.message.content
    if text is None:
        raise ModelError("The server's answer holds no text; use a model that replies without tools or reasoning.")
    if choice.finish_reason not in ENDINGS:
        raise ModelError(f"The server ended the reply with {choice.finish_reason!r} instead of 'stop' or 'length'.")
    if len(text) > MOST_CHARACTERS:
        raise ModelError(f"The server sent {len(text):,} characters where at most {max_tokens} tokens were asked for.")
    here = len(tokenizer.encode(text))
    if completion.usage is None:
        return Generated(text, here)
    count = completion.usage.completion_tokens
    if not 0 <= count <= max_tokens:
        raise ModelError(f"The server reports {count} tokens where at most {max_tokens} were asked for.")
    # Sampled tokens re-encode to about as many or fewer, so half is far outside of what can be; a lone rare token, or a
    # character that the limit cut in two, can come back as several.
    if count < here / 2 and (here > FEW or not count):
        raise ModelError(
            f"The server reports {count} tokens for a reply of {here}; set `tokenizer` to that of the served model."
        )
    return Generated(text, count)


def chosen(body: bytes, prompt: int | None, labels: Sequence[str]) -> Chosen:
    """Log-probabilities over exactly the labels, or a refusal that says what is missing."""
    choice = _only_choice(parse(body, Completion), prompt)
    if choice.logprobs is None or not choice.logprobs.content:
        raise ModelError("The server gives no log-probabilities, which a reader needs; use one with `logprobs`.")
    if len(choice.logprobs.content) != 1:
        raise ModelError(f"The server answered with {len(choice.logprobs.content)} tokens where one was asked for.")
    known: dict[str, float] = {}
    for score in choice.logprobs.content[0].top_logprobs:
        if known.setdefault(score.token, score.logprob) != score.logprob:
            raise ModelError(f"The server gives two log-probabilities for the token {score.token!r}.")
    missing = [label for label in labels if known.get(label, UNKNOWN) <= UNKNOWN]
    if missing:
        raise ModelError(
            f"The server gives no log-probability for {len(missing)} of {len(labels)} labels "
            f"({', '.join(missing)}); serve the reader with vLLM, which scores every label."
        )
    return Chosen(renormalised([known[label] for label in labels]))


def echoed(body: bytes, prompt: int, reply: int, starts: tuple[int, ...]) -> TokenScores:
    """The scores of the reply's tokens, or a refusal that says what is missing."""
    answer = parse(body, Echo)
    told = answer.choices[0].get("logprobs") if len(answer.choices) == 1 else None
    scores = parse(msgspec.json.encode(told), EchoScores) if isinstance(told, dict) else None
    if scores is None or scores.top_logprobs is None:
        raise ModelError("The server scores no given text (`echo` with `logprobs`); use options, or hf or vLLM here.")
    found = scores.token_logprobs[prompt : prompt + reply]
    tops = [max((top or {}).values(), default=-math.inf) for top in scores.top_logprobs[prompt : prompt + reply]]
    logprobs = tuple(value for value in found if value is not None and math.isfinite(value))
    if len(logprobs) != reply or len(tops) != reply:
        raise ModelError(
            f"The server scored {len(logprobs)} of {reply} tokens of a given text; its answer is not used."
        )
    return TokenScores(starts, logprobs, tuple(one >= top for one, top in zip(logprobs, tops, strict=True)))


def renormalised(logprobs: Sequence[float]) -> tuple[float, ...]:
    """Log-probabilities that sum to one over the given ones alone."""
    if not all(math.isfinite(value) for value in logprobs):
        raise ModelError("The model gave log-probabilities that are not finite numbers; check its weights and dtype.")
    top = max(logprobs)
    total = top + math.log(math.fsum(math.exp(value - top) for value in logprobs))
    if total > ROUNDING:
        raise ModelError("The model gave probabilities that add up to more than one; its answer cannot be trusted.")
    return tuple(value - total for value in logprobs)


def _only_choice(completion: Completion, prompt: int | None) -> Choice:
    """`prompt` is the length that the prompt must have had there, where the server counts as we do."""
    there = completion.usage.prompt_tokens if completion.usage else None
    if prompt is not None and there is not None and there != prompt:
        raise ModelError(
            f"The server read a prompt of {there} tokens that has {prompt} here; "
            "set `tokenizer` to the folder or hub name of the served model, with the same chat template."
        )
    if len(completion.choices) != 1:
        raise ModelError(f"The server answered with {len(completion.choices)} choices where one was asked for.")
    return completion.choices[0]
