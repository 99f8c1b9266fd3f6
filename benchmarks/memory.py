"""The driver's memory: does it grow with the number of episodes?

To play 10,000 episodes would take an hour. One is played and audited by the scripted model in a process of its own, and
two workers hand copies of it to the driver, each with its own job and key: it splits, writes the logs, reads them again
and sums up as ever. The grid stays the same, and the games are more: one game under many names. `python -m
benchmarks.memory FOLDER` plays the episode, `python -m benchmarks.memory FOLDER EPISODES` is one such driver and prints
its peak memory and CPU seconds.
"""

import json
import os
import pickle
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from itertools import combinations
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
from dssr.worlds.archive import MANIFEST, Archive, store_digests

TEMPLATE, EPISODE = "episode.pickle", "DSSR_BENCH_EPISODE"

SIZES, FLAT = (100, 1_000, 10_000), 0.8
"""Episodes, and the least ratio of the memory for the fewest to that for more."""
MEMORIES, BUDGETS, FILLERS = ("summary", "slots"), (64, 96, 128, 192, 256), (0, 1)
"""The copies share the file in which steps are kept; after longer walks, each another one, it would grow with them."""


def run() -> Iterator[Ratio]:
    """The rows."""
    found = {}
    with tempfile.TemporaryDirectory() as name:
        command = [sys.executable, "-m", "benchmarks.memory", name]
        subprocess.run(command, check=True)
        for size in SIZES:
            done = subprocess.run([*command, str(size)], capture_output=True, text=True, check=True)
            found[size] = json.loads(done.stdout.splitlines()[-1])
    for few, many in combinations(SIZES, 2):
        least, peak = found[few]["peak"], found[many]["peak"]
        name = f"driver's peak memory, {many:,} scripted episodes (replayed)"
        yield Ratio(name, peak, least, f"{few:,} episodes", least / peak, FLAT, "MB")


def play(config: Config, folder: Path) -> None:
    """Keeps one episode with all that is measured on it."""
    played = diagnose.measured

    async def kept(lag: bool, bench: Bench, job: Job) -> diagnose.Measured:
        found = await played(lag, bench, job)
        (folder / TEMPLATE).write_bytes(pickle.dumps(found))
        return found

    diagnose.measured = kept
    dssr.diagnose(config, MEMORIES[:1], BUDGETS[:1], FILLERS[-1:], games=1, workers=1)


def with_copies(config: Config, games: int) -> Config:
    """The same with an archive in which one game stands under so many names."""
    source, archive = Path(config.data) / config.games.archive, Path(config.data) / "copies"
    dssr.plan(config, games=1)  # unpacks the games
    shutil.copytree(source, archive)
    game = Archive.open(source).games("valid")[0]
    copies = (msgspec.structs.replace(game, id=f"valid-{game.level}-{number:04d}") for number in range(games))
    (archive / MANIFEST).write_bytes(b"".join(msgspec.json.encode(one) + b"\n" for one in copies))
    store_digests(archive, archive / MANIFEST)
    return msgspec.structs.replace(config, games=msgspec.structs.replace(config.games, archive=archive.name))


async def copied(lag: bool, bench: Bench, job: Job) -> diagnose.Measured:
    """The episode as if it were that of another job; what a worker does here."""
    found: diagnose.Measured = pickle.loads(Path(os.environ[EPISODE]).read_bytes())
    key = episode_key(job, bench.agent, bench.agent.worlds.archive.game(job.game).md5)
    episode = msgspec.structs.replace(found.played.episode, key=key, job=job)
    prompts = tuple(msgspec.structs.replace(one, episode=key) for one in found.played.prompts)
    renamed = msgspec.structs.replace(found.played, episode=episode, prompts=prompts)
    audits = [msgspec.structs.replace(one, episode=key) for one in found.audits]
    return diagnose.Measured(renamed, audits, (), (), found.searches)


def drive(config: Config, episodes: int, out: Path) -> None:
    """A diagnosis of so many copies."""
    diagnose.measured = copied
    games = episodes // (len(MEMORIES) * len(BUDGETS) * len(FILLERS))
    dssr.diagnose(with_copies(config, games), MEMORIES, BUDGETS, FILLERS, out=out, workers=2)


if __name__ == "__main__":
    from benchmarks import memory  # whose functions workers find by their names

    folder = Path(sys.argv[1])
    with tempfile.TemporaryDirectory() as name:
        if sys.argv[2:]:
            os.environ[EPISODE] = str(folder / TEMPLATE)
            memory.drive(config_in(Path(name)), int(sys.argv[2]), Path(name) / "run")
        else:
            play(config_in(Path(name)), folder)
    used = resource.getrusage(resource.RUSAGE_SELF)
    print(json.dumps({"peak": used.ru_maxrss / 1024, "cpu": used.ru_utime + used.ru_stime}))
