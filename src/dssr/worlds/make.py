"""Makes an archive: the world makes single games, this lists them; resumable after a kill."""

import fcntl
import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from pathlib import Path

import msgspec

from dssr.config import GamesConfig
from dssr.errors import GameError
from dssr.types import Game
from dssr.worlds.archive import MANIFEST, PARTIAL, SETTINGS, Archive, Settings, read_manifest, read_settings
from dssr.worlds.base import Domain, GamePlan, find_domain

OnProgress = Callable[[int, int], None]
"""Told how many games are made, and of how many."""


def make_archive(
    config: GamesConfig,
    folder: str | Path,
    workers: int = 1,
    on_progress: OnProgress | None = None,
    resume: bool = True,
) -> Archive:
    """Makes what is missing of an archive. A finished one is refused; a begun one is, without `resume`."""
    folder = Path(folder)
    if not resume and (folder / SETTINGS).exists() and not (folder / MANIFEST).exists():
        raise GameError(f"Archive {folder} is only half made: finish it with --resume, or choose another folder.")
    domain = find_domain(config.world)
    settings = Settings(games=domain.settled(config), engine=domain.engine)
    plans = domain.plans(settings.games)
    folder.mkdir(parents=True, exist_ok=True)
    with only_maker(folder):
        prepare(folder, settings)
        partial = folder / PARTIAL
        known = {game.id for game in read_manifest(partial)} if partial.exists() else set()
        todo = [plan for plan in plans if plan.id not in known]
        make_all(domain, folder, todo, workers, lambda done: on_progress and on_progress(len(known) + done, len(plans)))
        os.replace(partial, folder / MANIFEST)
    return Archive.open(folder)


@contextmanager
def only_maker(folder: Path) -> Iterator[None]:
    """Two processes must not make one archive; the lock goes with the process that holds it."""
    with (folder / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise GameError(f"Archive {folder} is being made by another process: wait for it.") from None
        yield


def prepare(folder: Path, settings: Settings) -> None:
    """Writes the settings of a new archive, or checks that a begun one has the same."""
    if (folder / MANIFEST).exists():
        raise GameError(f"Archive {folder} is finished and never made again: choose another folder or delete it.")
    if not (folder / SETTINGS).exists():
        begun = folder / f"{SETTINGS}.new"
        begun.write_bytes(msgspec.json.format(msgspec.json.encode(settings), indent=2) + b"\n")
        os.replace(begun, folder / SETTINGS)
    elif read_settings(folder) != settings:
        raise GameError(f"Archive {folder} was begun with other settings: choose another folder or delete it.")
    partial = folder / PARTIAL
    if partial.exists():
        whole, newline, _ = partial.read_bytes().rpartition(b"\n")
        partial.write_bytes(whole + newline)


def make_all(
    domain: Domain, folder: Path, plans: list[GamePlan], workers: int, on_done: Callable[[int], object]
) -> None:
    """Makes the planned games and lists each as soon as its files are in place."""
    (folder / "games").mkdir(exist_ok=True)
    with (folder / PARTIAL).open("ab", buffering=0) as manifest, ThreadPoolExecutor(workers) as pool:
        futures: list[Future[Game]] = [pool.submit(domain.make, plan, folder) for plan in plans]
        on_done(0)
        try:
            for done, future in enumerate(as_completed(futures), start=1):
                manifest.write(msgspec.json.encode(future.result()) + b"\n")
                on_done(done)
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
