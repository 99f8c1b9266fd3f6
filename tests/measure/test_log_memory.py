"""What an audit of logs holds while it works: little, however long the log."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.audit import made_log

import dssr
from dssr.errors import UsageError
from dssr.traces.trace import Trace, TraceDecision, TraceStep, write_traces

SIZES, GROWTH = (2, 8), 12
"""Megabytes of log, and what the larger may take more: the rows that are kept, and the noise of the allocator. The
smaller has twice the traces that are under way at once."""

# Few decisions and samples: the traces weigh the same, and the test takes less time. What is remembered has a bound and
# a test of its own; it is made small here, so that it is full of either log.
LIGHT = """
import gc, json, resource, sys
from pathlib import Path
from msgspec.structs import replace
import dssr, dssr.measure.logs
from benchmarks.audit import audit
from dssr.models.cache import Remembered
from dssr.models.scripted import ScriptedModel
for memo in [one for one in gc.get_objects() if isinstance(one, Remembered)]:
    memo.characters = 100_000
plain = dssr.load("scripted")
measure, stats = replace(plain.measure, points=2, oracle_samples=2), replace(plain.stats, resamples=200)
light = replace(plain, measure=measure, traces=replace(plain.traces, controls=1), stats=stats)
audit(float(sys.argv[1]), light, Path(sys.argv[2]))
print(json.dumps(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024))
"""


def test_memory_does_not_grow_with_the_log(tmp_path: Path) -> None:
    """Catches traces, prompts or steps that are held longer than they are worked on: of 6 MB more of them, each held
    with what is made of it, 20 MB and more would be left. Audit and report are measured together."""
    peaks = []
    for size in SIZES:
        place = tmp_path / str(size)
        place.mkdir()
        command = [sys.executable, "-c", LIGHT, str(size), str(place)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        peaks.append(json.loads(done.stdout.splitlines()[-1]))
    assert peaks[1] < peaks[0] + GROWTH, peaks


def test_one_worker_and_two_store_the_same(tmp_path: Path) -> None:
    """Catches results that depend on who computed them, or are stored as they come in and not in order."""
    write_traces(made_log(0.2), tmp_path / "log.jsonl")
    for count in (1, 2):
        dssr.audit(tmp_path / "log.jsonl", "scripted", ["summary"], [64], out=tmp_path / str(count), workers=count)
    files = sorted(file.name for file in (tmp_path / "1").glob("*.json*"))
    own = {"run.json", "digests.json", "costs.jsonl"}  # times and the run's own id
    assert {"episodes.jsonl", "steps.jsonl", "searches.jsonl", "prompts.jsonl", "controls.jsonl"} <= {*files} - own
    for name in {*files} - own:
        assert (tmp_path / "1" / name).read_bytes() == (tmp_path / "2" / name).read_bytes(), name


def test_a_trace_far_over_the_context_is_refused_without_being_read_whole(tmp_path: Path) -> None:
    """Catches a history of many times the context that is joined and tokenised just to be called too long, decision
    by decision: that would take hours here."""
    text = "\n".join(f"line {number} of much output" for number in range(2000))
    steps = tuple(
        TraceStep(
            action=f"open part_{step}.py" if step else None,
            observation=f"see part_{(step * 7) % 600}.py\n{text}",
            decision=TraceDecision(f"open part_{step + 1}.py"),
        )
        for step in range(600)
    )
    write_traces(iter([Trace(id="long", goal="Mend it.", steps=steps)]), tmp_path / "log.jsonl")
    with pytest.raises(UsageError, match=r"The history of long at step \d+ makes a prompt of \d+ characters, far over"):
        dssr.audit(tmp_path / "log.jsonl", "scripted", ["lastk"], [64], out=tmp_path / "run")
