"""Claims as text in the four prompted formats. `parse.py` reads them back.

Sections stand newest first: who copies a state until the budget ends loses what was not touched for long. Only `guide`
puts the recipe before everything else.
"""

from typing import Literal

from dssr.models.scripted.claims import Claim

Format = Literal["summary", "belief", "slots", "guide"]
FORMATS: tuple[Format, ...] = ("summary", "belief", "slots", "guide")
SLOTS = ("Progress:", "Attempted actions:", "Saved observations:")
NOTHING = "none"
RECIPE = "Recipe"


def render(style: Format, claims: list[Claim]) -> str:
    """The claims as one state."""
    claims = _shown(claims)
    if style == "belief":
        return "\n".join(f"{sentence(claim)} [{_trust(claim)}]" for claim in reversed(claims))
    if style == "slots":
        return _slots(claims)
    sections = _sections(claims)
    if style == "guide":
        sections.sort(key=lambda line: not line.startswith(RECIPE))
    return " ".join(_status(claims) + sections)


def sentence(claim: Claim) -> str:
    """One claim by itself."""
    args = claim.args
    if claim.kind == "here":
        return f"you are in the {args[0]}"
    if claim.kind == "carry":
        return f"you carry the {_prepared(args[0], args[1])}"
    if claim.kind == "at":
        return f"the {_prepared(args[0], args[4])} is {_placed(args)}in the {args[3]}"
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
    return lines + ([f"You carry {', '.join(map(_one, held))}."] if held else [])


def _sections(claims: list[Claim]) -> list[str]:
    """Recipe and rooms, the one touched last first."""
    groups: dict[str, list[Claim]] = {}
    for claim in claims:
        name = _section(claim)
        if name is not None:
            groups[name] = [*groups.pop(name, []), claim]
    return [f"{name}: {_listed(members)}." for name, members in reversed(groups.items())]


def _section(claim: Claim) -> str | None:
    if claim.kind in ("need", "do"):
        return RECIPE
    if claim.kind == "at":
        return f"In the {claim.args[3]}"
    if claim.kind == "fixture":
        return f"In the {claim.args[1]}"
    return f"From the {claim.args[0]}" if claim.kind == "exit" else None


def _listed(claims: list[Claim]) -> str:
    """The claims of one section."""
    if claims[0].kind in ("need", "do"):
        return ", ".join(map(_directive, claims))
    if claims[0].kind == "exit":
        return ", ".join(_way(claim.args) for claim in claims)
    return ", ".join(map(_inside, claims))


def _inside(claim: Claim) -> str:
    """A thing or a piece of furniture in the list of its room."""
    if claim.kind == "fixture":
        return " ".join(filter(None, (claim.args[0], claim.args[2])))
    return f"{_one(_prepared(claim.args[0], claim.args[4]))} {_placed(claim.args)}".rstrip()


def _one(name: str) -> str:
    """The name as the game lists it, so that a writer can copy it."""
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"


def _placed(args: tuple[str, ...]) -> str:
    """Where in its room a thing is, if that is told."""
    return f"{args[1]} the {args[2]} " if args[2] else ""


def _way(args: tuple[str, ...]) -> str:
    _, direction, to, door, state = args
    way = f"{direction} to the {to}" if to else f"{direction} unexplored"
    return f"{way} ({state} {door})" if door else way


def _directive(claim: Claim) -> str:
    return f"use the {claim.args[0]}" if claim.kind == "need" else f"{claim.args[0]} the {claim.args[1]}"


def _prepared(name: str, words: str) -> str:
    return f"{words} {name}" if words else name
