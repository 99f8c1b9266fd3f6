"""What a scripted writer knows: claims, the reading of claims from what TextWorld prints, and how a step changes them.

A claim is one atomic fact a memory can hold or lose; a list of claims, oldest first, is all the writer knows. Names
come from the text alone: no list of foods, rooms or doors is built in. Only the recipe's verbs, the tool and the
appliances they need are fixed, because the game's rules fix them.

`look` reads an observation: rooms, exits, furniture, things, the inventory sentence and the recipe. TextWorld words the
same fact in many ways; the patterns follow the shapes of its sentences, so any name works. `update` brings claims up to
date with one more observation: it adds what is new, corrects what changed and loses nothing.
"""

import re
from typing import Literal, NamedTuple

from dssr.models.cache import remembered
from dssr.worlds.cooking.recipe import COOKS, KNIFE, OPPOSITE, VERBS

TOOL = KNIFE
APPLIANCES = {verb: VERBS[verb].tool for verb in COOKS}
"""Cooking verb to the appliance that does it."""
PARTICIPLES = {verb: row.done for verb, row in VERBS.items()}
"""Recipe verb to the word that shows it was done."""
FLOOR = "floor"


# ---------------------------------------------------------------- claims

Kind = Literal["here", "carry", "at", "fixture", "exit", "need", "do", "did", "way"]


class Claim(NamedTuple):
    """One fact. What `args` mean depends on the kind.

    here: room. carry: thing, words. at: thing, preposition, holder, room, words. fixture: name, room, state.
    exit: room, direction, destination, door, state. need: thing. do: verb, thing. did: command.
    way: destination, first move (a direction or a command), good for the present room only.
    `words` are preparations such as `sliced roasted`; `state` is `open`, `closed` or empty; an empty destination
    is unexplored; a holder may be the floor.
    """

    kind: Kind
    args: tuple[str, ...]


def key(claim: Claim) -> tuple[str, ...]:
    """Two claims with the same key cannot both hold: the newer one replaces the older."""
    if claim.kind == "here":
        return ("here",)
    if claim.kind in ("carry", "at"):
        return ("where", claim.args[0])
    if claim.kind in ("fixture", "exit"):
        return (claim.kind, *claim.args[:2])
    return (claim.kind, *claim.args)


def put(claims: list[Claim], new: Claim) -> list[Claim]:
    """The claims with `new` at the end, in place of whatever it replaces."""
    replaced = key(new)
    return [claim for claim in claims if key(claim) != replaced] + [new]


def mend(claims: list[Claim], new: Claim) -> list[Claim]:
    """The claims with `new` where the claim stood that it replaces, or else at the end."""
    replaced = key(new)
    if all(key(claim) != replaced for claim in claims):
        return [*claims, new]
    return [new if key(claim) == replaced else claim for claim in claims]


def here(claims: list[Claim]) -> str | None:
    """The room the claims say the player is in."""
    return next((claim.args[0] for claim in reversed(claims) if claim.kind == "here"), None)


def carried(claims: list[Claim]) -> dict[str, str]:
    """Carried thing to its preparation words."""
    return {claim.args[0]: claim.args[1] for claim in claims if claim.kind == "carry"}


def ingredients(claims: list[Claim]) -> list[str]:
    """Things the recipe names, in the order of the claims."""
    named = [claim.args[-1] for claim in claims if claim.kind in ("need", "do")]
    return list(dict.fromkeys(named))


def is_done(verb: str, words: str) -> bool:
    """Do the preparation words show that the verb was applied?"""
    return PARTICIPLES.get(verb, "") in words.split()


# ---------------------------------------------------------------- observations


class Thing(NamedTuple):
    """A thing as printed: its name, and what was done to it."""

    name: str
    words: str
    """Preparations, for example `sliced roasted`, or `raw`."""


class Sight(NamedTuple):
    """What one observation shows."""

    room: str | None
    described: bool
    """The room's contents were printed, so what is not listed is not there."""
    exits: tuple[tuple[str, str, str], ...]
    """Direction, door or empty, door state or empty."""
    fixtures: tuple[tuple[str, str], ...]
    """Name, `open`, `closed` or empty."""
    items: tuple[tuple[Thing, str, str], ...]
    """Thing, preposition, holder."""
    opened: str | None
    revealed: tuple[Thing, ...]
    inventory: tuple[Thing, ...] | None
    """None when the inventory sentence is missing."""
    recipe: tuple[tuple[str, ...], tuple[tuple[str, str], ...]] | None
    """Ingredients, and (verb, ingredient) directives."""


