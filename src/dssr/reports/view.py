"""The page as data: what it shows, whatever that was measured on, and how it becomes one HTML file.

`PageView` is all that the page needs. A study of played games fills it (`reports/page.py`), and anything else that has
audited decisions can: fill `cells` (one per memory, budget and filler; one filler, 0, where there is no such thing),
`answers`, `words` and `intervals`, and leave the rest at its default. A part without data is left out of the page, or,
with a sentence in `missing` under the part's name, shown as that sentence. Episodes are looked at step by step when
`games`, `episodes` and `chunks` are there; `pack` makes these: one gzip chunk per game, every text stored once in it,
opened only when looked at.
"""

import base64
import gzip
from collections.abc import Iterator, Sequence
from importlib import resources
from typing import Any

import jinja2
import msgspec
from markupsafe import Markup
from msgspec import field

from dssr.agent.memory import FULL
from dssr.agent.recall import looked_back
from dssr.measure.study import Study
from dssr.record.log import Spilled
from dssr.reports.survival import Curves, SurvivalCurve, is_written, timeline
from dssr.reports.tables import printed, prose, typeset, unbroken
from dssr.stats.bootstrap import Interval, Unit, written
from dssr.types import LABELS, Audit, Cell, Decision, Episode, Protocol, Record, Step

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
    return Estimate(found.estimate, *found.ends, n, typeset(found.text(unit)))


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
    facts: str = "facts"
    """All of them: `recipe directives`."""
    until: str = "Until the task begins: later, what was remembered is carried out and gone."
    """How far the curve of facts goes."""
    scored: str = "Success"
    """What a share of success is called where there is little room."""


class PageView(Record, frozen=True):
    """Everything on the page."""

    title: str
    source: str
    """The runs or files it was made from, in words."""
    words: PageWords
    intervals: str
    """How intervals were made, after `intervals:`."""
    level: str
    """Of the intervals, and their kind: `95 % percentile`."""
    oracle: str
    """The hindsight reference in words, after `what` and before `still loses`."""
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
    chunks: Spilled = field(default_factory=Spilled)
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
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, finalize=printed)
    environment.filters["prose"] = prose
    return environment.from_string(asset("page.html.j2")).render(
        view=view,
        words=view.words,
        parts=view.parts,
        css=Markup(asset("page.css")),
        script=Markup("\n".join(asset(name) for name in SCRIPTS)),
        summary=Markup(inert(_summary(view))),
        chunks=[(place, Markup(view.chunks[place])) for place in view.inside],
    )


def aside(view: PageView) -> Iterator[tuple[str, str]]:
    """The files beside the page with their paths: scripts, since a page opened from a disk may load nothing else."""
    for place in sorted({*range(len(view.chunks))} - {*view.inside}):
        yield f"episodes/{place}.js", f'episodesArrived({place},"{view.chunks[place]}")\n'


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
        "intervals": unbroken(view.level),
        "memories": [
            msgspec.structs.replace(one, sentence=[(unbroken(text), strong) for text, strong in one.sentence])
            for one in view.answers
        ],
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


# ---------------------------------------------------------------- packed episodes

LIMIT = 2_000_000
"""Most characters of packed episodes inside one page, so that it opens at once and can be sent by mail."""
KEY = 12
"""Characters of an episode's key that the page shows; `dssr fork` takes the beginning of one."""
REFERENCES = (FULL, "oracle-b")
"""Memories that are measured against, not compared."""


class Packed(Record, frozen=True):
    """What the episode explorer of a page needs."""

    games: list[dict[str, Any]]
    episodes: list[list[Any]]
    """game, cell, outcome, score, top score, steps, reveal, begin, truncations, error, place in the game's chunk, key,
    place of its run in `runs`; outcome, scores, error and run may be None"""
    chunks: Spilled
    """Per game its packed steps."""
    inside: tuple[int, ...]
    """Games whose chunk is put into the page: the most telling ones, until it is full."""
    runs: list[str]
    start: Start
    curves: list[SurvivalCurve]


class Texts:
    """A table of strings; equal texts share a place."""

    def __init__(self) -> None:
        self.strings: list[str] = []
        self._places: dict[str, int] = {}

    def place(self, text: str) -> int:
        """Index of a text; a new one is added."""
        place = self._places.setdefault(text, len(self.strings))
        if place == len(self.strings):
            self.strings.append(text)
        return place

    def maybe(self, text: str | None) -> int | None:
        """The same for a text that may be missing."""
        return None if text is None else self.place(text)


def pack(study: Study, limit: int = LIMIT) -> Packed:
    """All episodes, game by game. The page takes in the most telling games, up to `limit` characters; curves are over
    all of them."""
    games: list[dict[str, Any]] = []
    rows: list[list[Any]] = []
    chunks = Spilled()
    told: list[Telling] = []
    runs, curves, cells = [str(run.path) for run in study.runs], Curves(), ordered(study)
    for game in study.games:
        block, found = _game(study, game, len(games), curves)
        if not found:
            continue
        told.append(max(_telling(study, cells[place], game, len(rows) + n) for n, (_, place, *_) in enumerate(found)))
        episode = next(cell[game] for cell in study.episodes.values() if game in cell)
        level = None if study.is_of_logs else episode.level
        games.append({"id": game, "level": level, "split": episode.split})
        chunks.append(_squeeze(block))
        rows += found
    inside: list[int] = []
    size = 0
    for place in sorted(range(len(chunks)), key=lambda place: told[place], reverse=True):
        size += len(chunks[place])
        if size <= limit or not inside:
            inside.append(place)
    start = _start(study, rows, max(told)) if told else Start()
    return Packed(games, rows, chunks, tuple(sorted(inside)), runs, start, curves.rows())


