"""What looking back buys: per cell of a memory whose reader may see a chunk again, from stored steps alone."""

import numpy as np

from dssr.agent.recall import rule_of
from dssr.errors import StatsError
from dssr.measure.rows import cell_rows, mean_of
from dssr.measure.study import Study
from dssr.reports.tables import Column, Table, per_cent
from dssr.stats.bootstrap import Interval
from dssr.stats.contrasts import binned_means
from dssr.types import Cell, Decision, Recalled


class RecallRow(Cell, frozen=True):
    """One cell."""

    games: int
    """Whose episode was finished."""
    success: Interval | None
    delta: Interval | None
    """With the context that the reader really had: the state, and what it saw again."""
    beta: Interval | None
    kappa: Interval | None
    requests: Interval | None
    """Per game."""
    bought: Interval | None
    """Loss of the reference action without the chunk minus with it, per request."""
    right: Interval | None
    """Requests after which the reference action is the likeliest, less those before which it was, per request."""
    changed: float | None
    """Share of requests that change the likeliest action."""
    reveal: float | None
    """Share of requests for the chunk that tells the task."""
    tokens: float | None
    """Mean tokens that a request adds to the context."""
    tried: float | None
    """Mean chunks that are read for one request."""


def recall_rows(study: Study) -> list[RecallRow]:
    """A row per played cell whose reader may look back."""
    cells = {(row.memory, row.budget, row.filler, row.protocol): row for row in cell_rows(study)}
    rows = []
    for cell in study.cells:
        if rule_of(cell.memory) is None:
            continue
        row = cells[cell.memory, cell.budget, cell.filler, cell.protocol]
        finished = {game: one.key for game, one in study.episodes[cell].items() if one.error is None}
        seen = {game: _requests(study, key) for game, key in finished.items()}
        both = [one for found in seen.values() for one in found]
        every = [one for _, one in both]
        kind = study.domain.words.reveal_chunk.name
        rows.append(
            RecallRow(
                cell.memory,
                cell.budget,
                cell.filler,
                cell.protocol,
                games=row.games,
                success=row.success,
                delta=row.delta,
                beta=row.beta,
                kappa=row.kappa,
                requests=mean_of({game: float(len(found)) for game, found in seen.items()}, study.sampler),
                bought=_per_request(study, {game: [_bought(*one) for one in found] for game, found in seen.items()}),
                right=_per_request(study, {game: [_right(*one) for one in found] for game, found in seen.items()}),
                changed=_mean([choice.argmax != one.argmax_without for choice, one in both]),
                reveal=_mean([one.chunk.kind == kind for one in every]),
                tokens=_mean([one.tokens for one in every]),
                tried=_mean([one.tried for one in every]),
            )
        )
    return rows


def _requests(study: Study, episode: str) -> list[tuple[Decision, Recalled]]:
    made = (step.decision for step in study.steps(episode))
    return [(choice, choice.recall) for choice in made if choice is not None and choice.recall is not None]


def _bought(choice: Decision, seen: Recalled) -> float:
    assert choice.nll is not None, "a reader that looked back was asked"
    return seen.nll_without - choice.nll


def _right(choice: Decision, seen: Recalled) -> float:
    reference = choice.options.reference
    return float(choice.argmax == reference) - float(seen.argmax_without == reference)


def _per_request(study: Study, values: dict[str, list[float]]) -> Interval | None:
    """Mean over requests, with the games resampled; None where there was none."""
    points = [(game, 0.0, value) for game, found in values.items() for value in found]
    return binned_means(points, (0,), study.sampler)[0].interval


def _mean(values: list[bool] | list[int]) -> float | None:
    return float(np.mean(values)) if values else None


def recall_table(study: Study) -> Table:
    """Of memories whose reader may look back."""
    rows = recall_rows(study)
    if not rows:
        raise StatsError("no reader of these runs may look back; play `dssr diagnose --memory summary+recall`.")
    task = study.domain.words.reveal_chunk.words
    columns = [
        Column("memory", "memory"),
        Column("budget", "B", "count"),
        Column("filler", "F′", "count"),
        Column("success", "success %", "percent"),
        Column("delta", "δ", "nats"),
        Column("beta", "β", "nats"),
        Column("kappa", "κ", "nats"),
        Column("requests", "requests a game", "points"),
        Column("bought", "bought a request", "nats"),
        Column("right", "right choices a request, %", "percent"),
        Column("changed", "choice changed %", "percent"),
        Column("reveal", f"{task} %", "percent"),
        Column("tokens", "tokens a request", "points"),
        Column("tried", "chunks read", "points"),
    ]
    if len({cell.protocol for cell in study.cells}) > 1:
        columns.insert(2, Column("protocol", "protocol"))
    note = (
        "δ and κ are those of the context that the reader had, state and chunk; β is that of the budget alone, so κ "
        "can be below zero. Bought: loss of the reference action without the chunk minus with it, over all requests; "
        "right: choices of it gained less lost. Tokens come on top of B, at that decision only. Brackets are "
        f"{per_cent(study.config.stats.level)} percentile intervals over games."
    )
    return Table("recall", "What looking back buys", tuple(columns), tuple(rows), note)
