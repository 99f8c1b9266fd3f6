"""Logs of other programs as traces. `open_traces` recognises the format by what a file holds, not by its name.

| format | recognised by |
|---|---|
| dssr trace | JSON lines with `goal` and `steps` |
| OpenAI-style messages | JSON lines or one document with `messages`; or JSON lines with `role` |
| ATIF | `schema_version` that begins with ATIF |
| SWE-agent | `trajectory` and `history` |
| mini-swe-agent | a list of messages, or `messages` with `info` |
| sessions of coding command lines | JSON lines of events with `type`, compaction events among them |
| Inspect | `.eval` (needs inspect-ai), or its JSON form |

System prompts, demonstrations and thoughts are no context: they are left out, or kept apart in `thought`.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from dssr.errors import UsageError
from dssr.traces.trace import NO_OUTPUT, Redactor, Trace, TraceDecision, TraceStep, read_lines, read_native, read_text

Plain = dict[str, Any]


def open_traces(path: Path, redactor: Redactor | None = None) -> Iterator[Trace]:
    """The traces of a file, one at a time, secrets taken out; a file that holds none is refused."""
    hide = redactor or Redactor()
    empty = True
    for trace in _reader_of(path)(path):
        empty = False
        yield hide.trace(trace)
    if empty:
        raise UsageError(f"{path} holds no trace: it is empty; give a log with at least one step.")


def _reader_of(path: Path) -> Callable[[Path], Iterator[Trace]]:
    if path.is_dir():
        raise UsageError(f"{path} is a folder without run.json; give log files, or the directory of a dssr run.")
    if path.suffix == ".eval":
        return read_inspect
    first = next(read_lines(path), None)
    if first is None:
        raise UsageError(f"{path} holds no trace: it is empty; give a log with at least one step.")
    head = _as_json(first[1])
    if isinstance(head, dict) and (found := _of_line(head)) is not None:
        return found
    whole = _as_json(read_text(path))
    if isinstance(whole, list) and whole and isinstance(whole[0], dict) and "role" in whole[0]:
        return lambda path: iter([_mini(whole, path)])
    if isinstance(whole, dict) and (document := _of_document(whole)) is not None:
        return document
    raise UsageError(
        f"{path} is in no format that dssr knows; write it as a dssr trace or as messages (docs/traces.md)."
    )


def _of_line(head: Plain) -> Callable[[Path], Iterator[Trace]] | None:
    """The reader of JSON lines whose first one this is."""
    if "goal" in head and "steps" in head:
        return read_native
    if str(head.get("schema_version", "")).startswith("ATIF"):
        return lambda path: (_atif(_object(line, path, number), path) for number, line in read_lines(path))
    if isinstance(head.get("messages"), list) and "trajectory_format" not in head:
        return _read_conversations
    if "role" in head and "content" in head:
        return lambda path: iter([_conversation(_objects(path), path.stem)])
    if isinstance(head.get("type"), str):
        return lambda path: iter([_session(_objects(path), path.stem)])
    return None


def _of_document(whole: Plain) -> Callable[[Path], Iterator[Trace]] | None:
    """The reader of one JSON document."""
    if "trajectory" in whole and "history" in whole:
        return lambda path: iter([_swe_agent(whole, path)])
    if str(whole.get("schema_version", "")).startswith("ATIF"):
        return lambda path: iter([_atif(whole, path)])
    if "eval" in whole and "samples" in whole:
        return read_inspect
    if isinstance(whole.get("messages"), list):
        return lambda path: iter([_mini(whole["messages"], path)])
    return None


def _as_json(text: bytes) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return None


def _object(line: bytes, path: Path, number: int) -> Plain:
    found = _as_json(line)
    if not isinstance(found, dict):
        raise UsageError(f"{path} line {number} is no JSON object; the log was cut or altered there.")
    return found


def _objects(path: Path) -> Iterator[Plain]:
    return (_object(line, path, number) for number, line in read_lines(path))


# ---------------------------------------------------------------- building a trace


class Builder:
    """Steps as they come in: what is asked, what is done, what is seen, what is kept."""

    def __init__(self) -> None:
        self.goal: list[str] = []
        self._seen: list[list[str]] = [[]]
        self._actions: list[str | None] = [None]
        self._thoughts: list[str | None] = [None]
        self._states: dict[int, str] = {}

    def ask(self, text: str) -> None:
        """What a person says: the goal before the first action, an observation after it."""
        if len(self._actions) == 1:
            self.goal += [text.strip()] if text.strip() else []
        else:
            self.see(text)

    def see(self, text: str) -> None:
        """What came back."""
        self._seen[-1].append(text.replace("\r\n", "\n").strip("\n"))

    def act(self, action: str, thought: str | None = None) -> None:
        """What the agent did; nothing at all is no step."""
        if action.strip():
            self._actions.append(action.replace("\r\n", "\n").strip())
            self._thoughts.append((thought or "").strip() or None)
            self._seen.append([])

    def keep(self, state: str) -> None:
        """A compaction: from here on the agent saw this text in place of all before it."""
        if state.strip():
            self._states[len(self._actions) - 1] = state.strip()

    def trace(self, name: str, agent: str | None) -> Trace:
        """All of it, every action but the first observation's being a decision of the step before."""
        after = [*self._actions[1:], None]
        steps = tuple(
            TraceStep(
                action=action,
                observation="\n".join(part for part in seen if part.strip()) or NO_OUTPUT,
                decision=None if then is None else TraceDecision(then),
                state=self._states.get(place),
                thought=thought,
            )
            for place, (action, seen, then, thought) in enumerate(
                zip(self._actions, self._seen, after, self._thoughts, strict=True)
            )
        )
        return Trace(id=name, goal="\n\n".join(self.goal), steps=steps, agent=agent)


