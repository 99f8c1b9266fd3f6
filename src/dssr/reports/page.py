"""A study of played games as a page: what `reports/view.py` needs, from stored records.

`study_view` gathers it. The page opens with one sentence per memory (`memory_answers`): what it won, what it lost, and
who lost it.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from dssr.errors import StatsError
from dssr.measure.comparisons import LEAST_CELLS, relation
from dssr.measure.lag import LagBinRow, RewriteRow, chunk_rows, lag_bin_rows, rewrite_rows
from dssr.measure.rows import CellRow, cell_rows
from dssr.measure.study import Study
from dssr.measure.verdicts import AnswerRow, Cause, answer_rows
from dssr.reports.paper import published
from dssr.reports.study_tables import setting_of
from dssr.reports.survival import SurvivalCurve
from dssr.reports.tables import cost_rows, cost_text, per_cent, typeset
from dssr.reports.view import (
    Answer,
    BinRow,
    Bins,
    Estimate,
    Packed,
    PageView,
    PageWords,
    Piece,
    ViewCell,
    estimate,
    ordered,
)
from dssr.stats.bootstrap import Interval, written
from dssr.worlds.base import Words

CAUSES_SHOWN = 5
"""Causes of failed episodes that the page names, the most frequent first."""


def study_view(study: Study, packed: Packed, against_paper: bool = False) -> PageView:
    """Everything that the page shows of a study."""
    cells, words, runs = cell_rows(study), study.domain.words, [run.path.name for run in study.runs]
    lags, no_lags = _lag_table(study)
    audited = any(study.audits.values())
    parts = ("decomposition", "filler", "rewrites", "association")
    missing = {} if audited else dict.fromkeys(parts, _unaudited(study))
    if no_lags:
        missing["lag"] = no_lags
    if study.is_of_logs:  # a log has no walk and no success to win
        missing = {part: text for part, text in missing.items() if part not in ("lag", "filler", "association")}
    if not packed.chunks:
        missing |= dict.fromkeys(("survival", "explorer"), "No steps are stored with these episodes.")
    notes = {"association": _association(study), "lag": _lag_note(study), "explorer": _explorer_note(packed)}
    return PageView(
        title=f"dssr: {', '.join(runs)}",
        source=f"dssr report · {', '.join(runs)}",
        words=LOG_WORDS if study.is_of_logs else _words(words),
        intervals=_intervals(study),
        level=f"{per_cent(study.config.stats.level)} percentile",
        oracle=f"the best of {study.config.measure.oracle_samples} states of that size, by this very loss, that the "
        "untrained writer makes in hindsight, from the whole history,",
        answers=memory_answers(study, packed),
        cells=[_cell(row, _published(study, row) if against_paper else {}) for row in _in_order(cells, study)],
        counts=_counts(study, cells),
        failures=_failures(study),
        rewrites=_binned(rewrite_rows(study)) if audited else None,
        lags=lags,
        survival=packed.curves,
        games=packed.games,
        episodes=packed.episodes,
        chunks=packed.chunks,
        inside=packed.inside,
        runs=packed.runs,
        start=packed.start,
        missing=missing,
        notes={part: text for part, text in notes.items() if text},
        provenance=_provenance(study),
        footer=_footer(study),
    )


# ---------------------------------------------------------------- numbers


def _unaudited(study: Study) -> str:
    """Why there are no losses."""
    if study.is_of_logs:
        told = [(run.summary or {}).get("sensitivity", {}).get("sentence") for run in study.runs]
        return " ".join(sentence for sentence in told if sentence)
    return f"No decision was audited in this run; `dssr diagnose --config {study.config.name}` does it."


LOG_WORDS = PageWords(
    task="needed value",
    fact="value",
    level="",
    unit="log",
    units="logs",
    won="decisions made as logged",
    facts="needed values",
    until="Until the last action that needs them.",
    scored="As logged",
)
"""Where nothing was played."""


def _words(of: Words) -> PageWords:
    return PageWords(of.task, of.fact, of.level, facts=f"{of.task} {of.fact}s")


def _in_order(cells: Sequence[CellRow], study: Study) -> list[CellRow]:
    """The rows in the order that the packed episodes count by; after them the writers pooled over seeds."""
    by_cell = {(row.memory, row.budget, row.filler, row.protocol): row for row in cells}
    played = [by_cell[cell.memory, cell.budget, cell.filler, cell.protocol] for cell in ordered(study)]
    return [*played, *(row for row in cells if row.seeds > 1)]


def _cell(row: CellRow, beside: dict[str, str]) -> ViewCell:
    return ViewCell(
        memory=row.memory,
        budget=row.budget,
        filler=row.filler,
        protocol=row.protocol,
        games=row.games,
        delta=estimate(row.delta, row.games),
        beta=estimate(row.beta, row.games),
        kappa=estimate(row.kappa, row.games),
        success=estimate(row.success, row.games, "percent"),
        coverage=_alone(row.coverage, row.games),
        points=row.points,
        errors=row.errors,
        seeds=row.seeds,
        published=beside,
    )


def _alone(share: float | None, games: int) -> Estimate | None:
    return None if share is None else Estimate(share, None, None, games, written(share, "percent"))


def _published(study: Study, row: CellRow) -> dict[str, str]:
    known = published(setting_of(study, row.protocol), row.memory, row.budget, row.filler)
    return {name: written(value, "percent" if name == "success" else "nats") for name, value in known.items()}


def _binned(rows: Sequence[RewriteRow | LagBinRow]) -> Bins:
    names = list(dict.fromkeys(row.bin for row in rows))
    found: dict[tuple[str, int | None], list[Estimate | None]] = {}
    for row in rows:
        values = found.setdefault((row.memory, row.budget), [None] * len(names))
        values[names.index(row.bin)] = estimate(row.kappa, row.games)
    used = [n for n in range(len(names)) if any(values[n] for values in found.values())]
    lines = [BinRow(memory, budget, [values[n] for n in used]) for (memory, budget), values in found.items()]
    return Bins([names[n].replace("-", "–") for n in used], lines)


def _lag_table(study: Study) -> tuple[Bins | None, str | None]:
    try:
        rows = lag_bin_rows(study)
    except StatsError as error:
        return None, str(error)
    threshold = study.config.measure.lag_threshold
    return _binned([row for row in rows if row.threshold == threshold]), None


# ---------------------------------------------------------------- words around the figures


def _counts(study: Study, cells: Sequence[CellRow]) -> list[tuple[str, str]]:
    episodes = sum(len(games) for games in study.episodes.values())
    points = sum(len(audits) for games in study.audits.values() for audits in games.values())
    errors = sum(row.errors for row in cells if row.seeds == 1)
    memories = {cell.memory for cell in study.cells}
    found = [(memories, "memories"), (study.cells, "cells"), (study.games, "logs" if study.is_of_logs else "games")]
    lines = [(f"{len(things):,}", word) for things, word in found]
    lines += [(f"{episodes:,}", "episodes"), (f"{points:,}", "audited decisions")]
    lines.append((f"{errors:,}", "failed episodes, counted apart" if errors else "failed episodes"))
    if study.is_of_logs and (costs := cost_rows(study)):
        lines.append((f"{sum(row.computed for row in costs):,}", "computed model calls"))
        lines.append((f"{sum(row.minutes for row in costs):,.1f}", "minutes on the clock"))
    return lines


def _association(study: Study) -> str:
    found = relation(study) if any(study.audits.values()) else None
    if found is None:
        return f"One mark per cell; a rank correlation takes {LEAST_CELLS} cells that differ."
    return f"One mark per cell. Spearman's ρ over {found.cells} cells is {typeset(found.rho.text())}."


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
    stats, of = study.config.stats, "log" if study.is_of_logs else "game"
    return (
        f"those of grid and charts are {per_cent(stats.level)} percentile intervals from {stats.resamples:,} resamples "
        f"of {of}s, too narrow where {of}s are few; those of the answers at the top are t intervals, which hold their "
        f"level; every {of} counts the same, however many decisions of it were audited"
    )


def _provenance(study: Study) -> list[list[str]]:
    heads = ["run", "command", "configuration", "models", "device", "commit", "started", "cost"]
    rows, costs = [heads], {row.run: cost_text(row) for row in cost_rows(study)}
    for run in study.runs:
        origin = run.info.provenance
        commit = "unknown" if origin.commit is None else origin.commit[:10] + (" (changed)" if origin.dirty else "")
        models = ", ".join(f"{role} {print_[:12]}" for role, print_ in sorted(run.info.models.items()))
        name = f"{run.config.name} ({run.info.digest[:8]})"
        started, cost = origin.started[:16].replace("T", " "), costs.get(run.path.name, "not stored")
        rows.append([run.path.name, run.info.command, name, models, origin.device, commit, started, cost])
    return rows


def _explorer_note(packed: Packed) -> str:
    beside = len(packed.chunks) - len(packed.inside)
    if not beside:
        return packed.start.why
    return (
        f"{packed.start.why} To keep this file small, it holds the {len(packed.inside)} games with the largest regret "
        f"in a lost episode; the other {beside} are in the folder “episodes” beside it, and open from there."
    ).strip()


def _failures(study: Study) -> list[tuple[int, str]]:
    """Why episodes failed, and how many each."""
    errors = Counter(
        episode.error or "no reason was stored"
        for games in study.episodes.values()
        for episode in games.values()
        if episode.outcome == "error"
    )
    return [(count, text) for text, count in errors.most_common(CAUSES_SHOWN)]


def _footer(study: Study) -> str:
    paths = " ".join(str(run.path) for run in study.runs)
    return f"Made from stored records alone; `dssr report {paths}` makes it again."


# ---------------------------------------------------------------- one sentence per memory

BADGES: dict[Cause, str] = {
    "both": "Writer and budget lose",
    "writer": "The writer loses more",
    "budget": "The budget loses more",
    "lost": "Something is lost",
    "unclear": "Cannot tell from these games",
    "few": "Too few games",
    "little": "Little is lost",
}
LOOKS: dict[Cause, str] = {
    "both": "both",
    "writer": "writer",
    "budget": "budget",
    "lost": "",
    "unclear": "",
    "few": "",
    "little": "kept",
}
REFERENCES = {"full": "Sees everything", "oracle-b": "Privileged reference"}


def memory_answers(study: Study, packed: Packed) -> list[Answer]:
    """One sentence per memory."""
    rows = answer_rows(study) if any(study.audits.values()) else []
    words = LOGGED if study.is_of_logs else played(study.domain.words.task)
    return answers(cell_rows(study), rows, half_lives(packed.curves), words)


class AnswerWords(NamedTuple):
    """How an answer speaks of what was measured."""

    before: str
    """What stands around the share of success."""
    after: str
    facts: str
    """What a state should hold, with its verb: `the recipe was`."""
    units: str
    """What intervals resample."""


def played(task: str) -> AnswerWords:
    """Of games; `task` is the world's word for what the reveal tells."""
    return AnswerWords("Won ", " of games", f"the {task} was", "games")


