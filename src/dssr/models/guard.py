"""What a server sends, before anything here uses, stores or prints it: bounded, from one host, and without the key."""

import re
from collections.abc import AsyncIterator
from typing import Any

import msgspec

from dssr.errors import ConfigError, ModelError

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
