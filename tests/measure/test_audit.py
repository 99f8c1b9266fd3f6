"""Audits on real games: the identity, the oracle's terms, the choice of points."""

import asyncio
import math
from typing import Any

import msgspec
import pytest

from dssr.agent.leaks import Watch
from dssr.config import MeasureConfig
from dssr.measure.audit import audit, audit_episode, audited_steps
from dssr.types import Audit

MEASURE = MeasureConfig(oracle_samples=3)
GAME = "valid-6-000"


@pytest.fixture(scope="module", params=["summary", "belief", "lastk", "oracle-b"])
def audited(request: Any, lab: Any) -> tuple[Any, list[Audit]]:
    played = lab.play(GAME, request.param, 64, 10, retention=0.8)
    agent = lab.agent(0.8)
    return played, asyncio.run(audit_episode(played, goal_of(lab), agent, MEASURE, Watch("", "")))


def goal_of(lab: Any) -> str:
    with lab.worlds.playing(GAME) as world:
        return str(world.goal)


def test_delta_is_beta_plus_kappa(audited: tuple[Any, list[Audit]]) -> None:
    """The identity at every audited point, to rounding, with finite losses."""
    _, found = audited
    assert found
    for one in found:
        assert math.isfinite(one.nll_state + one.nll_full + one.nll_oracle)
        assert one.delta == pytest.approx(one.beta + one.kappa, abs=1e-12)


def test_losses_are_the_readers(audited: tuple[Any, list[Audit]], lab: Any) -> None:
    """Each loss is the reader's own for that context, with history and label order rebuilt here by hand."""
    played, found = audited
    agent, goal = lab.agent(0.8), goal_of(lab)
    for one in found:
        step = played.steps[one.step]
        blocks = [played.steps[0].observation]
        blocks += [f"> {past.action}\n{past.observation}" for past in played.steps[1 : one.step]]
        history = "\n\n".join([*blocks, f"> {step.action}"])
        options = step.decision.options
        place = options.actions.index(options.reference)
        for context, stored in (
            (step.write.state, one.nll_state),
            (history, one.nll_full),
            (one.oracle_state, one.nll_oracle),
        ):
            with Watch("", "").at(step.index):
                again = asyncio.run(agent.reader.score(goal, context, step.observation, options.actions))
            assert -again[place] == pytest.approx(stored)
        assert len(agent.reader.tokenizer.encode(one.oracle_state)) <= 64
        assert one.rewrites == one.step - played.episode.reveal


def test_points_are_seeded_decisions(audited: tuple[Any, list[Audit]]) -> None:
    """At most six, all decisions, in order; the same places for every memory, others for another seed."""
    played, found = audited
    decisions = [step.index for step in played.steps if step.decision is not None]
    points = audited_steps(played.steps, played.episode.job, 6)
    assert [one.step for one in found] == list(points) == sorted(points)
    assert len(points) == min(6, len(decisions))
    assert set(points) <= set(decisions)
    job = played.episode.job
    assert audited_steps(played.steps, job, 1000) == tuple(decisions)
    other = msgspec.structs.replace(job, cell=msgspec.structs.replace(job.cell, memory="guide", budget=32))
    assert audited_steps(played.steps, other, 6) == points
    seeded = {audited_steps(played.steps, msgspec.structs.replace(job, seed=seed), 6) for seed in range(20)}
    assert len(seeded) > 1


def test_the_oracle_keeps_its_best_sample(lab: Any) -> None:
    """More samples never make the oracle worse, since the first ones stay the same; and some point gains."""
    played, agent, goal = lab.play(GAME, "summary", 24, 10, retention=0.5), lab.agent(0.5), goal_of(lab)
    points = audited_steps(played.steps, played.episode.job, 4)
    configs = [MeasureConfig(oracle_samples=samples) for samples in (1, 4, 8)]
    losses = [
        [asyncio.run(audit(played, point, goal, agent, one, Watch("", ""))).nll_oracle for point in points]
        for one in configs
    ]
    assert all(a >= b >= c for a, b, c in zip(*losses, strict=True))
    assert losses[0] != losses[2]


def test_the_first_sample_and_the_mean_are_kept_beside_the_best(lab: Any) -> None:
    """From the same samples: the first alone is what one sample gives, the mean lies between best and worst, and equal
    texts count as often as they came. Choosing the best lowers the reference, so kappa against it is never lower."""
    played, agent, goal = lab.play(GAME, "summary", 24, 10, retention=0.5), lab.agent(0.5), goal_of(lab)
    points = audited_steps(played.steps, played.episode.job, 4)
    one, eight = (
        [asyncio.run(audit(played, p, goal, agent, MeasureConfig(oracle_samples=count), Watch("", ""))) for p in points]
        for count in (1, 8)
    )
    for alone, best in zip(one, eight, strict=True):
        assert alone.nll_first == alone.nll_mean == alone.nll_oracle
        assert best.nll_first == alone.nll_oracle
        assert best.nll_mean is not None
        assert best.nll_mean >= best.nll_oracle
        assert best.kappa_first is not None
        assert best.kappa >= best.kappa_first
        assert best.kappa_mean == best.nll_state - best.nll_mean
    assert any(a.nll_mean != a.nll_oracle for a in eight)
    before = msgspec.json.decode(
        b'{"episode":"e","step":1,"rewrites":0,"nll_state":1,"nll_full":0,"nll_oracle":0,"oracle_state":"",'
        b'"coverage":null}',
        type=Audit,
    )
    assert (before.kappa_first, before.kappa_mean) == (None, None), "runs of before still open"


def test_a_reader_that_looked_back_is_audited_with_what_it_saw(lab: Any) -> None:
    """Catches delta and kappa of the state alone where the reader had a chunk beside it."""
    played = lab.play(GAME, "summary+unsure", 64, 10, retention=0.5)
    agent, goal = lab.agent(0.5), goal_of(lab)
    every = MeasureConfig(points=50, oracle_samples=1)
    found = asyncio.run(audit_episode(played, goal, agent, every, Watch("", "")))
    seen = {step.index: step.decision.recall for step in played.steps if step.decision and step.decision.recall}
    assert seen
    assert any(one.nll_state != seen[one.step].nll_without for one in found if one.step in seen)
    for one in found:
        step = played.steps[one.step]
        context = step.write.state
        if one.step in seen:
            chunk = seen[one.step].chunk
            past = played.steps[chunk.first : chunk.last + 1]
            blocks = [s.observation if s.action is None else f"> {s.action}\n{s.observation}" for s in past]
            context = "\n\n".join([context, *blocks])
        with Watch("", "").at(step.index):
            again = asyncio.run(agent.reader.nll(goal, context, step.observation, step.decision.options))
        assert again == pytest.approx(one.nll_state)
