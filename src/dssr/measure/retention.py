"""How long facts live in a rewritten state: the share that survives a rewrite, how they go, what is left in the end.

Counted between the reveal and the first decision, where every fact is still needed and nothing can carry it out. Needs
stored steps and no reader.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from math import log

import numpy as np

from dssr.measure.rows import CellGroup
from dssr.measure.study import Study
from dssr.stats.bootstrap import Array, Interval, Resampler
from dssr.types import Episode, Step


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
    drawn = sampler.weights(len(table)) @ table
    met = drawn[:, 1] > 0
    return sampler.interval(table[:, 0].sum() / table[:, 1].sum(), drawn[met, 0] / drawn[met, 1], len(table))
