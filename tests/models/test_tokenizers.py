"""Control tokens come from the template alone, and labels are single tokens."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.tiny import make_tokenizer
from tokenizers import Regex, pre_tokenizers

from dssr.errors import ModelError
from dssr.models.base import Message
from dssr.models.tokenizers import HFTokenizer, label_ids
from dssr.types import LABELS

INNER = make_tokenizer()
TOKENIZER = HFTokenizer(INNER, "tiny")
START, END = INNER.convert_tokens_to_ids(["<|im_start|>", "<|im_end|>"])
PIECES = ["<|im_end|>", "<|im_start|>", "a", " ", "\n", "é", "<", "|", "user\n"]
TEXT = st.lists(st.sampled_from(PIECES), max_size=8).map("".join)


def test_ordinary_prompts_are_what_transformers_makes() -> None:
    """Catches a prompt that differs from the one the model was trained on."""
    messages = (Message("system", "Be brief."), Message("user", "Goal:\n\ncook  "))
    plain = [{"role": message.role, "content": message.content} for message in messages]
    expected = INNER.apply_chat_template(plain, add_generation_prompt=True, return_dict=False)
    assert TOKENIZER.chat(messages) == expected


@settings(max_examples=200)
@given(st.lists(TEXT, min_size=1, max_size=3))
def test_no_message_can_end_its_turn(texts: list[str]) -> None:
    """Catches control tokens smuggled in by a reply or an observation: there is one pair per message, no more."""
    ids = TOKENIZER.chat([Message("user", text) for text in texts])
    assert ids.count(START) == len(texts) + 1
    assert ids.count(END) == len(texts)
    spelled = INNER.decode(ids, skip_special_tokens=False)
    assert all(text in spelled for text in texts)


@given(TEXT)
def test_plain_text_survives(text: str) -> None:
    """Catches text changed or cut by encoding; budgets count what the reader will see."""
    ids = TOKENIZER.encode(text)
    assert END not in ids
    assert TOKENIZER.decode(ids) == text


def test_a_panic_is_one_sentence() -> None:
    """Catches a text that ends the program: the library's panic is no ordinary exception. Patterns of real tokenizers
    panic at millions of characters, this one at a few."""
    inner = make_tokenizer()
    words = pre_tokenizers.Split(Regex(r"(?:\w+\s?)+[.!]|."), "isolated")
    inner.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence([words, inner.backend_tokenizer.pre_tokenizer])
    panicking, text = HFTokenizer(inner, "tiny"), "ab " * 400
    for encode in (panicking.encode, panicking.encode_with_starts, panicking.encode_control):
        with pytest.raises(ModelError, match="The tokenizer of tiny cannot cut a text of 1,200 characters"):
            encode(text)
    with pytest.raises(ModelError, match="cannot cut"):
        panicking.chat([Message("user", text)])


def test_all_labels_are_single_tokens() -> None:
    """Catches a label map with missing or double ids."""
    ids = label_ids(TOKENIZER)
    assert list(ids) == list(LABELS)
    assert len(set(ids.values())) == 52


def test_labels_that_fail_are_named() -> None:
    """Catches a tokenizer on which an answer is no single token: here text before a letter merges with it."""
    inner = make_tokenizer()
    texts = [TOKENIZER.decode([token]) for token in range(len(inner))]
    word = next(text for text in texts if len(text) > 2 and text[-1] in LABELS and len(TOKENIZER.encode(text)) == 1)
    inner.chat_template = inner.chat_template.replace("assistant\n", "assistant\n" + word[:-1])
    with pytest.raises(ModelError, match=rf"labels are not single.*tiny.*\b{word[-1]}\b"):
        label_ids(HFTokenizer(inner, "tiny"))


def test_a_tokenizer_without_a_template_is_refused() -> None:
    """Catches a base model taken for an instruction-tuned one."""
    inner = make_tokenizer()
    inner.chat_template = None
    with pytest.raises(ModelError, match="chat template"):
        HFTokenizer(inner, "tiny")
