"""The leak check: every planted leak is found, and clean runs of every format raise no alarm."""

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from tests.agent.bench import FORMATS, WRITTEN, make_agent, make_job, play_all

from dssr.agent import leaks, prompts
from dssr.agent.kept_prompts import share
from dssr.agent.leaks import nodes_of, paragraphs, refuse_leaks, searched_again
from dssr.config import Config, MeasureConfig, WriterConfig
from dssr.errors import LeakError
from dssr.measure.candidates import CandidateScorer, Sampling, points_of
from dssr.measure.diagnose import Measured, measured
from dssr.models.base import Choose, Chosen, Generate, Generated, Message
from dssr.models.scripted import ScriptedModel
from dssr.record.run import Run
from dssr.session import Bench
from dssr.types import Job, Moment, Played, Search, StoredPrompt
from dssr.worlds.archive import Archive, Worlds
from dssr.worlds.cooking.recipe import telling_lines

GAME = "valid-6-000"
EARLY = 2
"""A step of Phase A at which little has been seen."""


@pytest.fixture(scope="module")
def worlds(archive: Archive) -> Worlds:
    return Worlds(archive)


@pytest.fixture(scope="module")
def runs(worlds: Worlds) -> dict[str, Played]:
    """One episode of each format with all its prompts."""
    jobs = [make_job(GAME, memory, filler=10) for memory in FORMATS]
    agent = make_agent(worlds, max_actions=20, quotas=share(jobs, 10**4, 0))
    return {played.episode.job.cell.memory: played for played in play_all(jobs, agent)}


@pytest.fixture(scope="module")
def moments(worlds: Worlds, runs: dict[str, Played]) -> list[Moment]:
    with worlds.playing(GAME) as world:
        return [node.moment for node in nodes_of(world, runs["summary"].steps)]


def planted(played: Played, role: str, step: int, text: str, before: str | None = None) -> Played:
    """The episode with one prompt, into which a text was put: at the end, or before a mark."""
    old = next(prompt for prompt in played.prompts if prompt.role == role and prompt.step == step)
    *first, (sender, content) = old.messages
    new = content + "\n" + text if before is None else content.replace(before, f"{text}\n{before}", 1)
    assert new != content
    prompt = StoredPrompt(old.role, old.episode, old.step, (*first, (sender, new)))
    return replace(played, prompts=(prompt,))


def in_state(played: Played, step: int, text: str) -> Played:
    """The episode as if the writer had written the text at a step, with the next writer prompt that shows it."""
    steps = list(played.steps)
    old = steps[step].write
    steps[step] = msgspec.structs.replace(steps[step], write=msgspec.structs.replace(old, state=text))
    prompt = next(one for one in played.prompts if one.role == "writer" and one.step == step + 1)
    content = prompt.messages[1][1].replace(f"Previous state:\n{old.state}", f"Previous state:\n{text}")
    shown = msgspec.structs.replace(prompt, messages=(prompt.messages[0], ("user", content)))
    return replace(played, steps=tuple(steps), prompts=(shown,))


def check(played: Played, worlds: Worlds) -> Search:
    return searched_again(played, worlds)


@pytest.mark.parametrize("memory", FORMATS)
def test_clean_runs_raise_no_alarm(worlds: Worlds, runs: dict[str, Played], memory: str) -> None:
    """Catches a search that finds secrets in what the game itself has shown: all prompts of an episode, all formats."""
    report = check(runs[memory], worlds)
    assert (report.leaks, report.leaked) == ((), 0)
    assert report.composed == 0 or memory == "slots"  # whose scripted writer says `room: kitchen`
    assert report.reader_prompts > 0
    assert (report.writer_prompts > 0) == (memory in WRITTEN)
    assert runs[memory].search == replace(report, what="episode")


def secrets(moments: list[Moment]) -> dict[str, str]:
    """One text of each kind, as a careless programmer might print it."""
    last, early = moments[-1].privileged, moments[EARLY].privileged
    fact = next(one for one in last.facts if one.name in ("in", "on") and len(one.args) == 2)
    far = next(one for one in early.facts if one.name == "on" and "knife" in one.args[0])
    return {
        "recipe": telling_lines(last.task)[-1],
        "recipe, whole": last.task,
        "walkthrough": ", ".join(last.walkthrough),
        "policy": repr(early.policy),
        "policy, in lines": "\n".join(early.policy),
        "fact": f"{fact.name}({', '.join(fact.args)})",
        "fact, tight": f"{far.name}({','.join(far.args)})",
        "fact, in words": f"{far.name} {' '.join(far.args)}",
        "oracle": f"{far.args[0]}: {far.name} {far.args[1]}, kitchen",
        "oracle, capitals": f"{far.args[0]}:  {far.name}  {far.args[1]}, Kitchen",
    }


RECIPE = ("recipe", "recipe, whole")
OTHERS = (
    "walkthrough",
    "policy",
    "policy, in lines",
    "fact",
    "fact, tight",
    "fact, in words",
    "oracle",
    "oracle, capitals",
)


