"""Audits: what a state cost the reader at a decision, and who is to blame for it; and what became of the facts in it.

At a decision point the loss under the state, under the full history and under the read-time oracle give
delta = beta + kappa: what the state lost, what the budget alone would lose, what the writer lost. Beside the losses
stands coverage: which of the facts worth following a state holds, and when one was lost.

Retention is how long facts live in a rewritten state: the share that survives a rewrite, how they go, what is left in
the end. It is counted between the reveal and the first decision, where every fact is still needed and nothing can carry
it out, and needs stored steps and no reader.
"""

import asyncio
import re
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from math import log

import numpy as np

from dssr.agent.episode import Agent
from dssr.agent.leaks import Watch
from dssr.agent.memory import Kit, Prompted, enforce
from dssr.agent.prompts import render_history
from dssr.config import MeasureConfig
from dssr.measure.rows import CellGroup
from dssr.measure.study import Study
from dssr.seeds import seed_of
from dssr.stats.bootstrap import Array, Interval, Resampler
from dssr.types import Audit, Episode, Job, Options, Played, Record, Step, View
from dssr.worlds.base import KeyFact

ORACLE_STYLE = "summary"


def audited_steps(steps: Sequence[Step], job: Job, most: int) -> tuple[int, ...]:
    """Up to `most` decision points of an episode, in order. Which ones is drawn for game, walk and seed but not for the
    memory: memories are compared at the same places of the same games."""
    decisions = [step.index for step in steps if step.decision is not None]
    drawn = ("audit", job.game, job.cell.protocol, job.cell.filler, job.seed)
    order = sorted(range(len(decisions)), key=lambda place: seed_of(*drawn, place))
    return tuple(decisions[place] for place in sorted(order[:most]))


def has_audits(job: Job) -> bool:
    """Regret is measured against the best state of the same budget, so a context without one has none."""
    return job.cell.budget is not None


async def audit_episode(played: Played, goal: str, agent: Agent, measure: MeasureConfig, watch: Watch) -> list[Audit]:
    """The audits of one finished episode, at its seeded points."""
    points = audited_steps(played.steps, played.episode.job, measure.points)
    return list(await asyncio.gather(*(audit(played, step, goal, agent, measure, watch) for step in points)))


async def audit(played: Played, index: int, goal: str, agent: Agent, measure: MeasureConfig, watch: Watch) -> Audit:
    """Losses at one decision point."""
    episode, step = played.episode, played.steps[index]
    options = options_of(step)
    history = history_at(played.steps, index)
    watch.wrote_at(step, episode.job.cell.memory)
    with watch.at(index):
        full, oracle, state = await asyncio.gather(
            agent.reader.nll(goal, history, step.observation, options),
            read_time_oracle(goal, history, step, episode.job, agent, measure, watch),
            state_loss(step, goal, agent),
        )
    facts = agent.worlds.domain.facts(played.steps, episode.reveal)
    return Audit(
        episode=episode.key,
        step=index,
        rewrites=index - episode.reveal,
        nll_state=state,
        nll_full=full,
        nll_oracle=oracle.best,
        oracle_state=oracle.state,
        coverage=coverage(step.write.state, facts),
        nll_first=oracle.first,
        nll_mean=oracle.mean,
    )


class Hindsight(Record, frozen=True):
    """What the read-time oracle's samples lose at one decision point."""

    best: float
    """The lowest loss of all samples."""
    state: str
    """The sample that has it, the first among equals."""
    first: float
    """Loss of the first sample."""
    mean: float
    """Mean loss over all samples, equal texts counted as often as they came."""


async def read_time_oracle(
    goal: str, history: str, step: Step, job: Job, agent: Agent, measure: MeasureConfig, watch: Watch
) -> Hindsight:
    """The losses of states that the untrained writer makes from the whole history at once."""
    assert job.cell.budget is not None, "only cells with a budget are audited"
    samples = await oracle_states(goal, history, job.cell.budget, job.seed, agent, measure, watch)
    options = options_of(step)

    async def loss(state: str) -> float:
        return await agent.reader.nll(goal, state, step.observation, options)

    return await hindsight(samples, loss)


