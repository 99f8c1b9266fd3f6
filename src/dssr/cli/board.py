"""A live table of a training line: one row per round, and what the round under way is doing."""

from types import TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.table import Table

Row = dict[str, Any]


class Board:
    """Shows itself on a terminal and stays silent elsewhere."""

    def __init__(self, title: str, rounds: range) -> None:
        from rich.console import Console
        from rich.live import Live

        self.title = title
        self.names = ["untrained", *map(str, range(rounds.stop))]
        self.rows: list[Row] = []
        self.stage = "starting"
        console = Console(stderr=True)
        self._live = Live(console=console, get_renderable=self.table, refresh_per_second=2)
        self._shown = console.is_terminal

    def __enter__(self) -> "Board":
        if self._shown:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._shown:
            self._live.stop()

    def tell(self, stage: str, done: int, of: int) -> None:
        self.stage = f"{stage} {done} of {of}"

    def row(self, row: Row) -> None:
        self.rows.append(row)
        self.stage = "starting"

    def table(self) -> "Table":
        """As it stands now."""
        from rich.table import Table
        from rich.text import Text

        columns = list(dict.fromkeys(name for row in self.rows for name in printable(row))) or ["round"]
        table = Table(*columns, "now", title=self.title)
        for row in self.rows:
            shown = printable(row)
            table.add_row(*(Text(cell(shown.get(name))) for name in columns), "ended" if row["ended"] else "done")
        if self.rows and self.rows[-1]["ended"]:
            return table
        for place, name in enumerate(self.names[len(self.rows) :]):
            table.add_row(name, *("" for _ in columns[1:]), self.stage if place == 0 else "")
        return table


def printable(row: Row) -> Row:
    """A round's row as one line of a table: pairs, then success and kappa per filler with their means."""
    shown: Row = {"round": row["round"], "points": row.get("points"), "pairs": row.get("pairs")}
    shown["median gap"] = row.get("median")
    shown |= {name: value for name, value in row.items() if name.startswith(("success", "kappa"))}
    return shown


def cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.3f}" if isinstance(value, float) else str(value)
