"""The server backend against a server that fails in every way we know."""

import asyncio
import json
import logging
import math
from pathlib import Path
from typing import Any

import pytest
from tests.models.faulty import (
    FaultyServer,
    answer,
    card,
    completion,
    cut,
    fail,
    good,
    hang_up,
    scored,
    silent,
    together,
    trickle,
)
from tests.models.serving import KEY, PROMPT, WRITE, Open, refusal

from dssr.errors import ConfigError, ModelError
from dssr.models.base import Choose, Generate, Message, TokenScores
from dssr.models.cache import Cache, CachedModel
from dssr.models.guard import echoed

pytest.importorskip("openai", reason="the server backend needs openai: pip install 'dssr[server]'")

PICK = Choose(PROMPT, ("A", "B", "C"))
SHORT = 1.0
"""Seconds, where running out of time is what is tested; elsewhere nothing may."""


def test_a_text_request_says_all_that_decides_the_answer(server: FaultyServer, opened: Open) -> None:
    """Catches sampling left to the server's defaults, and a seed that is lost or too wide for a server."""
    reply = asyncio.run(opened().generate(WRITE))
    assert (reply.text, reply.tokens) == ("the fridge", 10)
    sent = server.requests[0]
    assert sent["messages"] == [{"role": message.role, "content": message.content} for message in PROMPT]
    wanted = {"model": "tiny", "max_tokens": 16, "temperature": 0.7, "top_p": 1.0, "seed": WRITE.seed % 2**31}
    assert {name: sent[name] for name in wanted} == wanted
    assert "top_k" not in sent


def test_a_choice_is_renormalised_over_the_labels_alone(opened: Open) -> None:
    """Catches mass of other tokens, such as a label after a space, counted with the labels."""
    chosen = asyncio.run(opened().choose(Choose(PROMPT, ("C", "A"))))
    assert math.fsum(map(math.exp, chosen.logprobs)) == pytest.approx(1, abs=1e-12)
    assert chosen.logprobs[1] - chosen.logprobs[0] == pytest.approx(3.0)


async def arrived(server: FaultyServer) -> None:
    """Waits until the server has read a request."""
    while not server.requests:
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("fault", [silent, trickle])
def test_no_answer_in_time_is_tried_again(server: FaultyServer, opened: Open, fault: Any) -> None:
    """Catches a caller who waits for ever. On a busy machine a good answer may come too late too, and is asked for
    again, so the number of tries says nothing here."""
    model = opened(timeout=SHORT, retries=100)
    server.script = [fault]
    assert asyncio.run(model.generate(WRITE)).text == "the fridge"
    assert len(server.requests) >= 2
    assert server.requests[0] == server.requests[1]


@pytest.mark.parametrize("fault", [fail(500), fail(503), fail(429, Retry_After="0"), cut, hang_up])
def test_passing_faults_are_tried_again(server: FaultyServer, opened: Open, fault: Any) -> None:
    """Catches a passing fault that ends an episode, or that is taken for an answer."""
    model = opened()
    server.script = [fault]
    assert asyncio.run(model.generate(WRITE)).text == "the fridge"
    assert len(server.requests) == 2
    assert server.requests[0] == server.requests[1]


def test_no_answer_at_all_ends_in_an_error(server: FaultyServer, opened: Open) -> None:
    """Catches endless retries of a server that hangs."""
    model = opened(timeout=SHORT)
    server.script = [silent] * 3
    assert f"did not answer within {SHORT:g} s after 3 tries" in refusal(model, PICK)


@pytest.mark.parametrize("fault", [fail(500), fail(429), cut, hang_up])
def test_lasting_faults_end_in_an_error(server: FaultyServer, opened: Open, fault: Any) -> None:
    """Catches endless retries, and a fault that comes out as a choice."""
    model = opened()
    server.script = [fault] * 3
    assert "after 3 tries" in refusal(model, PICK)
    assert len(server.requests) == 3


@pytest.mark.parametrize("status", [400, 404, 422])
def test_a_refused_request_is_not_repeated(server: FaultyServer, opened: Open, status: int) -> None:
    """Catches retries of what can never succeed, and the server's reason getting lost."""
    model = opened()
    server.script = [fail(status, "temperature must\nbe low")]
    assert f"answered {status}" in (text := refusal(model, WRITE))
    assert "temperature must be low" in text
    assert len(server.requests) == 1


