"""Workers on a Ray cluster: actors that hold what a worker process holds, and do the same shards.

An actor on the driver's own node opens what the driver has open, where it lies. What a session has on disk reaches
another node by content: each folder is packed once, named by its digest, and unpacked where it is not there yet. Lost
actors are replaced while the cluster has room; a node that stays away costs its workers and nothing else. Nodes must
have the same code of this package as the driver.
"""

import asyncio
import hashlib
import os
import pickle
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import msgspec

from dssr.config import Config
from dssr.errors import DssrError, WorkerError
from dssr.models.load import cache_home, cached_folder
from dssr.scale.processes import MOST_DEATHS, ONE_THREAD, Host, Opener
from dssr.scale.shards import LostWorkerError, Work
from dssr.types import Counts
from dssr.worlds.archive import MANIFEST, SETTINGS, Archive

LOCAL = "local"
"""In place of an address: a cluster of this machine alone, for as long as the run lasts."""
ANSWER = 10.0
"""Seconds within which an address must take a connection."""
ROOM = 120.0
"""Seconds for the cluster to find room for an actor and start it; models are loaded after that."""
Parcel = Mapping[str, bytes]
"""A folder: path inside it to content."""


class Travelling(Opener, Protocol):
    """What can be opened on a machine that has none of its files."""

    def parcels(self) -> Mapping[str, Parcel]:
        """Its folders, by names of its own."""
        ...

    def settle(self, place: Callable[[str], Path]) -> Opener:
        """The same on a machine where `place` gives the folder of each name."""
        ...


# ---------------------------------------------------------------- the cluster


class Cluster:
    """A connection to a Ray cluster, which it ends if it began it."""

    def __init__(self, address: str) -> None:
        try:
            import ray
        except ImportError:
            raise WorkerError("--ray needs Ray; install it with `pip install 'dssr[ray]'`.") from None
        self.ray = ray
        self._ours = not ray.is_initialized()
        if self._ours:
            self._connect(address)
        self._check_code()

    def _connect(self, address: str) -> None:
        # Ray prints what it thinks of lost workers between our results; what matters of it is told in a sentence.
        self.ray._private.worker.print_to_stdstream = lambda *_, **__: None
        host, _, port = address.removeprefix("ray://").rpartition(":")
        if host and port.isdigit():
            try:
                socket.create_connection((host.strip("[]"), int(port)), ANSWER).close()
            except OSError as error:
                raise WorkerError(
                    f"Nobody answers at {address} ({error}); start Ray there, or use --workers."
                ) from None
        os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # or Ray warns of what it will change one day
        try:
            self.ray.init(
                address=None if address == LOCAL else address,
                log_to_driver=False,
                logging_level="ERROR",
                include_dashboard=False if address == LOCAL else None,
            )
        except Exception as error:  # Ray has many classes for an address that leads nowhere
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
            raise WorkerError(
                f"The Ray cluster {address!r} cannot be reached ({reason}); start it with `ray start --head`, or use "
                f"--ray {LOCAL} for this machine alone."
            ) from None

    def _check_code(self) -> None:
        """Refuse nodes that would compute with other code."""
        strategy = self.ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
        probe = self.ray.remote(num_cpus=0, max_retries=1)(_portable(code_digest))
        nodes = [node for node in self.ray.nodes() if node["Alive"]]
        asked = {
            node["NodeManagerAddress"]: probe.options(scheduling_strategy=strategy(node["NodeID"], soft=False)).remote()
            for node in nodes
        }
        for place, answer in asked.items():
            try:
                found = self.ray.get(answer, timeout=ROOM)
            except Exception as error:
                raise WorkerError(f"The node {place} does not answer ({type(error).__name__}); is it lost?") from None
            if found != code_digest():
                what = "has no dssr" if found is None else "has another version of dssr"
                raise WorkerError(f"The node {place} {what}; install the driver's on every node of the cluster.")

    def room(self, gpus: bool) -> int:
        """Actors that fit: one on each GPU, or on each core."""
        return max(1, int(self.ray.cluster_resources().get("GPU" if gpus else "CPU", 0)))

    def hire(self, count: int, opener: Travelling, gpus: bool) -> "list[RayWorker]":
        """So many actors, started when they are first needed."""
        packed = {name: pickle.dumps(dict(parcel)) for name, parcel in opener.parcels().items()}
        digests = {name: hashlib.sha256(content).hexdigest()[:32] for name, content in packed.items()}
        refs = {digests[name]: [self.ray.put(content)] for name, content in packed.items()}
        told = self.ray.put(pickle.dumps((opener, digests, here(self.ray), os.getcwd())))
        needs = {"num_gpus": 1, "num_cpus": 1} if gpus else {"num_cpus": 1}
        actor = self.ray.remote(**needs, max_restarts=0)(Actor)
        return [RayWorker(self, number + 1, opener, lambda: actor.remote(told, refs)) for number in range(count)]

    def close(self) -> None:
        """Leave the cluster, if it was entered here."""
        if self._ours:
            self.ray.shutdown()


