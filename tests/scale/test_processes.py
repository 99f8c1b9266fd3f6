"""Worker processes: the same bytes as without them, whatever happens to them."""

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from subprocess import PIPE
from typing import Any

import msgspec
import pytest

from dssr.config import AgentConfig, Config, GamesConfig, MeasureConfig, ModelConfig, ProtocolConfig, StatsConfig
from dssr.errors import ModelError, UsageError, WorkerError
from dssr.measure.continuation import continuation
from dssr.measure.diagnose import diagnose, lag
from dssr.measure.plan import Rates, plan
from dssr.record.cost import cost_of
from dssr.record.log import SITTINGS
from dssr.record.run import Run
from dssr.scale import processes
from dssr.scale.processes import processes_for
from dssr.scale.shards import each
from dssr.session import Bench, Session, Stage
from dssr.types import Audit, Standing
from dssr.worlds.archive import Archive
from dssr.worlds.base import settled


def logs(place: Path) -> dict[str, bytes]:
    """All that a run stores but times and machines."""
    kept = [file for file in sorted(place.rglob("*")) if file.suffix == ".jsonl" or file.name == "summary.json"]
    return {str(file.relative_to(place)): file.read_bytes() for file in kept if file.name not in SITTINGS}


@pytest.fixture
def config(archive: Archive, tmp_path: Path) -> Config:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "small").symlink_to(archive.folder)
    made = Config(
        name="scale",
        data=str(tmp_path / "data"),
        runs=str(tmp_path / "runs"),
        cache_gib=1,
        games=GamesConfig(archive="small", levels=(1,)),
        protocol=ProtocolConfig(fillers=(0,), max_actions=6),
        writer_model=ModelConfig(backend="scripted", path="scripted", context_length=65536),
        agent=AgentConfig(memories=("full", "summary", "slots"), budgets=(32, 64)),
        measure=MeasureConfig(points=2, oracle_samples=2),
        stats=StatsConfig(resamples=50),
    )
    return settled(made)


def test_any_number_of_workers_stores_the_same_bytes(config: Config, tmp_path: Path) -> None:
    """Catches a result, an order or a kept prompt that depends on which process did the work, and calls of other
    processes that nobody counts: a diagnosis, the lags of its episodes and a study of continuations."""
    seen: list[Standing] = []
    for count, place in ((1, tmp_path / "one"), (2, tmp_path / "two")):
        told = seen.append if count == 2 else lambda _: None
        diagnose(config, split="train", out=place / "diagnose", workers=count, progress=told)
        lag(place / "diagnose", workers=count)
        continuation(config, split="train", points=4, out=place / "continuation", workers=count)
    one, two = logs(tmp_path / "one"), logs(tmp_path / "two")
    assert one.keys() == two.keys()
    assert [name for name in one if one[name] != two[name]] == []
    assert len(one) >= 14
    workers = seen[-1].workers
    assert [worker.name for worker in workers] == ["process 1", "process 2"]
    assert min(worker.done for worker in workers) > 0
    assert sum(worker.done for worker in workers) == seen[-1].of
    assert sum(worker.counts.calls for worker in workers) > 0
    alone, shared = (cost_of(Run.open(tmp_path / name / "diagnose")) for name in ("one", "two"))
    assert alone is not None
    assert shared is not None
    assert alone.calls == shared.calls > 0
    assert (shared.cached, shared.computed) == (shared.calls, 0)  # the second has the first one's answers
    assert alone.computed > 0
    assert shared.cpu_seconds > 0


async def trouble(kind: type[Exception], bench: Bench, item: str) -> Audit:
    raise kind(f"About {item}.")


async def suicide(place: Path, bench: Bench, item: str) -> Audit:
    """Ends its process, at `1` for the first time only and at `x` always."""
    if item == "x" or (item == "1" and not place.exists()):
        place.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return Audit(item, os.getpid(), 0, 0.0, 0.0, 0.0, "", None)


def work(config: Config, place: Path, do: Callable[[Bench, str], Any], items: str) -> list[Audit]:
    """One stage with two workers; what it stored."""
    kept: list[Audit] = []

    async def go() -> None:
        async with Session(config, workers=2) as session:
            with session.run(place, "work", (), {}) as (run, _):
                await session.work(run, Stage("items", "items", [*items], str, tuple, partial(each, do), kept.append))

    asyncio.run(go())
    return kept


def test_a_sentence_crosses_as_it_is_and_a_fault_as_a_sentence(config: Config, tmp_path: Path) -> None:
    """Catches an error class lost on the way (its exit code with it), and a traceback of a worker on the terminal."""
    with pytest.raises(ModelError, match=r"^About [01]\.$"):
        work(config, tmp_path / "told", partial(trouble, ModelError), "01")
    with pytest.raises(WorkerError, match=r"A worker failed with KeyError: 'About [01]\.'; .* --workers 1"):
        work(config, tmp_path / "fault", partial(trouble, KeyError), "01")


def test_a_killed_worker_is_replaced_and_one_that_dies_on_its_work_ends_it(config: Config, tmp_path: Path) -> None:
    """Catches a shard lost with its worker, a driver that waits for the dead, and one that revives them for ever."""
    kept = work(config, tmp_path / "once", partial(suicide, tmp_path / "flag"), "01234567")
    assert [one.episode for one in kept] == [*"01234567"]
    with pytest.raises(WorkerError, match=r"died 4 times in a row \(signal 9.*--resume"):
        work(config, tmp_path / "always", partial(suicide, tmp_path / "flag"), "0x2")


