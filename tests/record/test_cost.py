"""What a run cost: counted as it goes, over all sittings, and no part of what equal runs are compared by."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest
from tests.traces.logs import Copyist, made_trace, run_audit

from dssr.config import Config
from dssr.errors import ModelError, RecordError
from dssr.models.base import Generate, Likelihood, Message
from dssr.models.cache import Cache, CachedModel
from dssr.record import cost
from dssr.record.cost import Cost, Meter, cost_of
from dssr.record.log import COSTS
from dssr.record.run import Run
from dssr.studies.study import content_of

TIDIER = "tests.traces.logs:Tidier"
PROMPT = (Message("user", "New observation:\none two three"),)
SPENDER = """
import sys, time
from pathlib import Path
from dssr.config import Config
from dssr.record import cost
from dssr.record.run import Run
cost.EVERY = 0.05
run = Run.start(Path(sys.argv[1]), command="audit", config=Config(name="test"), models={})
with cost.Meter(run.path, lambda: []) as meter:
    while True:
        sum(range(10_000))
        meter.lap()
"""


def test_calls_and_tokens_are_counted_as_they_are_spent(tmp_path: Path) -> None:
    """Catches answers from the cache, or calls that failed, that count as computed, prompts that count twice, and texts
    that were scored and count nothing."""
    inner = Copyist()
    model, prompt = CachedModel(inner, Cache(tmp_path / "cache", 1 << 20)), inner.prompt_tokens(PROMPT)
    run = Run.start(tmp_path / "run", command="audit", config=Config(name="test"), models={})

    async def ask() -> int:
        written = await model.generate(Generate(PROMPT, 8, 0.0, 0))
        await model.generate(Generate(PROMPT, 8, 0.0, 1))  # greedy: known from before
        scored = await model.likelihood(Likelihood(PROMPT, "four five"))
        return written.tokens + 1000 * len(scored.starts)

    with Meter(run.path, lambda: [model]) as meter:
        spent = asyncio.run(ask())
        with pytest.raises(ModelError):  # asked, and never answered
            asyncio.run(model.likelihood(Likelihood(PROMPT, "six", "no such adapter")))
        meter.stop()
        meter.stop()
    found = cost_of(run)
    assert found is not None
    assert (found.calls, found.cached, found.computed) == (4, 1, 2)
    assert found.tokens_in == 2 * prompt + spent // 1000
    assert found.tokens_out == spent % 1000 > 0
    assert found.cpu_seconds > 0
    assert found.seconds > 0


def test_a_killed_sitting_is_counted_and_the_next_one_added(tmp_path: Path) -> None:
    """Catches a cost that is that of the last sitting alone, or that half a line of a killed one makes unreadable."""
    place = tmp_path / "run"
    child = subprocess.Popen([sys.executable, "-c", SPENDER, str(place)])
    until = time.monotonic() + 60
    while not (place / COSTS).exists() or (place / COSTS).read_bytes().count(b"\n") < 3:
        assert time.monotonic() < until, "the meter wrote nothing"
        time.sleep(0.05)
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    with (place / COSTS).open("ab") as file:
        file.write(b'{"calls": 1')
    killed = cost_of(Run.open(place))
    assert killed is not None
    assert killed.seconds >= 0.15
    assert killed.cpu_seconds > 0
    with Run.start(place, command="audit", config=Config(name="test"), models={}, resume=True) as run:
        with Meter(place, list):
            time.sleep(0.2)
        run.finish({})
    whole = cost_of(Run.open(place))
    assert whole is not None
    assert whole.seconds >= killed.seconds + 0.2
    assert whole.calls == 0
    assert (place / "costs.torn").read_bytes() == b'{"calls": 1\n'


def test_an_audit_tells_its_cost_and_is_compared_without_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches an audit that does not count, a long stage that writes nothing before its end, times in what equal runs
    are compared by, and a cost that can be changed later without a word."""
    monkeypatch.setattr(cost, "EVERY", 0.0)
    traces = [made_trace(number, 1, 5, 8) for number in range(4)]
    for name in ("a", "b"):
        model = CachedModel(Copyist(), Cache(tmp_path / f"cache-{name}", 1 << 20))
        run_audit(traces, tmp_path / name, model, ["summary", TIDIER])
    one, other = (Run.open(tmp_path / name) for name in ("a", "b"))
    first, second = cost_of(one), cost_of(other)
    assert first is not None
    assert second is not None
    assert first.calls > first.computed > 4 * 12  # every step of a written memory, and its audits
    assert first.tokens_in > first.tokens_out > 0
    # With a cache every distinct call is computed once; which of the others waited and which came later is chance.
    timed = {"cached": 0, "seconds": 0.0, "cpu_seconds": 0.0}
    plain = [msgspec.structs.replace(found, **timed) for found in (first, second)]
    assert plain[0] == plain[1]
    assert len((one.path / COSTS).read_bytes().splitlines()) > 2
    assert content_of(one.path) == content_of(other.path)
    assert one.summary == other.summary
    (one.path / COSTS).write_text("")
    with pytest.raises(RecordError, match=r"costs\.jsonl has 0 lines"):
        cost_of(Run.open(tmp_path / "a"))


def test_a_run_of_before_has_no_cost(tmp_path: Path) -> None:
    """Catches a zero where nothing was measured, and a damaged line that counts as nothing."""
    run = Run.start(tmp_path / "run", command="audit", config=Config(name="test"), models={})
    assert cost_of(run) is None
    (run.path / COSTS).write_text('{"calls": "many"}\n')
    with pytest.raises(RecordError, match="line 1 is damaged"):
        cost_of(run)


def test_costs_are_said_as_people_say_them() -> None:
    """Catches a sentence that leaves a number out or calls seconds minutes."""
    said = Cost(1200, 200, 900, 640_000, 39_000, 1500.0, 1620.0).sentence
    for part in ("1,200 model calls", "200 answered from the cache", "900 computed", "640,000 tokens in"):
        assert part in said
    assert "39,000 written; 25.0 CPU minutes, 27.0 minutes on the clock" in said
