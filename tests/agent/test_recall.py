"""A reader that may look back: what it is asked, what it sees, and that nothing else changes."""

import asyncio
from typing import Any

import msgspec
import pytest
from tests.agent.bench import make_agent, make_job, play_all

from dssr.agent.episode import context_at, continue_episode, episode_key, first_difference
from dssr.agent.kept_prompts import share
from dssr.agent.leaks import Watch
from dssr.agent.memory import check_memory, identity_of, instruction_of, is_reference
from dssr.agent.prompts import load_prompts, reader_messages
from dssr.agent.recall import ACT, RecallRules, chunks_of, entropy, rule_of, titles_of, with_chunk
from dssr.config import AgentConfig, Config, load
from dssr.errors import ConfigError
from dssr.models.base import Choose, Chosen
from dssr.models.scripted import ScriptedModel
from dssr.types import Chunk, Played, Recalled, Step, Write
from dssr.worlds.archive import Worlds
from dssr.worlds.cooking.world import COOKING

GAME = "valid-6-000"
WORDS = COOKING.words


class Asks(ScriptedModel):
    """The scripted model, whose reader asks for the cookbook whenever it may, and counts what it is asked."""

    def __init__(self, retention: float = 0.9) -> None:
        super().__init__(retention, context_length=65536)
        self.titles = self.choices = 0

    async def choose(self, request: Choose) -> Chosen:
        lines = request.messages[-1].content.split("\nOptions:\n")[-1].split("\n")
        if ACT not in lines[0]:
            self.choices += 1
            return await super().choose(request)
        self.titles += 1
        wanted = next((place for place, line in enumerate(lines) if "cookbook" in line), 0)
        return Chosen(tuple(-0.1 if place == wanted else -5.0 for place in range(len(request.labels))))


def play(worlds: Worlds, memory: str, model: ScriptedModel | None = None, filler: int = 10, **rest: Any) -> Played:
    job = make_job(GAME, memory, budget=64, filler=filler)
    (played,) = play_all([job], make_agent(worlds, model or Asks(), **rest))
    assert played.episode.error is None
    return played


def requests(played: Played) -> list[tuple[Step, Recalled]]:
    return [(step, step.decision.recall) for step in played.steps if step.decision and step.decision.recall]


def test_without_a_rule_nothing_is_asked_and_nothing_is_stored(worlds: Worlds) -> None:
    """Catches recall that leaks into other memories: one more prompt, one more byte in a line, another key."""
    model = Asks()
    played = play(worlds, "summary", model)
    decisions = [step for step in played.steps if step.decision]
    assert (model.titles, model.choices) == (0, len(decisions))
    assert not any(b'"recall"' in msgspec.json.encode(step) for step in played.steps)
    few, many = (make_agent(worlds, recall=RecallRules(requests=count)) for count in (1, 9))
    plain, asking = make_job(GAME, "summary"), make_job(GAME, "summary+recall")
    assert episode_key(plain, few, "md5") == episode_key(plain, many, "md5")
    assert episode_key(asking, few, "md5") != episode_key(asking, many, "md5")


def test_settings_of_recall_are_part_of_the_digest() -> None:
    """Catches settings that are set but not part of the identity."""
    config = load("scripted")
    other = msgspec.structs.replace(config, agent=msgspec.structs.replace(config.agent, recalls=1))
    assert other.content()["agent"]["recalls"] == 1
    assert other.digest() != config.digest()
    assert RecallRules.of(Config(name="default", agent=AgentConfig())) == RecallRules()


