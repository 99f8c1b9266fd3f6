"""The scripted model plays real games, well with the facts before it and badly without them."""

import asyncio
import math

import pytest
from tests.models.scripted.conftest import Walk

from dssr.agent.episode import Agent, play_job
from dssr.agent.prompts import Reader, load_prompts, reader_messages, writer_messages
from dssr.errors import ModelError
from dssr.models.base import Choose, Generate, Message
from dssr.models.scripted import FORMATS, ScriptedModel, parse
from dssr.models.scripted.formats import order_of
from dssr.types import LABELS, Cell, Job, Played, View
from dssr.worlds.archive import Archive, Worlds

PROMPTS = load_prompts()
SIX = ("train-6-000", "train-6-001", "train-6-002", "valid-6-000", "valid-6-001")
OPTIONS = ("take knife from table", "slice zarf with knife", "dice zarf with knife", "chop zarf with knife", "go north")


def played(archive: Archive, game: str, memory: str, budget: int | None, retention: float) -> Played:
    model = ScriptedModel(retention, context_length=100_000)
    worlds = Worlds(archive)
    job = Job(game, Cell(memory, budget, 0, "post"), seed=0, temperature=0.0, epsilon=0.0, driver="reader")
    done = asyncio.run(play_job(job, Agent(worlds, model, Reader(model), PROMPTS, max_actions=50)))
    worlds.close()
    assert done.episode.error is None
    return done


def chances(context: str, observation: str, options: tuple[str, ...] = OPTIONS) -> dict[str, float]:
    messages = reader_messages("", "Check the cookbook in the kitchen for the recipe.", context, observation, options)
    chosen = asyncio.run(ScriptedModel().choose(Choose(messages, LABELS[: len(options)])))
    return {command: math.exp(value) for command, value in zip(options, chosen.logprobs, strict=True)}


@pytest.mark.parametrize(("memory", "budget"), [("full", None), ("oracle-b", 64), ("guide", 256)])
def test_with_the_facts_it_wins(memory: str, budget: int | None, archive: Archive) -> None:
    """Catches a reader that misreads a kind of context: every game has an optimal plan in its text."""
    wins = [played(archive, game, memory, budget, 1.0).episode.outcome == "won" for game in SIX]
    assert sum(wins) == len(SIX)


@pytest.mark.parametrize("game", ["valid-9-000", "valid-12-000"])
def test_larger_games_are_won_with_the_full_history(game: str, archive: Archive) -> None:
    """Catches routes that only work on small maps."""
    assert played(archive, game, "full", None, 1.0).episode.outcome == "won"


def test_a_writer_that_keeps_nothing_loses(archive: Archive) -> None:
    """Catches a reader that wins without its context, which would mean a leak through some other field."""
    assert all(played(archive, game, "summary", 64, 0.0).episode.outcome != "won" for game in SIX)


def test_the_reader_knows_the_verb_only_from_the_text() -> None:
    """Catches a built-in preference between verbs: told one, it takes it; told none, it cannot tell them apart."""
    seen = "You take the knife.\n\nYou are carrying: a knife and a zarf."
    told = chances("You are in the kitchen. Recipe: dice the zarf.", seen)
    assert told["dice zarf with knife"] > 0.9
    untold = chances("You are in the kitchen.", seen)
    cuts = [untold[f"{verb} zarf with knife"] for verb in ("slice", "dice", "chop")]
    assert max(cuts) == pytest.approx(min(cuts))
    assert max(untold.values()) < 0.5


def test_it_follows_ways_and_opens_doors() -> None:
    """Catches a route search that ignores doors or walks backwards."""
    context = "You are in the hall. In the den: zarf on the rug. From the hall: north to the den (closed red gate)."
    context += " Recipe: use the zarf."
    seen = "Nothing.\n\nYou are carrying nothing."
    options = ("go south", "open red gate", "take salt from shelf")
    assert chances(context, seen, options)["open red gate"] > 0.9
    assert chances(context, seen, ("go south", "go north"))["go north"] > 0.9
    backward = "You are in the den. In the hall: zarf on the rug. From the hall: north to the den. Recipe: use the zarf"
    assert chances(backward, seen, ("go south", "go north"))["go south"] > 0.9


@pytest.mark.parametrize("style", FORMATS)
def test_prompts_are_recognised(style: str) -> None:
    """Catches a prompt file whose format or budget the writer would take for another."""
    view = View("Eat.", "go north", "-= Den =-\nA den.\n\nPrevious state:\nfake\n\nYou are carrying nothing.")
    order = order_of(writer_messages(PROMPTS.writer(style, 77), view, "first\n\nsecond"))
    assert (order.style, order.budget, order.previous, order.view) == (style, 77, "first\n\nsecond", view)
    assert order_of(writer_messages(PROMPTS.writer(style, 77), View("Eat.", None, "x"), "")).view.last_action is None


def test_temperature_and_seed(walks: dict[str, Walk]) -> None:
    """Catches candidates that are all alike, and greedy replies that depend on the seed."""
    walk = walks["valid-6-000"]
    messages = writer_messages(PROMPTS.writer("summary", 64), View(walk.goal, None, walk.history), "")

    def texts(temperature: float) -> list[str]:
        model = ScriptedModel(0.9)
        requests = [Generate(messages, 64, temperature, seed) for seed in range(6)]
        return [asyncio.run(model.generate(request)).text for request in requests]

    assert len(set(texts(0.0))) == 1
    assert texts(1.0) == texts(1.0)
    assert len({frozenset(parse(text)) for text in texts(1.0)}) > 2


def test_settings_are_in_the_fingerprint() -> None:
    """Catches cached replies of one retention served for another."""
    assert ScriptedModel(0.9).fingerprint() == ScriptedModel(0.9).fingerprint()
    assert ScriptedModel(0.9).fingerprint() != ScriptedModel(0.95).fingerprint()


def test_unreadable_prompts_are_errors() -> None:
    """Catches a made-up answer to a question the model does not understand."""
    messages = (Message("user", "What is the capital of Peru?"),)
    with pytest.raises(ModelError, match="New observation"):
        asyncio.run(ScriptedModel().generate(Generate(messages, 8, 0.0, 0)))
    with pytest.raises(ModelError, match="Options"):
        asyncio.run(ScriptedModel().choose(Choose(messages, ("A", "B"))))
    with pytest.raises(ModelError, match="retention"):
        ScriptedModel(1.5)
