"""What the runs of a study cost, for its page and, of audits, as a table."""

from dssr.errors import StatsError
from dssr.measure.study import Study
from dssr.record.cost import cost_of
from dssr.reports.tables import Column, Table
from dssr.types import Record


class CostRow(Record, frozen=True):
    """One run, all its sittings together."""

    run: str
    calls: int
    cached: int
    computed: int
    tokens_in: int
    tokens_out: int
    cpu_minutes: float
    minutes: float


def cost_rows(study: Study) -> list[CostRow]:
    """A row for each run that knows its cost."""
    found = [(run.path.name, cost_of(run)) for run in study.runs]
    return [
        CostRow(
            name, cost.calls, cost.cached, cost.computed, cost.tokens_in, cost.tokens_out,
            round(cost.cpu_seconds / 60, 1), round(cost.seconds / 60, 1),
        )
        for name, cost in found
        if cost is not None
    ]  # fmt: skip


def cost_table(study: Study) -> Table:
    """Of logs alone: the tables of games are compared byte by byte, and times differ."""
    if not study.is_of_logs:
        raise StatsError("it is made of audits of logs; of games the page has it, beside each run.")
    columns = (
        Column("run", "run"),
        Column("calls", "model calls", "count"),
        Column("cached", "from the cache", "count"),
        Column("computed", "computed", "count"),
        Column("tokens_in", "tokens in", "count"),
        Column("tokens_out", "tokens written", "count"),
        Column("cpu_minutes", "CPU minutes", "count"),
        Column("minutes", "minutes on the clock", "count"),
    )
    note = (
        "Over all sittings. Every computed call counts its whole prompt; calls that are neither from the cache nor "
        "computed were the same as one under way, failed, or were cut off."
    )
    return Table("costs", "What it cost", columns, tuple(cost_rows(study)), note)


def told(row: CostRow) -> str:
    """A run's cost in one cell of a page."""
    return (
        f"{row.computed:,} of {row.calls:,} calls computed, {row.tokens_in:,} tokens in, {row.tokens_out:,} written, "
        f"{row.cpu_minutes:,} CPU minutes, {row.minutes:,} on the clock"
    )
