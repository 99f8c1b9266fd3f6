"""Every claim of speed is a ratio against a named baseline, measured in the same run.

Times are CPU seconds of the process, its threads and its children: on a machine that others use too, the wall clock
says how busy they are. Run with OMP_NUM_THREADS=1, so that threads that only wait for each other do not count as work.
"""

import ctypes
import gc
import os
import platform
import sys
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


class Spent(Record, frozen=True):
    """CPU seconds of a command and of all processes that came from it, whoever started them or outlived whom."""

    root: float
    """Of the command's own process."""
    branches: tuple[float, ...]
    """Of each process that does shards, with those under it: the most first."""
    total: float


ORPHANS_COME_HERE, LOOK = 36, 0.1
"""Linux: the option of `prctl` with which orphans of our children become our children; seconds between two looks."""


def spent_by(command: Sequence[str], marks: Sequence[str], env: Mapping[str, str]) -> Spent:
    """Run a command and watch all that it starts. `marks`: a process with one of them in its command line is a branch.

    Watched from outside and by the clock: Ray's processes outlive those that started them, and nobody waits for them,
    so what the system sums up for finished children says nothing of them.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(ORPHANS_COME_HERE, 1, 0, 0, 0)
    here = psutil.Process()
    before = set(here.children(recursive=True))
    root = psutil.Popen(command, env={**os.environ, **env})
    used: dict[psutil.Process, float] = {}
    above: dict[psutil.Process, psutil.Process | None] = {}
    marked: set[psutil.Process] = set()
    under = [root]
    while root.poll() is None or under:
        under = [one for one in here.children(recursive=True) if one not in before]
        for one in under:
            try:
                with one.oneshot():
                    if one.status() == psutil.STATUS_ZOMBIE:
                        if one.ppid() == here.pid and one.pid != root.pid:
                            os.waitpid(one.pid, os.WNOHANG)
                        continue
                    times = one.cpu_times()
                    used[one] = times.user + times.system
                    above.setdefault(one, one.parent())
                    if any(mark in " ".join(one.cmdline()) for mark in marks):
                        marked.add(one)
            except (psutil.Error, ChildProcessError):  # it has ended meanwhile
                continue
        time.sleep(LOOK)
    if root.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {root.returncode}")

    def branch_of(one: psutil.Process | None) -> psutil.Process | None:
        while one is not None and one not in marked:
            one = above.get(one)
        return one

    branches = [sum(cpu for one, cpu in used.items() if branch_of(one) == branch) for branch in marked]
    return Spent(used.get(root, 0.0), tuple(sorted(branches, reverse=True)), sum(used.values()))


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
