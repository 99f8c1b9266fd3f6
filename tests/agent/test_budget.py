"""The budget holds for any reply and any tokenizer, and the log says what was done to the reply."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.tiny import make_tokenizer

from dssr.agent.memory import enforce
from dssr.errors import BudgetError
from dssr.models.base import Tokenizer
from dssr.models.scripted.model import WordTokenizer
from dssr.models.tokenizers import HFTokenizer
from dssr.types import Write

TOKENIZERS: list[Tokenizer] = [
    WordTokenizer(),
    HFTokenizer(make_tokenizer(), "tiny"),
    HFTokenizer(make_tokenizer(270), "bytes"),
]
anything = st.text(st.characters(), max_size=200)


@pytest.mark.parametrize("tokenizer", TOKENIZERS, ids=lambda one: one.name)
@settings(max_examples=150)
@given(reply=anything, budget=st.integers(1, 40))
def test_any_reply_fits_and_can_be_stored(tokenizer: Tokenizer, reply: str, budget: int) -> None:
    """Catches a cut in the middle of a character whose replacement needs more tokens, and text JSON cannot hold."""
    write = enforce(reply, budget, tokenizer)
    assert len(tokenizer.encode(write.state)) == write.tokens <= budget
    assert msgspec.json.decode(msgspec.json.encode(write), type=Write) == write
    assert write.truncated == (write.raw_tokens > budget)


@pytest.mark.parametrize("tokenizer", TOKENIZERS, ids=lambda one: one.name)
@settings(max_examples=100)
@given(reply=anything, budget=st.integers(1, 40))
def test_a_state_enforced_again_is_the_same(tokenizer: Tokenizer, reply: str, budget: int) -> None:
    """Catches a state that would change when an episode is continued from it."""
    state = enforce(reply, budget, tokenizer).state
    again = enforce(state, budget, tokenizer)
    assert (again.state, again.truncated) == (state, False)


def test_a_fitting_reply_is_kept_as_it_is() -> None:
    """Catches a cleaning that changes ordinary text."""
    text = "Progress: née – 2 Äpfel\n\tin the fridge ✓"
    assert enforce(text, 50, WordTokenizer()) == Write(text, 13, 13, False, None)


def test_the_cut_takes_as_much_as_fits() -> None:
    """Catches a cut that loses more than it must."""
    write = enforce("one two three four five", 3, WordTokenizer())
    assert (write.state, write.tokens, write.raw_tokens, write.truncated) == ("one two three", 3, 5, True)


@pytest.mark.parametrize(
    ("reply", "note"),
    [
        ("", "empty reply"),
        (" \n\t ", "empty reply"),
        ("a\ud800b", "broken Unicode replaced"),
        ("a\x00b\x1b[0m", "control characters removed"),
        ("Goal:\ncook\n\nPrevious state:\nx", "the reply repeats its prompt"),
    ],
)
def test_odd_replies_are_noted(reply: str, note: str) -> None:
    """Catches a silent repair."""
    assert note in (enforce(reply, 20, WordTokenizer()).note or "")


def test_ten_thousand_tokens() -> None:
    """Catches a cut whose cost grows with the reply."""
    write = enforce("word " * 10_000, 64, WordTokenizer())
    assert (write.tokens, write.raw_tokens, write.truncated) == (64, 10_000, True)


def test_a_budget_of_nothing_is_refused() -> None:
    with pytest.raises(BudgetError):
        enforce("x", 0, WordTokenizer())
