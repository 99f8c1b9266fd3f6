"""A claim is one atomic fact a memory can hold or lose; a list of claims, oldest first, is all a scripted writer knows.

Names come from the text alone: no list of foods, rooms or doors is built in. Only the recipe's verbs, the tool and
the appliances they need are fixed, because the game's rules fix them.
"""

from typing import Literal, NamedTuple

from dssr.worlds.cooking.words import COOKS, KNIFE, VERBS

Kind = Literal["here", "carry", "at", "fixture", "exit", "need", "do", "did", "way"]

TOOL = KNIFE
APPLIANCES = {verb: VERBS[verb].tool for verb in COOKS}
"""Cooking verb to the appliance that does it."""
PARTICIPLES = {verb: row.done for verb, row in VERBS.items()}
"""Recipe verb to the word that shows it was done."""
FLOOR = "floor"


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
