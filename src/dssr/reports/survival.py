"""What single episodes show: when a state held each fact of the task, which rewrite dropped it, where Phase B began."""

from collections.abc import Sequence

import msgspec

from dssr.agent.memory import FULL
from dssr.errors import StatsError
from dssr.measure.audit import retention_rows
from dssr.measure.comparisons import compared
from dssr.measure.log_facts import KEPT, fact_marks, study_facts
from dssr.measure.rows import CellGroup, CellRow, cell_rows, game_values, mean_of
from dssr.measure.study import Study
from dssr.reports.tables import Column, Table
from dssr.stats.bootstrap import Interval
from dssr.types import Cell, Episode, Protocol, Record, Step

EXAMPLES = 6
"""Lost facts, and pairs of writers, that a report shows."""


# ---------------------------------------------------------------- facts in one episode


class Timeline(Record, frozen=True):
    """The facts worth following in one episode, step by step."""

    facts: tuple[str, ...]
    present: tuple[str, ...]
    """Per fact one character a step: `1` when the state held it."""
    done: tuple[int, ...]
    """Per fact the first step after it was carried out; -1 when it never was."""
    reveal: int
    """Step at which the facts were told."""
    begin: int
    """First decision step."""
    spans: tuple[tuple[int, int], ...] = ()
    """Per fact of a log the step that first shows it and the last decision that needs it; none in a game, where all
    facts are told at the reveal and followed until the task begins."""
    kept: frozenset[int] = frozenset()
    """Steps of a log at which the state was not rewritten."""


def timeline(study: Study, episode: Episode, steps: Sequence[Step]) -> Timeline:
    """Follow every fact through an episode; an episode that broke before the reveal has none."""
    reveal = episode.reveal
    if not 0 <= reveal < len(steps):
        return Timeline((), (), (), reveal, episode.begin)
    marks: dict[str, str] = {}
    done: dict[str, int] = {}
    spans: dict[str, tuple[int, int]] = {}
    if study.is_of_logs:
        spans = {fact.text: (fact.seen, fact.last) for fact in study_facts(study, episode, steps)}
    kept = frozenset(step.index for step in steps if step.write.note == KEPT)
    for mark in fact_marks(study, episode, steps):
        present = mark.present or episode.job.cell.memory == FULL
        marks[mark.fact] = marks.get(mark.fact, "0" * reveal) + ("1" if present else "0")
        if mark.done:
            done.setdefault(mark.fact, mark.step)
    # The last step of an episode has no state of its own: nothing is to be decided any more.
    filled = tuple(text.ljust(len(steps), text[-1]) for text in marks.values())
    ends = tuple(done.get(name, -1) for name in marks)
    return Timeline(
        tuple(marks), filled, ends, reveal, episode.begin, tuple(spans[name] for name in marks if spans), kept
    )


def held(one: Timeline, step: int) -> float:
    """Share of the facts that the state of a step holds."""
    return sum(marks[step] == "1" for marks in one.present) / len(one.present) if one.present else 0.0


def is_written(episode: Episode, step: Step) -> bool:
    """Whether the step has a state: all have, but for the one after the last decision."""
    return step.index < episode.begin or step.decision is not None


# ---------------------------------------------------------------- facts by rewrites


class SurvivalCurve(CellGroup, frozen=True):
    """Share of the facts that the state holds, by rewrites since the reveal."""

    share: tuple[float, ...]
    """Mean over episodes, by rewrites."""
    counts: tuple[int, ...]
    """Episodes in each mean."""


class Curves:
    """Share of the facts that the state holds, by rewrites since the reveal, until the task begins.

    Later steps would mislead: what was remembered is carried out and gone, what was forgotten stays to be counted.
    """

    def __init__(self) -> None:
        self._shares: dict[CellGroup, list[list[float]]] = {}

    def add(self, cell: Cell, one: Timeline) -> None:
        """Count one episode."""
        shares = self._shares.setdefault(CellGroup(cell.memory, cell.budget, cell.protocol), [])
        steps = range(len(one.present[0]))
        told = (one.reveal, min(one.begin, steps[-1]))
        lives = [
            [marks[step] == "1" for step in steps if first <= step <= last and step not in one.kept]
            for marks, (first, last) in zip(one.present, one.spans or [told] * len(one.present), strict=True)
        ]
        for rewrites in range(max(map(len, lives))):
            if rewrites == len(shares):
                shares.append([])
            known = [life[rewrites] for life in lives if rewrites < len(life)]
            shares[rewrites].append(sum(known) / len(known))

    def rows(self) -> list[SurvivalCurve]:
        """One curve per memory, budget and protocol."""
        return [
            SurvivalCurve(
                group.memory,
                group.budget,
                group.protocol,
                share=tuple(round(sum(values) / len(values), 4) for values in shares),
                counts=tuple(len(values) for values in shares),
            )
            for group, shares in self._shares.items()
        ]


