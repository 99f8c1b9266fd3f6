"""The scripted model: a forgetful writer and a planning reader behind the same interface as any other model.

It answers from the messages alone. It has no weights, loads nothing, and runs a whole study in seconds. Its tokenizer
has no vocabulary: words and marks, long words in pieces, and every id spells its own bytes.
"""

import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from dssr.errors import ModelError
from dssr.models.base import Choose, Chosen, Generate, Generated, Likelihood, Message, TokenScores
from dssr.models.cache import remembered
from dssr.models.scripted.formats import order_of, question_of
from dssr.models.scripted.reader import logprobs
from dssr.models.scripted.writer import rewrite
from dssr.seeds import digest_of, rng_of

# ---------------------------------------------------------------- the tokenizer

_PIECE = re.compile(r" ?\w+| ?[^\w\s]|\s")
_BYTES = 7
"""Bytes of text per token, so that an id stays below 2**63."""
_ALONE, _SPACED = 1, 2
"""Leading byte of an id: does a space stand before the piece?"""


class WordTokenizer:
    """`decode(encode(text)) == text` for any text that UTF-8 can hold."""

    @property
    def name(self) -> str:
        """For records."""
        return "words"

    def encode(self, text: str) -> list[int]:
        """One id per piece of text, more for long words."""
        ids: list[int] = []
        for piece in _PIECE.findall(text):
            spaced = len(piece) > 1 and piece[0] == " "
            data = piece[spaced:].encode("utf-8", "surrogatepass")
            for start in range(0, len(data), _BYTES):
                mark = _SPACED if spaced and start == 0 else _ALONE
                ids.append(int.from_bytes(bytes([mark]) + data[start : start + _BYTES], "big"))
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """The text that the ids spell; refuses numbers that are no ids."""
        data = bytearray()
        for number in ids:
            raw = number.to_bytes((number.bit_length() + 7) // 8, "big") if number > 0 else b""
            if raw[:1] not in (b"\x01", b"\x02"):
                raise ModelError(f"{number} is no token of the scripted model; decode only what its tokenizer encoded.")
            data += (b" " if raw[0] == _SPACED else b"") + raw[1:]
        try:
            return data.decode("utf-8", "surrogatepass")
        except UnicodeDecodeError:
            return data.decode("utf-8", "replace")


# ---------------------------------------------------------------- the model

SEEN, UNSEEN = -0.1, -6.0
"""Log-probability of a word of a given reply that stands in the prompt, and of one that does not."""
MESSAGE_TOKENS = 4
"""Tokens that a chat template would add per message."""


class ScriptedModel:
    """`retention` is the writer's, and an adapter is another one, which training found; the reader has no settings."""

    def __init__(
        self, retention: float = 0.9, context_length: int = 16384, adapters: Mapping[str, float] | None = None
    ) -> None:
        for one in (retention, *(adapters or {}).values()):
            if not 0 <= one <= 1:
                raise ModelError(f"A retention of {one} is no probability; give a number from 0 to 1.")
        self.retention = retention
        self._adapters = dict(adapters or {})
        self._context_length = context_length
        self._tokenizer = WordTokenizer()

    @property
    def name(self) -> str:
        """For records."""
        return "scripted"

    @property
    def tokenizer(self) -> WordTokenizer:
        """Words and marks."""
        return self._tokenizer

    @property
    def context_length(self) -> int:
        """Most tokens a prompt and its reply may take together."""
        return self._context_length

    def fingerprint(self, adapter: str | None = None) -> str:
        """Of the retention and the rules; there are no weights."""
        return digest_of("scripted", self._retention(adapter), _code())

    def prompt_tokens(self, messages: Sequence[Message]) -> int:
        """Length of the prompt, as if a chat template had framed it."""
        return sum(MESSAGE_TOKENS + count_tokens(message.content) for message in messages)

    async def generate(self, request: Generate) -> Generated:
        """The next state, with claims forgotten by chance; the chance comes from the request."""
        self._check(request.messages, request.max_tokens, request.adapter)
        order = order_of(request.messages)
        content = [(message.role, message.content) for message in request.messages]
        seed = request.seed if request.temperature > 0 else 0
        budget = min(order.budget or request.max_tokens, request.max_tokens)
        text = rewrite(
            order.style,
            budget,
            order.previous,
            order.view,
            rng_of("write", content, seed),
            self._retention(request.adapter),
            count_tokens,
        )
        return Generated(text, count_tokens(text))

    async def choose(self, request: Choose) -> Chosen:
        """How likely the planning reader finds each option."""
        self._check(request.messages, 1, request.adapter)
        return Chosen(logprobs(question_of(request.messages), request.labels))

    async def likelihood(self, request: Likelihood) -> TokenScores:
        """A reader that copies: words that the prompt shows are likely, others are not."""
        self._check(request.messages, 1, request.adapter)
        known = set(_PIECE.findall(" ".join(message.content for message in request.messages)))
        known |= {piece.strip() for piece in known}
        found = list(_PIECE.finditer(request.reply))
        best = tuple(one[0] in known or one[0].strip() in known for one in found)
        return TokenScores(tuple(one.start() for one in found), tuple(SEEN if held else UNSEEN for held in best), best)

    async def close(self) -> None:
        """Nothing to give back."""

    def _check(self, messages: Sequence[Message], reply: int, adapter: str | None) -> None:
        self._retention(adapter)
        room = self._context_length - reply
        # No token is shorter than one character, so short prompts need no counting.
        if sum(MESSAGE_TOKENS + len(message.content) for message in messages) <= room:
            return
        if (length := self.prompt_tokens(messages)) > room:
            raise ModelError(
                f"A prompt of {length} tokens and a reply of {reply} exceed the scripted model's context of "
                f"{self._context_length}; raise its context_length or shorten the history."
            )

    def _retention(self, adapter: str | None) -> float:
        if adapter is None:
            return self.retention
        if adapter not in self._adapters:
            known = ", ".join(self._adapters) or "none"
            raise ModelError(f"The scripted model has no adapter {adapter!r}; those of its configuration are: {known}.")
        return self._adapters[adapter]


@remembered(4_000_000, len)
def count_tokens(text: str) -> int:
    """`len(encode(text))`; the samples of one write count the same history."""
    pieces: list[str] = _PIECE.findall(text)
    if text.isascii():
        long = [piece for piece in pieces if len(piece) > _BYTES]
        return len(pieces) - len(long) + sum((len(one) - (one[0] == " ") + _BYTES - 1) // _BYTES for one in long)
    return len(WordTokenizer().encode(text))


@cache
def _code() -> str:
    """Digest of this package's source: a changed rule is a changed model."""
    files = sorted(Path(__file__).parent.glob("*.py"))
    return digest_of(*(file.read_text(encoding="utf-8") for file in files))
