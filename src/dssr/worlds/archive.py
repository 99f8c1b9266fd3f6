"""The archive of games: a folder with `archive.json`, `manifest.jsonl` and the files of every game.

A finished archive is never written again. One that is still being made has `manifest.partial.jsonl`
instead of `manifest.jsonl`, and opens only when asked for as partial.

Its test games are sealed: they are listed and their files can be verified, but nothing opens them, unless whoever
holds the approval says so with `unseal`. A manifest that calls a test game something else is refused.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
from msgspec import field

from dssr.config import GamesConfig
from dssr.config_files import upgraded
from dssr.errors import GameError, SealError
from dssr.types import Game, Record, Split
from dssr.worlds.base import Domain, World, find_domain

SETTINGS = "archive.json"
MANIFEST = "manifest.jsonl"
PARTIAL = "manifest.partial.jsonl"


class Settings(Record, frozen=True):
    """What the games of one archive were made from."""

    games: GamesConfig
    engine: str = field(name="textworld")
    """Version of what made them; stored under the name it had when there was one world."""


class Archive:
    """Games made once, found by id. Open with `Archive.open`."""

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


IDLE = 16
"""Worlds kept open although nobody plays them: the next job is often of the same game."""


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
            self._close(IDLE)

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
    except msgspec.MsgspecError as error:
        raise GameError(f"{folder / SETTINGS} is damaged ({error}): restore it or make the archive anew.") from error


def read_manifest(file: Path) -> tuple[Game, ...]:
    """The games listed in a manifest; a last line cut short by a kill is not a game yet."""
    *lines, _ = file.read_bytes().split(b"\n")
    try:
        games = [msgspec.json.decode(line, type=Game) for line in lines]
    except msgspec.DecodeError as error:
        raise GameError(f"{file} is damaged ({error}): restore it or make the archive anew.") from error
    for game in games:
        _refuse_other_split(file, game)
    return tuple(sorted(games, key=lambda game: (game.level, game.split, game.id)))


def _refuse_other_split(file: Path, game: Game) -> None:
    """Refuse a test game that is listed as another: its name and the call that made it tell the split too."""
    told = [value for option, value in pairwise(game.command) if option == "--split"]
    if not game.id.startswith(f"{game.split}-{game.level}-") or set(told) - {game.split}:
        raise GameError(
            f"{file} was altered: it lists {game.id} as a {game.split} game of level {game.level}, but its name or the "
            "command that made it says otherwise; restore the archive."
        )
