"""The vocabulary-free tokenizer."""

from hypothesis import given
from hypothesis import strategies as st

from dssr.models.scripted.model import WordTokenizer, count_tokens
from dssr.types import LABELS

tokenizer = WordTokenizer()


@given(st.text())
def test_text_comes_back(text: str) -> None:
    """Catches any text that encoding changes, and ids too large for 64-bit arrays."""
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert all(0 < number < 2**63 for number in ids)
    assert len(ids) <= len(text)
    assert len(ids) == count_tokens(text)


@given(st.text(), st.integers(0, 50))
def test_any_cut_can_be_decoded(text: str, cut: int) -> None:
    """Catches a crash when a budget cuts a long word inside a character."""
    assert isinstance(tokenizer.decode(tokenizer.encode(text)[:cut]), str)


def test_labels_are_single_tokens() -> None:
    """Catches a label of two tokens, which no reader could answer with."""
    assert len({tuple(tokenizer.encode(label)) for label in LABELS}) == 52
    assert all(len(tokenizer.encode(label)) == 1 for label in LABELS)