GARBAGE = [
    b"",
    b"{",
    b"null",
    b"[]",
    b"<html>busy</html>",
    b"\xff\xfe\x00",
    b"[" * 100_000,
    {"choices": []},
    {"choices": [completion()["choices"][0]] * 2},
    {"choices": "A"},
    completion(text=None),  # type: ignore[arg-type]
    completion(finish_reason="content_filter"),
    completion(finish_reason=None),
]


@pytest.mark.parametrize("body", GARBAGE, ids=range(len(GARBAGE)))
def test_garbage_is_an_error(server: FaultyServer, opened: Open, body: object) -> None:
    """Catches an answer of the wrong shape that becomes a text or a choice."""
    model = opened()
    server.script = [answer(body), answer(body)]
    refusal(model, WRITE)
    refusal(model, PICK)
    assert len(server.requests) == 2


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (completion(tokens=17), "17 tokens where at most 16"),
        (completion(tokens=-1), "-1 tokens"),
        (completion(tokens=0), "0 tokens for a reply of"),
        (completion("open the fridge and take the knife " * 3, tokens=9), "9 tokens for a reply of"),
    ],
)
def test_impossible_token_counts_are_errors(server: FaultyServer, opened: Open, reply: object, words: str) -> None:
    """Catches counts that cannot be true, which would spoil budgets and throughput figures."""
    model = opened()
    server.script = [answer(reply)]
    assert words in refusal(model, WRITE)


def test_tokens_are_counted_here_when_the_server_does_not(server: FaultyServer, opened: Open) -> None:
    """Catches a missing count that becomes zero."""
    model = opened()
    server.script = [answer({"choices": completion()["choices"]})]
    assert asyncio.run(model.generate(WRITE)).tokens == len(model.tokenizer.encode("the fridge"))


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (completion("A", 1), "gives no log-probabilities"),
        (completion("A", 1, logprobs={"content": None}), "gives no log-probabilities"),
        (scored({"A": -0.5, "B": -1.5}), "1 of 3 labels (C)"),
        (scored({"A": -0.5, "B": -1.5, "C": -9999.0}), "1 of 3 labels (C)"),
        (scored({"A": -0.5, "B": -1.5, "C": 0.5}), "more than one"),
        (scored({"A": -0.5, "B": -1.5, "C": float("nan")}), "not a usable completion"),
        (scored({"A": -0.5, "B": -1.5, "C": -2.5}, positions=2), "2 tokens where one"),
    ],
)
def test_a_choice_is_never_invented(server: FaultyServer, opened: Open, reply: object, words: str) -> None:
    """Catches a missing or impossible log-probability that is filled in with a number."""
    model = opened()
    server.script = [answer(reply)]
    assert words in refusal(model, PICK)


