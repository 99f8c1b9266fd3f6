"""States in the four formats say what they are asked to say, and can be read back."""

import pytest
from tests.models.scripted.conftest import Walk

from dssr.models.scripted import FORMATS, Format, parse, render, understand
from dssr.models.scripted.claims import Claim, replay
from dssr.models.scripted.formats import SLOTS
from dssr.models.scripted.writer import noted


def said(claims: list[Claim]) -> set[Claim]:
    """Without the ingredients that their directives imply."""
    directed = {claim.args[1] for claim in claims if claim.kind == "do"}
    return {claim for claim in claims if not (claim.kind == "need" and claim.args[0] in directed)}


@pytest.mark.parametrize("style", FORMATS)
def test_states_are_read_back_whole(style: Format, walks: dict[str, Walk]) -> None:
    """Catches a format that its own parser cannot read: every lost claim would look like forgetting."""
    for walk in walks.values():
        claims = noted(replay([], walk.history))
        assert set(parse(render(style, claims))) == said(claims)


@pytest.mark.parametrize("style", FORMATS)
def test_odd_names_survive(style: Format) -> None:
    """Catches names recognised from a list: renamed games must read the same."""
    claims = [
        Claim("exit", ("oak hall", "north", "", "", "")),
        Claim("exit", ("oak hall", "east", "den", "red-hot gate", "closed")),
        Claim("at", ("glim of zarf", "in", "tin chest", "oak hall", "diced")),
        Claim("fixture", ("tin chest", "oak hall", "open")),
        Claim("need", ("plain zarf",)),
        Claim("do", ("grill", "glim of zarf")),
        Claim("carry", ("zorb's egg", "sliced fried")),
        Claim("here", ("oak hall",)),
    ]
    assert set(parse(render(style, claims))) == set(claims)


def test_shapes(walks: dict[str, Walk]) -> None:
    """Catches a format that breaks its own instruction."""
    claims = replay([], walks["train-6-000"].history)
    assert all(line.endswith(("[certain]", "[likely]", "[unsure]")) for line in render("belief", claims).splitlines())
    slots = render("slots", claims).splitlines()
    assert len(slots) == 3
    assert all(line.startswith(label) for line, label in zip(slots, SLOTS, strict=True))
    assert "\n" not in render("summary", claims)


def test_a_state_followed_by_raw_steps(walks: dict[str, Walk]) -> None:
    """Catches the window context being read as state only, or as history only."""
    walk = walks["valid-6-000"]
    early = Claim("at", ("moon pie", "on", "stool", "cellar", ""))
    context = f"{render('summary', [early])}\n\n{walk.history}"
    claims = understand(context)
    assert early in claims
    assert set(replay([], walk.history)) <= set(claims)
