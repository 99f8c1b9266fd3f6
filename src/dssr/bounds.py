"""Kinds of settings with their bounds, and the sentence that is said when a value lies outside.

The bounds stand on the fields (`candidates: Count`), msgspec checks them, and `typed` turns its message into words.
"""

import re
import sys
from math import isfinite
from typing import Annotated, Any, TypeVar, get_args, get_type_hints

import msgspec
from msgspec import Meta, Struct

from dssr.errors import ConfigError

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
        return f"There is no key `{found[1]}` in [{key}]." if key else f"There is no key `{found[1]}`."
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
    for name in key.split("."):
        kind = get_type_hints(kind)[name]
        sections = [part for part in get_args(kind) if isinstance(part, type) and issubclass(part, Struct)]
        kind = sections[0] if sections else kind
    return get_args(kind)