@pytest.mark.parametrize("status", [400, 401, 403, 500])
def test_the_key_reaches_the_server_and_nothing_else(
    server: FaultyServer, opened: Open, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Catches the key in an error or a log, even when the server repeats it."""
    caplog.set_level(logging.DEBUG)
    model = opened()
    server.script = [fail(status, f"bad key {KEY}")] * 3
    text = refusal(model, WRITE)
    assert set(server.keys) == {f"Bearer {KEY}"}
    assert KEY not in text
    assert KEY not in caplog.text
    assert ("FAULTY_KEY" in text) == (status in (401, 403))


def test_no_more_requests_at_once_than_allowed(server: FaultyServer, opened: Open) -> None:
    """Catches a concurrency limit that does not hold, or that makes requests wait for one another in line."""
    model = opened(concurrency=4)
    server.delay = 0.05  # time for a fifth to come, if it were let through
    server.script = [together(4)] * 24

    async def many() -> None:
        await asyncio.gather(*(model.generate(WRITE) for _ in range(24)))

    asyncio.run(many())
    assert server.most_active == 4


def test_a_long_prompt_is_refused_before_it_is_sent(server: FaultyServer, opened: Open) -> None:
    """Catches a prompt that the server would cut silently or charge for; the server's own limit counts too."""
    server.cards[0]["max_model_len"] = 64
    model = opened(context_length=128)
    assert model.context_length == 64
    assert "exceed the context" in refusal(model, Generate(PROMPT, max_tokens=60, temperature=0.0, seed=0))
    assert server.requests == []


def test_fingerprints_tell_addresses_apart(server: FaultyServer, opened: Open) -> None:
    """Catches a cache that mixes models. Two servers may call different weights by one name and say nothing else of
    them, so an address counts: server B was once given the stored answers of A."""
    first = opened(adapters={"mine": "tuned"})
    assert first.fingerprint() != first.fingerprint("mine")
    assert opened(url=server.url + "/").fingerprint() == first.fingerprint()
    with FaultyServer() as elsewhere:
        assert opened(url=elsewhere.url).fingerprint() != first.fingerprint()
        elsewhere.shutdown()


def test_an_identity_keeps_the_answers_of_a_model_that_moves(opened: Open) -> None:
    """Catches a new port that empties the cache of those who vouch for the model; what the server says still counts."""
    first = opened(identity="mine")
    assert first.fingerprint() != opened().fingerprint()
    assert first.fingerprint() != opened(identity="other").fingerprint()
    with FaultyServer() as elsewhere:
        elsewhere.script = [answer(completion("an oven"))]
        assert opened(url=elsewhere.url, identity="mine").fingerprint() == first.fingerprint()
        elsewhere.cards = [card("tiny", root="other/weights")]
        assert opened(url=elsewhere.url, identity="mine").fingerprint() != first.fingerprint()
        elsewhere.shutdown()


def test_other_weights_at_one_address_are_another_model(server: FaultyServer, opened: Open) -> None:
    """Catches a server restarted with other weights under the old name: its greedy answer to the probe tells."""
    first = opened()
    server.script = [answer(completion("an oven"))]
    assert opened().fingerprint() != first.fingerprint()
    assert opened().fingerprint() == first.fingerprint()


@pytest.mark.parametrize("settings", [{}, {"identity": "mine"}, {"adapters": {"mine": "tuned"}}])
def test_a_server_that_only_fails_is_not_loaded(server: FaultyServer, opened: Open, settings: dict[str, Any]) -> None:
    """Catches a server whose list of models is good and whose every answer is a 500: it took cached answers of another
    for its own. With an adapter the base answers first."""
    server.script = [*([good] if "adapters" in settings else []), *[fail(500)] * 3]
    with pytest.raises(ModelError, match=r"^The server of tiny answered 500: .* after 3 tries\.$"):
        opened(**settings)


def test_a_cache_gives_no_server_the_answers_of_another(server: FaultyServer, opened: Open, tmp_path: Path) -> None:
    """Catches texts of A under the name of B, the trial that found it: B answers `an oven` and must be asked."""
    cache = Cache(tmp_path, 1 << 20)
    assert asyncio.run(CachedModel(opened(), cache).generate(WRITE)).text == "the fridge"
    with FaultyServer() as elsewhere:
        other = CachedModel(opened(url=elsewhere.url), cache)
        elsewhere.script = [answer(completion("an oven"))]
        assert asyncio.run(other.generate(WRITE)).text == "an oven"
        elsewhere.shutdown()
    cache.close()


def test_adapters_are_models_of_the_server(server: FaultyServer, opened: Open) -> None:
    """Catches an adapter that is ignored: the base would answer in its name."""
    model = opened(adapters={"mine": "tuned"})
    asyncio.run(model.generate(Generate(PROMPT, 16, 0.0, 0, "mine")))
    assert server.requests[0]["model"] == "tuned"
    assert "No adapter is called 'other'" in refusal(model, Choose(PROMPT, ("A",), "other"))
    with pytest.raises(ModelError, match="no model 'absent'; it has tiny, tuned"):
        opened(adapters={"mine": "absent"})


def test_vllm_is_asked_for_every_label(server: FaultyServer, opened: Open) -> None:
    """Catches label scoring limited to the top twenty on a server that can do all, and hidden sampling defaults."""
    server.cards = [card("tiny", owned_by="vllm")]
    server.script = [answer({"choices": completion()["choices"]})]  # to the probe: this server counts no prompt right
    model = opened()
    prompt = model.prompt_tokens(PROMPT)
    reply = scored({"A": -0.5, "B": -1.5, "C": -2.5})
    reply["usage"]["prompt_tokens"] = prompt
    server.script = [answer(reply), answer(scored({"A": -0.5, "B": -1.5, "C": -2.5}))]
    asyncio.run(model.choose(PICK))
    sent = server.requests[0]
    assert [model.tokenizer.decode([token]) for token in sent["logprob_token_ids"]] == ["A", "B", "C"]
    assert (sent["top_k"], sent["min_p"], sent["repetition_penalty"]) == (0, 0.0, 1.0)
    assert f"a prompt of 5 tokens that has {prompt} here" in refusal(model, PICK)


def test_one_model_serves_one_loop_after_another(opened: Open) -> None:
    """Catches connections bound to a loop that is gone."""
    model = opened()
    assert [asyncio.run(model.generate(WRITE)).text for _ in range(3)] == ["the fridge"] * 3


def test_closing_ends_what_waits(server: FaultyServer, opened: Open) -> None:
    """Catches a caller that waits for ever on a closed model, and one who asks it later."""
    model = opened()
    server.script = [silent]

    async def close_early() -> None:
        waiting = asyncio.ensure_future(model.generate(WRITE))
        await arrived(server)
        await model.close()
        with pytest.raises(ModelError, match="closed before it answered"):
            await waiting

    asyncio.run(close_early())
    assert "was closed" in refusal(model, WRITE)


def test_a_cancelled_caller_stays_cancelled(server: FaultyServer, opened: Open) -> None:
    """Catches a cancelled episode that goes on, or that takes the model down with it."""
    model = opened()
    server.script = [silent]

    async def give_up() -> None:
        waiting = asyncio.ensure_future(model.generate(WRITE))
        await arrived(server)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert (await model.generate(WRITE)).text == "the fridge"

    asyncio.run(give_up())


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"url": None}, "needs `url`"),
        ({"url": "localhost:8000"}, "needs `url`"),
        ({"url": "http://me:secret@localhost/v1"}, "holds a user or password"),
        ({"tokenizer": None}, "needs `tokenizer`"),
    ],
)
def test_settings_that_cannot_work_are_refused(opened: Open, settings: dict[str, Any], words: str) -> None:
    """Catches a configuration that would fail only in the middle of a run, or record a password."""
    with pytest.raises(ConfigError, match=words) as caught:
        opened(**settings)
    assert "secret" not in str(caught.value)