LOGGED = AnswerWords("The reader makes ", " of audited decisions as logged", "the needed values were", "logs")


def answers(
    cells: Sequence[CellRow],
    rows: Sequence[AnswerRow],
    half_lives: Mapping[str, int | None],
    words: AnswerWords,
) -> list[Answer]:
    """One answer per memory, from the rows of the grid and, where decisions were audited, of `answer_rows`."""
    found = []
    for name in dict.fromkeys(row.memory for row in cells):
        mine = [row for row in rows if row.memory == name]
        of_it = [row for row in cells if row.memory == name]
        found.append(_answer(name, of_it, sorted(mine, key=lambda row: row.budget or 0), half_lives.get(name), words))
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


def _answer(
    name: str,
    cells: Sequence[CellRow],
    rows: Sequence[AnswerRow],
    half_life: int | None,
    words: AnswerWords,
) -> Answer:
    verdict, badge = _verdict(name, rows, words.units)
    budgets = sorted({row.budget for row in cells if row.budget is not None})
    sizes: list[int | None] = [*budgets] or [None]
    won = [_mean([row.success for row in cells if row.budget == size]) for size in sizes]
    pieces: list[Piece] = [(words.before, False), (f"{_listed(won, _percent)} %", True), (words.after, False)]
    if words is LOGGED and not any(value is not None for value in won):
        pieces = [("Rolled over the logs", False)]
    if budgets:
        pieces.append((f" at {' / '.join(map(str, budgets))} tokens", False))
    if any(row.kappa is not None for row in rows):
        kappa, beta = [row.kappa for row in rows], [row.beta for row in rows]
        pieces += [(". The writer's choices cost ", False), (_estimates(kappa), True)]
        pieces += [(f"{_range(kappa)} nats a decision, the budget ", False), (_estimates(beta), True)]
        pieces.append((_range(beta), False))
    if half_life == 0:
        pieces.append((f"; more than half of {words.facts} never taken up", False))
    elif half_life is not None:
        times = "one rewrite" if half_life == 1 else f"{half_life} rewrites"
        pieces.append((f"; half of {words.facts} gone after {times}", False))
    pieces.append((".", False))
    return Answer(name, verdict, badge, pieces)


def badge_of(cause: Cause, units: str = "games") -> str:
    """The answer in few words; `units` are what intervals resample."""
    return BADGES[cause].replace("games", units)


def _verdict(name: str, rows: Sequence[AnswerRow], units: str) -> tuple[str, str]:
    """Class and text of the badge."""
    if name in REFERENCES:
        return "", REFERENCES[name]
    causes = list(dict.fromkeys(row.cause for row in rows if row.cause is not None))
    if not causes:
        return "", "Not measured"
    if len(causes) == 1:
        return LOOKS[causes[0]], badge_of(causes[0], units)
    told = [one for one in causes if one not in ("unclear", "few")]
    if len(told) == 1:
        shown = sum(row.cause == told[0] for row in rows)
        return LOOKS[told[0]], f"{badge_of(told[0], units)}, shown at {shown} of {len(rows)} budgets"
    return LOOKS[next(one for one in BADGES if one in causes)], "Differs by budget"


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
    return "" if not found.bounded or ends == [_nats(found.estimate)] * 2 else f" [{', '.join(ends)}]"


def _percent(value: float) -> str:
    return written(value, "percent")


def _nats(value: float) -> str:
    return typeset(written(value))
