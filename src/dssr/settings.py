"""Settings as such: kinds of values with their bounds, and the TOML files they are read from.

Nothing here knows what a setting means: `config.py` turns what is read into typed sections. The bounds stand on the
fields (`candidates: Count`), msgspec checks them, and `typed` turns its message into a sentence. Files are found by
name or path and read together with those they are based on.
"""

import re
import sys
from difflib import get_close_matches
from importlib.metadata import entry_points
from math import isfinite
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args, get_type_hints

import msgspec
import msgspec.toml
from msgspec import Meta, Struct

from dssr.errors import ConfigError

# ---------------------------------------------------------------- bounds

T = TypeVar("T", bound=Struct)

FINITE = sys.float_info.max
"""Upper bound of every number without another one: infinity is above it, and not-a-number fails any bound."""

Count = Annotated[int, Meta(ge=1)]
Size = Annotated[int, Meta(ge=0)]
"""A whole number that may be nothing; also a seed and the length of a walk."""
Share = Annotated[float, Meta(ge=0, le=1)]
Positive = Annotated[float, Meta(gt=0, le=FINITE)]
NonNegative = Annotated[float, Meta(ge=0, le=FINITE)]
Text = Annotated[str, Meta(min_length=1)]
Names = Annotated[tuple[Text, ...], Meta(min_length=1)]
Counts = Annotated[tuple[Count, ...], Meta(min_length=1)]
Sizes = Annotated[tuple[Size, ...], Meta(min_length=1)]

KINDS = {
    "int": "a whole number",
    "float": "a number",
    "str": "a string",
    "bool": "true or false",
    "array": "a list",
    "object": "a table",
}
"""What msgspec calls a kind of value, in the words of a TOML file."""
BOUNDS = {">=": "at least", "<=": "at most", ">": "more than", "<": "less than"}
LONGEST = 80
"""Characters of a value that a sentence shows."""


def typed(plain: dict[str, Any], kind: type[T]) -> T:
    """Plain values as a record of this kind, every field inside its bounds."""
    try:
        return msgspec.convert(plain, kind)
    except msgspec.ValidationError as error:
        raise ConfigError(_sentence(str(error), plain, kind)) from error


def shown(value: object) -> str:
    """A value as a sentence may show it; how deep it nests does not matter."""
    if isinstance(value, dict):
        return "a table"
    if isinstance(value, list | tuple) and any(isinstance(one, dict | list) for one in value):
        return "a list of lists"
    text = repr(value)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."


def _sentence(message: str, plain: dict[str, Any], kind: type[Struct]) -> str:
    """msgspec writes ``Expected `int` >= 1 - at `$.agent.budgets[1]` ``; say it with the key's name and its value."""
    what, _, where = message.partition(" - at ")
    path = where.partition("`$")[2].strip("`.")
    key, _, inside = path.partition("[")
    if found := re.match(r"Object contains unknown field `(.*)`", what):
        near = get_close_matches(found[1], _fields(kind, key), 1)
        meant = f" Did you mean `{near[0]}`?" if near else ""
        return f"There is no key `{found[1]}`{f' in [{key}]' if key else ''}.{meant}"
    if found := re.match(r"Object missing required field `(.*)`", what):
        return f"The key {f'{key}.' if key else ''}{found[1]} is missing."
    if re.match(r"Expected `(array|str)` of length >= 1", what):
        inner = inside or where.startswith("`key`")
        return (
            f"{key} {'has an empty entry; fill it' if inner else 'is empty; give at least one entry'} or leave it out."
        )
    value = _value_at(plain, path)
    stated = f"{key} {'has' if inside else 'is'} {shown(value)}, but must be"
    if isinstance(value, float) and not isfinite(value):
        return f"{stated} a finite number."
    if what.startswith("Invalid enum value"):
        return f"{stated} one of {', '.join(_choices(kind, key))}."
    if found := re.match(r"Expected `[^`]*` (>=|<=|>|<) (.*)", what):
        return f"{stated} {BOUNDS[found[1]]} {float(found[2]):g}."
    if found := re.match(r"Expected `(\w+)", what):
        return f"{stated} {KINDS.get(found[1], found[1])}."
    return f"{stated} another value ({what})."


def _value_at(plain: Any, path: str) -> Any:
    """The value at a path such as `agent.budgets[1]`; msgspec does not say which entry of a table it means."""
    for name, place in re.findall(r"(\w+)|\[(\d+)\]", path):
        plain = plain[int(place) if place else name]
    return plain


def _choices(kind: Any, key: str) -> tuple[str, ...]:
    """The words that a field takes."""
    return get_args(_kind_at(kind, key))


def _fields(kind: Any, key: str) -> tuple[str, ...]:
    """The keys that a table takes; none where any is taken."""
    return tuple(getattr(_kind_at(kind, key), "__struct_fields__", ()))


def _kind_at(kind: Any, key: str) -> Any:
    """What a setting must be: its type, or the record of its table."""
    for name in filter(None, key.split(".")):
        kind = get_type_hints(kind)[name]
        sections = [part for part in get_args(kind) if isinstance(part, type) and issubclass(part, Struct)]
        kind = sections[0] if sections else kind
    return kind


# ---------------------------------------------------------------- files

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
    path = beside / name
    if not name.endswith(".toml"):  # what is shipped has a bare name, and to look for it takes time
        path = _shipped().get(name, path)
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


def without_none(plain: dict[str, Any]) -> dict[str, Any]:
    """TOML has no null; a missing key means the default, which is None wherever None is allowed."""
    return {
        name: without_none(value) if isinstance(value, dict) else value
        for name, value in plain.items()
        if value is not None
    }


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
    writer = dict(plain.get("writer", {}))
    if isinstance(next(iter(writer.get("chain_fillers", ())), None), int):
        writer["chain_fillers"] = [[filler] for filler in writer["chain_fillers"]]
        plain["writer"] = writer
    return plain
