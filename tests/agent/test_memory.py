"""Memories by name: the prompted ones, a user's own, and what neither can reach."""

import asyncio
import gc
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from tests.agent.bench import WRITTEN, Told, make_agent, make_job, play_all

from dssr.agent.memory import (
    STUB,
    TRAINED,
    Kit,
    Prompted,
    Stubbed,
    edited,
    instruction_of,
    load_memory,
    load_reference,
    split_name,
    with_adapter,
)
from dssr.agent.prompts import READER_MARKS, RETENTION, load_prompts
from dssr.errors import ConfigError, LeakError
from dssr.models.base import Generate, Message
from dssr.models.scripted import ScriptedModel
from dssr.types import View
from dssr.worlds.archive import Worlds

DOCS = Path(__file__).parents[2] / "docs" / "memory.md"
VIEW = View("cook", None, "A kitchen.")


def make_kit(model: Any = None, **rest: Any) -> Kit:
    model = model or ScriptedModel()
    settings: dict[str, Any] = {"budget": 64, "adapter": None, "temperature": 0.0, "seed": 0} | rest
    return Kit(tokenizer=model.tokenizer, model=model, **settings)


def test_no_request_of_a_prompted_memory_leaves_unchecked() -> None:
    """Catches a way to ask the writer that skips the structural check: one reply, or several asked together."""
    memory = Prompted(make_kit(), f"Keep what matters.\n{READER_MARKS[0]}")
    with pytest.raises(LeakError):
        asyncio.run(memory.sample(VIEW, "", 0.0, 0))
    with pytest.raises(LeakError):
        asyncio.run(memory.samples(VIEW, "", 1.0, 2))


