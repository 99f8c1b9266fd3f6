"""Every claim of speed is a ratio against a named baseline, measured in the same run.

Times are CPU seconds of the process, its threads and its children: on a machine that others use too, the wall clock
says how busy they are. Run with OMP_NUM_THREADS=1, so that threads that only wait for each other do not count as work.
"""

import gc
import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import psutil  # type: ignore[import-untyped]

from dssr.types import Record

Found = TypeVar("Found")


class Ratio(Record, frozen=True):
    """One row: what we have against one baseline."""

    name: str
    ours: float
    baseline: float
    baseline_name: str
    ratio: float
    """How many times better ours is, whatever the unit."""
    goal: float | None
    """Least ratio asked for; None when only reported."""
    unit: str

    @property
    def met(self) -> bool:
        return self.goal is None or self.ratio >= self.goal


class Measured(Record, frozen=True):
    """A stored result: the rows, and where they were measured."""

    command: str
    cpu: str
    python: str
    torch: str
    transformers: str
    rows: tuple[Ratio, ...]


def cpu_seconds() -> float:
    """CPU time so far, of this process with all its threads and of its children, finished ones too."""
    reaped = os.times()
    alive = [child.cpu_times() for child in psutil.Process().children(recursive=True)]
    children = reaped.children_user + reaped.children_system + sum(float(one.user + one.system) for one in alive)
    return time.process_time() + children


def seconds(work: Callable[[], object], repeat: int = 3) -> float:
    """CPU seconds, the best of several runs: others on the machine (caches, clock rate) only ever add to them."""
    return min(_once(work) for _ in range(repeat))


def by_turns(ways: Mapping[str, Callable[[], Found]], repeat: int = 3) -> dict[str, tuple[float, Found]]:
    """CPU seconds of each way, the best of several rounds in which every way has its turn, and what it found."""
    best: dict[str, tuple[float, Found]] = {}
    for _ in range(repeat):
        for name, work in ways.items():
            found: list[Found] = []
            took = _once(lambda work=work, found=found: found.append(work()))  # type: ignore[misc]
            if name not in best or took < best[name][0]:
                best[name] = took, found[0]
    return best


def _once(work: Callable[[], object]) -> float:
    gc.collect()
    begin = cpu_seconds()
    work()
    return cpu_seconds() - begin


def faster(name: str, ours: float, baseline: float, baseline_name: str, goal: float | None) -> Ratio:
    """Ratio of two times in seconds."""
    return Ratio(name, ours, baseline, baseline_name, baseline / ours, goal, "CPU s")


def rate(name: str, ours: float, baseline: float, baseline_name: str, goal: float | None, unit: str) -> Ratio:
    """Ratio of two rates (more is better)."""
    return Ratio(name, ours, baseline, baseline_name, ours / baseline, goal, unit)


def measured(command: str, rows: Sequence[Ratio]) -> Measured:
    """The rows with what a reader needs to judge them."""
    import torch
    import transformers

    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return Measured(
        command=command,
        cpu=f"{named[0] if named else platform.processor()} ({torch.backends.cpu.get_cpu_capability()})",
        python=platform.python_version(),
        torch=str(torch.__version__),
        transformers=transformers.__version__,
        rows=tuple(rows),
    )
