"""Episodes packed for the page: one gzip chunk per game, every text stored once in it, opened only when looked at."""

import base64
import gzip
from collections.abc import Sequence
from typing import Any

import msgspec

from dssr.agent.memory import FULL
from dssr.measure.study import Study
from dssr.reports.survival import Curves, SurvivalCurve, is_written, timeline
from dssr.reports.view import Start
from dssr.stats.bootstrap import written
from dssr.types import Audit, Cell, Decision, Episode, Record, Step

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
    chunks: list[str]
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
    chunks: list[str] = []
    told: list[Telling] = []
    runs, curves, cells = [str(run.path) for run in study.runs], Curves(), ordered(study)
    for game in study.games:
        block, found = _game(study, game, len(games), curves)
        if not found:
            continue
        told.append(max(_telling(study, cells[place], game, len(rows) + n) for n, (_, place, *_) in enumerate(found)))
        episode = next(cell[game] for cell in study.episodes.values() if game in cell)
        games.append({"id": game, "level": episode.level, "split": episode.split})
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
    why = f"It opens on the {kind} with the largest regret: {mine.memory}, κ = {written(kappa)} nats at step {step}."
    return Start(left, best, step, why.replace("-", "−"))


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
        texts.maybe(write.note),
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
