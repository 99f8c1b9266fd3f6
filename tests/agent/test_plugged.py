"""Memories of a user's own: whatever they do costs their episode alone, and an edit anywhere in them is noticed."""

import asyncio
import importlib
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from tests.agent.bench import Told, make_agent, make_job, play_all
from tests.agent.test_memory import make_kit

from dssr.agent import plugged
from dssr.agent.memory import enforce, identity_of, load_memory
from dssr.agent.plugged import _add_sources, sources_of
from dssr.agent.prompts import load_prompts
from dssr.errors import ConfigError, LeakError, ModelError
from dssr.models.base import Generate
from dssr.types import View
from dssr.worlds.archive import Worlds

VIEW = View("cook", None, "A kitchen.")
HEAD = """
import asyncio, sys, time
class Memory:
    def __init__(self, kit):
        self.kit = kit
    async def write(self, view, previous):
"""


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Writes a module and returns the name of its class; every call makes another module."""
    monkeypatch.syspath_prepend(tmp_path)
    made: list[str] = []

    def new(body: str, head: str = HEAD) -> str:
        made.append(f"{tmp_path.name.replace('-', '_')}_{len(made)}")
        (tmp_path / f"{made[-1]}.py").write_text(head + "".join(f"        {line}\n" for line in body.splitlines()))
        return f"{made[-1]}:Memory"

    return new


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("sys.exit(0)", "SystemExit: 0"),
        ("raise asyncio.CancelledError", "CancelledError"),
        ("asyncio.current_task().cancel(); await asyncio.sleep(0)", "CancelledError"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
        ("raise GeneratorExit", "GeneratorExit"),
        ("return self.kit.nothing", "AttributeError"),
        ("return 7", "returned int"),
    ],
)
def test_what_a_memory_raises_costs_its_episode_alone(write: Any, worlds: Worlds, body: str, told: str) -> None:
    """Catches an exit or a cancellation inside a plug-in that ends the program, with exit code 0 at that."""
    jobs = [make_job("train-1-000", write(body)), make_job("train-1-000", write("return 'fine'"))]
    faulty, fine = play_all(jobs, make_agent(worlds))
    assert faulty.episode.outcome == "error"
    assert told in (faulty.episode.error or "")
    assert fine.episode.error is None


@pytest.mark.parametrize("body", ["while True: pass", "await asyncio.sleep(10**6)", "time.sleep(10**6)"])
def test_a_write_that_never_ends_is_given_up(write: Any, body: str) -> None:
    """Catches a run that hangs for ever: computing, awaiting, or blocked in the system."""
    memory = load_memory(write(body), make_kit(seconds=0.2), load_prompts())
    with pytest.raises(ModelError, match=r"took more than 0\.2 seconds .* agent\.write_seconds"):
        asyncio.run(memory.write(VIEW, ""))


def test_a_write_that_computed_for_ever_is_ended(write: Any) -> None:
    """Catches a thread left behind that eats a processor for the rest of the run."""
    before = set(threading.enumerate())
    with pytest.raises(ModelError):
        asyncio.run(load_memory(write("while True: pass"), make_kit(seconds=0.2), load_prompts()).write(VIEW, ""))
    for thread in set(threading.enumerate()) - before:
        thread.join()


def test_waiting_for_the_model_is_not_counted(write: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a limit that a slow model exceeds instead of the memory. The clock is ours: an answer takes an hour."""
    hours = 0

    class Slow(Told):
        async def generate(self, request: Generate) -> Any:
            nonlocal hours
            hours += 1
            return await super().generate(request)

    monkeypatch.setattr(plugged, "time", SimpleNamespace(monotonic=lambda: 3600.0 * hours))
    kit = make_kit(Slow(lambda number, request: "slow but sure"))
    ask = "from dssr.models.base import Message\nreturn await self.kit.generate([Message('user', 'hello')])"
    assert asyncio.run(load_memory(write(ask), kit, load_prompts()).write(VIEW, "")) == "slow but sure"


@pytest.mark.parametrize(
    "head", ["raise SystemExit(0)\n", "import asyncio\nraise asyncio.CancelledError\n", "def\n", "1/0\n"]
)
def test_a_module_that_fails_when_imported_is_one_sentence(write: Any, head: str) -> None:
    """Catches tracebacks, and exit 0 without a run, for errors of a plug-in's module."""
    with pytest.raises(ConfigError, match="cannot be imported"):
        load_memory(write("return ''", head + HEAD), make_kit(), load_prompts())


