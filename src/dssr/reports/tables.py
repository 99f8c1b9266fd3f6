"""A table and its four ways onto a page: terminal, Markdown, LaTeX, CSV; how a page prints what is in it; and the two
tables that no study is needed for, of a comparison and of costs."""

import csv
import io
import re
import unicodedata
from collections.abc import Callable, Sequence
from typing import Any, Literal

from markupsafe import Markup, escape

from dssr.errors import StatsError
from dssr.measure.compare import METRICS, Comparison, ComparisonRow
from dssr.measure.rows import columns, flat, interval_fields
from dssr.measure.study import Study
from dssr.models.guard import printable
from dssr.record.cost import cost_of
from dssr.reports.terminal import Fitted
from dssr.stats.bootstrap import Interval, Unit, written
from dssr.types import Record

Kind = Literal["text", "count"] | Unit
"""How a value is written."""
Value = str | int | float | Interval | None


class Column(Record, frozen=True):
    """One column of a table: what it is called, and what it shows of a row."""

    key: str
    """Name in files; the field of the rows, unless `value` reads something else."""
    head: str
    """Heading for people."""
    kind: Kind = "text"
    value: Callable[[Any], Value] | None = None
    """What is shown of a row, where that is no field of it."""
    kind_of: Callable[[Any], Kind] | None = None
    """How a value is written, where rows differ in it."""

    def of(self, row: Record) -> Value:
        """What a row has in this column."""
        if self.value is not None:
            return self.value(row)
        found: Value = getattr(row, self.key)
        return found

    def has_interval(self, rows: Sequence[Record]) -> bool:
        """Whether this is a quantity with bounds, even if no row has a value."""
        if self.value is None and any(self.key in interval_fields(type(row)) for row in rows):
            return True
        return any(isinstance(self.of(row), Interval) for row in rows)


class Table(Record, frozen=True):
    """Rows of one kind and what is shown of them."""

    name: str
    """Short, used for file names; no two tables of a report share it."""
    title: str
    columns: tuple[Column, ...]
    rows: tuple[Record, ...]
    note: str = ""

    def plain(self) -> list[dict[str, Any]]:
        """The rows for programs: all their fields, and what the columns show, unrounded."""
        wide = {column.key for column in self.columns if column.has_interval(self.rows)}
        return [flat(row) | self._shown(row, wide) for row in self.rows]

    def _shown(self, row: Record, wide: set[str]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for column in self.columns:
            value = column.of(row)
            if column.key in wide and (value is None or isinstance(value, Interval)):
                found |= columns(column.key, value)
            else:
                found[column.key] = value
        return found


def cell_text(row: Record, column: Column) -> str:
    """A value as people read it, with its interval if that says something."""
    value = column.of(row)
    if value is None:
        return "–"
    kind = column.kind if column.kind_of is None else column.kind_of(row)
    if kind == "text" or kind == "count" or isinstance(value, str):
        return value.text() if isinstance(value, Interval) else str(value)
    return value.text(kind) if isinstance(value, Interval) else written(value, kind)


def terminal(table: Table) -> Fitted:
    """For a rich console; repeated leading values are left blank, as in print. Names are text, never markup."""
    keys = [column.key for column in table.columns]
    return Fitted(
        [printable(column.head) for column in table.columns],
        [[printable(cell) for cell in cells] for cells in _thinned(table)],
        names=max(1, next((n for n, key in enumerate(keys) if key not in (*LEADING, *CONDITIONS)), len(keys))),
        title=printable(table.title),
        caption=printable(table.note),
        right=[column.kind != "text" for column in table.columns],
    )


def markdown(table: Table) -> str:
    """A section with a pipe table."""
    heads = [column.head for column in table.columns]
    rules = ["---" if column.kind == "text" else "---:" for column in table.columns]
    body = [[cell_text(row, column) for column in table.columns] for row in table.rows]
    lines = ["| " + " | ".join(_piped(cell) for cell in line) + " |" for line in (heads, rules, *body)]
    note = f"\n\n{table.note}" if table.note else ""
    return f"### {table.title}\n\n" + "\n".join(lines) + note + "\n"


def _piped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").replace("\n", "<br>")


LONG_TABLE, LONG_TEXT = 40, 40
"""Rows from which a table may break over pages, and characters from which a text may break over lines, in LaTeX."""


def latex(table: Table) -> str:
    """A booktabs table, ready for \\input; it asks for the packages booktabs, graphicx, longtable and array."""
    lines = _thinned(table)
    places = "".join(_place(column, [cells[n] for cells in lines]) for n, column in enumerate(table.columns))
    heads = " & ".join(latex_text(column.head) for column in table.columns)
    body = [" & ".join(latex_text(cell) for cell in cells) + r" \\" for cells in lines]
    caption = latex_text(f"{table.title}. {table.note}".strip())
    label = rf"\caption{{{caption}}}\label{{tab:{table.name}}}"
    if len(lines) > LONG_TABLE:
        top = [
            r"{\scriptsize\setlength{\tabcolsep}{2pt}",
            rf"\begin{{longtable}}{{{places}}}",
            label + r"\\",
            r"\toprule",
        ]
        grid = [*top, heads + r" \\", r"\midrule\endhead", *body, r"\bottomrule", r"\end{longtable}}"]
        return "\n".join(grid) + "\n"
    fit = r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%"
    top = [r"\begin{table}", r"\centering", label, fit, rf"\begin{{tabular}}{{{places}}}", r"\toprule", heads + r" \\"]
    return "\n".join([*top, r"\midrule", *body, r"\bottomrule", r"\end{tabular}}", r"\end{table}"]) + "\n"


def _place(column: Column, cells: Sequence[str]) -> str:
    if column.kind != "text":
        return "r"
    return r"p{5cm}" if max(map(len, cells), default=0) > LONG_TEXT else "l"


LATEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "δ": r"$\delta$",
    "β": r"$\beta$",
    "κ": r"$\kappa$",
    "ρ": r"$\rho$",
    "ℓ": r"$\ell$",
    "′": r"$'$",
    "−": "$-$",
    "≥": r"$\geq$",
    "≤": r"$\leq$",
    "<": "$<$",
    ">": "$>$",
    "|": r"\textbar{}",
    '"': "''",
    "±": r"$\pm$",
    "×": r"$\times$",
    "÷": r"$\div$",
    "–": "--",
    "→": r"$\rightarrow$",
    "\n": " ",
}


