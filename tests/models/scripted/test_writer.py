"""The forgetful writer forgets only as its description says."""

import random
import re

import pytest
from tests.models.scripted.conftest import Walk

from dssr.models.scripted import FORMATS, Format, parse, rewrite
from dssr.models.scripted import claims as reading
from dssr.models.scripted.claims import Claim, blocks, look, replay, update
from dssr.models.scripted.model import count_tokens
from dssr.models.scripted.writer import _merged, noted
from dssr.types import View

count = count_tokens


def write_all(walk: Walk, style: Format, budget: int, retention: float, seed: int = 0) -> str:
    rng = random.Random(seed)
    state = ""
    for view in walk.views:
        state = rewrite(style, budget, state, view, rng, retention, count)
    return state


def directives(state: str) -> int:
    return sum(claim.kind == "do" for claim in parse(state))


@pytest.mark.parametrize("style", FORMATS)
@pytest.mark.parametrize("budget", [16, 64, 128])
def test_the_budget_holds(style: Format, budget: int, walks: dict[str, Walk]) -> None:
    """Catches a state over its budget, at any step and for any counter."""
    state = ""
    for view in walks["valid-9-000"].views:
        state = rewrite(style, budget, state, view, random.Random(state), 0.9, count)
        assert count(state) <= budget
        shorter = rewrite(style, budget, state, view, random.Random(1), 0.9, len)
        assert len(shorter) <= budget


@pytest.mark.parametrize("style", FORMATS)
def test_nothing_is_lost_without_need(style: Format, walks: dict[str, Walk]) -> None:
    """Catches loss in merging: with retention 1 and room enough, rewriting equals reading the whole history."""
    walk = walks["valid-6-001"]
    kept = [claim for claim in parse(write_all(walk, style, 10_000, 1.0)) if claim.kind != "did"]
    assert {c for c in noted(replay([], walk.history)) if c.kind != "need"} <= set(kept)


def test_lower_retention_keeps_less(walks: dict[str, Walk]) -> None:
    """Catches a retention setting without effect."""

    def size(retention: float) -> int:
        return sum(len(parse(write_all(walk, "summary", 10_000, retention))) for walk in walks.values())

    assert size(1.0) > size(0.95) > size(0.8)


def test_old_claims_go_first() -> None:
    """Catches a missing recency bias: of 40 equal claims the older half must lose more, summed over 60 rewrites."""
    old = " ".join(f"In the room{number}: thing{number} on the shelf." for number in range(40))
    view = View("Eat.", "look", "Nothing.\n\nYou are carrying nothing.")
    lost = [0, 0]
    for seed in range(60):
        state = rewrite("summary", 10_000, old, view, random.Random(seed), 0.9, count)
        kept = {claim.args[0] for claim in parse(state)}
        for number in range(40):
            lost[number >= 20] += f"thing{number}" not in kept
    assert lost[1] > 1.5 * lost[0]


def test_pressure_makes_forgetting_worse() -> None:
    """Catches drift that ignores the budget: the same claims under a tighter budget that still holds them all."""
    old = " ".join(f"In the room{number}: thing{number} on the shelf." for number in range(20))
    view = View("Eat.", "look", "Nothing.\n\nYou are carrying nothing.")
    size = count(rewrite("summary", 10_000, old, view, random.Random(0), 1.0, count))

    def kept(budget: int) -> int:
        return sum(len(parse(rewrite("summary", budget, old, view, random.Random(s), 0.9, count))) for s in range(60))

    assert kept(size) < kept(2 * size)


def test_guide_protects_places() -> None:
    """Catches `guide` behaving like `summary`: it forgets fewer places."""
    old = " ".join(f"In the room{number}: thing{number} on the shelf." for number in range(40))
    view = View("Eat.", "look", "Nothing.\n\nYou are carrying nothing.")

    def lost(style: Format) -> int:
        states = [rewrite(style, 10_000, old, view, random.Random(seed), 0.9, count) for seed in range(20)]
        return sum(40 - sum(claim.kind == "at" for claim in parse(state)) for state in states)

    assert 0 < lost("guide") < 0.5 * lost("summary")


