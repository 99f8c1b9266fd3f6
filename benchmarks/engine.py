"""What the CPU engine buys, feature by feature, against the plain ways of `plain.py` and against itself without it.

On nano's networks and the prompts of two played games. Ways that must agree are compared before they are timed:
log-probabilities to 1e-4, greedy texts exactly.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

from benchmarks.common import Ratio, by_turns, faster, seconds
from benchmarks.episodes import BUDGET, Logged, Prompt, play_games
from benchmarks.plain import Plain, best_of
from dssr.config import ModelConfig
from dssr.models.base import Choose, Generate
from dssr.models.cache import CachedModel
from dssr.models.engine.blocks import Ids
from dssr.models.engine.decode import MOST_GUESSED, Guess
from dssr.models.engine.hf import HFModel
from dssr.models.load import load_model, weights_folder
from dssr.types import LABELS

WORTH = 1.3
"""Least ratio against the best plain way; what buys less goes."""
SAMPLES = 8
EPISODES, EPISODE_STEPS = 24, 6
ALMOST_GREEDY = 1e-4
"""A temperature at which texts are sampled and are those of temperature 0."""
ROWS = (32, 64)
"""Batch sizes tried for the plain ways."""
CROPPED, WITHOUT = "one at a time, cropped cache", "without kept blocks"


def run() -> Iterator[Ratio]:
    """The rows, one feature after the other."""
    torch.set_num_threads(1)
    writer, reader = nano_model("writer"), nano_model("reader")
    try:
        logged = play_games(writer, reader)
        yield from _histories(reader, logged)
        yield from _choices(reader, logged)
        yield from _prefix_cache(reader, logged)
        yield from _replies(writer, logged)
        yield from _one_by_one(writer, logged)
        yield from _samples(writer, logged)
        yield from _overhead(reader, logged)
    finally:
        for model in (writer, reader):
            asyncio.run(model.close())


def _histories(model: HFModel, logged: Sequence[Logged]) -> Iterator[Ratio]:
    """Histories with one chunk left out at a time: long prompts that share long prefixes."""
    prompts = logged[0].left_out(1)
    plain, ids = plain_of(model), _ids(model, prompts)
    took = by_turns({"ours": lambda: _choose(model, prompts), CROPPED: lambda: plain.score_cached(ids)}, repeat=2)
    _close(took)
    # What shares nothing is a plain sum over prompts, so a few stand for all.
    sample = ids[:: len(ids) // 8]
    scale = sum(map(len, ids)) / sum(map(len, sample))
    rows = best_of(lambda size: plain.score_padded(sample, size), (1, 4), lambda work: seconds(work, 1))
    padded = scale * seconds(lambda: plain.score_padded(sample, rows), 1)
    name = f"score {len(prompts)} histories with a chunk left out, about {_median(ids)} tokens"
    yield from against(name, took | {f"padded batches of {rows}": (padded, [])}, {CROPPED: WORTH})


def _choices(model: HFModel, logged: Sequence[Logged]) -> Iterator[Ratio]:
    """Choices from states: short prompts, of which only the beginning is shared."""
    prompts = [prompt for one in logged for prompt in one.choices()]
    plain, ids = plain_of(model), _ids(model, prompts)
    rows = best_of(lambda size: plain.score_padded(ids, size), (1, 4, 16), lambda work: seconds(work, 1))
    took = by_turns(
        {
            "ours": lambda: _choose(model, prompts),
            CROPPED: lambda: plain.score_cached(ids),
            f"padded batches of {rows}": lambda: plain.score_padded(ids, rows),
        }
    )
    _close(took)
    name = f"score {len(prompts)} choices from states, about {_median(ids)} tokens"
    yield from against(name, took, {CROPPED: WORTH, f"padded batches of {rows}": WORTH})


def _prefix_cache(model: HFModel, logged: Sequence[Logged]) -> Iterator[Ratio]:
    """The memory `full`: two episodes by turns, each prompt a few tokens longer than its episode's one before."""
    turns = list(zip(*(one.histories() for one in logged), strict=False))[::3]
    prompts = [prompt for turn in turns for prompt in turn]
    plain, ids = plain_of(model), _ids(model, prompts)

    def by_turn(keep: bool) -> list[torch.Tensor]:
        model.prefiller.clear()
        return [row for turn in turns for row in _choose(model, turn, clear=not keep)]

    def cropped() -> list[torch.Tensor]:
        """As they come: a turn is all that is known at its time, and the cache holds one history."""
        starts = range(0, len(ids), len(logged))
        return [row for at in starts for row in plain.score_cached(ids[at : at + len(logged)])]

    took = by_turns({"ours": lambda: by_turn(True), WITHOUT: lambda: by_turn(False), CROPPED: cropped}, repeat=2)
    _close(took)
    assert all(torch.equal(one, other) for one, other in zip(took["ours"][1], took[WITHOUT][1], strict=True))
    name = f"prefix cache: {len(prompts)} choices of {len(logged)} episodes by turns, {_median(ids)} tokens"
    yield from against(name, took, {WITHOUT: WORTH, CROPPED: WORTH})


