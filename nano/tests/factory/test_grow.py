"""Networks for houses start as the shipped ones: what those can do must not be lost on the way."""

import random

import pytest
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer

from dssr.agent.prompts import load_prompts
from dssr.errors import UsageError
from dssr_nano import WEIGHTS as NANO
from dssr_nano.factory.build import MAKING, SHAPE
from dssr_nano.factory.curriculum import Role
from dssr_nano.factory.drill import drill
from dssr_nano.factory.grow import KIN, extended, grow
from dssr_nano.factory.mixture import scribe_of
from dssr_nano.factory.network import Network
from dssr_nano.factory.questions import ask, shown, tree_of
from dssr_nano.factory.scribe import Scribe
from dssr_nano.factory.tokenizer import cut
from dssr_nano.factory.tree import lay_out

OLD = NANO / "reader"


@pytest.fixture(scope="module")
def longer() -> Tokenizer:
    return extended(Tokenizer.from_file(str(OLD / "tokenizer.json")))


def test_new_words_are_tokens_and_old_texts_stay_as_cut(longer: Tokenizer) -> None:
    """Catches special tokens that moved, and merges that reach into texts a smaller network knows."""
    old = Tokenizer.from_file(str(OLD / "tokenizer.json"))
    assert all(len(cut(longer, text)) == 1 for text in KIN)
    assert all(len(cut(old, text)) > 1 for text in KIN)
    for text in ("<|end|>", "<|pad|>", "<|assistant|>"):
        assert longer.token_to_id(text) == old.token_to_id(text)
    prompts = load_prompts()
    texts = [prompts.reader, *(question.context for seed in range(20) for question in drill(random.Random(seed), 1))]
    assert [longer.encode(text).ids for text in texts] == [old.encode(text).ids for text in texts]
    assert longer.decode(longer.encode("-= Shed =-\nA shed.").ids) == "-= Shed =-\nA shed."


@pytest.mark.parametrize("role", ["house", "house-writer"])
def test_a_grown_network_answers_as_the_smaller_one(longer: Tokenizer, role: Role) -> None:
    """Catches layers in the wrong order, new layers that disturb, and lost words: equal up to float32 noise, where
    another order of layers differs by whole units."""
    scribe, made = Scribe(longer, load_prompts()), MAKING[role]
    assert made.smaller is not None
    torch.manual_seed(0)
    large, small = Network(made.shape, scribe.tokens), Network(SHAPE, scribe_of(str(made.smaller)).tokens)
    grow(large, made.smaller, longer)
    shipped = load_file(made.smaller / "model.safetensors")
    small.model.load_state_dict({name.removeprefix("model."): value for name, value in shipped.items()})
    rng = random.Random(1)
    asked = [ask(scribe, "You are hungry!", one, shown(one, 52, rng)) for one in drill(rng, 4)]
    row = lay_out([tree_of(asked)])
    with torch.no_grad():
        grown, before = large(row)[0], small(row)[0]
    known = before.shape[1]
    assert torch.allclose(grown[:, :known], before, atol=1e-3)
    if role == "house":
        assert [one.ids[-1] for one in asked] == before.argmax(-1).tolist()


def test_only_a_network_of_the_same_width_can_start_as_the_smaller_one(longer: Tokenizer) -> None:
    """Catches a shape that ends in a stack trace, or in weights that were filled by half."""
    shape = MAKING["house"].shape._replace(inner=64)
    network = Network(shape, Scribe(longer, load_prompts()).tokens)
    with pytest.raises(UsageError, match="starts as reader"):
        grow(network, OLD, longer)
