"""A writer that forgets in a documented way: the stand-in for a prompted language model.

It notes where it is, what it carries, the recipe, where foods, the knife and the appliances are, and the ways it has
walked. Each rewrite merges the previous state with the new observation without error, and then loses claims twice:
1. *Drift.* A claim that the observation does not show again is dropped with chance
   (1 - retention) * (0.5 + age) * (1 + pressure) * care. Age runs from 0 (newest in the text) to 1 (oldest);
   pressure is twice what the full text takes beyond three quarters of the budget, in budgets, at most 1.5;
   care is below 1 for what the format's instruction protects. Half of the lost directives leave the bare
   ingredient behind.
2. *Budget.* What still does not fit goes in order of worth: kind of claim, less for age, plus noise. Age costs so
   much that what was just seen pushes out what was learned long ago; under `guide`, whose rule names what to keep,
   it costs little.
States are written newest first, `guide` with the recipe before all (`formats.py`), so one that is cut off loses its
oldest part, or under `guide` the oldest places.
With retention 1 only the budget takes anything. The generator passed in decides; equal generators, equal states.
"""

import random
from collections.abc import Callable

from dssr.models.cache import remembered
from dssr.models.scripted.claims import (
    APPLIANCES,
    TOOL,
    Claim,
    blocks,
    here,
    ingredients,
    key,
    look,
    put,
    replay,
    update,
)
from dssr.models.scripted.formats import Format, parse, render
from dssr.types import View

TRIED = 6
"""Commands that `slots` tries to remember."""
NOISE = 0.5
AGE_COST: dict[Format, float] = {"summary": 3.0, "belief": 3.0, "slots": 3.0, "guide": 1.0}
MOST_PRESSURE = 1.5
LEFT_BEHIND = 0.5
"""Chance that a lost directive still leaves its ingredient."""

Sort = str
"""What a claim is to the writer; the keys of WORTH."""
WORTH: dict[Sort, float] = {
    "here": 99.0,
    "directive": 6.0,
    "ingredient": 5.5,
    "tool": 5.0,
    "appliance": 4.5,
    "way": 4.5,
    "food": 4.0,
    "carried": 3.0,
    "spare": 2.0,
    "tried": 4.0,
}
GUIDE_CARE: dict[Sort, float] = {
    "directive": 0.35,
    "ingredient": 0.2,
    "tool": 0.2,
    "appliance": 0.2,
    "way": 0.2,
    "food": 0.2,
    "spare": 0.2,
}
"""Chance of drift under `guide`, relative to `summary`."""
GUIDE_WORTH: dict[Sort, float] = {"food": 4.5, "carried": 1.5, "tried": 0.5}


def rewrite(
    style: Format,
    budget: int,
    previous: str,
    view: View,
    rng: random.Random,
    retention: float,
    count_tokens: Callable[[str], int],
) -> str:
    """The next state, at most `budget` tokens by `count_tokens`."""
    claims, ages, whole = _merged(style, previous, view)
    pressure = min(max(2 * (count_tokens(whole) / budget - 0.75), 0.0), MOST_PRESSURE)
    kept = _drift(style, claims, ages, (1 - retention) * (1 + pressure), rng)
    return _fit(style, kept, ages, budget, rng, count_tokens)


@remembered(4_000_000, lambda style, previous, view: len(previous) + len(view.observation))
def _merged(style: Format, previous: str, view: View) -> tuple[list[Claim], dict[Claim, float], str]:
    """All that is worth a note, the age of what was not just seen, and the text of it all; the samples of one write
    begin with the same, and none changes it."""
    old = parse(previous)
    claims = noted(_merge(old, view, style))
    place = here(old)
    fresh = {key(claim) for claim in _merge([Claim("here", (place,))] if place else [], view, style)}
    stale = [claim for claim in claims if key(claim) not in fresh]
    ages = {claim: 1 - index / max(len(stale) - 1, 1) for index, claim in enumerate(stale)}
    return claims, ages, render(style, claims)


def noted(claims: list[Claim]) -> list[Claim]:
    """What is worth a note: which room a thing is in, no plain furniture, no way that was not walked, no door."""
    kept: list[Claim] = []
    for claim in claims:
        if claim.kind == "at":
            kept.append(Claim("at", (claim.args[0], "", "", *claim.args[3:])))
        elif claim.kind == "fixture" and claim.args[0] in APPLIANCES.values():
            kept.append(Claim("fixture", (*claim.args[:2], "")))
        elif claim.kind == "exit" and claim.args[2]:
            kept.append(Claim("exit", (*claim.args[:3], "", "")))
        elif claim.kind not in ("fixture", "exit"):
            kept.append(claim)
    return kept


def _merge(claims: list[Claim], view: View, style: Format) -> list[Claim]:
    if len(blocks(view.observation)) > 1:
        return replay(claims, view.observation)
    claims = update(claims, view.last_action, look(view.observation))
    if style != "slots" or view.last_action is None:
        return claims
    claims = put(claims, Claim("did", (view.last_action,)))
    tried = [claim for claim in claims if claim.kind == "did"]
    return [claim for claim in claims if claim not in tried[:-TRIED]]


def _drift(
    style: Format, claims: list[Claim], ages: dict[Claim, float], chance: float, rng: random.Random
) -> list[Claim]:
    kept = []
    needed = ingredients(claims)
    for claim in claims:
        sort = _sort(claim, needed)
        care = GUIDE_CARE.get(sort, 1.0) if style == "guide" else 1.0
        lost = claim in ages and sort != "here" and rng.random() < chance * (0.5 + ages[claim]) * care
        if not lost:
            kept.append(claim)
        elif claim.kind == "do" and rng.random() < LEFT_BEHIND:
            kept.append(Claim("need", (claim.args[1],)))
    return list(dict.fromkeys(kept))


def _fit(
    style: Format,
    claims: list[Claim],
    ages: dict[Claim, float],
    budget: int,
    rng: random.Random,
    count_tokens: Callable[[str], int],
) -> str:
    """The longest rendering of the worthiest claims that the budget holds."""
    needed = ingredients(claims)
    worth = {
        c: _worth(style, _sort(c, needed)) - AGE_COST[style] * ages.get(c, 0.0) + rng.gauss(0, NOISE) for c in claims
    }
    ranked = sorted(claims, key=lambda claim: -worth[claim])
    low, high = 0, len(ranked)
    while low < high:
        middle = (low + high + 1) // 2
        if count_tokens(_text(style, claims, ranked[:middle])) <= budget:
            low = middle
        else:
            high = middle - 1
    text = _text(style, claims, ranked[:low])
    return text if count_tokens(text) <= budget else ""  # even the bare slots may be too long


def _text(style: Format, claims: list[Claim], kept: list[Claim]) -> str:
    chosen = set(kept)
    return render(style, [claim for claim in claims if claim in chosen])


def _worth(style: Format, sort: Sort) -> float:
    return GUIDE_WORTH.get(sort, WORTH[sort]) if style == "guide" else WORTH[sort]


def _sort(claim: Claim, needed: list[str]) -> Sort:
    if claim.kind in ("need", "do"):
        return "directive"
    if claim.kind == "at":
        if claim.args[0] == TOOL:
            return "tool"
        return "ingredient" if claim.args[0] in needed else "spare" if needed else "food"
    return {"here": "here", "carry": "carried", "did": "tried", "fixture": "appliance", "exit": "way"}[claim.kind]