def _replies(model: HFModel, logged: Sequence[Logged]) -> Iterator[Ratio]:
    """The writer's own requests, all at once: replies of different lengths."""
    yield from _writing(model, logged[0].writes(), "write states")


def _one_by_one(model: HFModel, logged: Sequence[Logged]) -> Iterator[Ratio]:
    """The same, each asked when the one before is answered, as one agent does."""
    prompts = logged[0].writes()
    plain, ids = plain_of(model), _ids(model, prompts)

    def alone() -> list[str]:
        return [text for prompt in prompts for text in _write(model, [prompt], clear=False)]

    def without_guesses() -> list[str]:
        with patch.object(Guess, "following", lambda *_: ()):
            return alone()

    took = by_turns(
        {
            "ours": alone,
            "a token a pass": without_guesses,
            "stock generate, prompt lookup": lambda: _texts(
                model, plain.write_stock(ids, BUDGET, 1, prompt_lookup_num_tokens=MOST_GUESSED)
            ),
        },
        repeat=2,
    )
    _equal(took)
    name = f"write states one by one: {len(prompts)} prompts, about {_median(ids)} tokens"
    yield from against(name, took, dict.fromkeys(took, WORTH))


def _samples(model: HFModel, logged: Sequence[Logged]) -> Iterator[Ratio]:
    """Eight states from one whole history, as the read-time oracle asks for them."""
    prompts = [prompt for one in logged for prompt in one.hindsight(1)]
    asked = [prompt for prompt in prompts for _ in range(SAMPLES)]
    plain, ids = plain_of(model), _ids(model, prompts)
    copies = [prompt for prompt in ids for _ in range(SAMPLES)]
    took = by_turns(
        {
            "ours": lambda: _write(model, asked, ALMOST_GREEDY),
            f"lean loop, batches of {SAMPLES}": lambda: _texts(model, plain.write_lean(ids, BUDGET, SAMPLES, SAMPLES)),
        },
        repeat=2,
    )
    stock = f"stock generate, batches of {SAMPLES}"
    took |= by_turns({stock: lambda: _texts(model, plain.write_stock(copies, BUDGET, SAMPLES))}, repeat=1)
    _equal(took)
    name = f"shared prefix: {SAMPLES} samples of each of {len(prompts)} histories, about {_median(ids)} tokens"
    yield from against(name, took, dict.fromkeys(took, WORTH))


def _writing(model: HFModel, prompts: Sequence[Prompt], what: str) -> Iterator[Ratio]:
    """Greedy replies, against `generate` and a lean loop, both at their best batch size."""
    plain, ids = plain_of(model), _ids(model, prompts)
    stock = best_of(lambda size: plain.write_stock(ids, BUDGET, size), ROWS, lambda work: seconds(work, 1))
    lean = best_of(lambda size: plain.write_lean(ids, BUDGET, size), ROWS, lambda work: seconds(work, 1))
    took = by_turns(
        {
            "ours": lambda: _write(model, prompts),
            f"stock generate, batches of {stock}": lambda: _texts(model, plain.write_stock(ids, BUDGET, stock)),
            f"lean loop, batches of {lean}": lambda: _texts(model, plain.write_lean(ids, BUDGET, lean)),
        },
        repeat=2,
    )
    _equal(took)
    name = f"{what}: {len(prompts)} prompts, about {_median(ids)} tokens"
    yield from against(name, took, {})


