import random
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from dssr.agent.prompts import reader_messages
from dssr_nano.factory.drill import drill
from dssr_nano.factory.encoder import PromptEncoder
from dssr_nano.factory.export import card, export
from dssr_nano.factory.losses import losses
from dssr_nano.factory.muon import Optimizer
from dssr_nano.factory.network import Network, Shape
from dssr_nano.factory.reader_examples import EncodedQuestion, encode_question, pick_options, tree_of
from dssr_nano.factory.training import Progress, load, probed_layers, save
from dssr_nano.factory.tree import lay_out

GOAL = "You are hungry!"
SHAPE = Shape(width=80, depth=6, heads=5, inner=64)


@pytest.fixture
def network(encoder: PromptEncoder) -> Network:
    torch.manual_seed(0)
    return Network(SHAPE, encoder.init_vocabulary, probed_layers(SHAPE))


def some_questions(encoder: PromptEncoder, seed: int, count: int = 4) -> list[EncodedQuestion]:
    rng = random.Random(seed)
    return [encode_question(encoder, GOAL, one, pick_options(one, 12, rng)) for one in drill(rng, count)]


def test_export_answers_as_the_trees_did(
    network: Network, encoder: PromptEncoder, vocabulary: Path, tmp_path: Path
) -> None:
    """Catches any difference between our network over packed trees and the stock Qwen3 over plain prompts:
    masks, positions, names of weights, chat template. Exact up to float32 noise, so chance cannot explain it."""
    export(network, vocabulary, tmp_path)
    assert "nano build reader --seed 1 --shape" in card(network, Progress(), "reader", 1, "80x5x5x64", b"")
    network.load_state_dict({name: value.bfloat16().float() for name, value in network.state_dict().items()})
    model = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    tokens = AutoTokenizer.from_pretrained(tmp_path)
    rng = random.Random(3)
    questions = drill(rng, 4)
    shuffled = [pick_options(one, 12, rng) for one in questions]
    asked = [encode_question(encoder, GOAL, one, commands) for one, commands in zip(questions, shuffled, strict=True)]
    with torch.no_grad():
        logits, _ = network(lay_out([tree_of(some_questions(encoder, 9)), tree_of(asked)]))
        for place, (one, commands) in enumerate(zip(questions, shuffled, strict=True)):
            messages = reader_messages(encoder.prompts.reader, GOAL, one.context, one.observation, commands)
            chat = [{"role": message.role, "content": message.content} for message in messages]
            ids = tokens.apply_chat_template(chat, add_generation_prompt=True, return_dict=False)
            assert tuple(ids) == asked[place].ids[:-1]
            alone = model(torch.tensor([ids])).logits[0, -1]
            assert torch.allclose(alone, logits[4 + place], atol=1e-4)


def test_training_learns_and_goes_on_where_it_stopped(network: Network, encoder: PromptEncoder, tmp_path: Path) -> None:
    """Catches a checkpoint that forgets the optimizer, and losses that do not reach the weights."""
    row = lay_out([tree_of(some_questions(encoder, 1), echo=0.3)])
    optimizer = Optimizer(network, 0.01)

    def step(net: Network, opt: Optimizer) -> float:
        loss, _ = losses(net, row)
        loss.backward()  # type: ignore[no-untyped-call]
        opt.step(1.0)
        return loss.item()

    first = step(network, optimizer)
    for _ in range(12):
        step(network, optimizer)
    save(tmp_path, network, optimizer, Progress(step=13))
    twin = Network(SHAPE, encoder.init_vocabulary, probed_layers(SHAPE))
    other = Optimizer(twin, 0.01)
    assert load(tmp_path, twin, other).step == 13
    again = [step(twin, other) for _ in range(3)]
    assert again == [step(network, optimizer) for _ in range(3)]
    assert again[-1] < first * 0.6