@remembered(4_000_000, len)
def look(observation: str) -> Sight:
    """Everything one observation says."""
    header = _HEADER.search(observation)
    inventory = next(reversed(list(_INVENTORY.finditer(observation))), None)
    body = observation[: inventory.start()] if inventory else observation
    described = body[header.end() :].strip() if header else ""
    opened = _OPENED.search(body)
    return Sight(
        room=header.group(1).strip().lower() if header else None,
        described=bool(described),
        exits=_exits(described),
        fixtures=_fixtures(described),
        items=_items(described),
        opened=opened.group(1).strip() if opened else None,
        revealed=things(opened.group(2)) if opened and opened.group(2) else (),
        inventory=things(inventory.group(1) or "") if inventory else None,
        recipe=_recipe(body),
    )


def things(phrase: str) -> tuple[Thing, ...]:
    """The members of a list such as `a knife, some salt and a sliced carrot`."""
    parts = re.split(r",? and (?=(?:an?|some|the) )|, (?=(?:an?|some|the) )", phrase.strip())
    found = [re.match(r"(?:an?|some|the) (.+?)(?:, so there's that.*)?$", part.strip()) for part in parts]
    return tuple(thing(match.group(1)) for match in found if match)


def thing(name: str) -> Thing:
    """Splits preparation words from a printed name."""
    parts = name.strip().split(" ")
    cut = 0
    while cut < len(parts) - 1 and parts[cut] in _WORDS:
        cut += 1
    return Thing(" ".join(parts[cut:]), " ".join(parts[:cut]))


def blocks(history: str) -> list[tuple[str | None, str]]:
    """Splits a rendered history into (command, observation) pairs; text before the first command has none."""
    starts = list(_BLOCK.finditer(history))
    lead = history[: starts[0].start()] if starts else history
    found: list[tuple[str | None, str]] = [(None, lead.strip())] if lead.strip() else []
    for index, match in enumerate(starts):
        end = starts[index + 1].start() if index + 1 < len(starts) else len(history)
        found.append((match.group(1).strip(), history[match.end() : end].strip()))
    return found


def _exits(text: str) -> tuple[tuple[str, str, str], ...]:
    found = {match[2]: (match[2], match[1], match[0]) for match in _DOOR.findall(text)}
    for direction in _EXIT.findall(text):
        found.setdefault(direction, (direction, "", ""))
    return tuple(found.values())


def _items(text: str) -> tuple[tuple[Thing, str, str], ...]:
    found: dict[str, tuple[Thing, str, str]] = {}
    groups = [("in", holder, phrase) for holder, phrase in _CONTAINS.findall(text)]
    groups += [("on", holder, phrase) for holder, phrase in _ON.findall(text)]
    groups += [("on", holder, phrase) for phrase, holder in _ON_AFTER.findall(text)]
    groups += [("on", FLOOR, phrase) for phrase in _ON_FLOOR.findall(text)]
    for preposition, holder, phrase in groups:
        for item in things(phrase):
            found.setdefault(item.name, (item, preposition, holder))
    return tuple(found.values())


def _fixtures(text: str) -> tuple[tuple[str, str], ...]:
    found: dict[str, str] = {}
    objects = text.split("\n\n", 1)[1] if "\n\n" in text else ""
    things_here = {item.name for item, _, _ in _items(text)}
    for state, name in _FIXTURE.findall(objects) + _STANDING.findall(objects):
        name = _LOOKING.sub("", name.strip())
        if thing(name).name not in things_here:
            found[name] = {"opened": "open", "locked": "closed"}.get(state, state) or found.get(name, "")
    for holder, _ in _CONTAINS.findall(objects):
        found[holder] = "open"
    for holder in _EMPTIED.findall(objects):
        if holder in found:
            found[holder] = "open"
    for appliance in APPLIANCES.values():
        if appliance not in found and re.search(rf"\b{appliance}\b", objects):
            found[appliance] = ""
    return tuple(found.items())


