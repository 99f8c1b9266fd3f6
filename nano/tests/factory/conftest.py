"""A small tokenizer and network, made from drills alone."""

import random
from pathlib import Path

import pytest

from dssr.agent.prompts import load_prompts, reader_messages
from dssr_nano.factory import tokenizer
from dssr_nano.factory.drill import drill
from dssr_nano.factory.encoder import PromptEncoder
from dssr_nano.factory.mixture import load_encoder
from dssr_nano.factory.names import WORDS

GOAL = "You are hungry! Let's cook a delicious meal."


@pytest.fixture(scope="session")
def vocabulary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the tokenizer."""
    folder = tmp_path_factory.mktemp("tokenizer")
    texts = [load_prompts().reader] * 50
    for seed in range(60):
        for one in drill(random.Random(seed), 2):
            texts.append(reader_messages("", GOAL, one.context, one.observation, one.commands)[1].content)
    texts += ["\n".join(WORDS), " ".join(("", *WORDS)), "The salt: on counter; slice, dice, chop, fry, roast\n"] * 40
    tokenizer.save(tokenizer.train(texts, WORDS, word_size=1300, size=1500), folder, 2048)
    return folder


@pytest.fixture(scope="session")
def encoder(vocabulary: Path) -> PromptEncoder:
    return load_encoder(str(vocabulary))