@pytest.fixture
def plug(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes classes importable as `plugged:Name`."""
    module = ModuleType("plugged")
    monkeypatch.setitem(sys.modules, "plugged", module)

    def add(kind: type) -> str:
        setattr(module, kind.__name__, kind)
        return f"plugged:{kind.__name__}"

    return add


def test_the_documented_example_runs(worlds: Worlds, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches documentation that no longer works, or an example that has grown beyond twenty lines."""
    (code,) = re.findall(r"```python\n(.*?)```", DOCS.read_text(), re.DOTALL)
    assert len(code.strip().splitlines()) <= 22
    (tmp_path / "last_seen.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    (played,) = play_all(
        [make_job("valid-6-000", "last_seen:LastSeen", budget=512)], make_agent(worlds, max_actions=10)
    )
    assert played.episode.error is None
    state = played.steps[played.episode.begin].write.state
    assert "-= Kitchen =-" in state
    assert "Recipe" in state


def test_a_users_memory_gets_the_view_and_nothing_else(worlds: Worlds, plug: Any) -> None:
    """Catches a privileged field, the history or the options within reach of the objects a memory is handed."""
    found: list[str] = []

    class Curious:
        def __init__(self, kit: Kit) -> None:
            self.kit = kit

        async def write(self, view: View, previous: str) -> str:
            for thing in (view, self.kit, self.kit.model, self.kit.tokenizer):
                names = {name for name in dir(thing) if not name.startswith("_")}
                found.extend(
                    names & {"facts", "policy", "recipe", "walkthrough", "privileged", "options", "history", "steps"}
                )
            found.extend(type(one).__name__ for one in gc.get_referents(view, self.kit) if not isinstance(one, type))
            return "seen"

    (played,) = play_all([make_job("train-1-000", plug(Curious))], make_agent(worlds))
    assert played.episode.error is None
    assert played.steps[2].write.state == "seen"
    assert set(found) <= {"str", "int", "float", "NoneType", "HomeModel", "Counter"}


def test_nothing_but_text_crosses_a_step(worlds: Worlds, plug: Any) -> None:
    """Catches a memory object that lives on and remembers what it did not write."""

    class Hoarder:
        def __init__(self, kit: Kit) -> None:
            self.seen: list[str] = []

        async def write(self, view: View, previous: str) -> str:
            self.seen.append(view.observation)
            return f"{len(self.seen)}"

    (played,) = play_all([make_job("train-1-000", plug(Hoarder))], make_agent(worlds))
    assert {step.write.state for step in played.steps[:-1]} == {"1"}


def test_faulty_classes_are_errors_of_their_episode(worlds: Worlds, plug: Any) -> None:
    """Catches a user's bug that is counted as a lost game or stops the whole run."""

    class Broken:
        def __init__(self, kit: Kit) -> None: ...

        async def write(self, view: View, previous: str) -> str:
            raise KeyError("knife")

    class Wordless(Broken):
        async def write(self, view: View, previous: str) -> str:
            return None  # type: ignore[return-value]

    runs = play_all([make_job("train-1-000", plug(kind)) for kind in (Broken, Wordless)], make_agent(worlds))
    assert [played.episode.outcome for played in runs] == ["error", "error"]
    assert "KeyError" in (runs[0].episode.error or "")
    assert "NoneType" in (runs[1].episode.error or "")


def test_a_users_requests_are_looked_at(worlds: Worlds, plug: Any) -> None:
    """Catches a memory that rebuilds the reader's prompt, and one whose prompts are not kept for the leak check."""
    from dssr.agent.kept_prompts import share

    class Asking:
        text = "Shorten: "

        def __init__(self, kit: Kit) -> None:
            self.kit = kit

        async def write(self, view: View, previous: str) -> str:
            messages = (Message("user", self.text + view.observation),)
            return (await self.kit.model.generate(Generate(messages, self.kit.budget, 0.0, 0))).text

    class Cheating(Asking):
        text = "Options:\nA. go north\n"

    model = Told(lambda number, request: "short")
    jobs = [make_job("train-1-000", plug(Asking))]
    (played,) = play_all(jobs, make_agent(worlds, model, quotas=share(jobs, 100, 0)))
    assert {prompt.messages[0][1][:9] for prompt in played.prompts if prompt.role == "writer"} == {"Shorten: "}
    with pytest.raises(LeakError, match="Options:"):
        play_all([make_job("train-1-000", plug(Cheating))], make_agent(worlds, model))


def test_a_users_memory_gets_the_adapter_of_its_name(worlds: Worlds, plug: Any) -> None:
    """Catches an adapter that the record names and the class never sees: the base would write in its name."""

    class Tuned:
        def __init__(self, kit: Kit) -> None:
            self.kit = kit

        async def write(self, view: View, previous: str) -> str:
            messages = (Message("user", view.observation),)
            request = Generate(messages, self.kit.budget, 0.0, 0, self.kit.adapter)
            return (await self.kit.model.generate(request)).text

    model = Told(lambda number, request: f"by {request.adapter}")
    name, agent = plug(Tuned), make_agent(worlds, model)
    runs = play_all([make_job("train-1-000", memory) for memory in (f"{name}@mine", f"{name}@other", name)], agent)
    assert [played.episode.error for played in runs] == [None] * 3
    assert [played.steps[0].write.state for played in runs] == ["by mine", "by other", "by None"]
    assert len({played.episode.key for played in runs}) == 3


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("sumary", "no memory"),
        ("dssr", "needs its adapter"),
        ("nowhere.at.all:Class", "cannot be imported"),
        ("json:loads", "no memory"),
        ("json:Nothing", "cannot be imported"),
    ],
)
def test_wrong_names_say_what_to_do(name: str, part: str) -> None:
    with pytest.raises(ConfigError, match=part):
        load_memory(name, make_kit(), load_prompts())


def test_a_trained_format_keeps_its_instruction() -> None:
    """Catches a name under which a trained format would be asked with another prompt than it was trained with."""
    assert with_adapter("summary", "r1") == f"{TRAINED}@r1"
    for style in RETENTION:
        found, adapter = split_name(with_adapter(style, "r1"))
        assert (instruction_of(found), adapter) == (style, "r1")
        memory = load_memory(with_adapter(style, "r1"), make_kit(), load_prompts())
        assert isinstance(memory, Prompted)
        assert memory.system == load_prompts().writer(style, 64)
        assert memory.kit.adapter == "r1"


