"""The archive of games: a folder with `archive.json`, `manifest.jsonl` and the files of every game.

A finished archive is never written again. `make_archive` makes what a configuration asks for and goes on after a kill;
until it is done there is `manifest.partial.jsonl` instead of `manifest.jsonl`, and the archive opens only when asked
for as partial.

Its test games are sealed: they are listed and their files can be verified, but nothing opens them, unless whoever
holds the approval says so with `unseal`. A manifest that calls a test game something else is refused.
"""

import fcntl
import hashlib
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import msgspec
from msgspec import field

from dssr.config import Config, GamesConfig
from dssr.errors import GameError, SealError
from dssr.record.log import (
    DAMAGE,
    Content,
    check_content,
    clear_drafts,
    read_digests,
    sync_folder,
    write_all,
    write_digests,
    write_whole,
)
from dssr.settings import names, upgraded
from dssr.types import Game, Record, Split
from dssr.worlds.base import Domain, GamePlan, World, find_domain

SETTINGS = "archive.json"
MANIFEST = "manifest.jsonl"
PARTIAL = "manifest.partial.jsonl"
PUBLIC_FILE = 0o644
"""Games are nobody's own: one archive may serve many users."""


class Settings(Record, frozen=True):
    """What the games of one archive were made from."""

    games: GamesConfig
    engine: str = field(name="textworld")
    """Version of what made them; stored under the name it had when there was one world."""


class Archive:
    """Games made once, found by id. Open with `Archive.open`."""

    idle = 4
    """Worlds that stay open though nobody plays in them."""

    def __init__(self, folder: Path, settings: Settings, games: tuple[Game, ...]) -> None:
        self.folder = folder
        self.settings = settings
        self._games = {game.id: game for game in games}
        self._sealed = True

    @classmethod
    def open(cls, folder: str | Path, partial: bool = False) -> "Archive":
        """An archive for reading. With `partial`, one still being made shows the games it has so far."""
        folder = Path(folder)
        settings = read_settings(folder)
        if (folder / MANIFEST).exists():
            for name, content in (read_digests(folder) or {}).items():  # archives of before have none
                check_content(folder / name, content)
            return cls(folder, settings, read_manifest(folder / MANIFEST))
        if not partial:
            raise GameError(f"Archive {folder} is only half made: finish it with `dssr games make --resume`.")
        started = (folder / PARTIAL).exists()
        return cls(folder, settings, read_manifest(folder / PARTIAL) if started else ())

    @property
    def domain(self) -> Domain:
        """The kind of world that all its games are of."""
        return find_domain(self.settings.games.world)

    def games(self, split: Split | None = None, level: int | None = None) -> tuple[Game, ...]:
        """All games, or those of one split, of one level, or both; ordered by level, split, number."""
        return tuple(
            game
            for game in self._games.values()
            if (split is None or game.split == split) and (level is None or game.level == level)
        )

    def game(self, name: str) -> Game:
        """The game whose id is `name`."""
        try:
            return self._games[name]
        except KeyError:
            known = ", ".join(list(self._games)[:3])
            raise GameError(f"Archive {self.folder} has no game {name!r}; its games are {known}, …") from None

    def unseal(self) -> None:
        """Let test games be opened through this object. For the session of an approved evaluation alone."""
        self._sealed = False

    def seal(self) -> None:
        """Shut the test games again, once the evaluation is over."""
        self._sealed = True

    def is_sealed(self, game: Game) -> bool:
        """Whether the game may not be opened."""
        return game.split == "test" and self._sealed

    def path(self, game: Game) -> Path:
        """Where the game lies, for whoever may open it."""
        if self.is_sealed(game):
            raise SealError(f"Game {game.id} is a sealed test game: only an approved evaluation may open it.")
        return self.folder / game.file

    def verify(self, game: Game) -> None:
        """Refuse a game whose files are missing or were changed; sealed ones can be verified too."""
        path = self.folder / game.file
        if md5_of(self.domain.files(path)) != game.md5:
            raise GameError(f"The files of game {game.id} were altered since they were made: restore {path}.")

    def world(self, game: Game | str) -> World:
        """The world of a game, which the caller closes."""
        game = self.game(game) if isinstance(game, str) else game
        path = self.path(game)
        self.verify(game)
        return self.domain.open(game, path, self.folder / "trees")

    def check(self, name: str, max_actions: int) -> tuple[str, ...]:
        """Faults of a game, one sentence each; one that cannot be opened or played is faulty too.

        A sealed game is not played: its files alone are verified.
        """
        game = self.game(name)
        try:
            if self.is_sealed(game):
                self.verify(game)
                return ()
            world = self.world(game)
        except GameError as error:
            return (str(error),)
        try:
            return world.faults(max_actions)
        except GameError as error:
            return (str(error),)
        finally:
            world.close()


