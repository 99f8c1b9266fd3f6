"""Which round of which variant is kept: validation success, averaged over the fillers. Pure functions."""

from collections.abc import Iterable, Sequence
from statistics import mean

from dssr.errors import StatsError
from dssr.types import Record, RoundResult

UNTRAINED = "untrained"
BEFORE = -1
"""The round of the untrained writer."""


class Standing(Record, frozen=True):
    """One writer after one round."""

    writer: str
    seed: int
    round: int
    success: float
    """Averaged over the fillers."""


def standings(rows: Iterable[RoundResult]) -> list[Standing]:
    """Every trained round, in the order of the rows; all must have been validated at the same fillers."""
    found: dict[tuple[str, int, int], dict[int, float]] = {}
    for row in rows:
        if row.writer != UNTRAINED:
            found.setdefault((row.writer, row.seed, row.round), {})[row.filler] = row.success
    fillers = {tuple(sorted(cells)) for cells in found.values()}
    if len(fillers) > 1:
        raise StatsError(f"Rounds validated at different fillers, {sorted(fillers)}, cannot be ranked; compare alike.")
    return [Standing(*key, mean(cells.values())) for key, cells in found.items()]


def best_rounds(rows: Iterable[RoundResult]) -> dict[str, Standing]:
    """The best round of each writer, judged on its first seed; of equals the earlier round, which is cheaper."""
    first: dict[str, int] = {}
    best: dict[str, Standing] = {}
    for one in sorted(standings(rows), key=lambda one: (one.seed, one.round)):
        if one.seed == first.setdefault(one.writer, one.seed) and (
            one.writer not in best or one.success > best[one.writer].success
        ):
            best[one.writer] = one
    return best


def selected(rows: Sequence[RoundResult]) -> Standing:
    """The best of the best rounds; of equals the writer whose rows came first."""
    best = best_rounds(rows)
    if not best:
        raise StatsError("No trained round has been validated, so there is nothing to select; run `dssr train` first.")
    order = list(dict.fromkeys(row.writer for row in rows))
    return max(best.values(), key=lambda one: (one.success, -order.index(one.writer)))