def retention_table(study: Study) -> Table:
    """What a rewrite does to the facts of the task, per memory and budget."""
    if study.is_of_logs:
        raise StatsError("it is about games; logs have `fact-survival`.")
    columns = [Column("memory", "memory"), Column("budget", "B", "count"), Column("games", "games", "count")]
    columns += [Column("kept", "kept per rewrite %", "percent"), Column("half_life", "half-life, rewrites", "nats")]
    columns += [Column(name, name, "count") for name in ("rewrites", "dropped", "altered", "regained")]
    columns += [Column("held", "held at the first decision %", "percent")]
    columns += [Column("whole", "all held %", "percent"), Column("gone", "none held %", "percent")]
    columns += [Column("filled", "budget used %", "percent")]
    title = f"Facts of the {study.domain.words.task} from its reveal to the first decision"
    return Table("retention", title, tuple(columns), tuple(retention_rows(study)))


# ---------------------------------------------------------------- examples of what was lost


class Loss(Record, frozen=True):
    """A rewrite that dropped a fact which was still needed."""

    memory: str
    budget: int | None
    filler: int
    game: str
    fact: str
    step: int
    rewrites: int
    """Since the reveal."""
    before: str
    """The state that still held it."""
    after: str
    """The state that no longer did."""


def losses(study: Study, limit: int = EXAMPLES) -> list[Loss]:
    """Examples of lost facts, the first of each game and memory, spread over the cells."""
    found: list[Loss] = []
    for game in study.games:
        for cell in study.cells:
            episode = study.episodes[cell].get(game)
            if episode is not None and cell.memory != FULL and len(found) < limit:
                found += first_loss(study, episode, study.steps(episode.key))
    return found


def first_loss(study: Study, episode: Episode, steps: Sequence[Step]) -> list[Loss]:
    """The first rewrite after the reveal that dropped a fact still needed, as a list of one or none."""
    one = timeline(study, episode, steps)
    for step in range(one.reveal + 1, len(steps)):
        for text, marks, done in zip(one.facts, one.present, one.done, strict=True):
            if marks[step - 1 : step + 1] == "10" and not 0 <= done <= step:
                before, after = steps[step - 1].write.state, steps[step].write.state
                cell, game = episode.job.cell, episode.job.game
                since = step - one.reveal
                return [Loss(cell.memory, cell.budget, cell.filler, game, text, step, since, before, after)]
    return []


class SharedPointRow(Record, frozen=True):
    """What one of two writers had kept at a write point that both came to."""

    game: str
    memory: str
    budget: int | None
    filler: int
    step: int
    held: float
    """Share of the facts in the state."""
    state: str
    choice: str | None
    """The reader's most likely action at the first decision from there on; None where there is none."""
    nll: float | None
    """The reader's loss at that decision."""


def shared_point_rows(study: Study, base: str) -> list[SharedPointRow]:
    """Where the base had just lost something, what another writer kept at the very same write point."""
    rows: list[SharedPointRow] = []
    for cell in study.cells:
        if cell.memory != base:
            continue
        for other in study.cells:
            if _same_walk(cell, other) and other.memory not in (base, FULL) and len(rows) < 2 * EXAMPLES:
                rows += _pair(study, cell, other)
    return rows


def _same_walk(one: Cell, other: Cell) -> bool:
    return (one.budget, one.filler, one.protocol) == (other.budget, other.filler, other.protocol)


def _pair(study: Study, cell: Cell, other: Cell) -> list[SharedPointRow]:
    """The first game and step before Phase B where the two states hold different parts of the task."""
    for game in study.games:
        episodes = [study.episodes[one].get(game) for one in (cell, other)]
        if any(episode is None or episode.outcome == "error" for episode in episodes):
            continue
        known = [episode for episode in episodes if episode is not None]
        steps = [study.steps(episode.key) for episode in known]
        if not all(steps):
            continue
        traces = [timeline(study, episode, mine) for episode, mine in zip(known, steps, strict=True)]
        for step in range(known[0].reveal, known[0].begin + 1):
            shares = [held(one, step) for one in traces]
            if shares[0] != shares[1]:
                states = [mine[step].write.state for mine in steps]
                return [
                    SharedPointRow(game, one.memory, one.budget, one.filler, step, share, state, *_choice(mine, step))
                    for one, share, state, mine in zip((cell, other), shares, states, steps, strict=True)
                ]
    return []


def _choice(steps: Sequence[Step], start: int) -> tuple[str | None, float | None]:
    made = next((step.decision for step in steps[start:] if step.decision is not None), None)
    return (None, None) if made is None else (made.argmax, made.nll)


# ---------------------------------------------------------------- by start and by protocol


class StartRow(CellRow, frozen=True):
    """A cell with success split by whether Phase B starts where the task is carried out."""

    home_games: int
    home: Interval | None
    """Success of the games that start there."""
    elsewhere_games: int
    elsewhere: Interval | None


