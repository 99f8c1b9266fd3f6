"""Making archives of games, and packing them into single files.

`make_archive` makes what a configuration asks for and goes on after a kill. `provided` gives the folder of an archive
and, when nothing is there, unpacks the one that comes with the package, so that a first run makes no games.

A packed archive is one `.tar.xz` file with `archive.json`, `manifest.jsonl` and both files of every game, as
`dssr games make` wrote them. The same archive always packs to the same tar. To pack one again:

    dssr games make --config demo --archive made/demo
    python -c "from dssr.worlds.make import pack; pack('made/demo', 'demo.tar.xz')"

The demo's lies in `archives/` beside this file; those of the tests lie in `tests/games/`.
"""

import fcntl
import io
import lzma
import os
import tarfile
import tempfile
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


# ---------------------------------------------------------------- making


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


# ---------------------------------------------------------------- packed archives

FOLDER = Path(__file__).parent / "archives"
"""Of the packed archives that come with the package."""
SUFFIX = ".tar.xz"


def provided(folder: str | Path) -> Path:
    """The folder of an archive, unpacked first if nothing is there and an archive of this name is shipped."""
    folder = Path(folder)
    packed = FOLDER / f"{folder.name}{SUFFIX}"
    if not packed.exists():
        return folder
    try:
        empty = not folder.exists() or not any(folder.iterdir())
    except OSError as error:
        raise GameError(f"Archive {folder} cannot be read ({error.strerror}): choose another data folder.") from error
    if empty:
        unpack(packed, folder)
    elif not (folder / SETTINGS).exists():
        raise GameError(f"{folder} holds no whole archive: delete it, and the one shipped with dssr is unpacked there.")
    return folder


def pack(folder: str | Path, file: str | Path) -> None:
    """Writes a finished archive, without its stored steps, into one file."""
    archive = Archive.open(folder)
    names = [SETTINGS, MANIFEST]
    for game in archive.games():
        archive.verify(game)
        names += [str(part.relative_to(archive.folder)) for part in archive.domain.files(archive.folder / game.file)]
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name in sorted(names):
            content = (archive.folder / name).read_bytes()
            if name == MANIFEST:  # games are listed as they are finished, which differs from time to time
                content = b"".join(sorted(content.splitlines(keepends=True)))
            tar.addfile(_member(name, len(content)), io.BytesIO(content))
    Path(file).write_bytes(lzma.compress(plain.getvalue(), preset=9 | lzma.PRESET_EXTREME))


def unpack(file: str | Path, folder: str | Path) -> None:
    """Makes the folder of a packed archive: whole, with every digest checked, or not at all.

    When two processes unpack at once, the first to finish provides the folder and both can use it.
    """
    file, folder = Path(file), Path(folder)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".unpacking-", dir=folder.parent) as scratch:
            made = Path(scratch) / folder.name
            made.mkdir()  # the scratch folder itself is closed to other users
            _write_members(file, made)
            _check(file, made)
            try:
                os.rename(made, folder)
            except OSError:
                if not (folder / MANIFEST).exists():
                    raise
    except OSError as error:
        raise GameError(
            f"{file.name} cannot be unpacked into {folder} ({error.strerror}): choose another data folder."
        ) from error


def _member(name: str, size: int) -> tarfile.TarInfo:
    """A file in the tar, with nothing of the machine or the day: time 0, owner 0."""
    member = tarfile.TarInfo(name)
    member.size = size
    member.mode = 0o644
    return member


def _write_members(file: Path, folder: Path) -> None:
    try:
        with tarfile.open(fileobj=io.BytesIO(lzma.decompress(file.read_bytes()))) as tar:
            for member in tar:
                target = folder / member.name
                content = tar.extractfile(member)
                if content is None or ".." in Path(member.name).parts or Path(member.name).is_absolute():
                    raise GameError(f"{file} holds {member.name!r}, which is no file of an archive: pack it again.")
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(content.read())
    except (lzma.LZMAError, tarfile.TarError, EOFError) as error:
        raise GameError(f"{file} is damaged ({error}): restore it or install dssr again.") from error


def _check(file: Path, folder: Path) -> None:
    """Refuses games that are not the listed ones."""
    for name in (SETTINGS, MANIFEST):
        if not (folder / name).exists():
            raise GameError(f"{file} is damaged ({name} is missing): restore it or install dssr again.")
    archive = Archive.open(folder)
    for game in archive.games():
        try:
            archive.verify(game)
        except GameError:
            raise GameError(f"{file} is damaged (game {game.id} is altered): install dssr again.") from None