def _recipe(text: str) -> tuple[tuple[str, ...], tuple[tuple[str, str], ...]] | None:
    match = _RECIPE.search(text)
    if not match:
        return None
    names = tuple(line.strip() for line in match.group(1).splitlines() if line.strip())
    directives = []
    for line in match.group(2).splitlines():
        verb, _, rest = line.strip().partition(" the ")
        if verb in PARTICIPLES and rest:
            directives.append((verb, rest.strip()))
    return names, tuple(directives)


# ---------------------------------------------------------------- shapes of printed sentences

_WORDS = frozenset(PARTICIPLES.values()) | {"raw", "burned"}
_DIRECTION = r"(north|south|east|west)"
_NAME = r"((?!(?:in|on|at|of|is|and)\b)[\w'-]+(?: (?!(?:in|on|at|of|is|and)\b)[\w'-]+){0,3}?)"

_HEADER = re.compile(r"-= (.+?) =-")
_INVENTORY = re.compile(r"You are carrying(?: nothing|: ?([^\n]*?))\.?\s*$", re.M)
_DOOR = re.compile(rf"\bThere is (?:an?) (open|closed|locked) ([^.]+?) leading {_DIRECTION}\b")
_EXIT = re.compile(rf"(?:\bexit to the |\btry going ){_DIRECTION}\b")
_FIXTURE = re.compile(
    r"(?:see|make out|seeing|find|notice|it's|it's just|here's|there[!,]|to|onto|than|reveal) "
    rf"an? (?:(closed|open|opened|locked) )?{_NAME}"
    r"(?=\s*(?:[.!?]|, so there|, which looks| here\b| nearby\b| close by\b| in the (?:room|corner)| right there))",
    re.I,
)
_STANDING = re.compile(
    rf"\bAn? (closed|open|opened|locked) {_NAME}(?:, which looks \w+,)? ?is (?:here|in the|nearby|close|right)"
)
_CONTAINS = re.compile(r"\bThe ([\w' -]+?) contains ([^.!?]+)")
_EMPTIED = re.compile(r"\bThe ([\w' -]+?) is empty\b")
_ON = re.compile(r"\bOn the ([\w' -]+?),? you (?:can )?(?:see|make out) ([^.!?]+)")
_ON_AFTER = re.compile(r"\bYou (?:can )?see ((?:an?|some) [^.!?]+?) on the ([\w' -]+?)(?=[.!?,]|$)")
_ON_FLOOR = re.compile(r"\bThere (?:is|are) ([^.!?]+?) on the floor\b")
_OPENED = re.compile(r"^You open (?:the )?([\w' -]+?)(?:, revealing ([^.\n]+))?\.", re.M)
_LOOKING = re.compile(r"^[\w-]+ looking ")
_RECIPE = re.compile(r"Ingredients:\s*\n(.*?)\n\s*\n?Directions:\s*\n(.*?)(?:\n\s*\n|\Z)", re.S)
_BLOCK = re.compile(r"^> ?(.+)$", re.M)


# ---------------------------------------------------------------- one more observation


def update(claims: list[Claim], action: str | None, sight: Sight) -> list[Claim]:
    """The claims after a step; what the step showed stands at the end."""
    before = here(claims)
    room = sight.room or before
    if room is None:
        return _inventory(_with_recipe(claims, sight), action, sight, None)
    claims = _room(claims, before, action, sight, room)
    claims = _opened(claims, sight, room)
    claims = _with_recipe(claims, sight)
    claims = _inventory(claims, action, sight, room)
    return put(claims, Claim("here", (room,)))


def replay(claims: list[Claim], history: str) -> list[Claim]:
    """The claims after all steps of a rendered history."""
    return list(_replayed(tuple(claims), history))


# Samples of one write share their history, and the histories of one episode share their beginnings.


@remembered(4_000_000, lambda claims, history: len(history))
def _replayed(claims: tuple[Claim, ...], history: str) -> tuple[Claim, ...]:
    for action, observation in blocks(history):
        claims = _stepped(claims, action, observation)
    return claims


@remembered(4_000_000, lambda claims, action, observation: len(observation))
def _stepped(claims: tuple[Claim, ...], action: str | None, observation: str) -> tuple[Claim, ...]:
    return tuple(update(list(claims), action, look(observation)))