def test_patching_the_tokenizer_changes_no_count(write: Any, worlds: Worlds) -> None:
    """Catches a memory that gets more tokens than the budget by making the shared tokenizer count none."""
    body = """
for tokenizer in (self.kit.tokenizer, self.kit.model.tokenizer):
    tokenizer.encode = lambda text: []
    type(tokenizer).encode = lambda self, text: []
return "word " * 500
"""
    real = plugged.Counter.encode
    try:
        (played,) = play_all([make_job("train-1-000", write(body), budget=16)], make_agent(worlds))
    finally:
        plugged.Counter.encode = real  # type: ignore[method-assign]
    assert all(step.write.tokens <= 16 for step in played.steps)
    assert played.steps[0].write.truncated
    assert len(played.steps[0].write.state.split()) <= 16


def test_a_refused_request_cannot_be_caught(write: Any) -> None:
    """Catches a memory that asks for the reader's layout, swallows the refusal and goes on."""
    body = """
from dssr.models.base import Message
try:
    await self.kit.generate([Message('user', 'Options:\\nA. go north\\n')])
except Exception:
    pass
return "nothing happened"
"""
    model = Told(lambda number, request: "x")
    with pytest.raises(LeakError):
        asyncio.run(load_memory(write(body), make_kit(model), load_prompts()).write(VIEW, ""))


def test_giant_replies_are_cut_before_they_are_counted() -> None:
    """Catches replies of millions of characters that make a tokenizer panic, or take minutes."""
    kit = make_kit()

    class Panicking:
        name = "panics"

        def encode(self, text: str) -> list[int]:
            assert len(text) <= 200_000
            return kit.tokenizer.encode(text)

        decode = staticmethod(kit.tokenizer.decode)

    made = enforce("word " * 1_000_000, 16, Panicking())
    assert made.tokens <= 16
    assert made.truncated
    assert "first 200000 characters" in (made.note or "")
    assert enforce("word", 16, Panicking()).note is None


# ---------------------------------------------------------------- which one it is

MEMORY = """
from helping.words import text
LIMIT = 3
class Memory:
    def __init__(self, kit):
        pass
    async def write(self, view, previous):
        return text(LIMIT)
"""


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("kept.py", "LIMIT = 3", "LIMIT = 4"),
        ("helping/words.py", "WORD = 'x'", "WORD = 'y'"),
        ("helping/deeper.py", "TIMES = 1", "TIMES = 2"),
        ("helping/__init__.py", "", "A = 1"),
        ("late.py", "LATE = 1", "LATE = 2"),
    ],
)
def test_an_edit_beside_the_class_is_another_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, old: str, new: str
) -> None:
    """Catches a memory that counts as the same although a constant, a helper, a helper's helper or a late import
    changed."""
    monkeypatch.syspath_prepend(tmp_path)
    files = {
        "kept.py": MEMORY,
        "helping/__init__.py": "",
        "helping/words.py": "from . import deeper\nWORD = 'x'\ndef text(n):\n    import late\n    return WORD * n\n",
        "helping/deeper.py": "TIMES = 1\n",
        "late.py": "LATE = 1\n",
        "unrelated.py": "X = 1\n",
    }
    seen = []
    for changed in (False, True):
        for module in ("kept", "helping", "helping.words", "helping.deeper", "late"):
            monkeypatch.delitem(sys.modules, module, raising=False)
        for name, text in files.items():
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_text(text.replace(old, new, 1) if changed and name == file else text)
        importlib.invalidate_caches()
        seen.append(identity_of("kept:Memory", load_prompts()))
        assert {name for name, _ in sources_of("kept:Memory")} == set(files) - {"unrelated.py"}
    assert seen[0] != seen[1]


def test_an_installed_class_is_its_package_alone() -> None:
    """Catches thousands of files of other packages read for one class."""
    texts: dict[str, str] = {}
    _add_sources(Path(msgspec.__file__), "msgspec", texts)
    assert texts
    assert all(name.startswith("msgspec/") for name in texts)