def test_a_chunk_is_seen_beside_the_state_and_at_one_decision_only(worlds: Worlds) -> None:
    """Catches a chunk that enters the state or stays in the context, a budget of requests that is not kept, and a loss
    without the chunk that is not the one of the state alone."""
    job = make_job(GAME, "summary+recall", budget=64, filler=10)
    agent = make_agent(worlds, Asks(0.8), quotas=share([job], 10**4, 0), recall=RecallRules(requests=2))
    (played,) = play_all([job], agent)
    found = requests(played)
    assert [seen.left for _, seen in found] == [1, 0]
    recipe = played.steps[played.episode.reveal].observation
    sent: dict[int, list[str]] = {}
    for prompt in played.prompts:
        if prompt.role == "reader":
            sent.setdefault(prompt.step, []).append(prompt.messages[-1][1])
    for step, seen in found:
        assert step.decision is not None
        assert seen.chunk.kind == "cookbook"
        assert seen.chunk.first <= played.episode.reveal <= seen.chunk.last
        context = context_at("summary+recall", played.steps, step.index)
        assert recipe in context
        assert context.startswith(f"{step.write.state}\n\n")
        again = reader_messages("", "", context, step.observation, step.decision.options.actions)[-1].content
        assert any(one.endswith(again.removeprefix("Goal:\n\n\n")) for one in sent[step.index])
        assert len(sent[step.index]) == 3  # without the chunk, the titles, with the chunk
        assert seen.tokens == len(agent.tokenizer.encode(context)) - len(agent.tokenizer.encode(step.write.state)) - 2
    asked = {step.index for step, _ in found}
    assert not any(recipe in text for index, texts in sent.items() if index not in asked for text in texts)
    assert all(step.write.tokens <= 64 for step in played.steps)
    first = found[0][0]
    alone = play(worlds, "summary", Asks(0.8)).steps[first.index]
    assert alone.write == first.write
    assert alone.decision is not None
    assert alone.decision.nll == found[0][1].nll_without
    assert alone.decision.argmax == found[0][1].argmax_without


@pytest.mark.parametrize("memory", ["summary+recall", "summary+unsure"])
def test_a_fork_looks_back_as_the_log_did(worlds: Worlds, memory: str) -> None:
    """Catches requests that are counted anywhere but in the steps: a fork would have more of them left."""
    agent = make_agent(worlds, Asks(0.8))
    (played,) = play_all([make_job(GAME, memory, budget=64, filler=10)], agent)
    assert requests(played)
    for index in range(played.episode.begin, len(played.steps)):
        again = asyncio.run(continue_episode(played.episode, played.steps, index, agent))
        assert first_difference(played.steps, again.steps) is None


def test_what_is_asked_does_not_depend_on_who_plays_beside_it(worlds: Worlds) -> None:
    """Catches requests that are shared between episodes, or a choice that depends on the order of batches."""
    jobs = [
        make_job(game, memory, budget=64)
        for game in (GAME, "valid-6-001")
        for memory in ("guide+recall", "guide+unsure")
    ]
    alone, together = (play_all(jobs, make_agent(worlds, Asks(0.7)), limit) for limit in (1, 64))
    assert [played.steps for played in alone] == [played.steps for played in together]
    assert all(requests(played) for played in alone[::2])


def test_one_in_doubt_keeps_the_chunk_that_makes_it_surest(worlds: Worlds) -> None:
    """Catches a request spent where the reader is sure, one that brings no certainty, and more tries than allowed. With
    a writer that forgets at once the recipe is what takes the doubt away."""
    rules = RecallRules(requests=50, entropy=0.5, tries=3)
    played = play(worlds, "summary+unsure", Asks(0.5), recall=rules)
    found = requests(played)
    plain = play(worlds, "summary", Asks(0.5))
    assert found
    assert all(seen.tried <= 3 for _, seen in found)
    assert any(seen.chunk.kind == "cookbook" for _, seen in found)
    first = next(step.index for step, _ in found)
    before = plain.steps[first].decision
    after = played.steps[first].decision
    assert before is not None
    assert after is not None
    assert entropy(before.logprobs) > 0.5
    assert entropy(after.logprobs) < entropy(before.logprobs)
    sure = play(worlds, "summary+unsure", Asks(0.5), recall=RecallRules(entropy=100.0))
    assert sure.steps == plain.steps


def test_who_may_not_ask_any_more_is_not_asked(worlds: Worlds) -> None:
    """Catches title questions after the last request."""
    model = Asks(0.8)
    played = play(worlds, "summary+recall", model, recall=RecallRules(requests=1))
    ((step, _),) = requests(played)
    assert model.titles == step.index - played.episode.begin + 1


