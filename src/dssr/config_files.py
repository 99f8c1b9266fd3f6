"""Configuration files: found by name or path, read together with the files they are based on.

Nothing here knows what a setting means: `config.py` turns what is read into typed sections.
"""

from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import msgspec
import msgspec.toml

from dssr.bounds import shown
from dssr.errors import ConfigError

SHIPPED = Path(__file__).parent / "configs"
PLUGGED = "dssr.configs"
"""Entry points of this group are folders of TOML files that other packages ship."""
NANO = ("nano", "nano-house", "nano-r2")
"""Configurations of dssr-nano; known by name to say how to get them."""
GET_NANO = "install it with `pip install 'dssr[nano]'`"
BASE = "base"
"""Key of a file that states what differs from another configuration."""


def names() -> list[str]:
    """The shipped configurations, those of installed plug-ins included."""
    return sorted(_shipped())


def _shipped() -> dict[str, Path]:
    """By name, the files of this package and of plug-ins; a plug-in cannot replace one of ours."""
    folders = [*(Path(plugged.load()) for plugged in entry_points(group=PLUGGED)), SHIPPED]
    return {path.stem: path for folder in folders for path in folder.glob("*.toml")}


def find(name: str, beside: Path) -> Path:
    """The file of a shipped name, or of a path seen from a folder."""
    path = _shipped().get(name, beside / name)
    if not path.is_file():
        if name in NANO:
            raise ConfigError(
                f"The configuration {name} comes with dssr-nano, which is not installed: {GET_NANO}, "
                "or give `--config scripted`."
            )
        raise ConfigError(f"No configuration {name!r}: give a TOML file or one of {', '.join(names())}.")
    return path


def read_layers(path: Path) -> dict[str, Any]:
    """A file's settings laid over those of its base, if it names one, and so on down."""
    layers: list[dict[str, Any]] = []
    seen: set[Path] = set()
    next_one: Path | None = path
    while next_one is not None:
        path = next_one
        if path.resolve() in seen:
            raise ConfigError(f"{path}: {BASE} leads back to this file; name another configuration.")
        seen.add(path.resolve())
        layers.append(_decoded(path))
        next_one = _base_of(path, layers[-1].pop(BASE, None))
    joined: dict[str, Any] = {}
    for layer in reversed(layers):
        _lay_over(joined, layer)
    return joined


def _decoded(path: Path) -> dict[str, Any]:
    try:
        plain: dict[str, Any] = msgspec.toml.decode(path.read_bytes())
    except RecursionError:
        raise ConfigError(f"{path} nests deeper than any setting does; write it flatter.") from None
    except (msgspec.DecodeError, ValueError, OSError) as error:
        raise ConfigError(f"{path} cannot be read as TOML: {error}.") from error
    for section, keys in FOLDER_KEYS.items():
        table = plain.get(section)
        if isinstance(table, dict):
            _found_beside(path.parent, table, keys)
            if isinstance(table.get("adapters"), dict):
                _found_beside(path.parent, table["adapters"], tuple(table["adapters"]))
    return plain


FOLDER_KEYS = {"writer_model": ("path", "tokenizer"), "reader_model": ("path", "tokenizer"), "agent": ("prompts",)}
"""Settings that may name a folder, by section."""


def _found_beside(folder: Path, table: dict[str, Any], keys: tuple[str, ...]) -> None:
    """A folder that lies beside the file is meant as seen from there, wherever the program is started."""
    for key in keys:
        value = table.get(key)
        if isinstance(value, str) and value and folder != Path() and (folder / value).is_dir():
            table[key] = str(folder / value)


def _base_of(path: Path, base: object) -> Path | None:
    """The file that another one names as its base."""
    if base is None:
        return None
    if not isinstance(base, str):
        raise ConfigError(f"{path}: {BASE} must be the name or the path of a configuration, not {shown(base)}.")
    try:
        return find(base, path.parent)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def _lay_over(under: dict[str, Any], upper: dict[str, Any]) -> None:
    """Tables are joined key by key; any other value replaces the one below."""
    owed = [(under, upper)]
    while owed:
        below, above = owed.pop()
        for name, value in above.items():
            if isinstance(value, dict) and isinstance(below.get(name), dict):
                owed.append((below[name], value))
            else:
                below[name] = value


OPTIONS = ("recipe", "take", "open", "cook", "cut")
"""Keys that `[games]` itself had when there was one world."""


def upgraded(plain: dict[str, Any]) -> dict[str, Any]:
    """A stored configuration, or the settings of a stored archive, in the shape of today; one of today stays as it is.

    Runs and archives are never rewritten, so what earlier versions stored is read through this.
    """
    plain = dict(plain)
    games = dict(plain.get("games", {}))
    if "rooms" in games:
        games["levels"] = games.pop("rooms")
        games["options"] = {name: games.pop(name) for name in OPTIONS if name in games}
        plain["games"] = games
    stats = dict(plain.get("stats", {}))
    if "lag_fillers" in stats:
        stats["long_fillers"] = stats.pop("lag_fillers")
        plain["stats"] = stats
    return plain