def test_a_server_that_is_not_there_is_named(opened: Open) -> None:
    """Catches a stack trace instead of a sentence when the server is down."""
    with pytest.raises(ModelError, match=r"could not be reached .* after 3 tries"):
        opened(url="http://127.0.0.1:9/v1")


def test_any_text_can_be_sent(server: FaultyServer, opened: Open) -> None:
    """Catches a crash on an unpaired surrogate, which a model may write and JSON cannot hold."""
    odd = (Message("user", "\ud800 \x00 \U0001f373"),)
    asyncio.run(opened().generate(Generate(odd, 16, 0.0, 0)))
    assert server.requests[0]["messages"][0]["content"] == "? \x00 \U0001f373"


def test_an_echoed_text_is_scored_token_by_token() -> None:
    """Catches scores of the prompt taken for those of the reply, and an answer without scores that is guessed at."""
    scores = {
        "token_logprobs": [None, -1.0, -0.5, -2.0, -9.0],
        "top_logprobs": [None, {"a": -1.0}, {"b": -0.5}, {"c": -0.1}, {"d": -9.0}],
    }
    found = echoed(json.dumps({"choices": [{"text": "x", "logprobs": scores}]}).encode(), 2, 2, (0, 3))
    assert found == TokenScores((0, 3), (-0.5, -2.0), (True, False))
    for body, said in (
        ({"choices": [{"text": "x"}]}, "scores no given text"),
        ({"choices": [{"logprobs": {"token_logprobs": [None, -1.0], "top_logprobs": [None, {}]}}]}, "0 of 2 tokens"),
        ({"choices": [{"logprobs": {"token_logprobs": "none"}}]}, "not a usable echoscores"),
    ):
        with pytest.raises(ModelError, match=said):
            echoed(json.dumps(body).encode(), 2, 2, (0, 3))
