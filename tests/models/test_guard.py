"""What a server sends is bounded, comes from one host, and never carries the key on."""

import asyncio
import gzip
import json

import pytest
from tests.models.faulty import FaultyServer, answer, card, completion, fail
from tests.models.serving import KEY, PROMPT, WRITE, Open, refusal

from dssr.errors import ConfigError, ModelError
from dssr.models.base import Generate

pytest.importorskip("openai", reason="the server backend needs openai: pip install 'dssr[server]'")

ECHOED = (
    json.dumps(completion(f"Authorization: Bearer {KEY} and {KEY}", tokens=40))
    .replace("sk-very", "\\u0073k-very")
    .encode()
)


def test_a_repeated_key_reaches_no_text(server: FaultyServer, opened: Open) -> None:
    """Catches the key in a reply, which is stored in episodes.jsonl; JSON may spell its letters as escapes. Another's
    token is hidden too, and ordinary words stay."""
    model = opened()
    others = completion("Bearer abc.123-xyz9; the bearer carries apples", tokens=16)
    server.script = [answer(ECHOED), answer(others)]
    assert asyncio.run(model.generate(Generate(PROMPT, 100, 0.0, 0))).text == "Authorization: Bearer [key] and [key]"
    assert asyncio.run(model.generate(WRITE)).text == "Bearer [key]; the bearer carries apples"


def test_a_word_for_a_key_changes_no_text(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches replies torn up by a key such as `the`, which a local server that checks none is given."""
    monkeypatch.setenv("FAULTY_KEY", "the")
    assert asyncio.run(opened().generate(WRITE)).text == "the fridge"


def test_model_names_hide_the_key_and_give_no_orders(server: FaultyServer, opened: Open) -> None:
    """Catches the key, or a terminal's control characters, in the names that a server lists."""
    server.cards = [card(f"x{KEY}y"), card("\x1b[31mred\x07\u202e")]
    with pytest.raises(ModelError) as caught:
        opened()
    assert str(caught.value) == "The server has no model 'tiny'; it has [31mred, x[key]y."


def test_errors_give_no_orders(server: FaultyServer, opened: Open) -> None:
    """Catches an error text that clears or recolours the terminal."""
    model = opened()
    server.script = [fail(400, "no\x1b[2J\x9b31m")]
    assert "no[2J31m" in refusal(model, WRITE)


def test_an_unusable_key_is_refused_and_not_shown(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a line break inside the key: the client's own error would spell it in another way than the mask knows."""
    monkeypatch.setenv("FAULTY_KEY", "sk-one\nsk-two-1234")
    with pytest.raises(ConfigError, match="FAULTY_KEY") as caught:
        opened()
    assert "sk-" not in str(caught.value)


def test_no_redirect_is_followed(server: FaultyServer, opened: Open) -> None:
    """Catches prompts, and with some clients the key, that a server sends on to another host."""
    model = opened()
    with FaultyServer() as elsewhere:
        server.script = [fail(307, Location=f"{elsewhere.url}/chat/completions")]
        assert "sends requests elsewhere (status 307)" in refusal(model, WRITE)
        assert elsewhere.requests == []
        elsewhere.shutdown()


def test_an_endless_answer_is_cut_off(server: FaultyServer, opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches an answer that fills the memory, plain or packed; neither is asked for again."""
    model = opened()
    monkeypatch.setattr("dssr.models.guard.MOST_BYTES", 2**20)
    packed = gzip.compress(b"x" * 2**22)
    server.script = [answer(completion("x" * 2**20)), lambda one: one.reply(200, packed, Content_Encoding="gzip")]
    assert refusal(model, WRITE) == "The server of tiny sent more than 1 MiB in one answer."
    assert "sent a compressed answer" in refusal(model, WRITE)
    assert len(server.requests) == 2
