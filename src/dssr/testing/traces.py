"""The suite of traces, for whoever writes an importer."""

import tempfile
from itertools import pairwise
from pathlib import Path

from dssr.traces.facts import trace_facts
from dssr.traces.trace import Trace, faults, read_native, write_traces


class TraceSuite:
    """What every imported trace must be. Fixture: `traces`, a list of them."""

    def test_traces_have_no_faults(self, traces: list[Trace]) -> None:
        """Catches a trace that cannot be audited, and two of one name."""
        assert traces
        for trace in traces:
            assert faults(trace) == [], trace.id
        assert len({trace.id for trace in traces}) == len(traces)

    def test_traces_come_back_from_disk_unchanged(self, traces: list[Trace]) -> None:
        """Catches text that JSON lines change or cannot hold."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "traces.jsonl"
            assert write_traces(iter(traces), path) == len(traces)
            assert list(read_native(path)) == traces

    def test_free_decisions_are_what_was_done_next(self, traces: list[Trace]) -> None:
        """Catches decisions shifted by a step: a free-text reference is the action of the step after, unless the log
        knows a better one and says so with options."""
        for trace in traces:
            for step, after in pairwise(trace.steps):
                if step.decision is not None and not step.decision.options:
                    assert step.decision.reference == after.action

    def test_thoughts_stand_apart(self, traces: list[Trace]) -> None:
        """Catches a thought left in an observation or an action: it tells the answer."""
        for trace in traces:
            for step in trace.steps:
                if step.thought is not None and len(step.thought) > 40:
                    assert step.thought not in step.observation
                    assert step.thought not in (step.action or "")

    def test_facts_were_seen_before_they_are_needed(self, traces: list[Trace]) -> None:
        """Catches a value that counts as carried although nothing before told it."""
        for trace in traces:
            for fact in trace_facts(trace):
                assert fact.seen <= fact.uses[0]
                assert fact.text not in trace.goal.split()
