"""The driver's memory: does it grow with the number of episodes?

To play 10,000 episodes would take an hour. One is played and audited by the scripted model, and the driver is given
copies of it as workers would hand them over, each with its own job and key: it splits, writes the logs, reads them
again and sums up as ever. `python -m benchmarks.memory EPISODES` is one such driver and prints its peak memory and CPU
seconds.
"""

import json
import pickle
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec

import dssr
from benchmarks.common import Ratio
from benchmarks.scale import config_in
from dssr.agent.episode import episode_key
from dssr.config import Config
from dssr.measure import diagnose
from dssr.session import Bench
from dssr.types import Job

SIZES, FLAT = (100, 1_000, 10_000), 0.8
"""Episodes, and the least ratio of the memory for the fewest to that for more."""
MEMORIES, FILLERS, GAMES, LEAST_BUDGET = ("summary", "slots"), (0, 10), 5, 64


def run() -> Iterator[Ratio]:
    """The rows."""
    found = {}
    for size in SIZES:
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.memory", str(size)], capture_output=True, text=True, check=True
        )
        found[size] = json.loads(done.stdout.splitlines()[-1])
    least = found[SIZES[0]]["peak"]
    for size in SIZES[1:]:
        peak = found[size]["peak"]
        name = f"driver's peak memory, {size:,} scripted episodes (replayed)"
        yield Ratio(name, peak, least, f"{SIZES[0]} episodes", least / peak, FLAT, "MB")


def drive(config: Config, episodes: int, folder: Path) -> None:
    """A diagnosis of so many copies of one episode."""
    played = diagnose.measured
    templates: list[bytes] = []

    async def copied(lag: bool, bench: Bench, job: Job) -> diagnose.Measured:
        if not templates:
            templates.append(pickle.dumps(await played(lag, bench, job)))
        found: diagnose.Measured = pickle.loads(templates[0])
        key = episode_key(job, bench.agent, bench.agent.worlds.archive.game(job.game).md5)
        episode = msgspec.structs.replace(found.played.episode, key=key, job=job)
        prompts = tuple(msgspec.structs.replace(one, episode=key) for one in found.played.prompts)
        renamed = msgspec.structs.replace(found.played, episode=episode, prompts=prompts)
        audits = [msgspec.structs.replace(one, episode=key) for one in found.audits]
        return diagnose.Measured(renamed, audits, (), (), found.searches)

    diagnose.measured = copied
    try:
        each = len(MEMORIES) * len(FILLERS) * GAMES
        budgets = range(LEAST_BUDGET, LEAST_BUDGET + episodes // each)
        dssr.diagnose(config, MEMORIES, budgets, FILLERS, games=GAMES, out=folder / "run", workers=1)
    finally:
        diagnose.measured = played


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        drive(config_in(Path(name)), int(sys.argv[1]), Path(name))
    used = resource.getrusage(resource.RUSAGE_SELF)
    print(json.dumps({"peak": used.ru_maxrss / 1024, "cpu": used.ru_utime + used.ru_stime}))
