"""Every claim of speed is a ratio against a named baseline, measured in the same run."""

import gc
import time
from collections.abc import Callable

from dssr.types import Record


class Ratio(Record, frozen=True):
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


def seconds(work: Callable[[], object], repeat: int = 3) -> float:
    """Best of several runs: noise on a shared machine only ever adds time."""
    best = float("inf")
    for _ in range(repeat):
        gc.collect()
        begin = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - begin)
    return best


def faster(name: str, ours: float, baseline: float, baseline_name: str, goal: float | None) -> Ratio:
    """Ratio of two times in seconds."""
    return Ratio(name, ours, baseline, baseline_name, baseline / ours, goal, "s")


def rate(name: str, ours: float, baseline: float, baseline_name: str, goal: float | None, unit: str) -> Ratio:
    """Ratio of two rates (more is better)."""
    return Ratio(name, ours, baseline, baseline_name, ours / baseline, goal, unit)