def start_rows(study: Study) -> list[StartRow]:
    """The grid with success split by whether Phase B starts where the task is carried out."""
    rows = []
    for cell, row in zip(study.conditions, cell_rows(study), strict=True):
        first = study.single(cell)[0]  # the seeds of a writer start where it starts
        home: dict[str, float] = {}
        elsewhere: dict[str, float] = {}
        for game, won in _wins(study, cell).items():
            episode = study.episodes[first][game]
            steps = study.steps(episode.key)
            if episode.begin < len(steps):
                side = home if study.domain.is_home(steps[episode.begin].place) else elsewhere
                side[game] = won
        rows.append(
            StartRow(
                **msgspec.structs.asdict(row),
                home_games=len(home),
                home=mean_of(home, study.sampler),
                elsewhere_games=len(elsewhere),
                elsewhere=mean_of(elsewhere, study.sampler),
            )
        )
    return rows


class ProtocolRow(Record, frozen=True):
    """Regret under one protocol and filler, against the first condition of that memory and budget."""

    memory: str
    budget: int | None
    condition: str
    """Protocol and filler in words."""
    kappa: Interval | None
    difference: Interval | None
    """Minus the first condition; None for that one itself."""
    problem: str | None
    """Why the two cannot be compared."""


def _wins(study: Study, cell: Cell) -> dict[str, float]:
    """None where a seed of a pooled writer is missing: its row says so."""
    try:
        return game_values(study, cell, "success")
    except StatsError:
        return {}


def protocol_rows(study: Study) -> list[ProtocolRow]:
    """Regret under each protocol and filler, against the first condition of that memory and budget."""
    study.need_audits()
    if len({cell.protocol for cell in study.cells}) < 2:
        return []
    order = {"pre": 0, "brief": 1, "post": 2, "post-brief": 3}
    cells = sorted(
        (c for c in study.cells if study.audits[c]), key=lambda c: (c.filler > 0, order[c.protocol], c.filler)
    )
    first: dict[tuple[str, int | None], Cell] = {}
    rows = []
    for cell in cells:
        base = first.setdefault((cell.memory, cell.budget), cell)
        values, against = (game_values(study, one, "kappa") for one in (cell, base))
        found = None if cell == base else compared(values, against, "this condition", "the first", study.sampler)
        rows.append(
            ProtocolRow(
                memory=cell.memory,
                budget=cell.budget,
                condition=f"{cell.protocol}, {cell.filler} steps",
                kappa=mean_of(values, study.sampler),
                difference=found.difference if found else None,
                problem=found.problem if found else None,
            )
        )
    memories = list(dict.fromkeys(cell.memory for cell in study.cells))
    return sorted(rows, key=lambda row: (memories.index(row.memory), row.budget or 0))


Condition = tuple[Protocol, bool]
"""A protocol, and whether it has a walk."""
CONTRASTS: tuple[tuple[Condition, Condition], ...] = (
    (("brief", True), ("pre", True)),
    (("post", True), ("pre", False)),
    (("post", True), ("pre", True)),
    (("post-brief", True), ("pre", False)),
    (("brief", True), ("pre", False)),
)
"""Is the walk lag? Shown less again, told before it, both; each against the walk before the reveal or against none."""


class ProtocolContrastRow(Record, frozen=True):
    """Regret under one place of the walk minus regret under another, paired by game."""

    memory: str
    budget: int | None
    contrast: str
    """The two conditions in words."""
    games: int | None
    difference: Interval | None
    problem: str | None
    """Why the two cannot be compared."""


def protocol_contrast_rows(study: Study) -> list[ProtocolContrastRow]:
    """The contrasts of the protocol pilot that the study has both sides of, at its longest walk.

    Without a walk all protocols are one, so any of them serves as the one without.
    """
    study.need_audits()
    if len({cell.protocol for cell in study.cells}) < 2:
        return []
    rows = []
    audited = [cell for cell in study.conditions if any(study.audits[one] for one in study.single(cell))]
    for memory, budget in dict.fromkeys((cell.memory, cell.budget) for cell in audited):
        mine = [cell for cell in audited if (cell.memory, cell.budget) == (memory, budget)]
        longest = max(cell.filler for cell in mine)
        walks = {cell.protocol: cell for cell in mine if cell.filler == longest}
        still = next((cell for cell in sorted(mine, key=lambda c: c.protocol != "pre") if cell.filler == 0), None)
        for (one, _), (other, walked) in CONTRASTS:
            first, second = walks.get(one), walks.get(other) if walked else still
            if first is None or second is None or not longest:
                continue
            values, base = (game_values(study, cell, "kappa") for cell in (first, second))
            name, against = _condition(first), _condition(second)
            found = compared(values, base, name, against, study.sampler)
            contrast = f"{name} minus {against}"
            rows.append(ProtocolContrastRow(memory, budget, contrast, found.games, found.difference, found.problem))
    return rows


def _condition(cell: Cell) -> str:
    return f"{cell.protocol} {cell.filler}" if cell.filler else "no walk"
