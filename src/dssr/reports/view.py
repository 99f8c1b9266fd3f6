"""The page as data: what it shows, whatever that was measured on, and how it becomes one HTML file.

`PageView` is all that the page needs. A study of played games fills it (`reports/page.py`), and anything else that has
audited decisions can: fill `cells` (one per memory, budget and filler; one filler, 0, where there is no such thing),
`answers`, `words` and `intervals`, and leave the rest at its default. A part without data is left out of the page, or,
with a sentence in `missing` under the part's name, shown as that sentence. Episodes are looked at step by step when
`games`, `episodes` and `chunks` are there; `reports/explorer.py` packs them.
"""

from collections.abc import Sequence
from importlib import resources
from typing import Any

import jinja2
import msgspec
from markupsafe import Markup
from msgspec import field

from dssr.reports.survival import SurvivalCurve
from dssr.stats.bootstrap import Interval, Unit
from dssr.types import LABELS, Protocol, Record

SCRIPTS = ("util.js", "charts.js", "overview.js", "timeline.js", "explorer.js", "main.js")
Piece = tuple[str, bool]
"""Text, and whether it is set in bold."""


class Estimate(Record, frozen=True):
    """A number with its interval, and both as text: what the page prints is rounded where tables are."""

    value: float
    low: float | None
    """None where there is no interval: of a single game there is none."""
    high: float | None
    n: int
    """Games, or whatever was resampled."""
    text: str


def estimate(found: Interval | None, n: int, unit: Unit = "nats") -> Estimate | None:
    """An interval for the page; None when there is no value."""
    if found is None:
        return None
    return Estimate(found.estimate, *found.ends, n, found.text(unit))


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


class ViewCell(Record, frozen=True):
    """One condition."""

    memory: str
    budget: int | None
    filler: int
    protocol: Protocol
    games: int
    delta: Estimate | None
    beta: Estimate | None
    kappa: Estimate | None
    success: Estimate | None = None
    coverage: Estimate | None = None
    """Share of the facts that states held."""
    points: int = 0
    """Audited decisions."""
    errors: int = 0
    seeds: int = 1
    published: dict[str, str] = field(default_factory=dict)
    """Quantity to the published value, as text."""


class BinRow(Record, frozen=True):
    """One memory and budget, with a value or none per bin."""

    memory: str
    budget: int | None
    values: list[Estimate | None]


class Bins(Record, frozen=True):
    """Regret by bins of a distance."""

    bins: list[str]
    rows: list[BinRow]


class Start(Record, frozen=True):
    """What the explorer shows first: places in `episodes`."""

    left: int | None = None
    right: int | None = None
    step: int | None = None
    """None is the first decision."""
    why: str = ""
    """The choice in words."""


class PageWords(Record, frozen=True):
    """How the page speaks of what was measured."""

    task: str
    """What the agent is told once, after `the`: `recipe`."""
    fact: str
    """One part of it: `directive`."""
    level: str
    """What levels of difficulty count: `rooms`."""
    unit: str = "game"
    """What intervals resample."""
    units: str = "games"
    won: str = "games won"


class PageView(Record, frozen=True):
    """Everything on the page."""

    title: str
    source: str
    """The runs or files it was made from, in words."""
    words: PageWords
    intervals: str
    """How intervals were made, after `intervals:`."""
    level: str
    """Of the intervals: `95 %`."""
    oracle: str
    """The hindsight reference in words, after `the best of`."""
    answers: list[Answer]
    cells: list[ViewCell]
    counts: list[tuple[str, str]] = field(default_factory=list)
    """Numbers for the head line: number and word."""
    failures: list[tuple[int, str]] = field(default_factory=list)
    """Episodes that failed, by cause."""
    rewrites: Bins | None = None
    lags: Bins | None = None
    survival: list[SurvivalCurve] = field(default_factory=list)
    games: list[dict[str, Any]] = field(default_factory=list)
    """Of each packed game its `id`, `split` and `level`; the level may be None."""
    episodes: list[list[Any]] = field(default_factory=list)
    """See `Packed.episodes`."""
    chunks: list[str] = field(default_factory=list)
    """Packed steps, one text per game."""
    inside: tuple[int, ...] = ()
    """Games whose chunk is in the page; the others lie beside it, see `aside`."""
    runs: list[str] = field(default_factory=list)
    """Directories that episodes can be continued from."""
    start: Start = Start()
    missing: dict[str, str] = field(default_factory=dict)
    """Part to the sentence why it is empty: decomposition, filler, rewrites, lag, association, survival, explorer."""
    notes: dict[str, str] = field(default_factory=dict)
    """Part to a sentence below its heading (association, explorer) or its chart (lag)."""
    provenance: list[list[str]] = field(default_factory=list)
    """Rows of a table, headings first."""
    footer: str = ""

    @property
    def parts(self) -> set[str]:
        """The parts that the page has."""
        known = {
            "decomposition": any(cell.kappa for cell in self.cells),
            "filler": len({cell.filler for cell in self.cells if cell.kappa}) > 1,
            "rewrites": self.rewrites is not None,
            "lag": self.lags is not None,
            "association": any(cell.delta and cell.success for cell in self.cells),
            "survival": bool(self.survival),
            "explorer": bool(self.chunks),
        }
        return {"grid"} | {name for name, there in known.items() if there or name in self.missing}


def render(view: PageView) -> str:
    """The whole page as text."""
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    return environment.from_string(asset("page.html.j2")).render(
        view=view,
        words=view.words,
        parts=view.parts,
        css=Markup(asset("page.css")),
        script=Markup("\n".join(asset(name) for name in SCRIPTS)),
        summary=Markup(inert(_summary(view))),
        chunks=[(place, Markup(view.chunks[place])) for place in view.inside],
    )


def aside(view: PageView) -> dict[str, str]:
    """The files beside the page, by path: scripts, since a page opened from a disk may load nothing else."""
    names = [place for place in range(len(view.chunks)) if place not in view.inside]
    return {f"episodes/{place}.js": f'episodesArrived({place},"{view.chunks[place]}")\n' for place in names}


def asset(name: str) -> str:
    """A file of the page, as text."""
    return resources.files("dssr.reports").joinpath("assets").joinpath(name).read_text(encoding="utf-8")


def inert(value: object) -> str:
    """JSON that can stand inside a script element: nothing in it can close the element or open a comment."""
    text = msgspec.json.encode(value).decode("utf-8")
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _summary(view: PageView) -> dict[str, Any]:
    return {
        "words": view.words,
        "intervals": view.level,
        "memories": view.answers,
        "budgets": sorted({cell.budget for cell in view.cells if cell.budget is not None}),
        "fillers": sorted({cell.filler for cell in view.cells}),
        "protocols": _once([cell.protocol for cell in view.cells]),
        "cells": view.cells,
        "rewrites": view.rewrites,
        "lags": view.lags,
        "survival": view.survival,
        "games": view.games,
        "episodes": view.episodes,
        "labels": "".join(LABELS),
        "runs": view.runs,
        "start": view.start,
        "missing": view.missing,
    }


def _once(values: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(values))