def call_text(name: str, arguments: Any) -> str:
    """A tool call as one action: the tool and its only argument, or all arguments as JSON."""
    if isinstance(arguments, str):
        parsed = _as_json(arguments.encode("utf-8", "replace"))
        arguments = arguments if parsed is None else parsed
    if isinstance(arguments, dict) and len(arguments) == 1:
        arguments = next(iter(arguments.values()))
    if not isinstance(arguments, str):
        arguments = "" if not arguments else json.dumps(arguments, ensure_ascii=False)
    return f"{name} {arguments}".strip()


def content_text(content: Any, kinds: tuple[str, ...] = ("text", "input_text", "output_text")) -> str:
    """The text of a message's content: a string, or parts of which only texts count."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "\n".join(
        str(part.get("text", "")) for part in parts if isinstance(part, dict) and part.get("type") in kinds
    )


# ---------------------------------------------------------------- messages


def _read_conversations(path: Path) -> Iterator[Trace]:
    """OpenAI-style: each line, or the whole document, has `messages`."""
    for number, (_, line) in enumerate(read_lines(path), start=1):
        plain = _object(line, path, number)
        name = str(plain.get("id") or f"{path.stem}#{number}")
        yield _conversation(plain.get("messages") or (), name)


def _conversation(messages: Iterable[Plain], name: str) -> Trace:
    made = Builder()
    for message in messages:
        role, text = message.get("role"), content_text(message.get("content"))
        if role in ("system", "developer") or message.get("is_demo"):
            continue
        if role == "assistant":
            calls = [one.get("function") or {} for one in message.get("tool_calls") or ()]
            acts = "\n".join(call_text(str(one.get("name")), one.get("arguments")) for one in calls)
            made.act(acts or text, text if acts else None)
        elif role in ("tool", "function"):
            made.see(text)
        else:
            made.ask(text)
    return made.trace(name, None)


FENCE = re.compile(r"```(?:mswea_bash_command|bash|sh)\n(.*?)\n?```", re.S)
BOILERPLATE = re.compile(
    r"\n+(?:You can execute bash commands|## Recommended Workflow|INSTRUCTIONS:|<instructions>|# Task Instructions).*",
    re.S,
)
"""What these agents say after every task; it is no part of the goal."""
LEAD = re.compile(r"\A(?:.*?\bISSUE:\n|(?:Please solve this issue|Task): ?|<pr_description>\s*)", re.S)
WRAPPED = re.compile(r"\A<returncode>(-?\d+)</returncode>\s*<output>\n?(.*?)\n?</output>\s*\Z", re.S)


def _task(text: str) -> str:
    return (
        LEAD.sub("", BOILERPLATE.sub("", text.replace("\r\n", "\n")), count=1).removesuffix("</pr_description>").strip()
    )


def _mini(messages: Iterable[Plain], path: Path) -> Trace:
    """mini-swe-agent: the action is the fenced command, the rest of the reply is thought."""
    made, first = Builder(), True
    for message in messages:
        role, text = message.get("role"), content_text(message.get("content"))
        if role == "assistant":
            calls = [one.get("function") or {} for one in message.get("tool_calls") or ()]
            fenced = "\n".join(FENCE.findall(text)) or "\n".join(
                call_text(str(one.get("name")), one.get("arguments")) for one in calls
            )
            made.act(fenced or text, FENCE.sub("", text) if fenced else None)
        elif role in ("user", "tool"):
            if first:
                made.ask(_task(text))
            else:
                shown = WRAPPED.match(text)
                made.see(text if shown is None else f"exit {shown[1]}\n{shown[2]}" if shown[1] != "0" else shown[2])
            first = False
    return made.trace(_stem(path), "mini-swe-agent")


def _stem(path: Path) -> str:
    return path.name.partition(".")[0]


# ---------------------------------------------------------------- documents


def _swe_agent(whole: Plain, path: Path) -> Trace:
    """SWE-agent: the trajectory has actions and observations; the goal is the task's text in the history."""
    made = Builder()
    config = whole.get("replay_config") or {}
    if isinstance(config, str):
        config = _as_json(config.encode()) or {}
    stated = (config.get("problem_statement") or {}).get("text") if isinstance(config, dict) else None
    asked = (
        content_text(one.get("content"))
        for one in whole["history"]
        if one.get("role") == "user" and not one.get("is_demo")
    )
    made.ask(stated or _task(next(asked, "")))
    for step in whole["trajectory"]:
        made.act(str(step.get("action") or ""), step.get("thought"))
        made.see(str(step.get("observation") or ""))
    return made.trace(_stem(path), "SWE-agent")