@pytest.mark.parametrize("kind", RECIPE + OTHERS)
@pytest.mark.parametrize("memory", ["summary", "belief"])
def test_planted_in_a_writers_message(
    worlds: Worlds, runs: dict[str, Played], moments: list[Moment], memory: str, kind: str
) -> None:
    """Catches a kind of secret that the search does not know, or knows in one spelling only."""
    for before in (None, "Previous state:", "New observation:"):
        report = check(planted(runs[memory], "writer", EARLY, secrets(moments)[kind], before), worlds)
        assert {leak.kind for leak in report.leaks} >= {
            {"walkthrough": "plan", "policy": "plan"}.get(kind.split(",")[0], kind.split(",")[0])
        }


@pytest.mark.parametrize("kind", OTHERS)
@pytest.mark.parametrize("memory", ["full", "lastk", "summary"])
def test_planted_in_a_readers_prompt(
    worlds: Worlds, runs: dict[str, Played], moments: list[Moment], memory: str, kind: str
) -> None:
    """Catches a leak into the decision itself; the recipe is public by then."""
    begin = runs[memory].episode.begin
    report = check(planted(runs[memory], "reader", begin, secrets(moments)[kind], "Options:"), worlds)
    assert report.leaks


def test_planted_in_a_system_message(worlds: Worlds, runs: dict[str, Played], moments: list[Moment]) -> None:
    played = runs["guide"]
    old = next(prompt for prompt in played.prompts if prompt.role == "writer" and prompt.step == EARLY)
    system = ("system", old.messages[0][1] + "\n" + telling_lines(moments[0].privileged.task)[-1])
    changed = msgspec.structs.replace(old, messages=(system, old.messages[1]))
    assert check(replace(played, prompts=(changed,)), worlds).leaks


def test_a_secret_is_one_until_it_is_seen(worlds: Worlds, runs: dict[str, Played], moments: list[Moment]) -> None:
    """Catches a search that is not aware of time: the recipe is a leak before its step and public from it on."""
    played, line = runs["summary"], telling_lines(moments[0].privileged.task)[-1]
    reveal = played.episode.reveal
    assert check(planted(played, "writer", reveal - 1, line), worlds).leaks
    assert not check(planted(played, "writer", reveal, line), worlds).leaks


def test_secrets_in_a_state(worlds: Worlds, runs: dict[str, Played], moments: list[Moment]) -> None:
    """Catches a state that knows what nobody told it, be it a single line."""
    played, recipe = runs["summary"], moments[0].privileged.task
    assert check(in_state(played, EARLY, recipe), worlds).leaks
    assert check(in_state(played, EARLY, "\n".join(telling_lines(recipe)[-2:])), worlds).leaks
    assert check(in_state(played, EARLY, secrets(moments)["fact, tight"]), worlds).leaks
    lone = check(in_state(played, EARLY, f"maybe {telling_lines(recipe)[-1].strip()}"), worlds)
    assert (lone.guessed, lone.leaked, lone.leaks) == (1, 0, ())


@pytest.mark.parametrize(("guesses", "refused"), [(1, False), (2, True)])
def test_guesses_are_luck_only_while_they_are_rare(tmp_path: Path, guesses: int, refused: bool) -> None:
    """Catches a memory that lets out one line of the recipe in every state: one prompt in a hundred may hold a lone
    guess, two may not. The same holds however the guesses are spread over pieces of work."""
    run = Run.start(tmp_path / "run", command="diagnose", config=Config(name="small"), models={})
    run.extend("searches", [(f"{n}:episode", Search("episode", 10, 10, guessed=int(n < guesses))) for n in range(5)])
    if refused:
        with pytest.raises(LeakError, match=r"2 of 100 prompts hold a secret .* more than luck"):
            refuse_leaks(run)
        assert (run.path / "failed.json").exists()
    else:
        refuse_leaks(run)
    run.close()


def test_a_state_in_the_oracles_own_words_is_no_leak(worlds: Worlds, runs: dict[str, Played]) -> None:
    """Catches an alarm on a writer that is simply right, in the same form, from what it has seen."""
    with worlds.playing(GAME) as world:
        step = runs["summary"].episode.begin
        lines = world.oracle_lines(nodes_of(world, runs["summary"].steps)[step], long=True)
    found = check(in_state(runs["summary"], step, "\n".join(lines)), worlds)
    assert (found.composed, found.leaked) == (1, 0)


def test_only_oracle_b_may_show_its_lines(worlds: Worlds, runs: dict[str, Played]) -> None:
    """Catches an exemption that reaches further than oracle-b's own prompts."""
    oracle = runs["oracle-b"]
    assert not check(oracle, worlds).leaks
    begin = oracle.episode.begin
    shown = next(prompt for prompt in oracle.prompts if prompt.step == begin)
    other = runs["lastk"]
    moved = msgspec.structs.replace(shown, episode=other.episode.key)
    assert check(replace(other, prompts=(moved,)), worlds).leaks


