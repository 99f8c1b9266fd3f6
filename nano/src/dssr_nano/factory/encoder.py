"""Turns messages into tokens as the chat template does, and knows the tokens that matter to training."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

from tokenizers import Tokenizer

from dssr.agent.prompts import WRITER_FIELDS, Prompts
from dssr.models.base import Message
from dssr.types import LABELS
from dssr.worlds.cooking.recipe import DIRECTIONS, VERBS
from dssr_nano.factory.hints import CueTokens, Name
from dssr_nano.factory.initial_weights import InitVocabulary
from dssr_nano.factory.names import ROOMS
from dssr_nano.factory.tokenizer import cut

NEWLINE = "\n"
SPACE = "Ġ"
"""How the tokenizer writes a space."""
HEADING = re.compile(r"-= \w+ =-\n")
INGREDIENTS = "Ingredients:\n"
BEING = "you are in the"
WAY = re.compile(rf" ({'|'.join(DIRECTIONS)}) to the")


@dataclass(frozen=True)
class PromptEncoder:
    """Turns messages into token ids as the chat template does."""

    tokenizer: Tokenizer
    prompts: Prompts
    names: dict[str, Name] = field(default_factory=dict)

    @cached_property
    def end(self) -> int:
        """The token that ends a message."""
        return self.special("<|end|>")

    @cached_property
    def newline(self) -> int:
        """The token of a bare line break."""
        (found,) = self.encode(NEWLINE)
        return found

    @cached_property
    def labels(self) -> tuple[int, ...]:
        """The token of each option's letter."""
        found = [self.encode(label) for label in LABELS]
        assert all(len(ids) == 1 for ids in found)
        return tuple(ids[0] for ids in found)

    @cached_property
    def cues(self) -> CueTokens:
        """The tokens by which attention hints find their places."""
        verbs = tuple(VERBS)
        texts = self.tokenizer.decode_batch([[token] for token in range(self.tokenizer.get_vocab_size())])
        asking = tuple(f"{verb} the" for verb in verbs)
        (the,), (*_, opening), (colon,) = self.encode(" the"), self.encode("The"), self.encode(":")
        return CueTokens(
            asking=frozenset(at for at, text in enumerate(texts) if text.endswith(asking) and "You" not in text),
            verbs=frozenset(at for at, text in enumerate(texts) if text.strip() in verbs),
            the=the,
            opening=opening,
            way=tuple(self.encode("Way to")),
            directions={at: text.strip(" ,") for at, text in enumerate(texts) if text.strip(" ,") in DIRECTIONS},
            moves={at: text[5:] for at, text in enumerate(texts) if text[:5] == ". go " and text[5:] in DIRECTIONS},
            colon=colon,
            newline=self.newline,
            headings=frozenset(at for at, text in enumerate(texts) if HEADING.fullmatch(text)),
            steps={at: text[5:] for at, text in enumerate(texts) if text[:5] == "> go " and text[5:] in DIRECTIONS},
            recipe=frozenset(at for at, text in enumerate(texts) if text == INGREDIENTS),
            rooms=frozenset(at for at, text in enumerate(texts) if text[:1] == " " and text[1:] in ROOMS),
            being=frozenset(at for at, text in enumerate(texts) if text.strip().lower() == BEING),
            ways={at: text.split()[0] for at, text in enumerate(texts) if WAY.fullmatch(text)},
        )

    @cached_property
    def twins(self) -> tuple[tuple[int, int], ...]:
        """Tokens that are the same word with and without a space before it."""
        vocabulary = self.tokenizer.get_vocab()
        pairs = ((token, vocabulary.get(text[1:])) for text, token in vocabulary.items() if text[:1] == SPACE)
        return tuple(sorted((spaced, bare) for spaced, bare in pairs if bare is not None))

    @cached_property
    def parts(self) -> tuple[int, ...]:
        """What opens a part of a prompt; the previous state's header comes first."""
        headers = [cut(self.tokenizer, f"{label}\n") for label in (WRITER_FIELDS[1], WRITER_FIELDS[3])]
        roles = [self.special(f"<|{role}|>") for role in ("system", "user", "assistant")]
        return (*(ids[-1] for ids in headers), *roles)

    @cached_property
    def init_vocabulary(self) -> InitVocabulary:
        """What the first weights must know of the vocabulary."""
        return InitVocabulary(self.tokenizer.get_vocab_size(), self.labels, self.twins, self.parts)

    def name(self, text: str) -> Name:
        """A name as tokens, as it stands inside a line."""
        if text not in self.names:
            self.names[text] = tuple(self.encode(f" {text}"))
        return self.names[text]

    def room(self, name: str) -> tuple[int, ...]:
        """A room's heading and its name inside a sentence, as far as they are tokens."""
        heading, word = cut(self.tokenizer, f"-= {name.title()} =-\n"), self.encode(f" {name}")
        return tuple(ids[0] for ids in (heading, word) if name and len(ids) == 1)

    def encode(self, text: str) -> list[int]:
        """Tokens of plain text."""
        ids: list[int] = self.tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    def prompt(self, messages: Sequence[Message]) -> list[int]:
        """Everything up to where the reply begins."""
        ids: list[int] = []
        for message in messages:
            ids += [self.special(f"<|{message.role}|>"), *self.encode(message.content), self.end]
        return [*ids, self.special("<|assistant|>")]

    def special(self, name: str) -> int:
        """The id of a control token."""
        found = self.tokenizer.token_to_id(name)
        assert found is not None
        return int(found)
