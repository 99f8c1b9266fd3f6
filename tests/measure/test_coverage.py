"""What a state holds of the facts worth following, on hand-made and on real states."""

from typing import Any

import pytest

from dssr.measure.audit import action_fraction, coverage, survival
from dssr.worlds.base import KeyFact, find_domain
from dssr.worlds.cooking.recipe import Directive

CARROT, PORK = Directive("dice", "carrot"), Directive("fry", "pork chop")


def facts_of(played: Any) -> tuple[KeyFact, ...]:
    return find_domain("cooking").facts(played.steps, played.episode.reveal)


def test_coverage_is_a_share() -> None:
    """One of two is a half; a recipe without directives has no coverage, not a zero."""
    assert coverage("dice the carrot", (CARROT, PORK)) == 0.5
    assert coverage("anything", ()) is None


def test_action_fraction() -> None:
    """Words inside an action written out count once, other words do not."""
    assert action_fraction("now go north and eat", ["go north", "north"]) == pytest.approx(2 / 5)
    assert action_fraction("", ["go north"]) == 0
    assert action_fraction("north go", ["go north"]) == 0


def test_real_states(lab: Any) -> None:
    """On a real six-room game: the state written at the reveal by a writer that forgets nothing holds the whole
    recipe in every format, and so does `oracle-b`; `lastk` sees only the walk after ten steps and holds nothing."""
    kept = lab.play("valid-6-000", "summary", 256, 10, retention=1.0)
    wanted = facts_of(kept)
    assert len(wanted) >= 3
    assert coverage(kept.steps[kept.episode.reveal].write.state, wanted) == 1
    for memory in ("belief", "slots", "guide", "oracle-b"):
        played = lab.play("valid-6-000", memory, 256, 0, retention=1.0)
        assert coverage(played.steps[played.episode.begin].write.state, wanted) == 1, memory
    gone = lab.play("valid-6-000", "lastk", 64, 10)
    assert coverage(gone.steps[gone.episode.begin].write.state, wanted) == 0


def test_survival_names_the_losing_rewrite(lab: Any) -> None:
    """A forgetful writer loses directives one by one: each loss is at the step where the state before held it and
    the state of the step does not, and never after the directive was carried out."""
    done = lab.play("valid-6-000", "summary", 128, 10, retention=0.7)
    facts = {fact.text: fact for fact in facts_of(done)}
    lost = [mark for mark in survival(tuple(facts.values()), done.steps, done.episode.reveal) if mark.lost]
    assert lost
    for mark in lost:
        fact = facts[mark.fact]
        assert fact.held_in(done.steps[mark.step - 1].write.state)
        assert not fact.held_in(done.steps[mark.step].write.state)
        assert not any(fact.done_by(step.action) for step in done.steps[: mark.step + 1])