def _atif(whole: Plain, path: Path) -> Trace:
    """Agent Trajectory Interchange Format."""
    made = Builder()
    for step in whole.get("steps") or ():
        source, message = step.get("source"), content_text(step.get("message"))
        if source == "user":
            made.ask(message)
        elif source == "agent":
            calls = step.get("tool_calls") or ()
            acts = "\n".join(call_text(str(one.get("function_name")), one.get("arguments")) for one in calls)
            made.act(acts or message, message if acts else None)
            for result in (step.get("observation") or {}).get("results") or ():
                made.see(content_text(result.get("content")))
    agent = whole.get("agent") or {}
    return made.trace(str(whole.get("session_id") or _stem(path)), agent.get("name"))


# ---------------------------------------------------------------- sessions of coding command lines


def _session(events: Iterable[Plain], name: str) -> Trace:
    """One event per line. Messages lie in `message` or `payload`; a summary event tells a compaction."""
    made = Builder()
    for event in events:
        kind = str(event.get("type"))
        inner = event.get("message") if isinstance(event.get("message"), dict) else event.get("payload")
        inner = inner if isinstance(inner, dict) else event
        if event.get("isSidechain") or event.get("isMeta"):
            continue
        if event.get("isCompactSummary") or kind in ("compacted", "compaction", "summary"):
            kept = event.get("summary") or inner.get("summary") or inner.get("message") or inner.get("content")
            made.keep(content_text(kept))
        else:
            _event(inner, kind, made)
    return made.trace(name, None)


def _event(inner: Plain, kind: str, made: Builder) -> None:
    """One message, tool call or tool result."""
    what, role = str(inner.get("type", kind)), inner.get("role")
    if what in ("function_call", "local_shell_call", "custom_tool_call"):
        made.act(
            call_text(
                str(inner.get("name", "shell")), inner.get("arguments") or inner.get("input") or inner.get("action")
            )
        )
    elif what in ("function_call_output", "custom_tool_call_output"):
        made.see(_output(inner.get("output")))
    elif role == "assistant":
        parts = inner.get("content") if isinstance(inner.get("content"), list) else []
        uses = [part for part in parts or () if isinstance(part, dict) and part.get("type") == "tool_use"]
        text = content_text(inner.get("content"))
        for use in uses:
            made.act(call_text(str(use.get("name")), use.get("input")), text)
        if not uses and kind == "assistant":
            made.act(text)
    elif role in ("user", "tool"):
        parts = inner.get("content") if isinstance(inner.get("content"), list) else []
        for part in parts or ():
            if isinstance(part, dict) and part.get("type") == "tool_result":
                made.see(content_text(part.get("content")))
        if text := content_text(inner.get("content")):
            made.ask(text)


def _output(output: Any) -> str:
    """A tool's output: text, or JSON that holds it."""
    if isinstance(output, str):
        inner = _as_json(output.encode("utf-8", "replace"))
        return str(inner["output"]) if isinstance(inner, dict) and "output" in inner else output
    return content_text(output) or json.dumps(output, ensure_ascii=False)


# ---------------------------------------------------------------- Inspect


def read_inspect(path: Path) -> Iterator[Trace]:
    """The samples of an Inspect log, one at a time; needs inspect-ai."""
    try:
        from inspect_ai.log import read_eval_log_samples
    except ImportError:
        raise UsageError(f"{path} is an Inspect log; install `pip install 'dssr[inspect]'` to read it.") from None
    try:
        for sample in read_eval_log_samples(str(path), all_samples_required=False):
            name = f"{_stem(path)}/{sample.id}" + (f"#{sample.epoch}" if sample.epoch > 1 else "")
            messages = [message.model_dump() for message in sample.messages]
            for message in messages:
                calls = message.get("tool_calls") or ()
                message["tool_calls"] = [
                    {"function": {"name": one["function"], "arguments": one["arguments"]}} for one in calls
                ]
            yield _conversation(messages, name)
    except (ValueError, OSError) as error:
        raise UsageError(f"{path} cannot be read as an Inspect log ({error}); write it anew.") from error
