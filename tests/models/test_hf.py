"""The engine: right against transformers' own forward pass, and the same bits whatever else is in the batch."""

import asyncio
import json
import random
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.tiny import make_adapter, make_tiny

from dssr.agent.prompts import load_prompts, writer_messages
from dssr.config import ModelConfig
from dssr.errors import ModelError
from dssr.models.adapters import stamp_adapter
from dssr.models.base import Choose, Generate, Likelihood, Message
from dssr.models.engine import checkpoint
from dssr.models.engine.decode import Guess, Reply
from dssr.models.engine.hf import HFModel
from dssr.models.engine.native import BLOCK
from dssr.models.engine.network import Rows
from dssr.models.load import load_model
from dssr.types import LABELS, View

WORDS = ["kitchen", "fridge", "knife", "apple", "door", "north", "take", "open", "chop", "stove", "table", "carry"]


def story(seed: int, words: int) -> str:
    rng = random.Random(seed)
    return " ".join(rng.choice(WORDS) for _ in range(words))


def ask(model: HFModel, requests: Sequence[Generate | Choose]) -> list[Any]:
    async def everything() -> list[Any]:
        return await asyncio.gather(
            *(model.generate(one) if isinstance(one, Generate) else model.choose(one) for one in requests)
        )

    return asyncio.run(everything())


def hf(path: Path, **settings: Any) -> HFModel:
    loaded = load_model(
        ModelConfig(**{"backend": "hf", "path": str(path), "dtype": "float32", "device": "cpu", **settings})
    )
    assert isinstance(loaded, HFModel)
    return loaded


def stock(tiny: Path, adapter: str | None = None) -> Any:
    """The same weights, run by transformers alone."""
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    causal = AutoModelForCausalLM.from_pretrained(tiny, dtype=torch.float32)
    return causal if adapter is None else PeftModel.from_pretrained(causal, adapter).eval()


@pytest.mark.parametrize("adapter", [None, "first"])
def test_scores_and_greedy_texts_are_those_of_transformers(
    tiny: Path, tiny_adapters: dict[str, str], adapter: str | None
) -> None:
    """Catches a wrong mask, position, block border, head grouping or adapter; wrong ones move scores by nats."""
    model = hf(tiny, adapters=tiny_adapters)
    theirs = stock(tiny, tiny_adapters.get(adapter or ""))
    for words in (3, 50, 200, 700):
        messages = (Message("user", story(words, words)),)
        ids = torch.tensor([model.tokenizer.chat(messages)])
        chosen, reply = ask(model, [Choose(messages, LABELS, adapter), Generate(messages, 12, 0.0, 0, adapter)])
        with torch.inference_mode():
            scores = theirs(input_ids=ids, logits_to_keep=1).logits[0, -1]
            written = theirs.generate(input_ids=ids, max_new_tokens=12, do_sample=False)[0, ids.shape[1] :]
        expected = scores[[model.labels[label] for label in LABELS]].log_softmax(0)
        assert torch.allclose(torch.tensor(chosen.logprobs), expected.double().float(), atol=1e-4)
        assert reply.text == model.tokenizer.decode(written.tolist())
    asyncio.run(model.close())


def test_shared_prefixes_do_not_change_a_bit(model: HFModel) -> None:
    """Catches a kept block that differs from a fresh one: prompts with common prefixes together, in turn (from
    kept blocks), and each on an emptied cache, around the block borders and beyond one pass."""
    stem = story(1, 700)
    requests: list[Choose] = []
    for words in (0, 20, 60, 61, 62, 63, 64, 65, 130, 400, 700):
        cut = " ".join(stem.split()[:words])
        requests += [Choose((Message("user", cut + end),), LABELS[:9]) for end in ("", " Action:", " Options A")]
    together = ask(model, requests)
    in_turn = [ask(model, [request])[0] for request in requests]
    alone = []
    for request in requests:
        model.prefiller.clear()
        alone += ask(model, [request])
    assert together == in_turn == alone