def exits(claims: list[Claim]) -> dict[tuple[str, str], Claim]:
    """Known ways by (room, direction); every known way also holds backwards."""
    found: dict[tuple[str, str], Claim] = {}
    for claim in claims:
        if claim.kind == "exit":
            room, direction, to, door, state = claim.args
            known = found.get((room, direction))
            if to or known is None:
                found[room, direction] = claim
            if to:
                found[to, OPPOSITE[direction]] = Claim("exit", (to, OPPOSITE[direction], room, door, state))
    return found


def _room(claims: list[Claim], before: str | None, action: str | None, sight: Sight, room: str) -> list[Claim]:
    if sight.described:
        listed = {item.name for item, _, _ in sight.items}
        claims = [c for c in claims if not (c.kind == "at" and c.args[3] == room and c.args[0] not in listed)]
    for name, state in sight.fixtures:
        known = next((c.args[2] for c in claims if key(c) == ("fixture", name, room)), "")
        claims = put(claims, Claim("fixture", (name, room, state or known)))
    for item, preposition, holder in sight.items:
        claims = put(claims, _at(item, preposition, holder, room))
    ways = exits(claims)
    for direction, door, state in sight.exits:
        known_way = ways.get((room, direction))
        to = known_way.args[2] if known_way else ""
        claims = _way(claims, room, direction, to, door, state)
    direction = action.removeprefix("go ") if action else ""
    if direction in OPPOSITE and sight.room and before and before != room:
        back = exits(claims).get((room, OPPOSITE[direction]))
        door, state = (back.args[3], back.args[4]) if back else ("", "")
        claims = _way(claims, before, direction, room, door, state)
    return claims


def _way(claims: list[Claim], room: str, direction: str, to: str, door: str, state: str) -> list[Claim]:
    """Keeps one claim per way, as it was first walked: seen again, or from its other end, it stays where it stands."""
    this, other = Claim("exit", (room, direction, to, door, state)), None
    if to:
        other = Claim("exit", (to, OPPOSITE[direction], room, door, state))
        if any(key(claim) == key(other) and claim.args[2] for claim in claims):
            this, other = other, this
        claims = [claim for claim in claims if key(claim) != key(other)]
    return mend(claims, this)


def _opened(claims: list[Claim], sight: Sight, room: str) -> list[Claim]:
    if sight.opened is None:
        return claims
    for (start, _), claim in exits(claims).items():
        if start == room and claim.args[3] == sight.opened:
            _, direction, to, door, _ = claim.args
            return _way(claims, room, direction, to, door, "open")
    if not sight.revealed and sight.opened.endswith("door"):
        return claims
    claims = put(claims, Claim("fixture", (sight.opened, room, "open")))
    for item in sight.revealed:
        claims = put(claims, _at(item, "in", sight.opened, room))
    return claims


def _with_recipe(claims: list[Claim], sight: Sight) -> list[Claim]:
    if sight.recipe is None:
        return claims
    names, directives = sight.recipe
    for name in names:
        claims = put(claims, Claim("need", (name,)))
        for verb, target in directives:
            if target == name:
                claims = put(claims, Claim("do", (verb, target)))
    return claims


def _inventory(claims: list[Claim], action: str | None, sight: Sight, room: str | None) -> list[Claim]:
    if sight.inventory is None:
        return claims
    held = {item.name for item in sight.inventory}
    lost = [claim for claim in claims if claim.kind == "carry" and claim.args[0] not in held]
    claims = [claim for claim in claims if claim not in lost]
    for claim in lost:
        if action == f"drop {claim.args[0]}" and room:
            claims = put(claims, _at(Thing(*claim.args), "on", FLOOR, room))
    for item in sight.inventory:
        claims = put(claims, Claim("carry", (item.name, item.words)))
    return finished(claims)


def finished(claims: list[Claim]) -> list[Claim]:
    """The claims without recipe steps that the carried things show to be done."""
    held = carried(claims)
    left = [c for c in claims if not (c.kind == "do" and is_done(c.args[0], held.get(c.args[1], "")))]
    open_work = {claim.args[1] for claim in left if claim.kind == "do"}
    return [c for c in left if not (c.kind == "need" and c.args[0] in held and c.args[0] not in open_work)]


def _at(item: Thing, preposition: str, holder: str, room: str) -> Claim:
    return Claim("at", (item.name, preposition, holder, room, item.words))