def test_what_was_just_seen_pushes_out_the_recipe() -> None:
    """Catches eviction that ignores age: in a room full of useful things a short summary loses the old recipe, which
    `guide`, whose rule fixes what matters, keeps."""
    old = "From the hall: north to the den. Recipe: slice the pie, fry the tart, dice the cake."
    seen = "-= Den =-\nA den.\n\nYou see a stove. You see a shelf. On the shelf you can make out a pie, a tart, a cake"
    view = View("Eat.", "go north", f"{seen} and a knife.\n\nYou are carrying nothing.")

    def left(style: Format) -> int:
        return sum(directives(rewrite(style, 32, old, view, random.Random(s), 1.0, count)) for s in range(20))

    assert left("summary") < 0.7 * left("guide")


def test_a_whole_history_is_summarised(walks: dict[str, Walk]) -> None:
    """Catches the read-time oracle reading only the first or last block of the history it is given."""
    for walk in walks.values():
        view = View(walk.goal, None, walk.history)
        state = rewrite("summary", 128, "", view, random.Random(0), 0.5, count)
        wanted = [claim for claim in replay([], walk.history) if claim.kind == "do"]
        assert directives(state) >= len(wanted) - 1


def test_lost_directives_may_leave_their_ingredient() -> None:
    """Catches directives that vanish without a trace every time, or never."""
    old = "Recipe: slice the pie, fry the tart, dice the cake."
    view = View("Eat.", "look", "Nothing.\n\nYou are carrying nothing.")
    states = [parse(rewrite("summary", 200, old, view, random.Random(seed), 0.0, count)) for seed in range(50)]
    bare = sum(Claim("need", ("pie",)) in claims and Claim("do", ("slice", "pie")) not in claims for claims in states)
    gone = sum(not any("pie" in claim.args for claim in claims) for claims in states)
    assert bare > 5
    assert gone > 5


def test_what_was_touched_last_stands_first_and_guide_puts_the_recipe_before_it() -> None:
    """Catches an order from which the age of a claim cannot be read, and a guide that lets the recipe drift back."""
    old = "You are in the hall. In the hall: a pie. Recipe: slice the pie."
    view = View("Eat.", "go north", "-= Den =-\nA den.\n\nYou see a stove.\n\nYou are carrying nothing.")
    sections = {
        style: re.findall(r"(?<=\. )(Recipe|In the \w+|From the \w+)", write(style, old, view))
        for style in ("summary", "guide")
    }
    assert sections["summary"] == ["From the hall", "In the den", "In the hall", "Recipe"]
    assert sections["guide"] == ["Recipe", "From the hall", "In the den", "In the hall"]


def write(style: Format, old: str, view: View) -> str:
    return rewrite(style, 10_000, old, view, random.Random(0), 1.0, count)


def test_a_history_is_read_once_for_all_samples(walks: dict[str, Walk]) -> None:
    """Catches a history replayed for each of eight samples, or anew for each longer one, and a stored reading that
    differs from a fresh one or that a sample changes."""
    walk = walks["valid-9-000"]
    history = walk.history
    views = [View(walk.goal, None, history[: history.index(f"> {step.action}")]) for step in walk.steps[20:40:5]]
    seeds = range(8)

    def states() -> list[str]:
        return [rewrite("summary", 64, "", view, random.Random(seed), 0.8, count) for view in views for seed in seeds]

    for memo in (reading._replayed, reading._stepped, _merged):
        memo.forget()
    first = states()
    read = reading._stepped.computed
    assert read <= 2 * len(blocks(history))
    assert states() == first
    assert reading._stepped.computed == read
    fresh: list[Claim] = []
    for action, observation in blocks(views[-1].observation):
        fresh = update(fresh, action, look(observation))
    assert replay([], views[-1].observation) == fresh
