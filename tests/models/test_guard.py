"""What a server sends is bounded, comes from one host, and never carries the key on."""

import asyncio
import gzip
import itertools
import json
import logging
from pathlib import Path

import msgspec
import pytest
from tests.faults.cases import Endless, scripted
from tests.models.faulty import FaultyServer, Handler, answer, card, completion, fail, scored
from tests.models.serving import KEY, PROMPT, WRITE, Open, refusal

from dssr.config import ModelConfig
from dssr.errors import ConfigError, ModelError
from dssr.measure.diagnose import diagnose
from dssr.models.base import Generate
from dssr.models.cache import FILE
from dssr.models.server import load_server
from dssr.record.run import Run
from dssr.types import LABELS, Episode, Step
from dssr.worlds.archive import Archive

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


class Echoing(FaultyServer):
    """Repeats the key wherever a server has words of its own: in texts, tokens, names, fields, endings and errors."""

    def __init__(self) -> None:
        super().__init__()
        self.cards = [card("echoing", owned_by=KEY, root=f"/weights/{KEY}", revision=KEY), card(KEY)]
        self.script = Endless([self.behave])
        self.numbers = itertools.count()

    def behave(self, handler: Handler) -> None:
        """Every fifth request fails, each time in another way."""
        number = next(self.numbers)
        if number % 5 == 4:
            ways = (
                fail(400, f"Authorization: Bearer {KEY}", X_Echo=KEY),
                fail(500, KEY),
                answer(f"no JSON but {KEY}".encode()),
                answer(completion(finish_reason=KEY)),
                answer({KEY: KEY}),
                fail(307, Location=f"{self.url}/{KEY}"),
            )
            ways[number // 5 % len(ways)](handler)
        elif handler.asked.get("logprobs"):
            handler.reply(200, scored(dict.fromkeys(LABELS, -4.0) | {KEY: -2.0}), X_Echo=KEY)
        else:
            handler.reply(200, completion(f"{KEY} saw {number}", tokens=12), X_Echo=KEY)


def test_an_echoed_key_is_in_no_file(
    archive: Archive,
    tokenizer_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Catches the key of a server that repeats it anywhere in a run directory, the cache, a log or on the terminal: a
    whole diagnosis whose every answer holds it."""
    monkeypatch.setenv("FAULTY_KEY", KEY)
    model = ModelConfig(
        backend="server", path="echoing", url="", tokenizer=str(tokenizer_folder), key_variable="FAULTY_KEY", retries=0
    )
    with Echoing() as server, caplog.at_level(logging.INFO):
        config = msgspec.structs.replace(
            scripted(archive, tmp_path / "data"), writer_model=msgspec.structs.replace(model, url=server.url)
        )
        diagnose(config, ["summary"], [24], [0], split="train", out=tmp_path / "run")
        with pytest.raises(ModelError, match="it has") as caught:
            load_server(msgspec.structs.replace(model, url=server.url, path="absent"))
        server.shutdown()
    assert set(server.keys) == {f"Bearer {KEY}"}
    run = Run.open(tmp_path / "run")
    told = " ".join(episode.error or "" for episode in run.read("episodes", Episode))
    assert "[key]" in told
    assert any("[key] saw" in step.write.state for step in run.read("steps", Step))
    files = [file for file in tmp_path.rglob("*") if file.is_file() and not file.is_symlink()]
    assert {"steps.jsonl", "episodes.jsonl", FILE} <= {file.name for file in files}
    assert [file.name for file in files if KEY.encode() in file.read_bytes()] == []
    shown = capfd.readouterr()
    assert KEY not in shown.out + shown.err + caplog.text + str(caught.value)


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


def test_a_giant_reply_is_refused_before_it_is_counted(server: FaultyServer, opened: Open) -> None:
    """Catches a reply within the limit of bytes that makes a tokenizer panic, or takes it minutes."""
    model = opened()
    server.script = [answer(completion("x" * 3_000_000, tokens=16))]
    assert refusal(model, WRITE) == "The server sent 3,000,000 characters where at most 16 tokens were asked for."


def test_an_endless_answer_is_cut_off(server: FaultyServer, opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches an answer that fills the memory, plain or packed; neither is asked for again."""
    model = opened()
    monkeypatch.setattr("dssr.models.guard.MOST_BYTES", 2**20)
    packed = gzip.compress(b"x" * 2**22)
    server.script = [answer(completion("x" * 2**20)), lambda one: one.reply(200, packed, Content_Encoding="gzip")]
    assert refusal(model, WRITE) == "The server of tiny sent more than 1 MiB in one answer."
    assert "sent a compressed answer" in refusal(model, WRITE)
    assert len(server.requests) == 2
