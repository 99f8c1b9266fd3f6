"""Tables on a terminal, whose width is the user's: a table that is too wide goes on below, and no cell is cut.

rich alone would put an ellipsis where a word does not fit, and half a number or the end of a path would be gone.
"""

from collections.abc import Iterator, Sequence
from typing import Literal

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

FRAME = 3
"""Columns that the border and the blanks around a cell take."""


class Fitted:
    """A table for a rich console. Cells break between words; where even that is not enough, columns go into further
    tables below, each with the first `names` columns, which say what a row is about. Texts are never markup."""

    def __init__(
        self,
        heads: Sequence[str],
        rows: Sequence[Sequence[str]],
        names: int = 1,
        title: str | None = None,
        caption: str | None = None,
        right: Sequence[bool] = (),
    ) -> None:
        """`right` says which columns stand at the right side of their place, as numbers do; none if left out."""
        self.heads = heads
        self.rows = rows
        self.names = names
        self.title = title
        self.caption = caption
        self.right = right or [False] * len(heads)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """One table, or as many as the width asks for."""
        room = options.max_width - 1
        if self.title:
            yield Text(self.title, style="table.title")
        for part in self._parts(room):
            shown = Table()
            for place, width in zip(part, self._widths(part, room), strict=True):
                side: Literal["left", "right"] = "right" if self.right[place] else "left"
                shown.add_column(Text(self.heads[place]), justify=side, width=width, overflow="fold")
            for row in self.rows:
                shown.add_row(*(Text(row[place]) for place in part))
            yield shown
        if self.caption:
            yield Text(self.caption, style="table.caption")

    def _parts(self, room: int) -> Iterator[list[int]]:
        """The columns of each table: as many as fit with their longest words whole."""
        names = list(range(min(self.names, len(self.heads) - 1)))
        part = list(names)
        for place in range(len(names), len(self.heads)):
            if len(part) > len(names) and sum(self._least(one) + FRAME for one in (*part, place)) > room:
                yield part
                part = list(names)
            part.append(place)
        yield part

    def _widths(self, part: Sequence[int], room: int) -> list[int]:
        """As wide as the cells are, less where that is too much: first down to the longest words, then below."""
        widths = [max(1, *(cell_len(line) for line in self._lines(place))) for place in part]
        least = [self._least(place) for place in part]
        while sum(widths) + FRAME * len(part) > room and max(widths) > 1:
            spare = [width - low for width, low in zip(widths, least, strict=True)]
            widest = max(spare) > 0
            place = spare.index(max(spare)) if widest else widths.index(max(widths))
            widths[place] -= 1
        return widths

    def _least(self, place: int) -> int:
        """Of the longest word in a column."""
        return max((cell_len(word) for line in self._lines(place) for word in line.split()), default=1)

    def _lines(self, place: int) -> list[str]:
        texts = [self.heads[place], *(row[place] for row in self.rows)]
        return [line for text in texts for line in text.splitlines() or [""]]
