"""What a chat-completions server answers, and the checks that turn it into numbers we may use.

Anything that is not exactly what was asked for is refused: a guess would look like a measurement.
"""

import math
from collections.abc import Sequence
from typing import TypeVar

import msgspec
from msgspec import Struct

from dssr.errors import ModelError
from dssr.models.base import Chosen, Generated, Tokenizer

UNKNOWN = -9999.0
"""Servers write this, or less, where they have no log-probability."""
ROUNDING = 0.05
"""Nats by which rounded log-probabilities may add up to more than one."""
ENDINGS = frozenset({"stop", "length"})

T = TypeVar("T")


class Usage(Struct):
    completion_tokens: int
    prompt_tokens: int | None = None


class Score(Struct):
    token: str
    logprob: float


class Position(Struct):
    token: str
    top_logprobs: list[Score] = []


class Logprobs(Struct):
    content: list[Position] | None = None


class Reply(Struct):
    content: str | None = None


class Choice(Struct):
    message: Reply
    finish_reason: str | None = None
    logprobs: Logprobs | None = None


class Completion(Struct):
    choices: list[Choice]
    usage: Usage | None = None


class Card(Struct):
    """One model on the server's list, with the fields that tell models apart."""

    id: str
    owned_by: str | None = None
    root: str | None = None
    parent: str | None = None
    revision: str | None = None
    max_model_len: int | None = None


class Cards(Struct):
    data: list[Card]


def parse(body: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ModelError(f"the server's answer is not a usable {kind.__name__.lower()}: {error}") from None


def generated(body: bytes, prompt: int | None, max_tokens: int, tokenizer: Tokenizer) -> Generated:
    """The text of a completion, with a token count that can be true."""
    completion = parse(body, Completion)
    choice = _only_choice(completion, prompt)
    text = choice.message.content
    if text is None:
        raise ModelError("the server's answer holds no text; use a model that replies without tools or reasoning")
    if choice.finish_reason not in ENDINGS:
        raise ModelError(f"the server ended the reply with {choice.finish_reason!r} instead of 'stop' or 'length'")
    here = len(tokenizer.encode(text))
    if completion.usage is None:
        return Generated(text, here)
    count = completion.usage.completion_tokens
    if not 0 <= count <= max_tokens:
        raise ModelError(f"the server reports {count} tokens where at most {max_tokens} were asked for")
    # Sampled tokens re-encode to about as many or fewer, so half is far outside of what can be.
    if count < here / 2:
        raise ModelError(
            f"the server reports {count} tokens for a reply of {here}; set `tokenizer` to that of the served model"
        )
    return Generated(text, count)


def chosen(body: bytes, prompt: int | None, labels: Sequence[str]) -> Chosen:
    """Log-probabilities over exactly the labels, or a refusal that says what is missing."""
    choice = _only_choice(parse(body, Completion), prompt)
    if choice.logprobs is None or not choice.logprobs.content:
        raise ModelError("the server gives no log-probabilities, which a reader needs; use one with `logprobs`")
    if len(choice.logprobs.content) != 1:
        raise ModelError(f"the server answered with {len(choice.logprobs.content)} tokens where one was asked for")
    known: dict[str, float] = {}
    for score in choice.logprobs.content[0].top_logprobs:
        if known.setdefault(score.token, score.logprob) != score.logprob:
            raise ModelError(f"the server gives two log-probabilities for the token {score.token!r}")
    missing = [label for label in labels if known.get(label, UNKNOWN) <= UNKNOWN]
    if missing:
        raise ModelError(
            f"the server gives no log-probability for {len(missing)} of {len(labels)} labels "
            f"({', '.join(missing)}); serve the reader with vLLM, which scores every label"
        )
    return Chosen(renormalised([known[label] for label in labels]))


def renormalised(logprobs: Sequence[float]) -> tuple[float, ...]:
    """Log-probabilities that sum to one over the given ones alone."""
    if not all(math.isfinite(value) for value in logprobs):
        raise ModelError("the model gave log-probabilities that are not finite numbers; check its weights and dtype")
    top = max(logprobs)
    total = top + math.log(math.fsum(math.exp(value - top) for value in logprobs))
    if total > ROUNDING:
        raise ModelError("the model gave probabilities that add up to more than one; its answer cannot be trusted")
    return tuple(value - total for value in logprobs)


def _only_choice(completion: Completion, prompt: int | None) -> Choice:
    """`prompt` is the length that the prompt must have had there, where the server counts as we do."""
    there = completion.usage.prompt_tokens if completion.usage else None
    if prompt is not None and there is not None and there != prompt:
        raise ModelError(
            f"the server read a prompt of {there} tokens that has {prompt} here; "
            "set `tokenizer` to the folder or hub name of the served model, with the same chat template"
        )
    if len(completion.choices) != 1:
        raise ModelError(f"the server answered with {len(completion.choices)} choices where one was asked for")
    return completion.choices[0]
