"""One sentence per memory: what it won, what it lost, and who lost it."""

from collections.abc import Callable, Mapping, Sequence

from dssr.measure.answers import AnswerRow
from dssr.measure.rows import CellRow
from dssr.reports.survival import SurvivalCurve
from dssr.stats.bootstrap import Interval
from dssr.types import Record

BADGES = {
    "both": "Too small and badly chosen",
    "mostly writer": "Mostly the writer",
    "writer": "The writer chose badly",
    "mostly budget": "Mostly the budget",
    "budget": "The state was too small",
    "unclear": "Not clear from this run",
    "neither": "Kept what mattered",
}
LOOKS = {
    "both": "both",
    "mostly writer": "writer",
    "writer": "writer",
    "mostly budget": "budget",
    "budget": "budget",
    "unclear": "",
    "neither": "kept",
}
REFERENCES = {"full": "Sees everything", "oracle-b": "Privileged reference"}
Piece = tuple[str, bool]
"""Text, and whether it is set in bold."""


class Answer(Record, frozen=True):
    """The head line of one memory."""

    name: str
    verdict: str
    """Class name of the badge."""
    badge: str
    sentence: list[Piece]

    @property
    def text(self) -> str:
        """The sentence without its marks."""
        return "".join(piece for piece, _ in self.sentence)


def answers(
    cells: Sequence[CellRow], rows: Sequence[AnswerRow], half_lives: Mapping[str, int | None], task: str
) -> list[Answer]:
    """One answer per memory, from the rows of the grid and, where decisions were audited, of `answer_rows`.

    `task` is the world's word for what the reveal tells.
    """
    found = []
    for name in dict.fromkeys(row.memory for row in cells):
        mine = [row for row in rows if row.memory == name]
        played = [row for row in cells if row.memory == name]
        found.append(_answer(name, played, sorted(mine, key=lambda row: row.budget or 0), half_lives.get(name), task))
    return found


def _answer(name: str, cells: Sequence[CellRow], rows: Sequence[AnswerRow], half_life: int | None, task: str) -> Answer:
    verdict, badge = _verdict(name, rows)
    budgets = sorted({row.budget for row in cells if row.budget is not None})
    sizes: list[int | None] = [*budgets] or [None]
    won = [_mean([row.success for row in cells if row.budget == size]) for size in sizes]
    pieces: list[Piece] = [("Won ", False), (f"{_listed(won, _percent)} %", True), (" of games", False)]
    if budgets:
        pieces.append((f" at {' / '.join(map(str, budgets))} tokens", False))
    if any(row.kappa is not None for row in rows):
        kappa, beta = [row.kappa for row in rows], [row.beta for row in rows]
        pieces += [(". The writer's choices cost ", False), (_estimates(kappa), True)]
        pieces += [(f"{_range(kappa)} nats a decision, the budget ", False), (_estimates(beta), True)]
        pieces.append((_range(beta), False))
    if half_life is not None:
        times = "one rewrite" if half_life == 1 else f"{half_life} rewrites"
        pieces.append((f"; half of the {task} was gone after {times}", False))
    pieces.append((".", False))
    return Answer(name, verdict, badge, pieces)


def _verdict(name: str, rows: Sequence[AnswerRow]) -> tuple[str, str]:
    """Class and text of the badge."""
    if name in REFERENCES:
        return "", REFERENCES[name]
    causes = list(dict.fromkeys(_cause(row) for row in rows if row.cause is not None))
    if not causes:
        return "", "Not measured"
    if len(causes) == 1:
        return LOOKS[causes[0]], BADGES[causes[0]]
    worst = next(one for one in BADGES if one in causes)
    return LOOKS[worst], "Depends on the budget"


def _cause(row: AnswerRow) -> str:
    """As measured, but told apart when one of two causes outweighs the other."""
    return f"mostly {row.main_cause}" if row.main_cause else str(row.cause)


def _mean(values: Sequence[Interval | None]) -> float | None:
    known = [value.estimate for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _listed(values: Sequence[float | None], write: Callable[[float], str]) -> str:
    return " / ".join("–" if value is None else write(value) for value in values)


def _estimates(values: Sequence[Interval | None]) -> str:
    return _listed([None if value is None else value.estimate for value in values], _nats)


def _range(values: Sequence[Interval | None]) -> str:
    # Several budgets with an interval each would be unreadable in a sentence; the grid has them.
    if len(values) > 1 or values[0] is None:
        return ""
    found = values[0]
    ends = [_nats(found.low), _nats(found.high)]
    return "" if ends == [_nats(found.estimate)] * 2 else f" [{', '.join(ends)}]"


def _percent(value: float) -> str:
    return f"{100 * value:.0f}"


def _nats(value: float) -> str:
    return f"{value:.2f}".replace("-", "−")


def half_lives(curves: Sequence[SurvivalCurve]) -> dict[str, int | None]:
    """Per memory the rewrites after which its state held less than half of the facts, at any budget.

    None when it never came to that. With several budgets the longest counts: every budget had lost it by then.
    """
    found: dict[str, int | None] = {}
    for row in curves:
        first = next((n for n, share in enumerate(row.share) if share < 0.5), None)
        known = found.get(row.memory, 0)
        found[row.memory] = None if first is None or known is None else max(first, known)
    return found
