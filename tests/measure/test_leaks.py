"""The leak check: every planted leak is found, and clean runs of every format raise no alarm."""

import msgspec
import pytest
from msgspec.structs import replace
from tests.agent.bench import FORMATS, make_agent, make_job, play_all

from dssr.agent.leaks import LeakReport, check_prompts, nodes_of, plain, share
from dssr.types import Moment, Played, StoredPrompt
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


def check(played: Played, worlds: Worlds) -> LeakReport:
    return check_prompts([played], worlds)


@pytest.mark.parametrize("memory", FORMATS)
def test_clean_runs_raise_no_alarm(worlds: Worlds, runs: dict[str, Played], memory: str) -> None:
    """Catches a search that finds secrets in what the game itself has shown: all prompts of an episode, all formats."""
    report = check(runs[memory], worlds)
    assert report.leaks == ()
    assert report.guesses == ()
    assert report.reader_prompts > 0
    assert (report.writer_prompts > 0) == (memory in FORMATS[3:])


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
    """Catches a state that knows what nobody told it; one lucky guess is reported and is no leak."""
    played, recipe = runs["summary"], moments[0].privileged.task
    assert check(in_state(played, EARLY, recipe), worlds).leaks
    assert check(in_state(played, EARLY, "\n".join(telling_lines(recipe)[-2:])), worlds).leaks
    assert check(in_state(played, EARLY, secrets(moments)["fact, tight"]), worlds).leaks
    lone = check(in_state(played, EARLY, f"maybe {telling_lines(recipe)[-1].strip()}"), worlds)
    assert not lone.leaks
    assert [plain(guess.text) for guess in lone.guesses] == [plain(telling_lines(recipe)[-1])]


def test_a_state_in_the_oracles_own_words_is_no_leak(worlds: Worlds, runs: dict[str, Played]) -> None:
    """Catches an alarm on a writer that is simply right, in the same form, from what it has seen."""
    with worlds.playing(GAME) as world:
        step = runs["summary"].episode.begin
        lines = world.oracle_lines(nodes_of(world, runs["summary"].steps)[step], long=True)
    assert not check(in_state(runs["summary"], step, "\n".join(lines)), worlds).leaks


def test_only_oracle_b_may_show_its_lines(worlds: Worlds, runs: dict[str, Played]) -> None:
    """Catches an exemption that reaches further than oracle-b's own prompts."""
    oracle = runs["oracle-b"]
    assert not check(oracle, worlds).leaks
    begin = oracle.episode.begin
    shown = next(prompt for prompt in oracle.prompts if prompt.step == begin)
    other = runs["lastk"]
    moved = msgspec.structs.replace(shown, episode=other.episode.key)
    assert check(replace(other, prompts=(moved,)), worlds).leaks