def code_digest() -> str | None:
    """Of all files of this package; None where it is not installed. Needs nothing but Python: it is sent to nodes that
    may not have the package."""
    import hashlib
    import importlib.util
    from pathlib import Path

    found = importlib.util.find_spec("dssr")
    if found is None or found.origin is None:
        return None
    folder = Path(found.origin).parent
    digest = hashlib.sha256()
    for file in sorted(folder.rglob("*.py")):
        digest.update(str(file.relative_to(folder)).encode() + file.read_bytes())
    return digest.hexdigest()


def here(ray: Any) -> tuple[str, int]:
    """The node and the user: where both are the same, so are the files."""
    return ray.get_runtime_context().get_node_id(), os.getuid()


def _portable(function: Callable[[], Any]) -> Callable[[], Any]:
    """The same function, sent as code rather than by the name of a module that may not be there."""
    import types

    copy = types.FunctionType(function.__code__, {"__builtins__": __builtins__}, function.__name__)
    copy.__module__ = "__main__"
    return copy


# ---------------------------------------------------------------- what travels

ARCHIVE, PROMPTS = "archive", "prompts"
"""Names of parcels; adapters have their own."""


def parcels_of(config: Config, archive: Path, games: Sequence[str]) -> dict[str, Parcel]:
    """The games, the prompts and the adapters of a configuration."""
    listed = Archive.open(archive)
    played = [file for name in dict.fromkeys(games) for file in listed.domain.files(archive / listed.game(name).file)]
    found = {ARCHIVE: _packed(archive, [archive / SETTINGS, archive / MANIFEST, *played])}
    if config.agent.prompts is not None:
        found[PROMPTS] = _packed(Path(config.agent.prompts))
    return found | {name: _packed(Path(folder)) for name, _, _, folder in _adapters(config)}


def config_there(config: Config, place: Callable[[str], Path]) -> Config:
    """The configuration on a machine where `place` gives the folder of each parcel; answers are kept there too."""
    for parcel, role, name, _ in _adapters(config):
        model = getattr(config, role)
        changed: Any = msgspec.structs.replace(model, adapters={**model.adapters, name: str(place(parcel))})
        config = msgspec.structs.replace(config, **{role: changed})
    if config.agent.prompts is not None:
        agent = msgspec.structs.replace(config.agent, prompts=str(place(PROMPTS)))
        config = msgspec.structs.replace(config, agent=agent)
    return msgspec.structs.replace(config, data=str(cache_home() / "answers"))


def _packed(folder: Path, files: Sequence[Path] | None = None) -> Parcel:
    kept = sorted(folder.rglob("*")) if files is None else files
    return {str(file.relative_to(folder)): file.read_bytes() for file in kept if file.is_file()}


def _adapters(config: Config) -> list[tuple[str, str, str, str]]:
    """(name of the parcel, role of the model, name, folder) of every adapter that lies here."""
    models = (("writer_model", config.writer_model), ("reader_model", config.reader_model))
    every = [(role, *pair) for role, model in models if model is not None for pair in model.adapters.items()]
    return [(f"adapter-{role}-{name}", role, name, path) for role, name, path in every if Path(path).is_dir()]


# ---------------------------------------------------------------- on a node