def latex_text(text: str) -> str:
    """Any text as LaTeX that prints it; letters that its usual fonts lack are spelt as near as ASCII can."""
    return "".join(LATEX.get(letter) or _plain(letter) for letter in text)


def _plain(letter: str) -> str:
    if " " <= letter <= "~" or "\u00c0" <= letter <= "\u017f":
        return letter
    near = unicodedata.normalize("NFKD", letter).encode("ascii", "ignore").decode()
    return "".join(LATEX.get(one, one) for one in near if " " <= one <= "~") or ("?" if letter.isprintable() else " ")


def to_csv(table: Table) -> str:
    """Unrounded values; an interval takes two more columns."""
    keys: list[str] = []
    for column in table.columns:
        wide = column.has_interval(table.rows)
        keys += columns(column.key, None) if wide else [column.key]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([inert_cell(key) for key in keys])
    writer.writerows([["" if row.get(key) is None else inert_cell(row[key]) for key in keys] for row in table.plain()])
    return out.getvalue()


FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""What makes a spreadsheet compute a cell rather than show it."""


def inert_cell(value: Any) -> Any:
    """A value for a CSV file: text that a spreadsheet would run gets a single quote before it; numbers stay."""
    if not isinstance(value, str) or not value.startswith(FORMULA):
        return value
    try:
        float(value)
    except ValueError:
        return f"'{value}"
    return value


def per_cent(level: float) -> str:
    """The level of intervals as people write it."""
    return f"{100 * level:g} %"


def _thinned(table: Table) -> list[list[str]]:
    """Cells as text; a memory or budget equal to the one above is left blank when all before it are equal too."""
    lines: list[list[str]] = []
    before: Sequence[str] = ()
    for row in table.rows:
        cells = [cell_text(row, column) for column in table.columns]
        same = 0
        while same < len(before) and table.columns[same].key in LEADING and cells[same] == before[same]:
            same += 1
        lines.append([""] * same + cells[same:])
        before = cells
    return lines


LEADING = ("memory", "writer", "first", "second", "base", "candidates", "game", "split")
"""Columns that name what a block of rows is about."""
CONDITIONS = ("budget", "filler", "protocol", "bin", "metric")
"""Columns that, with those, name one row."""


# ---------------------------------------------------------------- on a page what belongs together stays on one line


def typeset(number: str) -> str:
    """A number as a page prints it: with a minus sign, and in one piece at the end of a line."""
    return unbroken(number.replace("-", "−"))


def unbroken(text: str) -> str:
    """The same text, with no-break spaces inside an interval and before a per cent sign."""
    whole = re.sub(r"\[[^\[\]]*\]", lambda found: found[0].replace(" ", "\N{NO-BREAK SPACE}"), text)
    return re.sub(r"(?<=\d) (?=%)", "\N{NO-BREAK SPACE}", whole)


def printed(value: object) -> object:
    """What a template puts in: texts are kept in one piece where they must be, markup stays as it is."""
    return unbroken(value) if type(value) is str else value


def prose(text: str) -> Markup:
    """A sentence of ours as HTML: what stands between backticks is code, and numbers have their minus signs."""
    signed = re.sub(r"(?<![\w-])-(?=\d)", "−", text)
    parts = unbroken(signed).split("`")
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if place % 2 else escape(part) for place, part in enumerate(parts)
    )


# ---------------------------------------------------------------- a comparison of two sides

FINDINGS = {
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
        Column("finding", "verdict", value=lambda row: FINDINGS.get(row.finding)),
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
    told = "\n".join(f"- {_verdict(row)}" for row in found.verdicts)
    table = comparison_table(found)
    how = (
        "Differences are B − A, paired by game or log, with t intervals; *would be shown* is the true difference that "
        "these pairs would tell from zero with the power of the settings."
    )
    return f"{markdown(table).rstrip()}\n\n{told}\n\n{how}\n"


def _verdict(row: ComparisonRow) -> str:
    mark = {"worse": "**B is worse.** ", "better": "**B is better.** "}.get(row.finding or "", "")
    return mark + row.sentence.replace("|", "\\|")


# ---------------------------------------------------------------- what the runs of a study cost


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


def cost_text(row: CostRow) -> str:
    """A run's cost in one cell of a page."""
    return (
        f"{row.computed:,} of {row.calls:,} calls computed, {row.tokens_in:,} tokens in, {row.tokens_out:,} written, "
        f"{row.cpu_minutes:,} CPU minutes, {row.minutes:,} on the clock"
    )
