"""The report as one HTML file that needs nothing else: no network, no server, no other file.

`render_page` makes it. It opens with one sentence per memory (`memory_answers`): what it won, what it lost, and who
lost it.
"""

from collections.abc import Callable, Mapping, Sequence
from importlib import resources
from typing import Any

import jinja2
import msgspec
from markupsafe import Markup

from dssr.agent.memory import FULL
from dssr.errors import StatsError
from dssr.measure.answers import AnswerRow, answer_rows
from dssr.measure.distance import LagBinRow, RewriteRow, chunk_rows, lag_bin_rows, rewrite_rows
from dssr.measure.rows import CellRow, cell_rows, relation
from dssr.measure.study import Study
from dssr.reports.explorer import Packed, ordered
from dssr.reports.paper import paper_cells
from dssr.reports.survival import SurvivalCurve
from dssr.reports.tables import per_cent
from dssr.stats.bootstrap import Interval
from dssr.types import LABELS, Record

SCRIPTS = ("util.js", "charts.js", "overview.js", "timeline.js", "explorer.js", "main.js")
DIGITS = 5
"""Decimals of the estimates in the page's data."""


def render_page(study: Study, packed: Packed, against_paper: bool = False) -> str:
    """The whole page as text."""
    cells = cell_rows(study)
    summary = _summary(study, cells, packed, against_paper)
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    return environment.from_string(asset("page.html.j2")).render(
        title=f"dssr: {', '.join(run.path.name for run in study.runs)}",
        eyebrow=f"dssr report · {', '.join(run.path.name for run in study.runs)}",
        counts=_counts(study, cells),
        association=_association(study),
        lag_note=_lag_note(study),
        words=study.domain.words,
        level=per_cent(study.config.stats.level),
        intervals=_intervals(study),
        provenance=_provenance(study),
        footer=_footer(study, packed),
        css=Markup(asset("page.css")),
        script=Markup("\n".join(asset(name) for name in SCRIPTS)),
        summary=Markup(inert(summary)),
        chunks=[Markup(text) for text in packed.chunks],
    )


def asset(name: str) -> str:
    """A file of the page, as text."""
    return resources.files("dssr.reports").joinpath("assets").joinpath(name).read_text(encoding="utf-8")


# ---------------------------------------------------------------- data for the scripts


def _summary(study: Study, cells: Sequence[CellRow], packed: Packed, against_paper: bool) -> dict[str, Any]:
    lags, no_lags = _lag_table(study)
    audited = any(study.audits.values())
    budgets = sorted({cell.budget for cell in study.cells if cell.budget is not None})
    return {
        "words": {name: getattr(study.domain.words, name) for name in ("task", "fact", "level")},
        "intervals": per_cent(study.config.stats.level),
        "memories": memory_answers(study, packed),
        "budgets": budgets,
        "fillers": sorted({cell.filler for cell in study.cells}),
        "protocols": list(dict.fromkeys(cell.protocol for cell in study.cells)),
        "cells": [_cell(row) for row in _in_order(cells, study)],
        "rewrites": _binned(rewrite_rows(study)) if audited else None,
        "lags": lags,
        "survival": packed.curves,
        "paper": _paper(cells) if against_paper else None,
        "games": packed.games,
        "episodes": packed.episodes,
        "labels": "".join(LABELS),
        "start": _start(cells, budgets, packed),
        "missing": {
            "audits": None
            if audited
            else f"No decision was audited in this run; `{_command(study)}` measures β and κ.",
            "lags": no_lags,
            "steps": None
            if packed.chunks
            else "No steps are stored with these episodes, so there is nothing to look at.",
        },
    }


def inert(value: object) -> str:
    """JSON that can stand inside a script element: nothing in it can close the element or open a comment."""
    text = msgspec.json.encode(value).decode("utf-8")
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _command(study: Study) -> str:
    return f"dssr diagnose --config {study.config.name}"


def _in_order(cells: Sequence[CellRow], study: Study) -> list[CellRow]:
    """The rows in the order that the packed episodes count by; after them the writers pooled over seeds."""
    by_cell = {(row.memory, row.budget, row.filler, row.protocol): row for row in cells}
    played = [by_cell[cell.memory, cell.budget, cell.filler, cell.protocol] for cell in ordered(study)]
    return [*played, *(row for row in cells if row.seeds > 1)]


def _cell(row: CellRow) -> dict[str, Any]:
    return {
        "memory": row.memory,
        "budget": row.budget,
        "filler": row.filler,
        "protocol": row.protocol,
        "games": row.games,
        "errors": row.errors,
        "points": row.points,
        "success": estimate(row.success, row.games),
        "delta": estimate(row.delta, row.games),
        "beta": estimate(row.beta, row.games),
        "kappa": estimate(row.kappa, row.games),
        "coverage": None if row.coverage is None else [row.coverage, None, None, row.games],
        "won": None if row.success is None else round(row.success.estimate * row.games),
    }


def estimate(found: Interval | None, games: int) -> list[float | int] | None:
    """Value, low, high and number of games; None when there is no value."""
    if found is None:
        return None
    return [*(round(value, DIGITS) for value in (found.estimate, found.low, found.high)), games]