def test_formats_differ_in_the_retention_instruction_alone() -> None:
    """Catches a format that got a hint the others did not get: only then are they comparable."""
    prompts = load_prompts()
    systems = {style: prompts.writer(style, 99) for style in WRITTEN}
    frames = {system.replace(prompts.texts[style], "") for style, system in systems.items()}
    assert len(frames) == 1
    assert "at most 99 tokens" in frames.pop()
    assert prompts.texts["guide"].startswith(prompts.texts["summary"])
    trained = load_memory("dssr@round3", make_kit(), prompts)
    assert isinstance(trained, Prompted)
    assert (trained.system, trained.kit.adapter) == (prompts.writer("summary", 64), "round3")


def test_samples_of_one_request_differ_by_index_alone() -> None:
    """Catches candidates that are all the same, and ones that change from run to run."""
    model = Told(lambda number, request: str(request.seed))
    memory = load_memory("summary", make_kit(model), load_prompts())
    assert isinstance(memory, Prompted)
    seeds = [int(asyncio.run(memory.sample(VIEW, "", 1.0, index))) for index in (0, 1, 2, 0)]
    assert seeds[1:3] == [seeds[0] + 1, seeds[0] + 2]
    assert seeds[3] == seeds[0]
    assert asyncio.run(memory.sample(VIEW, "", 0.0, 5)) == "0"
    assert int(asyncio.run(memory.sample(VIEW, "other", 1.0, 0))) != seeds[0]


def test_prompt_files_can_be_replaced(tmp_path: Path) -> None:
    """Catches a folder that is ignored, or a broken file that is found out only in the middle of a run."""
    (tmp_path / "summary.txt").write_text("Write haiku.\n")
    prompts = load_prompts(tmp_path)
    assert "Write haiku." in prompts.writer("summary", 64)
    assert prompts.reader == load_prompts().reader
    (tmp_path / "writer.txt").write_text("Write {retention}")
    with pytest.raises(ConfigError, match="budget"):
        load_prompts(tmp_path)
    with pytest.raises(ConfigError, match="no prompt file"):
        load_prompts(tmp_path / "nothing")


def test_edits_change_only_the_lines_they_name() -> None:
    """Catches an edit applied to another line, a line lost because nobody mentioned it, and news lost because a model
    answered in plain words."""
    lines = ["the key is red", "the door is shut", "the map is torn"]
    reply = "KEEP 1\nREPLACE 2 the door is open\nADD the lamp is lit\nDROP 9\n- DROP 3"
    assert edited(lines, reply) == ["the key is red", "the door is open", "the lamp is lit"]
    assert edited(lines, "") == lines
    assert edited(lines, "KEEP 2") == lines
    assert edited(lines, "Nothing changed, but it rains.") == [*lines, "Nothing changed, but it rains."]
    assert edited(lines, "ADD the key is red") == lines


def test_edited_lines_that_do_not_fit_leave_oldest_first() -> None:
    """Catches the newest line cut off at the budget's end."""
    model = Told(lambda number, request: f"ADD fact number {number} of many")
    memory = load_memory("edit", make_kit(model, budget=12), load_prompts())
    state = ""
    for _ in range(6):
        state = asyncio.run(memory.write(View("Act.", None, "More."), state))
    assert state.endswith("fact number 5 of many")
    assert "number 0" not in state
    assert "1. fact number" in model.requests[-1].messages[-1].content


def test_masked_histories_keep_actions_and_the_newest_observations() -> None:
    """Catches a mask that drops actions before observations, or that masks the newest."""
    steps = [Stubbed(None, "alpha " * 10), *(Stubbed(f"act {n}", f"seen{n} " * 10) for n in range(1, 5))]
    tokenizer = make_kit().tokenizer
    text = load_reference("mask", 75, tokenizer).render(steps, "act 5", lambda long: [])
    assert len(tokenizer.encode(text)) <= 75
    assert [f"> act {n}" in text for n in range(1, 6)] == [True] * 5
    assert "seen4" in text
    assert "alpha" not in text
    assert text.count(STUB) >= 2
    tight = load_reference("mask", 20, tokenizer).render(steps, "act 5", lambda long: [])
    assert "> act 5" in tight
    assert "> act 1\n" not in tight