def test_each_shared_block_is_computed_once(model: HFModel) -> None:
    """Catches sharing that silently stops working; counts rows, not time."""
    model.prefiller.clear()
    history = story(2, 300)
    length = model.prompt_tokens((Message("user", history),))
    before = model.packed.tokens
    ask(model, [Choose((Message("user", f"{history} point {point}"),), LABELS[:4]) for point in range(8)])
    assert model.packed.tokens - before < length + 8 * 2 * BLOCK
    before = model.packed.tokens
    ask(model, [Generate((Message("user", history),), 1, 1.0, seed) for seed in range(8)])
    assert model.packed.tokens - before <= 2 * BLOCK


def test_texts_do_not_depend_on_newcomers(model: HFModel) -> None:
    """Catches rows mixed up when replies of different lengths finish, leave and make room while others go on."""
    requests = [
        Generate(
            (Message("user", story(number, 5 + 13 * (number % 9))),), 1 + 7 * (number % 5), float(number % 2), number
        )
        for number in range(150)
    ]
    together = ask(model, requests)
    some = range(0, 150, 15)
    assert [together[number] for number in some] == [ask(model, [requests[number]])[0] for number in some]


def test_a_shared_long_prompt_does_not_change_a_bit(model: HFModel) -> None:
    """Catches a reply that reads another's blocks, or whose bits depend on how many read with it: samples of one long
    prompt, a longer one with the same beginning, some that share nothing, and short ones; and blocks that nobody gives
    back."""
    long = story(5, 700)
    asked = [(long, 20, seed) for seed in range(11)]
    asked += [(long + story(6, 90), 70, seed) for seed in range(3)]
    asked += [(story(seed, 30), 9, seed) for seed in range(3)]
    asked += [(story(7 + seed, 600), 9, seed) for seed in range(3)]
    requests = [Generate((Message("user", text),), most, 1.0, seed) for text, most, seed in asked]
    requests += [Generate((Message("user", long),), 20, 0.0, 0)]
    together = ask(model, requests)
    assert len({reply.text for reply in together}) > len(together) // 2
    assert together == [ask(model, [request])[0] for request in requests]
    model.prefiller.clear()
    assert model.pool.available == model.pool.count


def test_samples_of_one_prompt_hold_its_blocks_once(model: HFModel) -> None:
    """Catches a copy of the prompt for each reply, which long histories have no room for."""
    model.prefiller.clear()
    ids = np.array(model.tokenizer.chat((Message("user", story(8, 500)),)), dtype=np.int32)
    with torch.inference_mode():
        prefilled = model.prefiller.run([ids] * 9, None, keep=True)
        replies = [Reply(None, one.blocks, ids, 3, 0.0, random.Random(0), [0]) for one in prefilled]
        model.decoder.admit(replies)
    shared = len(ids) // BLOCK
    assert len({tuple(reply.blocks[:shared]) for reply in replies}) == 1
    assert len({block for reply in replies for block in reply.blocks[shared:]}) >= 9
    assert model.pool.count - model.pool.available <= shared + 1 + 9 * 2
    model.decoder.clear()


def test_a_token_without_an_embedding_is_refused(tiny: Path, tmp_path: Path) -> None:
    """Catches memory read beyond the embeddings, for a tokenizer that was given more tokens than its model."""
    from transformers import AutoTokenizer

    copy = tmp_path / "copy"
    shutil.copytree(tiny, copy)
    larger = AutoTokenizer.from_pretrained(copy)
    larger.add_tokens(["<|later|>"])
    larger.save_pretrained(copy)
    model = hf(copy)
    with pytest.raises(ModelError, match=r"has a token 4\d\d, and the model knows 4\d\d; use the tokenizer"):
        ask(model, [Choose((Message("user", "take <|later|>"),), LABELS[:3])])
    with pytest.raises(ModelError, match="has a token"):
        asyncio.run(model.likelihood(Likelihood((Message("user", "take"),), "the <|later|> knife")))
    assert ask(model, [Choose((Message("user", "take"),), LABELS[:3])])
    asyncio.run(model.close())


