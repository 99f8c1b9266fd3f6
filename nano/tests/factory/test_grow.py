"""Networks for houses start as the shipped ones: what those can do must not be lost on the way."""

import random

import pytest
import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer

from dssr.agent.prompts import load_prompts
from dssr.errors import UsageError
from dssr_nano import weights
from dssr_nano.factory.build import SHAPE, SPECS
from dssr_nano.factory.drill import drill
from dssr_nano.factory.encoder import PromptEncoder
from dssr_nano.factory.grow import SIMILAR, extend_tokenizer, grow
from dssr_nano.factory.mixture import load_encoder
from dssr_nano.factory.network import Network
from dssr_nano.factory.reader_examples import encode_question, pick_options, tree_of
from dssr_nano.factory.tokenizer import cut
from dssr_nano.factory.tree import lay_out
from dssr_nano.networks import Role

OLD = weights("reader")


@pytest.fixture(scope="module")
def longer() -> Tokenizer:
    return extend_tokenizer(Tokenizer.from_file(str(OLD / "tokenizer.json")))


def test_new_words_are_tokens_and_old_texts_stay_as_cut(longer: Tokenizer) -> None:
    """Catches special tokens that moved, and merges that reach into texts a smaller network knows."""
    old = Tokenizer.from_file(str(OLD / "tokenizer.json"))
    assert all(len(cut(longer, text)) == 1 for text in SIMILAR)
    assert all(len(cut(old, text)) > 1 for text in SIMILAR)
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
    encoder, made = PromptEncoder(longer, load_prompts()), SPECS[role]
    assert made.start_from is not None
    first = weights(made.start_from)
    torch.manual_seed(0)
    large = Network(made.shape, encoder.init_vocabulary)
    small = Network(SHAPE, load_encoder(str(first)).init_vocabulary)
    grow(large, first, longer)
    shipped = load_file(first / "model.safetensors")
    small.model.load_state_dict({name.removeprefix("model."): value for name, value in shipped.items()})
    rng = random.Random(1)
    asked = [encode_question(encoder, "You are hungry!", one, pick_options(one, 52, rng)) for one in drill(rng, 4)]
    row = lay_out([tree_of(asked)])
    with torch.no_grad():
        grown, before = large(row)[0], small(row)[0]
    known = before.shape[1]
    assert torch.allclose(grown[:, :known], before, atol=1e-3)
    if role == "house":
        assert [one.ids[-1] for one in asked] == before.argmax(-1).tolist()


def test_only_a_network_of_the_same_width_can_start_as_the_smaller_one(longer: Tokenizer) -> None:
    """Catches a shape that ends in a stack trace, or in weights that were filled by half."""
    shape = SPECS["house"].shape._replace(inner=64)
    network = Network(shape, PromptEncoder(longer, load_prompts()).init_vocabulary)
    with pytest.raises(UsageError, match="starts as a smaller one"):
        grow(network, OLD, longer)
