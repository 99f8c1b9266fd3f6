"""A study as data frames, one flat row per record, and as a small table for notebooks.

An interval `x` takes three columns: `x`, `x_low`, `x_high`. Frames of nothing keep their columns and types.
"""

from collections.abc import Callable, Iterable, Iterator
from html import escape
from types import UnionType
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin

import msgspec

from dssr.errors import UsageError
from dssr.measure.comparisons import ContrastRow, RelationRow, contrast_rows, relation
from dssr.measure.lag import ChunkRow, LagBinRow, RewriteRow, chunk_rows, lag_bin_rows, relevance, rewrite_rows
from dssr.measure.rows import (
    CellRow,
    FillerRow,
    SlopeRow,
    cell_rows,
    columns,
    filler_rows,
    flat,
    interval_fields,
    slope_rows,
)
from dssr.measure.sampled import FillerLagRow, LagTableRow, TieRow, filler_lag_rows, lag_table_rows, tie_rows
from dssr.measure.study import Problem, Study
from dssr.measure.verdicts import AnswerRow, answer_rows
from dssr.stats.bootstrap import Interval, Unit
from dssr.types import Cell, Driver, Kind, Outcome, Record, Split

if TYPE_CHECKING:
    import polars

# ---------------------------------------------------------------- records of a run as flat rows


class EpisodeRow(Cell, frozen=True):
    """One episode."""

    game: str
    episode: str
    """Key of the episode; steps, audits and lags name it too."""
    split: Split
    level: int
    outcome: Outcome
    success: bool | None
    """None when the episode broke: such an episode is not lost."""
    score: int
    max_score: int
    steps: int
    reveal: int
    """Step whose observation tells the task."""
    begin: int
    """First step with a decision."""
    truncations: int
    seed: int
    driver: Driver
    error: str | None


class StepRow(Cell, frozen=True):
    """One step: what was seen, kept and done."""

    game: str
    episode: str
    step: int
    kind: Kind
    place: str
    arrived_by: str | None
    """The action that led here."""
    observation: str
    state: str
    tokens: int
    raw_tokens: int
    truncated: bool
    note: str | None
    """What was odd about the writer's reply."""
    action: str | None
    """What was played from here; None where there was nothing to decide."""
    argmax: str | None
    """The reader's own choice."""
    reference: str | None
    """The reference action."""
    nll: float | None
    """The reader's loss of the reference action, in nats."""
    recalled: str | None
    """Title of the chunk that the reader saw again for it."""
    nll_without: float | None
    """Its loss without that chunk."""


class AuditRow(Cell, frozen=True):
    """Losses at one audited decision, in nats: delta = beta + kappa."""

    game: str
    episode: str
    step: int
    rewrites: int
    """Writes since the reveal."""
    delta: float
    beta: float
    kappa: float
    nll_state: float
    nll_full: float
    nll_oracle: float
    coverage: float | None
    oracle_state: str
    nll_first: float | None
    """Loss under the oracle's first sample; None in runs of before."""
    nll_mean: float | None
    """Mean loss under its samples."""
    kappa_first: float | None
    kappa_mean: float | None


class LagRow(Cell, frozen=True):
    """The relevance lag of one decision, at the threshold in use."""

    game: str
    episode: str
    step: int
    lag: int | None
    """Steps since the chunk that the decision hangs on most; None where no chunk matters by the threshold."""
    kind: str | None
    """Of that chunk."""
    rise: float | None
    """Loss without that chunk minus loss with it, in nats."""
    nll_full: float


def _episodes(study: Study) -> Iterator[EpisodeRow]:
    for cell, games in study.episodes.items():
        for game, one in games.items():
            yield EpisodeRow(
                **msgspec.structs.asdict(cell),
                game=game,
                episode=one.key,
                split=one.split,
                level=one.level,
                outcome=one.outcome,
                success=None if one.outcome == "error" else one.outcome == "won",
                score=one.score,
                max_score=one.max_score,
                steps=one.steps,
                reveal=one.reveal,
                begin=one.begin,
                truncations=one.truncations,
                seed=one.job.seed,
                driver=one.job.driver,
                error=one.error,
            )


def _steps(study: Study) -> Iterator[StepRow]:
    for cell, games in study.episodes.items():
        for game, episode in games.items():
            for one in study.steps(episode.key):
                write, decision = one.write, one.decision
                recall = decision.recall if decision else None
                yield StepRow(
                    **msgspec.structs.asdict(cell),
                    game=game,
                    episode=episode.key,
                    step=one.index,
                    kind=one.kind,
                    place=one.place,
                    arrived_by=one.action,
                    observation=one.observation,
                    state=write.state,
                    tokens=write.tokens,
                    raw_tokens=write.raw_tokens,
                    truncated=write.truncated,
                    note=write.note,
                    action=decision.action if decision else None,
                    argmax=decision.argmax if decision else None,
                    reference=decision.options.reference if decision else None,
                    nll=decision.nll if decision else None,
                    recalled=recall.title if recall else None,
                    nll_without=recall.nll_without if recall else None,
                )