class Worlds:
    """One archive's games, opened when first played and closed when long unused."""

    def __init__(self, archive: Archive) -> None:
        self.archive = archive
        self._open: OrderedDict[str, World] = OrderedDict()
        self._players: dict[str, int] = {}

    @property
    def domain(self) -> Domain:
        """The kind of world that all the games are of."""
        return self.archive.domain

    @contextmanager
    def playing(self, game: str) -> Iterator[World]:
        """The world of a game, guaranteed to stay open inside the block."""
        self.archive.path(self.archive.game(game))  # an open world does not outlast the evaluation that opened it
        if game not in self._open:
            self._open[game] = self.archive.world(game)
        self._open.move_to_end(game)
        self._players[game] = self._players.get(game, 0) + 1
        try:
            yield self._open[game]
        finally:
            self._players[game] -= 1
            self._close(self.archive.idle)

    def close(self) -> None:
        """Close every world that nobody plays."""
        self._close(0)

    def _close(self, keep: int) -> None:
        idle = [game for game in self._open if not self._players.get(game)]
        for game in idle[: max(0, len(idle) - keep)]:
            self._open.pop(game).close()


# ---------------------------------------------------------------- files


def md5_of(files: tuple[Path, ...]) -> str:
    """Digest of a game's files, one after the other."""
    digest = hashlib.md5(usedforsecurity=False)
    for part in files:
        try:
            digest.update(part.read_bytes())
        except OSError as error:
            raise GameError(f"Game file {part} cannot be read ({error.strerror}): restore the archive.") from error
    return digest.hexdigest()


def read_settings(folder: Path) -> Settings:
    """The settings stored in an archive's folder."""
    try:
        plain: dict[str, Any] = msgspec.json.decode((folder / SETTINGS).read_bytes(), type=dict[str, Any])
        return msgspec.convert(upgraded(plain), Settings)
    except OSError as error:
        raise GameError(f"{folder} is no game archive: make one with `dssr games make`.") from error
    except (*DAMAGE, TypeError, ValueError) as error:
        raise GameError(f"{folder / SETTINGS} is damaged ({error}): restore it or make the archive anew.") from error


def read_manifest(file: Path) -> tuple[Game, ...]:
    """The games listed in a manifest; a last line cut short by a kill is not a game yet."""
    try:
        *lines, _ = file.read_bytes().split(b"\n")
        games = [msgspec.json.decode(line, type=Game) for line in lines]
    except (*DAMAGE, OSError) as error:
        raise GameError(f"{file} is damaged ({error}): restore it or make the archive anew.") from error
    seen: set[str] = set()
    for game in games:
        _refuse_other_split(file, game)
        if Path(game.file).is_absolute() or ".." in Path(game.file).parts:
            raise GameError(f"{file} was altered: game {game.id} lies outside the archive; restore it.")
        if game.id in seen:
            raise GameError(f"{file} was altered: it lists {game.id} twice; restore it.")
        seen.add(game.id)
    return tuple(sorted(games, key=lambda game: (game.level, game.split, game.id)))


