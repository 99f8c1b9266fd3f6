"""A real Ray cluster of two nodes on this machine: the same bytes as without it, whatever happens to it."""

import asyncio
import os
import random
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.scale.test_processes import config as config
from tests.scale.test_processes import descendants, logs
from tests.tiny import make_tiny
from tests.training.study import study

from dssr.config import Config
from dssr.errors import WorkerError
from dssr.measure.diagnose import diagnose, lag
from dssr.scale import cluster as scale_cluster
from dssr.scale.cluster import LOCAL, Cluster
from dssr.session import silent
from dssr.training.fit import content_hash
from dssr.training.line import Line
from dssr.training.round import adapter_folder
from dssr.types import Standing, Workers
from dssr.worlds.archive import Archive

pytestmark = pytest.mark.slow

if not os.environ.get("DSSR_REQUIRE_ALL"):
    pytest.importorskip("ray")


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Two nodes of two processors each; what they keep lies in the test's folder."""
    from ray.cluster_utils import Cluster as Nodes

    monkeypatch.setenv("DSSR_HOME", str(tmp_path / "node"))
    monkeypatch.setenv("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")
    monkeypatch.setenv("RAY_worker_niceness", "0")  # left alone, actors hardly get on beside other tests
    nodes = Nodes(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    nodes.add_node(num_cpus=1)
    nodes.wait_for_nodes()
    yield nodes
    import ray

    ray.shutdown()
    nodes.shutdown()


def test_a_cluster_of_two_nodes_stores_the_same_bytes(config: Config, cluster: Any, tmp_path: Path) -> None:
    """Catches a result that depends on the machine, and files that a node finds only because it shares our disk: the
    archive is looked for under a name of its content."""
    seen: list[Standing] = []
    for name, workers in (("one", Workers(1)), ("ray", Workers(ray=cluster.address))):
        diagnose(config, split="train", out=tmp_path / name / "run", workers=workers, progress=seen.append)
        lag(tmp_path / name / "run", workers=workers)
    one, two = logs(tmp_path / "one"), logs(tmp_path / "ray")
    assert [key for key in one if one[key] != two.get(key)] == []
    assert one.keys() == two.keys()
    assert [worker.name.partition(" on ")[0] for worker in seen[-1].workers] == ["actor 1", "actor 2"]
    (archive,) = (tmp_path / "node").glob("archive-*")
    games = {file.name.partition(".")[0] for file in archive.rglob("*.z8")}
    assert games
    assert not any(game.startswith("test") for game in games)


def test_a_round_of_training_stores_the_same_bytes(archive: Archive, cluster: Any, tmp_path: Path) -> None:
    """Catches collection, scoring, adapters or validation that depend on who did the work, and an adapter that does
    not reach a node: round 1 collects with the one that round 0 trained."""
    base = make_tiny(tmp_path / "model")
    for name, workers in (("one", Workers(1)), ("two", Workers(2)), ("ray", Workers(ray=cluster.address))):
        config = study(archive, base, tmp_path / "data" / name)
        line = Line(config, "dssr", 0, tmp_path / name, silent, workers=workers)
        rows = asyncio.run(line.train(range(2)))
        assert [row["round"] for row in rows] == ["untrained", 0, 1]
    one = logs(tmp_path / "one")
    assert {"round-1/candidates.jsonl", "round-1/steps.jsonl", "valid-1/audits.jsonl"} <= one.keys()
    for name in ("two", "ray"):
        other = logs(tmp_path / name)
        assert one.keys() == other.keys()
        assert [key for key in one if one[key] != other[key]] == [], name
        for number in range(2):
            made = [content_hash(adapter_folder(tmp_path / where, number)) for where in ("one", name)]
            assert made[0] == made[1]


def test_an_actor_at_home_opens_what_the_driver_has_open(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches a machine that copies its own games, and so plays anew what its driver has played already; and an actor
    that looks for the driver's files in a folder of its own: the paths here are relative ones."""
    monkeypatch.setenv("DSSR_HOME", str(tmp_path / "node"))
    monkeypatch.setenv("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")
    monkeypatch.chdir(config.data)
    nearby = msgspec.structs.replace(config, data=".")
    for name, workers in (("one", Workers(1)), ("ray", Workers(2, ray=LOCAL))):
        diagnose(nearby, split="train", out=tmp_path / name, workers=workers)
    assert logs(tmp_path / "ray") == logs(tmp_path / "one")
    assert not any((tmp_path / "node").glob("archive-*"))


KILLS = 20


def test_twenty_kills_of_actors_and_a_raylet_change_no_byte(config: Config, cluster: Any, tmp_path: Path) -> None:
    """Catches a shard lost or doubled with its actor or its node: after each of the first results an actor's process is
    killed, and once the raylet of the second node, which then comes back."""
    import ray

    draw, kills, before = random.Random(0), 0, 0
    diagnose(config, split="train", out=tmp_path / "whole", workers=1)

    def harm(standing: Standing) -> None:
        nonlocal kills, before
        if standing.done == before or kills == KILLS:
            return
        kills, before = kills + 1, standing.done
        if kills == KILLS // 2:
            (node,) = cluster.worker_nodes
            cluster.remove_node(node, allow_graceful=False)
            cluster.add_node(num_cpus=1)
            return
        actors = [process for process, command in descendants(os.getpid()) if b"ray::Actor" in command]
        if actors:
            os.kill(draw.choice(actors), signal.SIGKILL)

    diagnose(config, split="train", out=tmp_path / "run", workers=Workers(ray=cluster.address), progress=harm)
    assert not ray.is_initialized()
    assert kills == KILLS
    assert logs(tmp_path / "run") == logs(tmp_path / "whole")


def test_a_node_that_stays_away_costs_its_workers_only(
    config: Config, cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches a driver that waits for ever for a node that is gone for good."""
    monkeypatch.setattr(scale_cluster, "ROOM", 30.0)  # a busy machine takes long to start the other one
    diagnose(config, split="train", out=tmp_path / "whole", workers=1)
    gone: list[Any] = []

    def harm(standing: Standing) -> None:
        if standing.done and not gone:
            gone.extend(cluster.worker_nodes)
            cluster.remove_node(gone[0], allow_graceful=False)

    diagnose(config, split="train", out=tmp_path / "run", workers=Workers(ray=cluster.address), progress=harm)
    assert gone
    assert logs(tmp_path / "run") == logs(tmp_path / "whole")


def test_an_address_nobody_answers_is_told_before_anything_is_made(config: Config, tmp_path: Path) -> None:
    """Catches a driver that hangs or shows a traceback where there is no cluster, and a directory left behind."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
        with pytest.raises(WorkerError, match=rf"Nobody answers at {address} .*--workers"):
            diagnose(config, split="train", out=tmp_path / "run", workers=Workers(ray=address))
    assert not (tmp_path / "run").exists()


def test_a_node_with_other_code_is_refused(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches results of two versions in one run."""
    monkeypatch.setattr(scale_cluster, "_portable", lambda function: lambda: "another")
    with pytest.raises(WorkerError, match=r"The node .* has another version of dssr; install the driver's"):
        Cluster(cluster.address)
