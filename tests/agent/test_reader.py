"""The reader's prompt, its choice, and its loss."""

import asyncio
import math

import pytest

from dssr.agent.prompts import Reader, explore, most_likely, nll_of
from dssr.errors import ModelError
from dssr.models.base import Choose, Chosen
from dssr.models.scripted import ScriptedModel
from dssr.seeds import rng_of
from dssr.types import Options

COMMANDS = ("go north", "take knife", "eat meal")
OPTIONS = Options(COMMANDS, "take knife", False, 0)


def test_layout() -> None:
    """Catches any drift from the documented prompt: trained readers depend on every character of it."""
    system, user = Reader(ScriptedModel(), None, "Choose.").messages("cook", "", "A kitchen.", COMMANDS)
    assert (system.role, system.content, user.role) == ("system", "Choose.", "user")
    assert user.content == (
        "Goal:\ncook\n\n<CONTEXT>\n(empty)\n</CONTEXT>\n\nCurrent observation:\nA kitchen.\n\n"
        "Options:\nA. go north\nB. take knife\nC. eat meal\n\nAction:"
    )


def test_the_instruction_gives_no_advice() -> None:
    """Catches recipe knowledge or retention advice in the instruction all formats share."""
    text = Reader(ScriptedModel()).instruction.lower()
    assert not [word for word in ("recipe", "cook", "knife", "ingredient", "keep", "forget", "meal") if word in text]


def test_choice_and_loss() -> None:
    """Catches a sign or an index gone wrong, and ties broken by chance."""
    logprobs = (math.log(0.4), math.log(0.2), math.log(0.4))
    assert most_likely(logprobs, COMMANDS) == "go north"
    assert nll_of(logprobs, OPTIONS) == pytest.approx(-math.log(0.2))
    assert math.copysign(1.0, nll_of((-9.0, 0.0, -9.0), OPTIONS)) == 1.0


def test_exploration_is_seeded_and_as_frequent_as_asked() -> None:
    """Catches an epsilon that is ignored, doubled, or drawn from an unseeded source."""
    played = [explore(COMMANDS, "go north", 0.3, rng_of("explore", i)) for i in range(3000)]
    assert played == [explore(COMMANDS, "go north", 0.3, rng_of("explore", i)) for i in range(3000)]
    other = sum(command != "go north" for command in played) / 3000
    assert abs(other - 0.2) < 0.03  # a random command is another one in 2 of 3 cases; 0.03 is four deviations
    assert {explore(COMMANDS, "go north", 0.0, rng_of(i)) for i in range(100)} == {"go north"}


def test_a_backend_that_skips_options_is_an_error() -> None:
    class Short(ScriptedModel):
        async def choose(self, request: Choose) -> Chosen:
            return Chosen((0.0,))

    with pytest.raises(ModelError, match="1 of 3"):
        asyncio.run(Reader(Short()).score("cook", "", "A kitchen.", COMMANDS))
