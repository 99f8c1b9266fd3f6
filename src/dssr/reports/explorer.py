"""Episodes packed for the page: one gzip block per game, every text stored once in it, opened only when looked at."""

import base64
import gzip
from collections.abc import Sequence
from typing import Any

import msgspec

from dssr.agent.memory import FULL
from dssr.measure.study import Study
from dssr.reports.survival import Curves, SurvivalCurve, is_written, trace
from dssr.types import Audit, Cell, Decision, Episode, Record, Step

LIMIT = 24_000_000
"""Most characters of packed episodes in one page, so that a phone can still open it."""


class Packed(Record, frozen=True):
    """What the episode explorer of a page needs."""

    games: list[dict[str, Any]]
    episodes: list[list[Any]]
    """game, cell, outcome, score, top score, steps, reveal, begin, truncations, error, place in the game's block"""
    chunks: list[str]
    curves: list[SurvivalCurve]
    left_out: int
    """Games that did not fit; they are part of every number, but cannot be looked at."""


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
    """All episodes, game by game, until the page would grow too large; curves are over all of them."""
    games: list[dict[str, Any]] = []
    rows: list[list[Any]] = []
    chunks: list[str] = []
    curves = Curves()
    left_out = size = 0
    for game in study.games:
        block, found = _game(study, game, len(games), curves)
        text = _squeeze(block)
        if not found or (chunks and size + len(text) > limit):
            left_out += bool(found)
            continue
        size += len(text)
        episode = next(cell[game] for cell in study.episodes.values() if game in cell)
        games.append({"id": game, "level": episode.level, "split": episode.split})
        chunks.append(text)
        rows += found
    return Packed(games, rows, chunks, curves.rows(), left_out)


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
        one = trace(study.domain, episode, steps)
        facts = facts or one.facts
        if one.facts:
            curves.add(cell, one)
        rows.append([number, place, *_outline(episode, len(steps)), len(stored)])
        stored.append(
            {
                "steps": [_step(step, episode, texts) for step in steps],
                "audits": _audits(study.audits.get(cell, {}).get(game, []), texts),
                "present": one.present or ["0" * len(steps)] * len(facts),
                "done": one.done or [-1] * len(facts),
            }
        )
    return {"strings": texts.strings, "facts": facts, "episodes": stored}, rows


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
