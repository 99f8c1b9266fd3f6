"""Summarisers of other packages as memories, with the real packages."""

import asyncio
import importlib
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.tiny import make_tiny
from tests.traces.logs import Copyist, made_trace, run_audit

from dssr.agent.bridges import Bridge, InspectSummary, LangChainSummary, with_package
from dssr.agent.memory import Kit
from dssr.errors import ConfigError, ModelError
from dssr.measure.rows import cell_rows
from dssr.models.base import Generate, Generated, Message
from dssr.record.run import Run
from dssr.traces.trace import write_traces
from dssr.types import Episode, View

BRIDGES: Sequence[type[Bridge]] = (InspectSummary, LangChainSummary)
FRAMES = {InspectSummary: "[CONTEXT COMPACTION SUMMARY]", LangChainSummary: "Here is a summary of the conversation"}
"""What each package puts before a summary."""
EXAMPLES = ("inspect_memory", "langchain_memory")
"""Modules of the folder of examples."""


class Scribe(Copyist):
    """Answers a request to summarise with the lines that name a file, each once; dssr's own as its parent does."""

    async def generate(self, request: Generate) -> Generated:
        text = "\n".join(message.content for message in request.messages)
        if "New observation:" in text:
            return await super().generate(request)
        self.seen.append(text)
        named = [word.strip("<>.,") for word in text.split() if "src/part_" in word]
        return Generated("Files: " + " ".join(dict.fromkeys(word.partition("<")[0] for word in named)), 0)


class Failing(Copyist):
    """A model that never answers."""

    calls = 0

    async def generate(self, request: Generate) -> Generated:
        Failing.calls += 1
        raise ModelError("The machine is out of ink.")


def kit_of(model: Copyist, budget: int = 60) -> Kit:
    return Kit(budget, model.tokenizer, model, None, 0.0, 0)


@pytest.mark.parametrize("bridge", BRIDGES)
def test_a_step_becomes_the_package_s_own_conversation(bridge: type[Bridge]) -> None:
    """Catches a bridge that drops the goal, the summary so far, the action or the observation, asks the model more than
    once a step, or lets the package's words around a summary eat the budget or pile up."""
    model = Scribe()
    memory = bridge(kit_of(model))
    first = asyncio.run(memory.write(View("Mend it.", None, "There is src/part_1/a.py here."), ""))
    assert first == "Files: src/part_1/a.py"
    second = asyncio.run(memory.write(View("Mend it.", "open the door", "And src/part_2/b.py there."), first))
    assert second == "Files: src/part_1/a.py src/part_2/b.py"
    assert len(model.seen) == 2
    for part in ("Mend it.", first, "open the door", "And src/part_2/b.py there."):
        assert model.seen[1].count(part) == 1, part
    assert FRAMES[bridge] not in model.seen[0]
    assert model.seen[1].index(FRAMES[bridge]) < model.seen[1].index(first)


@pytest.mark.parametrize("bridge", BRIDGES)
def test_a_bridge_is_audited_like_any_memory(bridge: type[Bridge], tmp_path: Path) -> None:
    """Catches a bridge that breaks in a run: in threads with event loops of their own, many at once, asked again for
    the same write, cut to the budget. This one's model writes down every file, so nothing is lost; a budget of three
    tokens loses all of them."""
    name = f"dssr.agent.bridges:{bridge.__name__}"
    traces = [made_trace(number, 1, 5, 8) for number in range(6)]
    study = run_audit(traces, tmp_path / "run", Scribe(), [name], budgets=(100, 3))
    assert [episode.error for episode in study.runs[0].read("episodes", Episode)] == [None] * 12
    large, small = cell_rows(study)
    kept, lost = (study.runs[0].summary or {})["survival"]
    assert (kept["facts"], kept["verbatim"], lost["verbatim"]) == (6, 6, 0)
    assert large.kappa is not None
    assert abs(large.kappa.estimate) < 0.1
    assert small.delta is not None
    assert small.delta.low > 1


@pytest.mark.parametrize("bridge", BRIDGES)
def test_a_model_that_fails_is_an_error_at_once(bridge: type[Bridge]) -> None:
    """Catches a failure that a package asks for again and again, wraps in words of its own, or takes for a summary."""
    Failing.calls = 0
    with pytest.raises(ModelError, match="out of ink"):
        asyncio.run(bridge(kit_of(Failing())).write(View("Mend it.", None, "Here."), ""))
    assert Failing.calls == 1


@pytest.mark.parametrize("example", EXAMPLES)
def test_a_prompt_of_one_s_own(example: str) -> None:
    """Catches a bridge whose package cannot be set up by its user, as both examples do."""
    model = Scribe()
    memory: Bridge = importlib.import_module(example).Lines(kit_of(model))
    asyncio.run(memory.write(View("Mend it.", None, "Here."), ""))
    assert "in a few lines. Keep paths, numbers and error names as they are." in model.seen[0]
    assert len(model.seen[0]) < 300


TINY = """
name = "tiny"
[writer_model]
backend = "hf"
path = "tiny"
device = "cpu"
context_length = 8192
"""


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_examples_run_as_they_stand(
    example: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Catches an example that no longer runs, or whose every write is an error: a short log, a real network with a chat
    template, the page."""
    monkeypatch.chdir(tmp_path)
    make_tiny(tmp_path / "tiny")
    (tmp_path / "tiny.toml").write_text(TINY)
    write_traces(iter([made_trace(1, 0, 1, 2, steps=4)]), tmp_path / "log.jsonl")
    importlib.import_module(example).main("log.jsonl", "tiny.toml")
    page = capsys.readouterr().out.strip().splitlines()[-1].removeprefix("page: ")
    assert Path(page).is_file()
    (run,) = (tmp_path / "runs").glob("audit-*/run.json")
    assert [episode.error for episode in Run.open(run.parent).read("episodes", Episode)] == [None] * 2


def test_nothing_is_sent_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a log that reaches LangSmith because tracing is on in the user's environment: the configuration does not
    name it."""
    from langsmith.utils import tracing_is_enabled

    monkeypatch.setenv("LANGSMITH_TRACING", "true")
    monkeypatch.setenv("LANGCHAIN_TRACING_V2", "true")
    found: list[object] = []

    async def reply(messages: Sequence[Message]) -> str:
        found.append(tracing_is_enabled())
        return "A summary."

    asyncio.run(LangChainSummary(kit_of(Scribe())).summarise(reply, View("Mend it.", None, "Here."), ""))
    assert found == [False]


def test_a_missing_package_is_one_sentence() -> None:
    """Catches a traceback of an import where one sentence says what to install."""
    with pytest.raises(ConfigError, match=r"needs the package not_there; get it with `pip install 'dssr\[extra\]'`"):
        with_package("not_there", "extra")