def _overhead(model: HFModel, logged: Sequence[Logged]) -> Iterator[Ratio]:
    """Episodes that ask step by step, against the engine given each step's prompts as one list."""
    steps = [[one.choices()[step] for one in logged] * (EPISODES // len(logged)) for step in range(EPISODE_STEPS)]
    wrapped = CachedModel(model, None)

    async def episode(number: int) -> None:
        for step in steps:
            await wrapped.choose(Choose(step[number], LABELS))

    async def episodes() -> None:
        await asyncio.gather(*(episode(number) for number in range(EPISODES)))

    def through_dssr() -> None:
        model.prefiller.clear()
        asyncio.run(episodes())

    def as_lists() -> None:
        model.prefiller.clear()
        for step in steps:
            ids = [np.array(one, dtype=np.int32) for one in _ids(model, step)]
            model.batcher.call(lambda ids=ids: _score(model, ids))  # type: ignore[misc]

    took = by_turns({"ours": through_dssr, "the engine given lists": as_lists}, repeat=5)
    name = f"batching on idle: {EPISODES} episodes x {EPISODE_STEPS} choices through asyncio"
    yield from against(name, took, {})


def _score(model: HFModel, prompts: list[Ids]) -> None:
    with torch.inference_mode():
        done = model.prefiller.run(prompts, None, keep=False)
        model.packed.logits(torch.stack([one.state for one in done]))


def nano_model(part: str) -> HFModel:
    settings = ModelConfig(backend="hf", path=f"nano/{part}", dtype="float32", device="cpu", threads=1)
    model = load_model(settings)
    assert isinstance(model, HFModel)
    return model


def plain_of(model: HFModel) -> Plain:
    return Plain(weights_folder(model.name), [model.labels[label] for label in LABELS])


def _ids(model: HFModel, prompts: Sequence[Prompt]) -> list[list[int]]:
    return [model.tokenizer.chat(prompt) for prompt in prompts]


def _median(ids: Sequence[Sequence[int]]) -> int:
    return sorted(map(len, ids))[len(ids) // 2]


def _choose(model: HFModel, prompts: Sequence[Prompt], clear: bool = True) -> list[torch.Tensor]:
    """Log-probabilities by the engine; from an empty prefix cache unless told otherwise."""
    if clear:
        model.prefiller.clear()

    async def everything() -> list[Any]:
        return await asyncio.gather(*(model.choose(Choose(prompt, LABELS)) for prompt in prompts))

    return [torch.tensor(chosen.logprobs, dtype=torch.float64) for chosen in asyncio.run(everything())]


def _write(model: HFModel, prompts: Sequence[Prompt], temperature: float = 0.0, clear: bool = True) -> list[str]:
    """Texts by the engine; from an empty prefix cache unless told otherwise."""
    if clear:
        model.prefiller.clear()

    async def everything() -> list[Any]:
        requests = [Generate(one, BUDGET, temperature, seed) for seed, one in enumerate(prompts)]
        return await asyncio.gather(*(model.generate(request) for request in requests))

    return [reply.text for reply in asyncio.run(everything())]


def _texts(model: HFModel, written: Sequence[Sequence[int]]) -> list[str]:
    return [model.tokenizer.decode(tokens) for tokens in written]


def _close(took: dict[str, tuple[float, list[torch.Tensor]]]) -> None:
    for way, (_, found) in took.items():
        pairs = zip(took["ours"][1], found, strict=True)
        apart = max(float((one - other).abs().max()) for one, other in pairs)
        assert apart < 1e-4, f"log-probabilities of {way} differ from ours by {apart}"


def _equal(took: dict[str, tuple[float, list[str]]]) -> None:
    for way, (_, texts) in took.items():
        assert texts == took["ours"][1], f"texts of {way} differ from ours"


def against(name: str, took: Mapping[str, tuple[float, object]], goals: Mapping[str, float]) -> list[Ratio]:
    """One row for each way that is not ours."""
    return [faster(name, took["ours"][0], took[way][0], way, goals.get(way)) for way in took if way != "ours"]
