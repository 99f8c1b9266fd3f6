"""Workers: what a second one gains, what Ray adds, and how well many would be used.

The scripted model answers: it computes least, so what the splitter itself costs shows most. Gains are in CPU time, as
others may use the machine: the work of one worker alone, against that of the busier of two, its start included. That is
the wall time of both on cores of their own.

The schedule of 64 workers is simulated, with these assumptions: the shards of the published grid (6 memories × 3
budgets and `full`, 45 games, all walks) take what shards of the same memory and budget took here on one of the demo's
games; every worker is as fast as this one and does one shard after the other; handing out a shard takes no time.
"""

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import psutil  # type: ignore[import-untyped]

import dssr
from benchmarks.common import Ratio, cpu_seconds, faster
from dssr.scale.shards import finish
from dssr.types import Standing, Workers

MEMORIES = ("summary", "slots", "belief", "guide")
BUDGETS = (64, 96, 128, 192)
WORKERS, GAMES = 64, 45


class Watch:
    """CPU seconds of every worker and the game it plays, looked at whenever the driver speaks."""

    def __init__(self, mark: str) -> None:
        self.mark = mark
        self.seen: dict[int, float] = {}

    def __call__(self, standing: Standing) -> None:
        for child in psutil.Process().children(recursive=True):
            try:
                if self.mark in " ".join(child.cmdline()):
                    every = [child.cpu_times(), *(one.cpu_times() for one in child.children(recursive=True))]
                    self.seen[child.pid] = sum(one.user + one.system for one in every)
            except psutil.Error:  # it has ended meanwhile
                continue


def config_in(folder: Path) -> dssr.Config:
    """The scripted model on the demo's games, without stored answers."""
    plain = dssr.load("scripted")
    games = dssr.load("demo").games
    return msgspec.structs.replace(
        plain, games=games, data=str(folder / "data"), runs=str(folder / "runs"), cache_gib=0
    )


def diagnosis(config: dssr.Config, workers: Workers, progress: Callable[[Standing], None]) -> Any:
    """The work of the first row."""
    return dssr.diagnose(config, MEMORIES, BUDGETS, workers=workers, progress=progress)


def scoring(config: dssr.Config, workers: Workers, progress: Callable[[Standing], None]) -> Any:
    """Candidates of write points: scored, and played to the end."""
    return dssr.continuation(config, points=96, workers=workers, progress=progress)


def alone(work: Callable[..., Any], folder: Path) -> float:
    """CPU seconds of one worker: this process and the game it plays."""
    config = config_in(folder)
    dssr.plan(config, games=1)  # unpacks the games, imports, starts the game's process
    begin = cpu_seconds()
    work(config, Workers(1), lambda standing: None)
    return cpu_seconds() - begin


def busier(work: Callable[..., Any], folder: Path, workers: Workers, mark: str) -> float:
    """CPU seconds of the busier of two workers, its start included."""
    watch = Watch(mark)
    work(config_in(folder), workers, watch)
    return max(watch.seen.values())


def shard_seconds(folder: Path) -> dict[tuple[str, int | None], float]:
    """Of one shard for each memory and budget, on the first game of the demo."""
    config, found = config_in(folder), {}
    dssr.plan(config, games=1)
    for memory in ("full", "oracle-b", "lastk", "summary", "slots", "belief", "guide"):
        for budget in (None,) if memory == "full" else (64, 128, 256):
            begin = cpu_seconds()
            place = folder / f"{memory}-{budget}"
            dssr.diagnose(config, [memory], [budget or 64], games=1, out=place, workers=1)
            found[memory, budget] = cpu_seconds() - begin
    return found


def run() -> Iterator[Ratio]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for what, work in (("diagnose", diagnosis), ("scoring", scoring)):
            one = alone(work, folder / f"{what}-1")
            two = busier(work, folder / f"{what}-2", Workers(2), "dssr.scale.processes")
            yield faster(f"{what}, 2 workers: CPU s of the busier", two, one, "1 worker", 1.7)
            if what == "diagnose":
                ray = busier(work, folder / f"{what}-ray", Workers(2, "local"), "ray::Actor")
                yield faster(f"{what}, 2 actors of Ray: CPU s of the busier", ray, two, "2 processes", 0.9)
        grid = [*shard_seconds(folder / "shards").values()] * GAMES
        ideal = sum(grid) / WORKERS
        title = f"grid of {len(grid)} shards on {WORKERS} workers (simulated)"
        yield Ratio(title, finish(grid, WORKERS), ideal, "no waiting", ideal / finish(grid, WORKERS), 0.9, "CPU s")
