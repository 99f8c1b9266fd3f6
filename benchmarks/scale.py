"""Workers: what a second one gains, what Ray adds, and how well many would be used.

The scripted model answers: it computes least, so what the splitter itself costs shows most. Everything is in CPU time,
as others may use the machine. One worker is a process that does all; of two, the driver and the busier worker with its
game count, one after the other, starts included: that is the wall time of both on cores of their own. What Ray adds is
the time of *all* processes, its daemons too, against all of plain workers; its actors get the priority that those have,
for left alone they yield to everything else. `python -m benchmarks.scale WORK HOW` is one such run.

The schedule of 64 workers is simulated, with these assumptions: the shards of the published grid (6 memories × 3
budgets and `full`, 45 games, all walks) take what shards of the same memory and budget took here on one of the demo's
games; every worker is as fast as this one and does one shard after the other; handing out a shard takes no time.
"""

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec

import dssr
from benchmarks.common import Ratio, Spent, cpu_seconds, faster, spent_by
from dssr.scale.shards import finish
from dssr.types import Workers

MEMORIES = ("summary", "slots", "belief", "guide")
BUDGETS = (64, 80, 96, 112, 128, 160, 192, 224, 256)
POINTS = 144
WORKERS, GAMES = 64, 45
HOW = {"one": Workers(1), "processes": Workers(2), "actors": Workers(2, "local")}
MARKS = ("dssr.scale.processes", "ray::Actor")
"""In the command line of a worker process, and of an actor of Ray."""


def config_in(folder: Path) -> dssr.Config:
    """The scripted model on the demo's games, without stored answers."""
    plain = dssr.load("scripted")
    games = dssr.load("demo").games
    return msgspec.structs.replace(
        plain, games=games, data=str(folder / "data"), runs=str(folder / "runs"), cache_gib=0
    )


def work(what: str, config: dssr.Config, workers: Workers) -> None:
    """A diagnosis; or candidates of write points, scored and played to the end."""
    if what == "diagnose":
        dssr.diagnose(config, MEMORIES, BUDGETS, workers=workers)
    else:
        dssr.continuation(config, points=POINTS, workers=workers)


def spent_on(what: str, how: str) -> Spent:
    """By this work done in this way, from the start of the process on, with nothing kept from other runs."""
    with tempfile.TemporaryDirectory() as name:
        command = [sys.executable, "-m", "benchmarks.scale", what, how]
        return spent_by(command, MARKS, {"DSSR_HOME": f"{name}/home", "RAY_worker_niceness": "0"})


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
    """The rows."""
    for what in ("diagnose", "scoring"):
        one, two = spent_on(what, "one"), spent_on(what, "processes")
        longest = two.root + two.branches[0]
        yield faster(f"{what}, 2 workers: CPU s of driver and busier", longest, one.total, "1 worker", 1.7)
        if what == "diagnose":
            ray = spent_on(what, "actors")
            yield faster(f"{what}, 2 actors of Ray: CPU s of all processes", ray.total, two.total, "2 workers", 1 / 1.1)
    with tempfile.TemporaryDirectory() as name:
        grid = [*shard_seconds(Path(name)).values()] * GAMES
    ideal = sum(grid) / WORKERS
    title = f"grid of {len(grid)} shards on {WORKERS} workers (simulated)"
    yield Ratio(title, finish(grid, WORKERS), ideal, "no waiting", ideal / finish(grid, WORKERS), 0.9, "CPU s")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        work(sys.argv[1], config_in(Path(name)), HOW[sys.argv[2]])
