"""A comparison of two sides as a table, and as Markdown for a pull request."""

from dssr.measure.compare import METRICS, Comparison, ComparisonRow
from dssr.reports.tables import Column, Table, Value, markdown
from dssr.stats.bootstrap import written

WORDS = {
    "better": "B better",
    "worse": "B worse",
    "alike": "alike",
    "unclear": "not shown",
    "few": "too few",
    None: "–",
}


def comparison_table(found: Comparison) -> Table:
    """One line per pair of memories, budget and metric."""
    columns = (
        Column("memory", "memory", value=_pair),
        Column("budget", "budget", "count"),
        Column("metric", "metric", value=lambda row: METRICS[row.metric].name),
        Column("games", "pairs", "count"),
        Column("a", "A", value=lambda row: _number(row, row.a)),
        Column("b", "B", value=lambda row: _number(row, row.b)),
        Column("difference", "B − A", value=_difference),
        Column("detectable", "would be shown", value=lambda row: _number(row, row.detectable)),
        Column("finding", "verdict", value=lambda row: WORDS.get(row.finding)),
    )
    problems = dict.fromkeys(row.problem for row in found.rows if row.problem)
    note = " ".join((*(f"Left blank: {one}" for one in problems), *found.notes))
    return Table("comparison", f"A = {found.a}, B = {found.b}", columns, found.rows, note)


def _pair(row: ComparisonRow) -> str:
    return row.first if row.first == row.second else f"{row.first} → {row.second}"


def _number(row: ComparisonRow, value: float | None) -> Value:
    return None if value is None else written(value, METRICS[row.metric].unit)


def _difference(row: ComparisonRow) -> Value:
    return None if row.difference is None else row.difference.text(METRICS[row.metric].unit)


def comparison_markdown(found: Comparison) -> str:
    """For a pull request: the verdict first, the table under it."""
    told = "\n".join(f"- {_shown(row)}" for row in found.verdicts)
    table = comparison_table(found)
    how = (
        "Differences are B − A, paired by game or log, with t intervals; *would be shown* is the true difference that "
        "these pairs would tell from zero with the power of the settings."
    )
    return f"{markdown(table).rstrip()}\n\n{told}\n\n{how}\n"


def _shown(row: ComparisonRow) -> str:
    mark = {"worse": "**B is worse.** ", "better": "**B is better.** "}.get(row.finding or "", "")
    return mark + row.sentence.replace("|", "\\|")