async def oracle_states(
    goal: str, history: str, budget: int, seed: int, agent: Agent, measure: MeasureConfig, watch: Watch
) -> list[str]:
    """The read-time oracle's samples: the untrained writer's states of a history that it sees whole."""
    kit = Kit(
        budget=budget,
        tokenizer=agent.tokenizer,
        model=agent.writer,
        adapter=None,
        temperature=measure.oracle_temperature,
        seed=seed,
    )
    writer = Prompted(kit, agent.prompts.writer(ORACLE_STYLE, budget))
    view = View(goal=goal, last_action=None, observation=history)
    count, heat = measure.oracle_samples, measure.oracle_temperature
    replies = await writer.samples(view, "", heat, count)
    samples = [enforce(reply, budget, agent.tokenizer).state for reply in replies]
    for state in samples:
        watch.wrote(state)
    return samples


async def hindsight(samples: Sequence[str], loss: Callable[[str], Awaitable[float]]) -> Hindsight:
    """The samples' losses; equal texts are read once."""
    states = list(dict.fromkeys(samples))
    losses = await asyncio.gather(*map(loss, states))
    loss_of = dict(zip(states, losses, strict=True))
    best = min(states, key=loss_of.__getitem__)
    every = [loss_of[state] for state in samples]
    return Hindsight(loss_of[best], best, every[0], sum(every) / len(every))


async def state_loss(step: Step, goal: str, agent: Agent) -> float:
    """The loss under the logged state; a decision driven by the reference was not scored when it was made."""
    assert step.decision is not None
    if step.decision.nll is not None:
        return step.decision.nll
    return await agent.reader.nll(goal, step.write.state, step.observation, step.decision.options)


def history_at(steps: Sequence[Step], index: int) -> str:
    """The whole history before the observation at this step: what the memory `full` shows there."""
    return render_history(steps[:index], steps[index].action)


def options_of(step: Step) -> Options:
    """What could be chosen at a decision step."""
    assert step.decision is not None, f"step {step.index} is no decision"
    return step.decision.options


class FactMark(Record, frozen=True):
    """One fact at one step of an episode."""

    fact: str
    step: int
    present: bool
    """The state of the step holds it."""
    done: bool
    """It has been carried out."""
    lost: bool
    """The state before held it, this one does not, and it is still to be done."""


def coverage(state: str, wanted: Sequence[KeyFact]) -> float | None:
    """Share of the facts that the state holds; None where there are none."""
    return sum(fact.held_in(state) for fact in wanted) / len(wanted) if wanted else None


def survival(facts: Sequence[KeyFact], steps: Sequence[Step], reveal: int) -> list[FactMark]:
    """For each fact and step from the reveal on: is it in the state, and has it been carried out?"""
    marks: list[FactMark] = []
    for fact in facts:
        before, done = False, False
        for step in steps[reveal:]:
            if step.decision is None and step.kind == "act":
                break
            done = done or fact.done_by(step.action)
            present = fact.held_in(step.write.state)
            marks.append(FactMark(fact.text, step.index, present, done, before and not present and not done))
            before = present
    return marks


def action_fraction(state: str, actions: Iterable[str]) -> float:
    """Share of the state's words that stand inside one of the actions written out in it."""
    words = re.findall(r"\w+", state.lower())
    inside = [False] * len(words)
    for action in actions:
        phrase = re.findall(r"\w+", action.lower())
        for start in range(len(words) - len(phrase) + 1):
            if phrase and words[start : start + len(phrase)] == phrase:
                inside[start : start + len(phrase)] = [True] * len(phrase)
    return sum(inside) / len(words) if words else 0.0


def holds_action(state: str, actions: Iterable[str]) -> bool:
    """Whether the state contains one of the actions word for word."""
    return action_fraction(state, actions) > 0


# ---------------------------------------------------------------- retention