class Actor:
    """A worker on a node: opens what the driver has open, or what travelled there, and does shards."""

    def __init__(self, told: bytes, parcels: Mapping[str, list[Any]]) -> None:
        # Not as Ray's `runtime_env`: for that it would start other processes than those that it keeps ready.
        os.environ.update(ONE_THREAD)
        self._told, self._parcels = told, parcels
        self._host = Host()
        self._opening = asyncio.Lock()

    async def place(self) -> str:
        """Where it runs; answers as soon as it does."""
        import ray

        return str(ray.util.get_node_ip_address())

    async def run(self, shard: bytes) -> tuple[bool, bytes]:
        """Whether it went well, and the results with what was counted, or the error."""
        try:
            async with self._opening:
                if self._host.opened is None:
                    await self._host.open(self._opener())
            work, items = pickle.loads(shard)
            return True, pickle.dumps((await self._host.run(work, items), self._host.counts()))
        except DssrError as error:
            return False, pickle.dumps(error)

    async def close(self) -> None:
        """Give everything back."""
        await self._host.close()

    def _opener(self) -> Opener:
        import ray

        opener, digests, home, folder = pickle.loads(self._told)
        if here(ray) == home:
            os.chdir(folder)
            at_home: Opener = opener
            return at_home

        def place(name: str) -> Path:
            def unpack(folder: Path) -> None:
                for path, content in pickle.loads(ray.get(self._parcels[digests[name]][0])).items():
                    file = folder / path
                    file.parent.mkdir(parents=True, exist_ok=True)
                    file.write_bytes(content)

            return cached_folder(f"{name.replace('/', '-')}-{digests[name]}", unpack)

        settled: Opener = opener.settle(place)
        return settled


# ---------------------------------------------------------------- in the driver


class RayWorker:
    """A worker on some node of the cluster."""

    def __init__(self, cluster: Cluster, number: int, opener: Travelling, start: Callable[[], Any]) -> None:
        self.name = f"actor {number}"
        self.gone: str | None = None
        self.counts = Counts()
        self.opener = opener
        self._cluster, self._start = cluster, start
        self._before = Counts()
        self._actor: Any = None
        self._starting = asyncio.Lock()
        self._deaths = 0

    async def run(self, work: Work[Any, Any, Any], items: Sequence[Any]) -> bytes:
        """Do one shard there."""
        ray = self._cluster.ray
        async with self._starting:
            if self._actor is None:
                await self._hired()
        actor = self._actor
        try:
            well, content = await actor.run.remote(pickle.dumps((work, items)))
        except (ray.exceptions.RayActorError, ray.exceptions.RaySystemError, ray.exceptions.ObjectLostError) as error:
            self._lost(actor, error)
            raise LostWorkerError from None
        found = pickle.loads(content)
        if not well:
            raise found
        results: bytes
        results, counted = found
        self.counts, self._deaths = self._before + counted, 0
        return results

    async def close(self) -> None:
        """End the actor."""
        actor, self._actor = self._actor, None
        if actor is not None:
            with suppress(Exception):  # it may be dead, or busy: killing it is as good
                await asyncio.wait_for(_done(actor.close.remote()), ANSWER)
            self._cluster.ray.kill(actor)

    async def _hired(self) -> None:
        if self.gone is not None:
            raise LostWorkerError
        actor = self._start()
        try:
            place = await asyncio.wait_for(_done(actor.place.remote()), ROOM)
        except asyncio.TimeoutError:
            self._cluster.ray.kill(actor)
            self.gone = (
                f"The cluster has had no room for a worker for {ROOM:g} s: a node is lost, or others hold it; what was "
                "finished is stored: continue with --resume."
            )
            raise LostWorkerError from None
        except self._cluster.ray.exceptions.RayError as error:
            self._lost(None, error)
            raise LostWorkerError from None
        self._actor, self.name = actor, f"{self.name.partition(' on ')[0]} on {place}"

    def _lost(self, actor: Any, error: Exception) -> None:
        if actor is not None and actor is not self._actor:
            return  # another shard of the same actor has told it already
        self._actor, self._before = None, self.counts
        self._deaths += 1
        if self._deaths >= MOST_DEATHS:
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
            self.gone = (
                f"A worker of the cluster died {self._deaths} times in a row ({reason}); what was finished is stored: "
                "continue with --resume."
            )


async def _done(answer: Any) -> Any:
    return await answer
