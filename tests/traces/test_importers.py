"""Logs of other programs, the real ones among them, and bad files."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.traces.logs import made_trace

from dssr.errors import UsageError
from dssr.testing import TraceSuite
from dssr.traces.importers import open_traces
from dssr.traces.trace import NO_OUTPUT, Redactor, Trace, faults, read_native, write_traces

LOGS = Path(__file__).parents[2] / "examples" / "logs"
ASK = {"role": "user", "content": "Mend the tests."}
SAY = {"role": "system", "content": "You are an agent. SECRET PROMPT"}
CALL = {
    "role": "assistant",
    "content": "I will look.",
    "tool_calls": [{"id": "1", "type": "function", "function": {"name": "bash", "arguments": '{"command": "ls src"}'}}],
}
SEEN = {"role": "tool", "tool_call_id": "1", "content": "main.py"}
DONE = {"role": "assistant", "content": "cat src/main.py"}
ATIF = {
    "schema_version": "ATIF-v1.4",
    "session_id": "s-1",
    "agent": {"name": "someone", "version": "1"},
    "steps": [
        {"step_id": 1, "source": "system", "message": "SECRET PROMPT"},
        {"step_id": 2, "source": "user", "message": "Mend the tests."},
        {
            "step_id": 3,
            "source": "agent",
            "message": "I will look.",
            "tool_calls": [{"tool_call_id": "1", "function_name": "bash", "arguments": {"command": "ls src"}}],
            "observation": {"results": [{"source_call_id": "1", "content": "main.py"}]},
        },
        {"step_id": 4, "source": "agent", "message": "cat src/main.py"},
    ],
}
CLAUDE = [
    {"type": "user", "message": {"role": "user", "content": "Mend the tests."}},
    {
        "type": "assistant",
        "message": {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm"},
                {"type": "text", "text": "I will look."},
                {"type": "tool_use", "id": "1", "name": "bash", "input": {"command": "ls src"}},
            ],
        },
    },
    {
        "type": "user",
        "message": {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": "main.py"}]},
    },
    {"type": "system", "subtype": "compact_boundary", "content": "Conversation compacted"},
    {"type": "user", "isCompactSummary": True, "message": {"role": "user", "content": "So far: src has main.py."}},
    {"type": "assistant", "message": {"role": "assistant", "content": [{"type": "text", "text": "cat src/main.py"}]}},
]
CODEX = [
    {"type": "session_meta", "payload": {"id": "x", "cwd": "/w"}},
    {
        "type": "response_item",
        "payload": {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Mend the tests."}]},
    },
    {
        "type": "response_item",
        "payload": {"type": "function_call", "name": "bash", "arguments": '{"command": "ls src"}'},
    },
    {
        "type": "response_item",
        "payload": {"type": "function_call_output", "output": '{"output": "main.py", "metadata": {}}'},
    },
    {"type": "compacted", "payload": {"message": "So far: src has main.py."}},
    {
        "type": "response_item",
        "payload": {"type": "function_call", "name": "cat", "arguments": '{"path": "src/main.py"}'},
    },
]


def lines(path: Path, rows: Sequence[Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def only(path: Path) -> Trace:
    (trace,) = open_traces(path)
    assert faults(trace) == []
    return trace


@pytest.mark.parametrize("kind", ["lines", "document", "roles", "atif", "atif lines", "claude", "codex", "inspect"])
def test_every_format_gives_the_same_trace(kind: str, tmp_path: Path) -> None:
    """Catches an importer that takes a system prompt or a thought for context, misplaces an observation by one step,
    or misses a compaction: one short episode told in each format."""
    messages = [SAY, ASK, CALL, SEEN, DONE]
    path = tmp_path / "log.jsonl"
    if kind == "lines":
        lines(path, [{"messages": messages}])
    elif kind == "document":
        path.write_text(json.dumps({"messages": messages}, indent=1))
    elif kind == "roles":
        lines(path, messages)
    elif kind == "atif":
        path.write_text(json.dumps(ATIF, indent=1))
    elif kind == "atif lines":
        lines(path, [ATIF])
    elif kind == "inspect":
        path = inspect_log(tmp_path)
    else:
        lines(path, CLAUDE if kind == "claude" else CODEX)
    trace = only(path)
    assert trace.goal == "Mend the tests."
    assert [step.action for step in trace.steps] == [None, "bash ls src", "cat src/main.py"]
    assert [step.observation for step in trace.steps] == [NO_OUTPUT, "main.py", NO_OUTPUT]
    assert [step.decision and step.decision.reference for step in trace.steps] == [
        "bash ls src",
        "cat src/main.py",
        None,
    ]
    compacted = kind in ("claude", "codex")
    assert [step.state for step in trace.steps] == [None, "So far: src has main.py." if compacted else None, None]
    shown = json.dumps([trace.goal, *((step.action, step.observation) for step in trace.steps)])
    assert "SECRET" not in shown
    assert "I will look" not in shown


def inspect_log(folder: Path) -> Path:
    """A real log: Inspect runs one sample, whose solver does what the other formats tell."""
    inspect = pytest.importorskip("inspect_ai")
    from inspect_ai.dataset import Sample
    from inspect_ai.model import ChatMessageAssistant, ChatMessageSystem, ChatMessageTool
    from inspect_ai.solver import solver
    from inspect_ai.tool import ToolCall

    @solver  # type: ignore[untyped-decorator]
    def play() -> Any:
        async def run(state: Any, generate: Any) -> Any:
            call = ToolCall(id="1", function="bash", arguments={"command": "ls src"})
            state.messages.insert(0, ChatMessageSystem(content="SECRET PROMPT"))
            state.messages += [
                ChatMessageAssistant(content="I will look.", tool_calls=[call]),
                ChatMessageTool(content="main.py", tool_call_id="1", function="bash"),
                ChatMessageAssistant(content="cat src/main.py"),
            ]
            return state

        return run

    task = inspect.Task(dataset=[Sample(input="Mend the tests.", target="x")], solver=play())
    inspect.eval(task, model="mockllm/model", log_dir=str(folder), display="none")
    (made,) = folder.glob("*.eval")
    return made


@pytest.mark.parametrize(
    ("name", "steps", "first", "words"),
    [
        ("mini-swe-agent-issue.traj.json", 11, "cat /Users/", "GitHub Issue: SyntaxError"),
        ("sweagent-marshmallow-1867.traj", 12, "create reproduce.py", "TimeDelta serialization precision"),
        ("sweagent-marshmallow-1867-tools.traj", 12, "create reproduce.py", "TimeDelta serialization precision"),
        ("sweagent-test-repo-i1.traj", 6, 'find_file "missing_colon.py"', "SyntaxError: invalid syntax"),
    ],
)
def test_published_logs_are_read(name: str, steps: int, first: str, words: str) -> None:
    """Catches demonstrations, instructions or formats that end up in the goal or the steps of real logs."""
    trace = only(LOGS / name)
    assert len(trace.steps) == steps
    assert (trace.steps[1].action or "").startswith(first)
    assert trace.goal.startswith(words)
    for phrase in ("INSTRUCTIONS", "DEMONSTRATION", "Recommended Workflow", "SETTING:", "\r"):
        assert phrase not in trace.goal
        assert not any(phrase in step.observation for step in trace.steps)
    assert all("```" not in (step.action or "") for step in trace.steps)


class TestNative(TraceSuite):
    """The conformance suite on our own format and on a real log."""

    @pytest.fixture(params=["native", "published"])
    def traces(self, request: pytest.FixtureRequest, tmp_path: Path) -> list[Trace]:
        if request.param == "published":
            return list(open_traces(LOGS / "sweagent-test-repo-i1.traj"))
        write_traces(iter([made_trace(1, 1, 5, 8), made_trace(2, 1, 5, 8)]), tmp_path / "t.jsonl")
        return list(read_native(tmp_path / "t.jsonl"))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is empty"),
        (b"\n \n", "is empty"),
        (b"plain words\n", "in no format that dssr knows"),
        (b'{"goal": "x", "steps": "none"}\n', "line 1 is no trace"),
        (b'{"id": "a", "goal": "x", "steps": []}\nnot json\n', "line 2 is no trace"),
        ('{"messages": [{"role": "user", "content": "caf\u00e9"}]}\n'.encode("latin-1"), "line 1 is not UTF-8"),
        ("\ufeff{}".encode("utf-16"), "UTF-16"),
    ],
)
def test_bad_files_are_refused_in_a_sentence(content: bytes, said: str, tmp_path: Path) -> None:
    """Catches a traceback, or a guess, where a file is empty, cut, foreign or of mixed encodings."""
    (tmp_path / "bad.jsonl").write_bytes(content)
    with pytest.raises(UsageError, match=said):
        list(open_traces(tmp_path / "bad.jsonl"))
    with pytest.raises(UsageError, match="cannot be read"):
        list(open_traces(tmp_path / "missing.jsonl"))


def test_a_mark_before_utf8_is_no_fault(tmp_path: Path) -> None:
    """Catches a file that an editor of another system saved and that is refused for it."""
    write_traces(iter([made_trace(1, 1, 5, 8)]), tmp_path / "t.jsonl")
    (tmp_path / "marked.jsonl").write_bytes(b"\xef\xbb\xbf" + (tmp_path / "t.jsonl").read_bytes())
    assert list(open_traces(tmp_path / "marked.jsonl")) == [made_trace(1, 1, 5, 8)]


def test_faults_are_told_one_by_one() -> None:
    """Catches a useless trace that passes: no step, no decision, options without the reference, points that miss."""
    plain = json.loads(json.dumps({"id": "a", "goal": "x", "steps": []}))
    import msgspec

    def said(**changes: Any) -> str:
        return " ".join(faults(msgspec.convert({**plain, **changes}, Trace)))

    step = {"observation": "o"}
    choice = {"observation": "o", "decision": {"reference": "c", "options": ["a", "b"]}}
    assert "no step" in said()
    assert "no decision" in said(steps=[step])
    assert "lack its reference" in said(steps=[choice])
    assert "step 0 has an action" in said(steps=[{**choice, "action": "go"}])
    assert "Step 1 has no action" in said(steps=[choice, step])
    assert "empty reference" in said(steps=[{"observation": "o", "decision": {"reference": " "}}])
    assert "no decision; name steps" in said(steps=[choice], points=[3])


def test_redaction_lists_are_checked(tmp_path: Path) -> None:
    """Catches a list that silently hides nothing."""
    (tmp_path / "list").write_text("# only a remark\n")
    with pytest.raises(UsageError, match="nothing to redact"):
        Redactor.entries(tmp_path / "list")
    (tmp_path / "list").write_text("/(/\n")
    with pytest.raises(UsageError, match="no regular expression"):
        Redactor.entries(tmp_path / "list")
    assert Redactor(["a.c", "/x+/"]).text("abc a.c xx") == "abc [redacted] [redacted]"


@pytest.mark.slow
def test_a_large_file_is_streamed(tmp_path: Path) -> None:
    """Catches a file that is read whole: 100 MB must take hardly more memory than 5."""
    line = (tmp_path / "one.jsonl", made_trace(1, 1, 5, 8))
    write_traces(iter([line[1]]), line[0])
    text = line[0].read_bytes()
    grown = text.replace(b"Nothing new", b"Nothing new " * 400)
    code = (
        "import resource, sys; from pathlib import Path; from dssr.traces.importers import open_traces\n"
        "count = sum(1 for _ in open_traces(Path(sys.argv[1])))\n"
        "print(count, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)"
    )
    peaks = []
    for size in (5, 100):
        path = tmp_path / f"{size}.jsonl"
        with path.open("wb") as file:
            while file.tell() < size * 2**20:
                file.write(grown)
        done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
        count, peak = map(int, done.stdout.split())
        assert count == path.stat().st_size // len(grown)
        peaks.append(peak)
    assert peaks[1] < peaks[0] + 20, peaks