class RetentionRow(CellGroup, frozen=True):
    """What the rewrites of one memory and budget do to the facts of the task."""

    games: int
    rewrites: int
    """Facts times the rewrites that met them: a fact counts in every rewrite whose input state held it."""
    kept: Interval | None
    """Share of these that the rewritten state still holds."""
    half_life: float | None
    """Rewrites after which half of the facts are gone, `log(1/2) / log(kept)`; None where none was lost."""
    dropped: int
    """Facts that a rewrite left out."""
    altered: int
    """Facts that a rewrite told wrongly: of the same thing something that the task does not ask for."""
    regained: int
    """Facts that came back although a state had lost them: shown again, or guessed."""
    held: Interval | None
    """Share of the facts that the state of the first decision holds."""
    whole: float
    """Share of episodes whose first decision has all facts."""
    gone: float
    """Share of episodes whose first decision has none."""
    filled: float
    """Mean share of the budget that the states take: what is copied blindly fills it."""


@dataclass
class _Count:
    """Of one game."""

    met: int = 0
    kept: int = 0
    held: int = 0
    told: int = 0


def retention_rows(study: Study) -> list[RetentionRow]:
    """One row per memory, budget and protocol with stored steps; all fillers together."""
    found: dict[CellGroup, list[Episode]] = defaultdict(list)
    for cell in study.cells:
        if cell.budget is not None:
            group = CellGroup(cell.memory, cell.budget, cell.protocol)
            found[group] += [one for one in study.episodes[cell].values() if one.error is None]
    rows = (_row(study, group, episodes) for group, episodes in found.items())
    return [row for row in rows if row is not None]


def _row(study: Study, group: CellGroup, episodes: Sequence[Episode]) -> RetentionRow | None:
    """None where no episode has both facts and steps."""
    games: dict[str, _Count] = defaultdict(_Count)
    dropped = altered = regained = 0
    ends: list[float] = []
    fills: list[float] = []
    for episode in episodes:
        steps = study.steps(episode.key)
        facts = study.domain.facts(steps, episode.reveal) if 0 <= episode.reveal < len(steps) else ()
        waiting = _waiting(episode, steps)
        if not facts or not waiting:
            continue
        count = games[episode.job.game]
        held = [[fact.held_in(step.write.state) for fact in facts] for step in waiting]
        for place in range(1, len(waiting)):
            state = waiting[place].write.state
            for fact, before, now in zip(facts, held[place - 1], held[place], strict=True):
                count.met += before
                count.kept += before and now
                regained += now and not before
                if before and not now:
                    wrong = fact.altered_in(state, facts)
                    altered, dropped = altered + wrong, dropped + (not wrong)
        count.held, count.told = count.held + sum(held[-1]), count.told + len(facts)
        ends.append(sum(held[-1]) / len(facts))
        fills += [step.write.tokens / (group.budget or 1) for step in waiting]
    if not ends:
        return None
    kept = _ratio([(one.kept, one.met) for one in games.values()], study.sampler)
    return RetentionRow(
        group.memory,
        group.budget,
        group.protocol,
        games=len(games),
        rewrites=sum(one.met for one in games.values()),
        kept=kept,
        half_life=None if kept is None else half_life(kept.estimate),
        dropped=dropped,
        altered=altered,
        regained=regained,
        held=_ratio([(one.held, one.told) for one in games.values()], study.sampler),
        whole=sum(end == 1 for end in ends) / len(ends),
        gone=sum(end == 0 for end in ends) / len(ends),
        filled=sum(fills) / len(fills),
    )


def half_life(kept: float) -> float | None:
    """Rewrites after which half is gone, when each keeps this share; None when nothing is ever lost.

    With 0.993 it is 98.7 rewrites; with 0.87, 5.
    """
    if kept >= 1:
        return None
    return log(0.5) / log(kept) if kept > 0 else 0.0


def _waiting(episode: Episode, steps: Sequence[Step]) -> Sequence[Step]:
    """The steps from the reveal to the first decision, that one included."""
    return steps[episode.reveal : episode.begin + 1]


def _ratio(parts: Sequence[tuple[int, int]], sampler: Resampler) -> Interval | None:
    """Ratio of sums over games, with the games resampled; None where nothing was counted."""
    table: Array = np.array(parts, dtype=np.float64)
    if not table[:, 1].sum():
        return None
    drawn = sampler.sums(table.T).T
    met = drawn[:, 1] > 0
    return sampler.interval(table[:, 0].sum() / table[:, 1].sum(), drawn[met, 0] / drawn[met, 1], len(table))