def _refuse_other_split(file: Path, game: Game) -> None:
    """Refuse a test game that is listed as another: its name and the call that made it tell the split too."""
    told = [value for option, value in pairwise(game.command) if option == "--split"]
    if not game.id.startswith(f"{game.split}-{game.level}-") or set(told) - {game.split}:
        raise GameError(
            f"{file} was altered: it lists {game.id} as a {game.split} game of level {game.level}, but its name or the "
            "command that made it says otherwise; restore the archive."
        )


OnProgress = Callable[[int, int], None]
"""Told how many games are made, and of how many."""


# ---------------------------------------------------------------- making

SECONDS_A_GAME = 5
"""That making one takes, roughly."""


def unmade(folder: Path, config: Config) -> GameError:
    """What to do where the archive of a configuration is not there yet."""
    games = config.games
    count = len(games.levels) * (games.train + games.valid + games.test)
    named = f" --config {config.name}`" if config.name in names() else "` and the same --config"
    minutes = round(count * SECONDS_A_GAME / 60)
    return GameError(
        f"{folder} is no game archive: make it with `dssr games make{named} ({count} games, about "
        f"{f'{minutes} minutes' if minutes > 1 else 'a minute'}), or use `--config demo`, whose six games are shipped."
    )


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
        store_digests(folder, partial)
        os.replace(partial, folder / MANIFEST)
        sync_folder(folder)
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
    clear_drafts(folder)
    if not (folder / SETTINGS).exists():
        content = msgspec.json.format(msgspec.json.encode(settings), indent=2) + b"\n"
        write_whole(folder / SETTINGS, content, PUBLIC_FILE)
    elif read_settings(folder) != settings:
        raise GameError(f"Archive {folder} was begun with other settings: choose another folder or delete it.")
    partial = folder / PARTIAL
    if partial.exists():
        whole, newline, _ = partial.read_bytes().rpartition(b"\n")
        write_whole(partial, whole + newline, PUBLIC_FILE)


def store_digests(folder: Path, manifest: Path) -> None:
    """What a finished archive holds: a list with a game more or less would change every number without a word."""
    files = {SETTINGS: folder / SETTINGS, MANIFEST: manifest}
    write_digests(folder, {name: Content.in_file(file) for name, file in files.items()}, PUBLIC_FILE)


TOGETHER = 16
"""Games made by one process, which is then replaced: the first costs three times as much as each further one."""


def make_all(
    domain: Domain, folder: Path, plans: list[GamePlan], workers: int, on_done: Callable[[int], object]
) -> None:
    """Makes the planned games and lists each as soon as its files are in place."""
    (folder / "games").mkdir(exist_ok=True)
    size = max(1, min(TOGETHER, -(-len(plans) // workers)))
    parts = [plans[start : start + size] for start in range(0, len(plans), size)]
    made: SimpleQueue[Game | Exception | None] = SimpleQueue()
    stopped = threading.Event()

    def work(part: list[GamePlan]) -> None:
        try:
            for game in domain.make(part, folder):
                made.put(game)
                if stopped.is_set():
                    return
            made.put(None)
        except Exception as error:  # raised again where the games are listed
            made.put(error)

    with (folder / PARTIAL).open("ab", buffering=0) as manifest, ThreadPoolExecutor(workers) as pool:
        for part in parts:
            pool.submit(work, part)
        done = ended = 0
        on_done(done)
        try:
            while ended < len(parts):
                found = made.get()
                if isinstance(found, Exception):
                    raise found
                if found is None:
                    ended += 1
                    continue
                write_all(manifest.fileno(), msgspec.json.encode(found) + b"\n")
                done += 1
                on_done(done)
        finally:
            stopped.set()
            pool.shutdown(wait=True, cancel_futures=True)