def _binned(rows: Sequence[RewriteRow | LagBinRow]) -> dict[str, Any]:
    bins = list(dict.fromkeys(row.bin for row in rows))
    found: dict[tuple[str, int | None], list[Any]] = {}
    for row in rows:
        values = found.setdefault((row.memory, row.budget), [None] * len(bins))
        values[bins.index(row.bin)] = estimate(row.kappa, row.games)
    used = [n for n in range(len(bins)) if any(values[n] for values in found.values())]
    return {
        "bins": [bins[n].replace("-", "–") for n in used],
        "rows": [{"memory": m, "budget": b, "values": [values[n] for n in used]} for (m, b), values in found.items()],
    }


def _lag_table(study: Study) -> tuple[dict[str, Any] | None, str | None]:
    try:
        rows = lag_bin_rows(study)
    except StatsError as error:
        return None, str(error)
    threshold = study.config.measure.lag_threshold
    return _binned([row for row in rows if row.threshold == threshold]), None


def _paper(cells: Sequence[CellRow]) -> dict[str, dict[str, float]]:
    known = paper_cells()
    found = {}
    for row in cells:
        key = (row.memory, row.budget, row.filler)
        if key in known:
            found[msgspec.json.encode(key).decode()] = known[key]
    return found


def _start(cells: Sequence[CellRow], budgets: Sequence[int], packed: Packed) -> dict[str, Any]:
    """What the explorer shows first: two memories at the longest lag, one of them the plain summary if it is there."""
    # A writer pooled over seeds has numbers and no episodes: the explorer shows its seeds.
    names = list(dict.fromkeys(row.memory for row in cells if row.seeds == 1))
    won = {name: sum(row.success.estimate for row in cells if row.memory == name and row.success) for name in names}
    written = [name for name in names if name not in (FULL, "oracle-b", "lastk")] or names
    left = "summary" if "summary" in written else written[0]
    others = [name for name in written if name != left] or [name for name in names if name != left]
    best = max(others, key=lambda name: won[name], default=None)
    return {
        "game": packed.games[0]["id"] if packed.games else None,
        "filler": max(row.filler for row in cells),
        "budget": budgets[len(budgets) // 2] if budgets else None,
        "protocol": cells[0].protocol,
        "left": left,
        "right": best,
    }


# ---------------------------------------------------------------- words around the figures


def _counts(study: Study, cells: Sequence[CellRow]) -> list[tuple[str, str]]:
    episodes = sum(len(games) for games in study.episodes.values())
    points = sum(len(audits) for games in study.audits.values() for audits in games.values())
    errors = sum(row.errors for row in cells if row.seeds == 1)
    memories = {cell.memory for cell in study.cells}
    found = [(memories, "memories"), (study.cells, "cells"), (study.games, "games")]
    lines = [(f"{len(things):,}", word) for things, word in found]
    lines += [(f"{episodes:,}", "episodes"), (f"{points:,}", "audited decisions")]
    lines.append((f"{errors:,}", "failed episodes, counted apart" if errors else "failed episodes"))
    return lines


def _association(study: Study) -> str:
    found = relation(study) if any(study.audits.values()) else None
    if found is None:
        return "One mark per cell; there are too few different cells for a rank correlation."
    rho = found.rho
    numbers = [f"{value:.2f}".replace("-", "−") for value in (rho.estimate, rho.low, rho.high)]
    return f"One mark per cell. Spearman's ρ over {found.cells} cells is {numbers[0]} [{numbers[1]}, {numbers[2]}]."


def _lag_note(study: Study) -> str:
    if not study.lags:
        return ""
    threshold = study.config.measure.lag_threshold
    shares = {row.kind: row.share for row in chunk_rows(study) if row.threshold == threshold}
    parts = [f"{word} in {100 * shares[kind]:.0f} %" for kind, word in study.domain.words.chunks if shares.get(kind)]
    undefined = 100 * (shares.get("undefined") or 0.0)
    return (
        f"The stretch that mattered most was {', '.join(parts) or 'none in any'} of the measured decisions; "
        f"in {undefined:.0f} % no stretch mattered by {threshold} nats or more, and no lag is defined there."
    )


def _intervals(study: Study) -> str:
    stats = study.config.stats
    return (
        f"{per_cent(stats.level)} percentile intervals from {stats.resamples:,} resamples of games; "
        "every game counts the same, however many decisions of it were audited"
    )


def _provenance(study: Study) -> list[list[str]]:
    heads = ["run", "command", "configuration", "models", "device", "commit", "started"]
    rows = [heads]
    for run in study.runs:
        origin = run.info.provenance
        commit = "unknown" if origin.commit is None else origin.commit[:10] + (" (changed)" if origin.dirty else "")
        models = ", ".join(f"{role} {print_[:12]}" for role, print_ in sorted(run.info.models.items()))
        name = f"{run.config.name} ({run.info.digest[:8]})"
        rows.append([run.path.name, run.info.command, name, models, origin.device, commit, origin.started])
    return rows


def _footer(study: Study, packed: Packed) -> str:
    text = (
        f"Made from stored records alone; `dssr report {' '.join(str(run.path) for run in study.runs)}` makes it again."
    )
    if packed.left_out:
        text += f" {packed.left_out} of {len(study.games)} games are in the numbers only, to keep the page small."
    return text


# ---------------------------------------------------------------- one sentence per memory

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


def memory_answers(study: Study, packed: Packed) -> list[Answer]:
    """One sentence per memory."""
    rows = answer_rows(study) if any(study.audits.values()) else []
    return answers(cell_rows(study), rows, half_lives(packed.curves), study.domain.words.task)


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
