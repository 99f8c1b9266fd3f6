"""Claims as text in the four prompted formats. `parse.py` reads them back.

Sections stand oldest first, so a reader of the text can tell what has not been touched for long.
"""

from typing import Literal

from dssr.models.scripted.claims import Claim

Format = Literal["summary", "belief", "slots", "guide"]
FORMATS: tuple[Format, ...] = ("summary", "belief", "slots", "guide")
SLOTS = ("Progress:", "Attempted actions:", "Saved observations:")
NOTHING = "none"


def render(style: Format, claims: list[Claim]) -> str:
    """The claims as one state."""
    claims = _shown(claims)
    if style == "belief":
        return "\n".join(f"{sentence(claim)} [{_trust(claim)}]" for claim in claims)
    if style == "slots":
        return _slots(claims)
    return " ".join(_status(claims) + _sections(claims))


def sentence(claim: Claim) -> str:
    """One claim by itself."""
    args = claim.args
    if claim.kind == "here":
        return f"you are in the {args[0]}"
    if claim.kind == "carry":
        return f"you carry the {_prepared(args[0], args[1])}"
    if claim.kind == "at":
        return f"the {_prepared(args[0], args[4])} is {args[1]} the {args[2]} in the {args[3]}"
    if claim.kind == "fixture":
        return f"the {args[0]} stands in the {args[1]}" + (f" and is {args[2]}" if args[2] else "")
    if claim.kind == "exit":
        return f"from the {args[0]}: {_way(args)}"
    if claim.kind == "did":
        return f"tried: {args[0]}"
    return f"recipe: {_directive(claim)}"


def _shown(claims: list[Claim]) -> list[Claim]:
    """A bare ingredient says nothing beside its directives."""
    directed = {claim.args[1] for claim in claims if claim.kind == "do"}
    return [claim for claim in claims if not (claim.kind == "need" and claim.args[0] in directed)]


def _trust(claim: Claim) -> str:
    if claim.kind == "exit" and not claim.args[2]:
        return "unsure"
    return "likely" if claim.kind in ("at", "did") else "certain"


def _slots(claims: list[Claim]) -> str:
    tried = ", ".join(claim.args[0] for claim in claims if claim.kind == "did")
    contents = (" ".join(_status(claims)), tried, " ".join(_sections(claims)))
    return "\n".join(f"{label} {content or NOTHING}" for label, content in zip(SLOTS, contents, strict=True))


def _status(claims: list[Claim]) -> list[str]:
    lines = [f"You are in the {claim.args[0]}." for claim in claims if claim.kind == "here"]
    held = [_prepared(*claim.args) for claim in claims if claim.kind == "carry"]
    return lines + ([f"You carry the {', the '.join(held)}."] if held else [])


def _sections(claims: list[Claim]) -> list[str]:
    """Recipe and rooms, the one touched longest ago first."""
    groups: dict[str, list[Claim]] = {}
    for claim in claims:
        name = _section(claim)
        if name is not None:
            groups[name] = [*groups.pop(name, []), claim]
    lines = []
    for name, members in groups.items():
        if name == "":
            lines.append(f"Recipe: {', '.join(_directive(claim) for claim in members)}.")
        else:
            lines += _room(name, members)
    return lines


def _section(claim: Claim) -> str | None:
    if claim.kind in ("need", "do"):
        return ""
    if claim.kind == "at":
        return claim.args[3]
    if claim.kind == "fixture":
        return claim.args[1]
    return claim.args[0] if claim.kind == "exit" else None


def _room(room: str, claims: list[Claim]) -> list[str]:
    parts: dict[str, list[str]] = {}
    for claim in claims:
        if claim.kind == "at":
            name, preposition, holder, _, words = claim.args
            parts.setdefault(f" {preposition} the {holder}", []).append(_prepared(name, words))
    inside = [f"{', '.join(names)}{place}" for place, names in parts.items()]
    inside += [" ".join(filter(None, (c.args[0], c.args[2]))) for c in claims if c.kind == "fixture"]
    ways = [_way(claim.args) for claim in claims if claim.kind == "exit"]
    lines = [f"In the {room}: {'; '.join(inside)}."] if inside else []
    return lines + ([f"From the {room}: {', '.join(ways)}."] if ways else [])


def _way(args: tuple[str, ...]) -> str:
    _, direction, to, door, state = args
    way = f"{direction} to the {to}" if to else f"{direction} unexplored"
    return f"{way} ({state} {door})" if door else way


def _directive(claim: Claim) -> str:
    return f"use the {claim.args[0]}" if claim.kind == "need" else f"{claim.args[0]} the {claim.args[1]}"


def _prepared(name: str, words: str) -> str:
    return f"{words} {name}" if words else name