Telling = tuple[bool, float, int, int]
"""Whether it was lost, its largest kappa, minus its place (the first among equals), the step of that kappa."""


def _telling(study: Study, cell: Cell, game: str, row: int) -> Telling:
    outcome = study.episodes[cell][game].outcome
    audits = study.audits.get(cell, {}).get(game, [])
    worst = max(audits, key=lambda audit: audit.kappa, default=None)
    lost = outcome not in ("won", "error") and cell.memory not in REFERENCES
    return lost, worst.kappa if worst else 0.0, -row, worst.step if worst else -1


def _start(study: Study, rows: Sequence[Sequence[Any]], worst: Telling) -> Start:
    """The lost episode with the largest regret, and beside it a memory that won the same game, if one did."""
    lost, kappa, row, step = worst
    left, cells = -row, ordered(study)
    mine = cells[rows[left][1]]

    def fits(other: Sequence[Any]) -> bool:
        cell = cells[other[1]]
        same = (cell.filler, cell.protocol) == (mine.filler, mine.protocol) and cell.budget in (mine.budget, None)
        return other[0] == rows[left][0] and same and cell.memory != mine.memory and other[2] != "error"

    others = [place for place, other in enumerate(rows) if fits(other)]
    best = max(others, key=lambda p: (rows[p][2] == "won", cells[rows[p][1]].memory not in REFERENCES), default=None)
    if step < 0:
        return Start(left, best, None)
    kind = "lost episode" if lost else "episode"
    worst_here = f"{mine.memory}, κ = {typeset(written(kappa))} nats at step {step}"
    return Start(left, best, step, f"It opens on the {kind} with the largest regret: {worst_here}.")


def ordered(study: Study) -> list[Cell]:
    """Cells by memory as the runs met them, then protocol, budget and filler."""
    memories = list(dict.fromkeys(cell.memory for cell in study.cells))
    return sorted(study.cells, key=lambda c: (memories.index(c.memory), c.protocol, c.budget or 0, c.filler))


def _squeeze(block: dict[str, Any]) -> str:
    return base64.b64encode(gzip.compress(msgspec.json.encode(block), compresslevel=6, mtime=0)).decode("ascii")


def _game(study: Study, game: str, number: int, curves: Curves) -> tuple[dict[str, Any], list[list[Any]]]:
    texts = Texts()
    facts: tuple[str, ...] = ()
    stored: list[dict[str, Any]] = []
    rows: list[list[Any]] = []
    for place, cell in enumerate(ordered(study)):
        episode = study.episodes[cell].get(game)
        steps = study.steps(episode.key) if episode is not None else []
        if episode is None or not steps:
            continue
        one = timeline(study, episode, steps)
        facts = facts or one.facts
        if one.facts:
            curves.add(cell, one)
        rows.append(
            [number, place, *_outline(episode, len(steps)), len(stored), episode.key[:KEY], _run(study, episode)]
        )
        stored.append(
            {
                "steps": [_step(step, episode, texts) for step in steps],
                "audits": _audits(study.audits.get(cell, {}).get(game, []), texts),
                "present": one.present or ["0" * len(steps)] * len(facts),
                "done": one.done or [-1] * len(facts),
            }
        )
    return {"strings": texts.strings, "facts": facts, "episodes": stored}, rows


def _run(study: Study, episode: Episode) -> int | None:
    """Where an episode can be continued from; a log cannot be played on."""
    if study.is_of_logs:
        return None
    folder = study.folder(episode.key)
    return next((place for place, run in enumerate(study.runs) if run.path == folder), None)


def _outline(episode: Episode, steps: int) -> list[Any]:
    # An episode that broke in Phase A has neither reveal nor begin in its log: all its steps are before them.
    reveal = min(episode.reveal, steps) if episode.reveal >= 0 else steps
    begin = min(episode.begin, steps) if episode.begin >= 0 else steps
    error = episode.error
    return [episode.outcome, episode.score, episode.max_score, steps, reveal, begin, episode.truncations, error]


def _step(step: Step, episode: Episode, texts: Texts) -> list[Any]:
    write = step.write
    shown = episode.job.cell.memory != FULL and is_written(episode, step)
    return [
        step.kind,
        texts.place(step.place),
        texts.maybe(step.action),
        texts.place(step.observation),
        texts.place(write.state) if shown else None,
        write.tokens,
        write.raw_tokens,
        texts.maybe(write.note or looked_back(step)),
        _decision(step.decision, texts) if step.decision is not None else None,
    ]


def _decision(decision: Decision, texts: Texts) -> list[Any]:
    return [
        [texts.place(action) for action in decision.options.actions],
        texts.place(decision.options.reference),
        texts.place(decision.action),
        texts.place(decision.argmax),
        [round(value, 4) for value in decision.logprobs],
    ]


def _audits(audits: Sequence[Audit], texts: Texts) -> dict[str, list[Any]]:
    return {
        str(audit.step): [
            round(audit.nll_state, 4),
            round(audit.nll_full, 4),
            round(audit.nll_oracle, 4),
            texts.place(audit.oracle_state),
            audit.coverage,
        ]
        for audit in audits
    }
