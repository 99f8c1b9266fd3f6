"""Reads the lines of `oracle-b`, which name only what still matters and give ways as lists of moves."""

import re

from dssr.models.scripted.claims import APPLIANCES, PARTICIPLES, TOOL, Claim

_FIRST = "Room: "
_WAY = re.compile(r"Way to (.+?): (.+)$")
_THING = re.compile(r"The (.+?): (?:(carried)|(?:(in|on) ([^,;]+), )?([^,;]+))(?:; (.+))?$")


def is_lines(context: str) -> bool:
    return context.startswith(_FIRST)


def parse_lines(context: str) -> list[Claim]:
    """The claims of all lines."""
    first, *rest = context.splitlines()
    claims = [Claim("here", (first.removeprefix(_FIRST).strip(),))]
    for line in rest:
        if way := _WAY.match(line):
            claims.append(Claim("way", (way[1], way[2].split(", ")[0])))
        elif thing := _THING.match(line):
            claims += _thing(*thing.groups(default=""))
    return claims


def _thing(name: str, is_carried: str, preposition: str, holder: str, room: str, verbs: str) -> list[Claim]:
    if name in APPLIANCES.values():
        return [Claim("fixture", (name, room, ""))]
    claims = [] if is_carried else [Claim("at", (name, preposition, holder, room, ""))]
    if name != TOOL:
        claims.append(Claim("need", (name,)))
        claims += [Claim("do", (verb, name)) for verb in verbs.split(", ") if verb in PARTICIPLES]
    return claims