def _audits(study: Study) -> Iterator[AuditRow]:
    for cell, games in study.audits.items():
        for game, audits in games.items():
            for one in audits:
                yield AuditRow(
                    **msgspec.structs.asdict(cell),
                    **msgspec.structs.asdict(one),
                    game=game,
                    delta=one.delta,
                    beta=one.beta,
                    kappa=one.kappa,
                    kappa_first=one.kappa_first,
                    kappa_mean=one.kappa_mean,
                )


def _lags(study: Study) -> Iterator[LagRow]:
    threshold = study.config.measure.lag_threshold
    for cell, games in study.episodes.items():
        for game, episode in games.items():
            for step, lag in sorted(study.lags.get(episode.key, {}).items()):
                found = relevance(lag, threshold)
                yield LagRow(
                    **msgspec.structs.asdict(cell),
                    game=game,
                    episode=episode.key,
                    step=step,
                    lag=found.lag if found else None,
                    kind=found.kind if found else None,
                    rise=found.rise if found else None,
                    nll_full=lag.nll_full,
                )


def _relation(study: Study) -> list[RelationRow]:
    found = relation(study)
    return [found] if found else []


# ---------------------------------------------------------------- frames

FRAMES: dict[str, tuple[type[Record], Callable[[Study], Iterable[Record]]]] = {
    "cells": (CellRow, cell_rows),
    "answers": (AnswerRow, answer_rows),
    "contrasts": (ContrastRow, contrast_rows),
    "fillers": (FillerRow, filler_rows),
    "slopes": (SlopeRow, slope_rows),
    "rewrites": (RewriteRow, rewrite_rows),
    "lag_bins": (LagBinRow, lag_bin_rows),
    "lag_table": (LagTableRow, lag_table_rows),
    "filler_lags": (FillerLagRow, filler_lag_rows),
    "chunks": (ChunkRow, chunk_rows),
    "ties": (TieRow, tie_rows),
    "relation": (RelationRow, _relation),
    "episodes": (EpisodeRow, _episodes),
    "steps": (StepRow, _steps),
    "audits": (AuditRow, _audits),
    "lags": (LagRow, _lags),
    "problems": (Problem, lambda study: study.problems),
}
"""Name of a frame to the kind of its rows and what makes them."""


def frame(study: Study, name: str) -> "polars.DataFrame":
    """One of `FRAMES`, as a polars data frame."""
    if name not in FRAMES:
        raise UsageError(f"A study has no frame {name!r}; there are {', '.join(FRAMES)}.")
    import polars

    kind, make = FRAMES[name]
    types = {bool: polars.Boolean, int: polars.Int64, float: polars.Float64, str: polars.String}
    schema = {column: types[of] for column, of in column_types(kind).items()}
    return polars.DataFrame([flat(row) for row in make(study)], schema=schema)


def column_types(kind: type[Record]) -> dict[str, type]:
    """The columns of a kind of row, as `flat` makes them, and what each holds."""
    found: dict[str, type] = {}
    for field in msgspec.structs.fields(kind):
        if field.name in interval_fields(kind):
            found |= dict.fromkeys(columns(field.name, None), float)
        else:
            found[field.name] = _scalar(field.type)
    return found


def _scalar(of: Any) -> type:
    """The plain type behind an optional or a choice of names."""
    if get_origin(of) in (Union, UnionType):
        return _scalar(next(one for one in get_args(of) if one is not type(None)))
    if get_origin(of) is Literal:
        return type(get_args(of)[0])
    assert isinstance(of, type), f"{of} is no type of a column"
    return of


# ---------------------------------------------------------------- notebooks

HEADS = ("memory", "budget", "filler", "protocol", "games", "success", "δ", "β", "κ")


def notebook_html(study: Study) -> str:
    """The cells with their intervals and the answers in words, as HTML that needs nothing else."""
    lines: list[tuple[object, ...]] = [
        (
            *(row.memory, row.budget, row.filler, row.protocol, row.games),
            _shown(row.success, "percent"),
            *map(_shown, (row.delta, row.beta, row.kappa)),
        )
        for row in cell_rows(study)
    ]
    head = "".join(f"<th>{escape(name)}</th>" for name in HEADS)
    body = "".join(f"<tr>{''.join(map(_cell, line))}</tr>" for line in lines)
    answers = answer_rows(study) if any(study.audits.values()) else []
    said = "".join(f"<li>{escape(row.sentence)}</li>" for row in answers)
    runs = ", ".join(run.path.name for run in study.runs)
    return (
        f"<div><p><b>Study</b> of {escape(runs)}: {len(study.games)} games, {len(study.cells)} cells; "
        f"success is in %, losses are in nats.</p>"
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        f"{f'<ul>{said}</ul>' if said else ''}</div>"
    )


def _cell(value: object) -> str:
    return f"<td>{'–' if value is None else escape(str(value))}</td>"


def _shown(found: Interval | None, unit: Unit = "nats") -> str | None:
    return None if found is None else found.text(unit)
