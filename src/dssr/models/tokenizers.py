"""Text to token ids and back, over a Hugging Face tokenizer.

Control tokens come from the chat template alone: text that merely looks like one (`<|im_end|>` in a reply or
an observation) is encoded as ordinary characters, so no message can end its own turn.

A reader answers with one token: `label_ids` gives each label's, and refuses a tokenizer on which any is more than one.
"""

import copy
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from dssr.errors import ModelError
from dssr.models.base import Message
from dssr.seeds import digest_of
from dssr.types import LABELS

MARK = "\ue000{}\ue001"
"""Stands for one message's text while the template is rendered; private-use characters, in no template."""
PROBE = (Message("system", "Answer with a letter."), Message("user", "Options:\nA: wait\nAction:"))


class PlainTokenizer:
    """Implements `dssr.models.base.Tokenizer` over a tokenizer of the `tokenizers` library; knows no chat template."""

    def __init__(self, backend: Any, name: str) -> None:
        self.backend = backend
        self.name = name
        self._plain = copy.deepcopy(backend)
        self._plain.encode_special_tokens = True

    @classmethod
    def from_text(cls, text: str, name: str) -> "PlainTokenizer":
        """The tokenizer that wrote `text`, without the library it came from."""
        from tokenizers import Tokenizer

        return cls(Tokenizer.from_str(text), name)

    @property
    def text(self) -> str:
        """The whole tokenizer, to be stored."""
        return str(self.backend.to_str())

    def encode(self, text: str) -> list[int]:
        """Ids of plain text: nothing added, nothing recognised as a control token."""
        return list(self._encoded(self._plain, _valid(text)).ids)

    def encode_with_starts(self, text: str) -> tuple[list[int], tuple[int, ...]]:
        """As `encode`, and the character at which each token begins."""
        found = self._encoded(self._plain, _valid(text))
        return list(found.ids), tuple(first for first, _ in found.offsets)

    def decode(self, ids: Sequence[int]) -> str:
        """Text of the ids, control tokens left out."""
        return str(self.backend.decode(list(ids), skip_special_tokens=True))

    def _encoded(self, backend: Any, text: str) -> Any:
        try:
            return backend.encode(text, add_special_tokens=False)
        except BaseException as error:
            # A text of millions of characters makes the library panic, and its panic is no `Exception`.
            if type(error).__name__ != "PanicException":
                raise
            raise ModelError(
                f"The tokenizer of {self.name} cannot cut a text of {len(text):,} characters: {first_line(error)}."
            ) from None


class HFTokenizer(PlainTokenizer):
    """A tokenizer of transformers, which renders chat prompts too."""

    def __init__(self, inner: Any, name: str) -> None:
        if not getattr(inner, "is_fast", False):
            raise ModelError(f"The tokenizer of {name} has no tokenizer.json, which dssr needs; convert it first.")
        if not inner.chat_template:
            raise ModelError(f"The tokenizer of {name} has no chat template; use an instruction-tuned model.")
        super().__init__(inner.backend_tokenizer, name)
        self.inner = inner
        self._special = tuple(sorted(inner.all_special_tokens))
        self.digest = digest_of(self.text, inner.chat_template)
        self._chat = lru_cache(maxsize=64)(self._render)

    def chat(self, messages: Sequence[Message]) -> list[int]:
        """Ids of the prompt: the messages under the chat template, up to where the reply starts."""
        return list(self._chat(tuple(messages)))

    def template(self, messages: Sequence[Message]) -> str:
        """Text of the prompt, as the chat template writes it."""
        plain = [{"role": message.role, "content": _valid(message.content)} for message in messages]
        try:
            return str(self.inner.apply_chat_template(plain, tokenize=False, add_generation_prompt=True))
        except Exception as error:  # templates raise whatever they like
            raise ModelError(f"The chat template of {self.name} refused the messages: {first_line(error)}.") from error

    def _render(self, messages: tuple[Message, ...]) -> tuple[int, ...]:
        if not any(special in message.content for special in self._special for message in messages):
            return tuple(self.encode_control(self.template(messages)))
        marked = [Message(message.role, MARK.format(index)) for index, message in enumerate(messages)]
        rest = self.template(marked)
        ids: list[int] = []
        for index, message in enumerate(messages):
            before, mark, rest = rest.partition(MARK.format(index))
            if not mark:
                raise ModelError(f"The chat template of {self.name} drops or reorders messages; use another template.")
            ids += self.encode_control(before) + self.encode(message.content)
        return tuple(ids + self.encode_control(rest))

    def encode_control(self, text: str) -> list[int]:
        """Ids of text by the template's hand: control tokens are recognised."""
        return list(self._encoded(self.backend, text).ids)


def open_tokenizer(folder: str | Path, name: str, revision: str | None = None) -> HFTokenizer:
    """The tokenizer of a folder or hub name, without its weights."""
    from transformers import AutoTokenizer

    try:
        inner = AutoTokenizer.from_pretrained(str(folder), revision=revision, trust_remote_code=False)
    except Exception as error:  # transformers raises many kinds for a missing or broken file
        raise ModelError(f"No tokenizer could be read from {folder}: {first_line(error)}.") from error
    return HFTokenizer(inner, name)


def label_ids(tokenizer: HFTokenizer, labels: Sequence[str] = LABELS) -> dict[str, int]:
    """The token of each label; refuses a tokenizer on which any label is not a single, prefix-stable token."""
    prompt = tokenizer.template(PROBE)
    start = tokenizer.encode_control(prompt)
    ids: dict[str, int] = {}
    failed: list[str] = []
    for label in labels:
        alone = tokenizer.encode(label)
        after = tokenizer.encode_control(prompt + label)
        if len(alone) == 1 and after == [*start, alone[0]] and alone[0] not in ids.values():
            ids[label] = alone[0]
        else:
            failed.append(label)
    if failed:
        raise ModelError(
            f"{len(failed)} of {len(labels)} labels are not single, prefix-stable tokens of {tokenizer.name} "
            f"({', '.join(failed)}); use another model as the reader."
        )
    return ids


def _valid(text: str) -> str:
    """Lone surrogates cannot be tokenized; they become the replacement character."""
    return text.encode("utf-8", "replace").decode("utf-8") if not text.isascii() else text


def first_line(error: BaseException) -> str:
    """What a library says first, to be put inside a sentence."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