def test_more_workers_than_memory_says_how_many_fit(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a machine brought down by workers; the number left to us stays within memory and cores by itself."""
    monkeypatch.delenv("DSSR_WORKERS", raising=False)
    monkeypatch.setattr(processes, "free_memory", lambda: 3 * 2**30)
    with pytest.raises(UsageError, match=r"100 workers of about 0\.5 GiB do not fit .* use --workers 6\."):
        processes_for(config, 100, 500)
    monkeypatch.setattr(processes, "cores", lambda: 64)
    assert processes_for(config, None, 500) == 6
    assert processes_for(config, None, 8) == 2
    assert processes_for(config, 5, 3) == 3
    served = msgspec.structs.replace(config.writer_model, backend="server", url="http://localhost:1/v1")
    assert processes_for(msgspec.structs.replace(config, writer_model=served), None, 500) == 1
    engine = msgspec.structs.replace(config, writer_model=msgspec.structs.replace(config.writer_model, backend="vllm"))
    with pytest.raises(UsageError, match="the same GPU"):
        processes_for(engine, 2, 500)


def test_a_plan_says_what_more_workers_gain(config: Config) -> None:
    """Catches a plan that divides by the workers without end, or whose one worker does not take the whole time."""
    asked = partial(plan, config, split="train", rates=Rates(read=1000.0, write=100.0))
    one, four, many = (asked(workers=count).shared for count in (1, 4, 10_000))
    assert one is not None
    assert four is not None
    assert many is not None
    assert one.hours == pytest.approx(asked().total["hours"])
    assert one.hours / 4 <= four.hours < one.hours / 2
    assert four.efficiency == pytest.approx(one.hours / 4 / four.hours)
    assert many.hours >= one.hours / (many.useful + 1)
    assert "of the time" in one.bottleneck


RUN = """
import sys, msgspec, dssr
from pathlib import Path
from dssr.config import Config
config = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=Config)
told = 0
def tell(standing):
    global told
    if standing.done > told:  # whoever started this says when to go on
        told = standing.done
        print(told, flush=True)
        sys.stdin.readline()
dssr.diagnose(config, split="train", out=sys.argv[2], resume=Path(sys.argv[2]).exists(), workers=2, progress=tell)
"""
Driver = subprocess.Popen[str]


def descendants(pid: int) -> list[tuple[int, bytes]]:
    """Processes that a process has started, and those that they have, with their commands."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            command = (folder / "cmdline").read_bytes()
        except OSError:  # it has ended meanwhile
            continue
        if parent == pid:
            found += [(int(folder.name), command), *descendants(int(folder.name))]
    return found


def workers_of(pid: int) -> list[int]:
    """Those of them that do shards."""
    return [child for child, command in descendants(pid) if b"dssr.scale.processes" in command]


def until(condition: Callable[[], Any]) -> Any:
    """Wait for something that will come; the test's own limit ends a wait in vain."""
    while not (found := condition()):
        time.sleep(0.05)
    return found


@pytest.fixture
def driver(config: Config, tmp_path: Path) -> Iterator[Callable[[], Driver]]:
    """Starts, or continues, a run with two workers in a process of its own, which waits after everything it stores."""
    (tmp_path / "config.json").write_bytes(msgspec.json.encode(config))
    started: list[Driver] = []

    def start() -> Driver:
        command = [sys.executable, "-c", RUN, str(tmp_path / "config.json"), str(tmp_path / "run")]
        started.append(subprocess.Popen(command, stdin=PIPE, stdout=PIPE, stderr=PIPE, text=True))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGKILL])
def test_workers_end_with_their_driver(driver: Callable[[], Driver], ending: signal.Signals) -> None:
    """Catches orphans that go on computing after Ctrl-C or after the driver was killed."""
    process = driver()
    workers = until(lambda: found if len(found := workers_of(process.pid)) == 2 else None)
    process.send_signal(ending)
    process.communicate()  # and nobody answers any more, so that it does not wait for that
    until(lambda: not any(Path(f"/proc/{worker}").exists() for worker in workers))


KILLS = 20


@pytest.mark.slow
def test_twenty_kills_change_no_byte(config: Config, driver: Callable[[], Driver], tmp_path: Path) -> None:
    """Catches anything that a death at a bad moment loses, doubles or reorders: workers and the driver are killed at
    random, each time after something more was stored, and the run is continued to its end."""
    draw = random.Random(0)
    diagnose(config, split="train", out=tmp_path / "whole", workers=1)
    kills, process = 0, driver()
    while process.stdout is not None and process.stdout.readline():
        if kills < KILLS and draw.random() < 0.3:
            process.kill()
            process.wait()
            process, kills = driver(), kills + 1
            continue
        if kills < KILLS and (workers := workers_of(process.pid)):
            os.kill(draw.choice(workers), signal.SIGKILL)
            kills += 1
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    _, said = process.communicate()
    assert process.returncode == 0, said
    assert kills == KILLS
    assert logs(tmp_path / "run") == logs(tmp_path / "whole")