def test_samples_follow_the_model(tiny: Path) -> None:
    """Catches a biased sampler: first tokens of 2000 seeds against the model's own probabilities; a fair sampler
    misses the bound (6 standard deviations on each of the likeliest tokens) about once in 10^8."""
    model = hf(tiny)
    messages = (Message("user", "take"),)
    ids = np.array(model.tokenizer.chat(messages), dtype=np.int32)
    with torch.inference_mode():
        (prefilled,) = model.prefiller.run([ids], None, keep=False)
        chances = torch.softmax(model.packed.logits(prefilled.state[None])[0].double(), 0)
    replies = ask(model, [Generate(messages, 1, 1.0, seed) for seed in range(2000)])
    likeliest = int(chances.argmax())
    text = model.tokenizer.decode([likeliest])
    share = sum(reply.text == text for reply in replies) / len(replies)
    same_text = sum(float(p) for token, p in enumerate(chances) if model.tokenizer.decode([token]) == text)
    assert abs(share - same_text) < 6 * (same_text * (1 - same_text) / 2000) ** 0.5
    asyncio.run(model.close())


@pytest.mark.parametrize(("kind", "lean"), [("llama", True), ("qwen2", True), ("phi3", True), ("olmo2", False)])
def test_other_shapes_run_too(tmp_path: Path, kind: str, lean: bool) -> None:
    """Catches a dependency on Qwen3's module names: SmolLM2 is a Llama, Qwen2 has biases, R2 is a Phi-3 (fused
    projections); and a model whose norms stand elsewhere, taken for one of them instead of run by transformers."""
    model = hf(make_tiny(tmp_path, kind=kind))
    assert ("lean" in model.numerics) == lean
    requests = [Choose((Message("user", story(number, 20 * number)),), LABELS[:5]) for number in range(6)]
    assert ask(model, requests) == [ask(model, [request])[0] for request in requests]
    asyncio.run(model.close())


def test_longrope_does_not_see_its_batch_mates(tmp_path: Path) -> None:
    """Catches rotary factors that switch with the longest prompt of a pass, as Phi-4-mini's do."""
    folder = make_tiny(tmp_path, kind="phi3")
    settings = json.loads((folder / "config.json").read_text())
    settings["rope_parameters"] = {
        **settings.get("rope_parameters", {}),
        "rope_type": "longrope",
        "short_factor": [1.0] * 8,
        "long_factor": [4.0] * 8,
        "original_max_position_embeddings": 128,
    }
    settings["original_max_position_embeddings"] = 128
    (folder / "config.json").write_text(json.dumps(settings))
    model = hf(folder)
    requests = [Choose((Message("user", story(1, words)),), LABELS[:5]) for words in (10, 300)]
    assert ask(model, requests) == [ask(model, [request])[0] for request in requests]
    asyncio.run(model.close())


def test_scores_that_are_not_numbers_are_an_error(tiny: Path, tmp_path: Path) -> None:
    """Catches NaN taken for a choice or a text, and an error that spreads to other requests."""
    from safetensors.torch import load_file, save_file

    broken = make_adapter(tmp_path / "broken", tiny, 5)
    file = broken / "adapter_model.safetensors"
    save_file({key: value * float("nan") for key, value in load_file(file).items()}, file)
    model = hf(tiny, adapters={"broken": str(broken)})
    messages = (Message("user", "open the fridge"),)

    async def both() -> Sequence[Any]:
        return await asyncio.gather(
            model.choose(Choose(messages, ("A", "B"), "broken")),
            model.generate(Generate(messages, 4, 0.0, 0, "broken")),
            model.generate(Generate(messages, 4, 1.0, 0, "broken")),
            model.choose(Choose(messages, ("A", "B"))),
            return_exceptions=True,
        )

    *failed, fine = asyncio.run(both())
    assert all(isinstance(error, ModelError) and "not numbers" in str(error) for error in failed)
    assert len(fine.logprobs) == 2
    asyncio.run(model.close())


def test_adapters_of_another_base_are_refused(tiny: Path, tmp_path: Path) -> None:
    """Catches an adapter of other shapes, or of other weights of the same shapes, loaded without a word."""
    other = make_tiny(tmp_path / "other", seed=1, hidden=32)
    foreign = make_adapter(tmp_path / "foreign", other, 1)
    with pytest.raises(ModelError, match=r"foreign.*other.*does not fit.*tiny"):
        hf(tiny, adapters={"foreign": str(foreign)})
    stamped = make_adapter(tmp_path / "stamped", tiny, 1)
    stamp_adapter(stamped, "the digest of other weights")
    with pytest.raises(ModelError, match="stamped was trained on"):
        hf(tiny, adapters={"stamped": str(stamped)})


