"""Brings claims up to date with one more observation: adds what is new, corrects what changed, loses nothing."""

from dssr.models.scripted.claims import FLOOR, Claim, Sight, Thing, blocks, carried, here, is_done, key, look, mend, put
from dssr.worlds.cooking.words import OPPOSITE


def update(claims: list[Claim], action: str | None, sight: Sight) -> list[Claim]:
    """The claims after a step; what the step showed stands at the end."""
    before = here(claims)
    room = sight.room or before
    if room is None:
        return _inventory(_recipe(claims, sight), action, sight, None)
    claims = _room(claims, before, action, sight, room)
    claims = _opened(claims, sight, room)
    claims = _recipe(claims, sight)
    claims = _inventory(claims, action, sight, room)
    return put(claims, Claim("here", (room,)))


def replay(claims: list[Claim], history: str) -> list[Claim]:
    """The claims after all steps of a rendered history."""
    for action, observation in blocks(history):
        claims = update(claims, action, look(observation))
    return claims


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


def _recipe(claims: list[Claim], sight: Sight) -> list[Claim]:
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
