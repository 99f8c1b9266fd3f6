"""The archive of games: a folder with `archive.json`, `manifest.jsonl` and the files of every game.

A finished archive is never written again. One that is still being made has `manifest.partial.jsonl`
instead of `manifest.jsonl`, and opens only when asked for as partial.
"""

import hashlib
from pathlib import Path

import msgspec

from dssr.config import GamesConfig
from dssr.errors import GameError
from dssr.types import Game, Record, Split

SETTINGS = "archive.json"
MANIFEST = "manifest.jsonl"
PARTIAL = "manifest.partial.jsonl"


class Settings(Record, frozen=True):
    """What the games of one archive were made from."""

    games: GamesConfig
    textworld: str


def md5_of(file: Path) -> str:
    """Digest of a `.z8` file followed by its `.json` companion: a game is both."""
    digest = hashlib.md5(usedforsecurity=False)
    for part in (file, file.with_suffix(".json")):
        try:
            digest.update(part.read_bytes())
        except OSError as error:
            raise GameError(f"Game file {part} cannot be read ({error.strerror}): restore the archive.") from error
    return digest.hexdigest()


def read_settings(folder: Path) -> Settings:
    """The settings stored in an archive's folder."""
    try:
        return msgspec.json.decode((folder / SETTINGS).read_bytes(), type=Settings)
    except OSError as error:
        raise GameError(f"{folder} is no game archive: make one with `dssr games make`.") from error
    except msgspec.DecodeError as error:
        raise GameError(f"{folder / SETTINGS} is damaged ({error}): restore it or make the archive anew.") from error


def read_manifest(file: Path) -> tuple[Game, ...]:
    """The games listed in a manifest; a last line cut short by a kill is not a game yet."""
    *lines, _ = file.read_bytes().split(b"\n")
    try:
        games = [msgspec.json.decode(line, type=Game) for line in lines]
    except msgspec.DecodeError as error:
        raise GameError(f"{file} is damaged ({error}): restore it or make the archive anew.") from error
    return tuple(sorted(games, key=lambda game: (game.rooms, game.split, game.id)))


class Archive:
    """Games made once, found by id. Open with `Archive.open`."""

    def __init__(self, folder: Path, settings: Settings, games: tuple[Game, ...]) -> None:
        self.folder = folder
        self.settings = settings
        self._games = {game.id: game for game in games}

    @classmethod
    def open(cls, folder: str | Path, partial: bool = False) -> "Archive":
        """An archive for reading. With `partial`, one still being made shows the games it has so far."""
        folder = Path(folder)
        settings = read_settings(folder)
        if (folder / MANIFEST).exists():
            return cls(folder, settings, read_manifest(folder / MANIFEST))
        if not partial:
            raise GameError(f"Archive {folder} is only half made: run `dssr games make` again to finish it.")
        started = (folder / PARTIAL).exists()
        return cls(folder, settings, read_manifest(folder / PARTIAL) if started else ())

    def games(self, split: Split | None = None, rooms: int | None = None) -> tuple[Game, ...]:
        """All games, or those of one split, of one room count, or both; ordered by rooms, split, number."""
        return tuple(
            game
            for game in self._games.values()
            if (split is None or game.split == split) and (rooms is None or game.rooms == rooms)
        )

    def game(self, name: str) -> Game:
        """The game whose id is `name`."""
        try:
            return self._games[name]
        except KeyError:
            known = ", ".join(list(self._games)[:3])
            raise GameError(f"Archive {self.folder} has no game {name!r}; its games are {known}, …") from None

    def path(self, game: Game) -> Path:
        """Where the game's `.z8` file lies."""
        return self.folder / game.file
