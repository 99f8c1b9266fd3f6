"""Reads the lines of `oracle-b`, which name only what still matters and give ways as lists of moves.

Reads states back into claims: the four prompted formats, and raw history standing alone or after a state.
"""

import re

from dssr.models.scripted.claims import APPLIANCES, PARTICIPLES, TOOL, Claim, put
from dssr.models.scripted.formats import NOTHING, SLOTS
from dssr.models.scripted.text import thing
from dssr.models.scripted.update import finished, replay
from dssr.worlds.cooking.words import DIRECTIONS

_FIRST = "Room: "
_LINE_WAY = re.compile(r"Way to (.+?): (.+)$")
_THING = re.compile(r"The (.+?): (?:(carried)|(?:(in|on) ([^,;]+), )?([^,;]+))(?:; (.+))?$")


def is_lines(context: str) -> bool:
    return context.startswith(_FIRST)


def parse_lines(context: str) -> list[Claim]:
    """The claims of all lines."""
    first, *rest = context.splitlines()
    claims = [Claim("here", (first.removeprefix(_FIRST).strip(),))]
    for line in rest:
        if way := _LINE_WAY.match(line):
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


_TAG = re.compile(r"\s*\[(?:certain|likely|unsure)\]\s*$")
_SENTENCE = re.compile(r"(?<=[.])\s+|\n+")
_AT = re.compile(r"the (.+) is (?:(in|on) the (.+?) )?in the (.+)$")
_STANDS = re.compile(r"the (.+?) stands in the (.+?)(?: and is (open|closed))?$")
_WAY = re.compile(r"(north|south|east|west) (?:to the ([^(]+?)|unexplored)(?: \((open|closed|locked) ([^)]+)\))?$")
_PLACED = re.compile(r"(.+) (in|on) the (.+)$")
_ARTICLE = re.compile(r"^(?:an?|some|the) ")
_RAW = re.compile(r"^(?:> ?\S|-= .+? =-)", re.M)


def parse(text: str) -> list[Claim]:
    """The claims of a state, oldest first; sentences of any other kind say nothing to the scripted model."""
    claims: list[Claim] = []
    for piece in reversed(_SENTENCE.split(text)):
        for claim in _claims(_TAG.sub("", piece).strip().rstrip(".")):
            claims = put(claims, claim)
    return claims


def understand(context: str) -> list[Claim]:
    """The claims of any reader's context: `oracle-b`, a state, raw history, or a state followed by raw steps."""
    if is_lines(context):
        return parse_lines(context)
    raw = _RAW.search(context)
    start = raw.start() if raw else len(context)
    return finished(replay(parse(context[:start]), context[start:]))


def _claims(piece: str) -> list[Claim]:
    for label in (SLOTS[0], SLOTS[2]):
        piece = piece.removeprefix(label).strip()
    head, colon, rest = piece.partition(": ")
    label = head.lower()
    if piece.startswith(SLOTS[1]):
        return [Claim("did", (command,)) for command in rest.split(", ") if command != NOTHING]
    if not colon:
        return _plain(piece[:1].lower() + piece[1:])
    if label == "tried":
        return [Claim("did", (rest,))]
    if label == "recipe":
        return [claim for part in rest.split(", ") if (claim := _directive(part))]
    if label.startswith("in the "):
        return [_inside(part, head[7:]) for part in rest.split(", ")]
    if label.startswith("from the "):
        return [claim for part in rest.split(", ") if (claim := _way(part, head[9:]))]
    return []


def _plain(piece: str) -> list[Claim]:
    if piece.startswith("you are in the "):
        return [Claim("here", (piece[15:],))]
    if piece.startswith("you carry "):
        return [Claim("carry", tuple(thing(_ARTICLE.sub("", name)))) for name in piece[10:].split(", ")]
    if match := _STANDS.match(piece):
        return [Claim("fixture", (match.group(1), match.group(2), match.group(3) or ""))]
    if match := _AT.match(piece):
        item = thing(match.group(1))
        return [Claim("at", (item.name, match.group(2) or "", match.group(3) or "", match.group(4), item.words))]
    return []


def _directive(part: str) -> Claim | None:
    verb, _, name = part.partition(" the ")
    if verb == "use" and name:
        return Claim("need", (name,))
    return Claim("do", (verb, name)) if verb in PARTICIPLES and name else None


def _inside(part: str, room: str) -> Claim:
    """What a room's list says of one thing. What has neither a place nor a state is a thing, unless an appliance."""
    name, _, state = part.rpartition(" ")
    if name and state in ("open", "closed"):
        return Claim("fixture", (name, room, state))
    if part in APPLIANCES.values():
        return Claim("fixture", (part, room, ""))
    match = _PLACED.match(part)
    item = thing(_ARTICLE.sub("", match.group(1) if match else part))
    return Claim("at", (item.name, *(match.group(2, 3) if match else ("", "")), room, item.words))


def _way(part: str, room: str) -> Claim | None:
    match = _WAY.match(part)
    if not match or match.group(1) not in DIRECTIONS:
        return None
    direction, to, state, door = match.groups()
    return Claim("exit", (room, direction, to or "", door or "", state or ""))