def test_a_plan_with_blank_lines_is_found(worlds: Worlds, runs: dict[str, Played], moments: list[Moment]) -> None:
    """Catches a search by paragraphs that loses what stands across them; and joined they are the text again."""
    plan = "\n\n".join(moments[0].privileged.walkthrough)
    assert paragraphs(f"one\n\n{plan}\n\n{'x' * 99}\n\n\n\ntwo") != [plan]
    assert (
        "\n\n".join(paragraphs(f"one\n\n{plan}\n\n{'x' * 99}\n\n\n\ntwo")) == f"one\n\n{plan}\n\n{'x' * 99}\n\n\n\ntwo"
    )
    assert check(planted(runs["summary"], "writer", EARLY, plan), worlds).leaked == 1


# ---------------------------------------------------------------- every prompt of a run

MEASURE = MeasureConfig(points=2, oracle_samples=2)
SENT = {
    "episode": ("writer", "reader"),
    "audit": ("writer", "reader"),
    "lag": ("reader",),
    "candidates": ("writer", "reader"),
    "continuation": ("writer", "reader"),
}


def leaking(monkeypatch: pytest.MonkeyPatch, world: Any, what: str, role: str) -> None:
    """Every prompt of one kind of work and one role also tells the plan, as a careless change of the layout might."""
    plan = ", ".join(world.start().moment.privileged.walkthrough)

    def telling(original: Any) -> Any:
        def messages(*args: Any) -> Any:
            system, user = original(*args)
            here = leaks._HERE.get()
            told = f"\n{plan}" if here is not None and here[0].what == what else ""
            return Message(system.role, system.content + told), user

        return messages

    if role == "writer":
        monkeypatch.setattr("dssr.agent.memory.check_request", lambda *args: None)
        monkeypatch.setattr("dssr.agent.memory.writer_messages", telling(prompts.writer_messages))
    else:
        monkeypatch.setattr("dssr.agent.prompts.reader_messages", telling(prompts.reader_messages))


async def everything(worlds: Worlds, job: Job) -> list[Search]:
    """All kinds of prompts that runs send: an episode, its audits and lags, candidates at two of its writes, scored in
    both ways and played on."""
    agent = make_agent(worlds, max_actions=6)
    found = await measured(True, Bench(agent, Config(name="leaks", measure=MEASURE)), job)
    assert found.played.search is not None
    config = WriterConfig(targets=(1, 2))
    scorer = CandidateScorer(found.played, agent, Sampling(2, 1.0), config, 0)
    points = points_of(found.played.episode, found.played.steps, config.horizon)
    for point in (points[0], points[-1]):
        await scorer.studied(point)
    return [found.played.search, *found.searches, *scorer.searches()]


@pytest.mark.parametrize(("what", "role"), [(what, role) for what, roles in SENT.items() for role in roles])
def test_a_leak_in_any_kind_of_prompt_is_found(
    worlds: Worlds, monkeypatch: pytest.MonkeyPatch, what: str, role: str
) -> None:
    """Catches a kind of prompt that nobody searches: the plan is put into every prompt of one kind, and all of those
    and no others leak."""
    with worlds.playing(GAME) as world:
        leaking(monkeypatch, world, what, role)
    for found in asyncio.run(everything(worlds, make_job(GAME, "summary", 64))):
        sent = {"writer": found.writer_prompts, "reader": found.reader_prompts}
        assert all(count > 0 for name, count in sent.items() if name in SENT[found.what])
        assert found.leaked == (sent[role] if found.what == what else 0)
        assert {(leak.role, leak.kind) for leak in found.leaks} == ({(role, "plan")} if found.what == what else set())


def test_every_prompt_of_every_kind_is_counted(worlds: Worlds) -> None:
    """Catches prompts that pass uncounted: the model itself counts what it is sent."""
    counted: Counter[str] = Counter()

    class Counting(ScriptedModel):
        async def generate(self, request: Generate) -> Generated:
            counted["writer"] += 1
            return await super().generate(request)

        async def choose(self, request: Choose) -> Chosen:
            counted["reader"] += 1
            return await super().choose(request)

    async def go() -> Measured:
        agent = make_agent(worlds, Counting(0.9, 65536), max_actions=6)
        return await measured(True, Bench(agent, Config(name="leaks", measure=MEASURE)), make_job(GAME, "summary", 64))

    found = asyncio.run(go())
    assert found.played.search is not None
    searches = [found.played.search, *found.searches]
    assert counted["writer"] == sum(one.writer_prompts for one in searches)
    assert counted["reader"] == sum(one.reader_prompts for one in searches)


def test_a_prompt_that_nobody_watches_is_not_sent(worlds: Worlds) -> None:
    """Catches a new way of sending prompts that forgets the leak check."""
    agent = make_agent(worlds)
    with pytest.raises(LeakError, match="no leak check would see"):
        asyncio.run(agent.reader.score("goal", "context", "here", ["go east", "go west"]))