def test_only_safetensors_are_loaded(tiny: Path, tmp_path: Path) -> None:
    """Catches weights read by pickle, which runs whatever code they hold, and unclear words about missing files."""
    copy = tmp_path / "copy"
    shutil.copytree(tiny, copy)
    (copy / "model.safetensors").rename(copy / "pytorch_model.bin")
    with pytest.raises(ModelError, match="safetensors"):
        hf(copy)
    adapter = make_adapter(tmp_path / "adapter", tiny, 1)
    (adapter / "adapter_model.safetensors").rename(adapter / "adapter_model.bin")
    with pytest.raises(ModelError, match="safetensors"):
        hf(tiny, adapters={"a": str(adapter)})
    with pytest.raises(ModelError, match="missing"):
        hf(tmp_path / "missing")


def test_fingerprints_follow_content(tiny: Path, tiny_adapters: dict[str, str], tmp_path: Path) -> None:
    """Catches a fingerprint that misses the weights, the adapter, the template or the number type."""
    copy = tmp_path / "copy"
    shutil.copytree(tiny, copy)
    template = tmp_path / "template"
    shutil.copytree(tiny, template)
    file = template / "chat_template.jinja"
    file.write_text(file.read_text().replace("assistant", "reply"))
    other = make_tiny(tmp_path / "other", seed=1)
    adapters = {"a": tiny_adapters["first"], "b": tiny_adapters["second"]}
    models = [hf(tiny, adapters=adapters), hf(copy, adapters={"z": adapters["a"]}), hf(other), hf(template)]
    models.append(hf(tiny, dtype="bfloat16"))
    prints = [model.fingerprint() for model in models]
    assert prints[0] == prints[1]
    assert len(set(prints)) == 4
    assert models[0].fingerprint("a") == models[1].fingerprint("z") != models[0].fingerprint("b")
    for model in models:
        asyncio.run(model.close())