def test_titles_are_the_newest_of_each_place(worlds: Worlds) -> None:
    """Catches the cookbook lost behind a later visit of its room, a place named twice, an older stay shown instead of
    the newest, and more titles than labels."""
    played = play(worlds, "summary", filler=40)
    begin, reveal = played.episode.begin, played.episode.reveal
    titles = titles_of(played.steps, begin, reveal, 5, WORDS)
    rooms = [title.split(" again")[0] for title in titles]
    assert len(rooms) == len(set(rooms))
    assert sum("cookbook" in title for title in titles) == 1
    assert [chunk.last for chunk in titles.values()] == sorted((c.last for c in titles.values()), reverse=True)
    for title, chunk in titles.items():
        heading = WORDS.heading_of(played.steps[chunk.first].observation)
        later = [c for c in chunks_of(played.steps, begin, reveal, 5, WORDS) if c.first > chunk.last]
        assert "cookbook" in title or f"see {heading} again" in title
        if "cookbook" not in title:
            stays = [c for c in later if c.kind == "visit"]
            assert all(WORDS.heading_of(played.steps[c.first].observation) != heading for c in stays)
    assert len(titles_of(played.steps, len(played.steps), reveal, 1, WORDS, most=4)) == 4
    acted = titles_of(played.steps, len(played.steps), reveal, 5, WORDS)
    assert all(f"see steps {c.first} to {c.last} again" in acted for c in acted.values() if c.kind == "block")


def test_names() -> None:
    """Catches a rule that is taken for a part of the format, a context without a writer that is promised a recall, and
    an identity that changes with the rule although the writer is the same."""
    prompts = load_prompts()
    for name in ("summary+recall", "belief+unsure", "dssr+recall@a4/s0", "dssr.agent.bridges:InspectSummary+recall"):
        check_memory(name)
        assert rule_of(name) in ("recall", "unsure")
        assert not is_reference(name)
    assert instruction_of("dssr+recall") == "summary"
    assert identity_of("guide+unsure", prompts) == identity_of("guide", prompts)
    assert rule_of("summary") is None
    for name in ("full+recall", "lastk+unsure", "summary+more", "dssr+recall", "+recall"):
        with pytest.raises(ConfigError):
            check_memory(name)


def test_a_chunk_in_a_prompt_is_searched(worlds: Worlds) -> None:
    """Catches a leak check that takes what stands beside the state for the memory's own words: a chunk that the agent
    has not seen yet is a leak, the same chunk later is none, and what the state says is still excused."""
    played = play(worlds, "summary", filler=0)
    reveal = played.episode.reveal
    chunk = Chunk("cookbook", reveal, reveal)
    state = "Room: kitchen"

    def leaked(step: int) -> int:
        watch = Watch("key", "episode")
        watch.wrote(state)
        context = with_chunk(state, played.steps, chunk)
        watch.show("reader", step, reader_messages("", "goal", context, "observation", ("go north", "go south")))
        return watch.search(worlds, played.episode.job, played.steps).leaked

    assert leaked(reveal - 1) == 1
    assert leaked(reveal) == 0
    watch = Watch("key", "episode")
    watch.wrote(state)
    text = "\n\n".join([f"<CONTEXT>\n{state}", "seen again\n</CONTEXT>", "Current observation:"])
    frame, own, _ = watch._parts(text, "reader", "summary+recall")
    assert own == state
    assert state not in frame
    assert "seen again" in frame


def test_an_empty_state_leaves_the_chunk_alone() -> None:
    """Catches blank lines before nothing, and a chunk with a step too few or too many."""
    write = Write("", 0, 0, False, None)
    steps = [Step(n, "explore", n, "room", f"go {n}", f"seen {n}", write, None) for n in range(4)]
    assert with_chunk("", steps, Chunk("visit", 1, 2)) == "> go 1\nseen 1\n\n> go 2\nseen 2"
    assert with_chunk("kept", steps, Chunk("visit", 3, 3)) == "kept\n\n> go 3\nseen 3"