def test_a_small_pool_keeps_the_answers(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches answers that change when blocks are given to other prompts, or texts that wait for ever for blocks."""
    requests: list[Generate | Choose] = [
        Choose((Message("user", story(number, 150)),), LABELS[:5]) for number in range(12)
    ]
    requests += [Generate((Message("user", story(number, 150)),), 30, 1.0, number) for number in range(40)]
    model = hf(tiny, context_length=1024)
    free = ask(model, requests)
    monkeypatch.setattr(checkpoint, "MOST_KV", 0)
    small = hf(tiny, context_length=1024)
    assert small.pool.count == 2 * 1024 // BLOCK + 2 < model.pool.count
    assert ask(small, requests) == free
    assert 0 < small.pool.kept < small.pool.count
    for one in (model, small):
        asyncio.run(one.close())
        assert one.pool.kept == 0  # a study opens many models in one process
        assert one.pool.available == one.pool.count


def test_the_likelihood_of_a_reply_is_that_of_stock_transformers(model: HFModel, tiny: Path) -> None:
    """Catches a reply scored one token off, without its prompt, or across a block's end wrongly: short, long and
    one-token replies against one plain forward pass of the whole text."""
    from transformers import AutoModelForCausalLM

    stock = AutoModelForCausalLM.from_pretrained(tiny, dtype=torch.float32)
    messages = (Message("system", "You act."), Message("user", "Open the fridge. " * 30))
    for reply in ("A", "open the fridge", "take the red apple and chop it, " * 20):
        found = asyncio.run(model.likelihood(Likelihood(messages, reply)))
        prompt, ids = model.tokenizer.chat(messages), model.tokenizer.encode(reply)
        with torch.inference_mode():
            logits = stock(torch.tensor([prompt + ids])).logits[0].double()
        scores = torch.log_softmax(logits, -1)[len(prompt) - 1 : -1]
        wanted = [scores[place, token].item() for place, token in enumerate(ids)]
        near = 1e-3 if " float32 " in model.numerics else 0.3
        assert len(found.logprobs) == len(found.starts) == len(found.best) == len(ids)
        assert max(abs(a - b) for a, b in zip(found.logprobs, wanted, strict=True)) < near
        if " float32 " in model.numerics:
            assert list(found.best) == (scores.argmax(-1) == torch.tensor(ids)).tolist()
        assert found.starts[0] == 0
        assert list(found.starts) == sorted(found.starts)


def test_a_reply_scores_the_same_in_any_company(model: HFModel) -> None:
    """Catches scores that depend on what else is asked: alone, together with others, and once more from the cache."""

    def request(number: int) -> Likelihood:
        return Likelihood((Message("user", f"Note {number}. " * 40),), f"open drawer {number} " * (1 + 3 * number))

    async def together() -> list[object]:
        return list(await asyncio.gather(*(model.likelihood(request(number)) for number in range(6))))

    alone = [asyncio.run(model.likelihood(request(number))) for number in range(6)]
    assert asyncio.run(together()) == alone


def test_invariance_is_proven_once_for_each_shape(
    tmp_path: Path, tiny_adapters: dict[str, str], tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches a proof that is run again for every session and every seed of a writer (ten adapters of SmolLM2 cost
    minutes), one that a new shape of adapter is let off, and a failed proof that is remembered as a good one."""
    proven: list[str | None] = []
    holds = True

    def proof(model: HFModel, adapter: str | None) -> bool:
        proven.append(adapter)
        return holds

    monkeypatch.setattr(checkpoint, "same_in_batch", proof)
    monkeypatch.setattr(checkpoint, "PROVEN", set())

    def opened(adapters: dict[str, str]) -> list[str | None]:
        proven.clear()
        asyncio.run(hf(tiny, adapters=adapters, threads=1).close())
        return list(proven)

    wide = {"wide": str(make_adapter(tmp_path / "wide", tiny, 3, rank=6))}
    assert opened(tiny_adapters) == [None, "first"]
    assert opened({"again": tiny_adapters["second"]}) == []
    holds = False
    with pytest.raises(ModelError, match="answers differently alone and in a batch"):
        opened({**tiny_adapters, **wide})
    assert set(proven) >= {"wide"}
    holds = True
    assert opened({**tiny_adapters, **wide}) == ["wide"]


ROOMS = ("Kitchen", "Corridor", "Pantry", "Bathroom", "Livingroom", "Kitchen")
ROOM = (
    "-= {} =-\nYou arrive. You can see a fridge. It contains a carrot and a red apple.\n\nThere is an exit to the {}."
)


def test_guessed_tokens_are_those_of_single_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a guess that is taken though the model says otherwise, keys of wrong guesses that stay, noise that is
    used up by them, a reply beyond its length, and guesses that save nothing. nano repeats most of a state, so a third
    of the passes is far from what chance saves."""
    model, system = hf(Path("nano/writer")), load_prompts().writer("summary", 80)
    state, said = "", list[Generate]()
    for number, room in enumerate(ROOMS):
        view = View(
            "Cook.", f"go {'north' if number % 2 else 'east'}", ROOM.format(room, ("north", "east")[number % 2])
        )
        said.append(Generate(writer_messages(system, view, state), 80, 0.0, number))
        state = ask(model, said[-1:])[0].text
    said += [Generate(one.messages, 1 + 9 * seed, 1.0, seed) for seed, one in enumerate(said)]
    passes: list[Rows] = []
    forward = model.packed.forward

    def counted(rows: Rows, wanted: int = 0) -> torch.Tensor:
        passes.append(rows)
        return forward(rows, wanted)

    monkeypatch.setattr(model.packed, "forward", counted)
    guessed = [ask(model, [one])[0] for one in said]
    few = len(passes)
    assert ask(model, said) == guessed
    passes.clear()
    monkeypatch.setattr(Guess, "following", lambda *_: ())
    assert [ask(model, [one])[0] for one in said] == guessed
    assert few < 0.67 * len(passes)
    asyncio.run(model.close())
