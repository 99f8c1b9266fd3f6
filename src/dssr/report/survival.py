"""When each directive of a recipe was in the state, which rewrite dropped it, and when it was carried out."""

from collections.abc import Sequence

from dssr.measure.coverage import survival
from dssr.measure.study import Study
from dssr.types import Cell, Episode, Record, Step

FULL = "full"
Key = tuple[str, int | None, str]
"""Memory, budget and protocol: what a curve is drawn for."""


class Trace(Record, frozen=True):
    """The directives of one episode, step by step."""

    directives: tuple[str, ...]
    present: tuple[str, ...]
    """Per directive one character a step: `1` when the state held it."""
    done: tuple[int, ...]
    """Per directive the first step after it was carried out; -1 when it never was."""
    reveal: int
    begin: int


class Loss(Record, frozen=True):
    """A rewrite that dropped a directive which was still needed."""

    cell: Cell
    game: str
    directive: str
    step: int
    rewrites: int
    before: str
    after: str


def trace(episode: Episode, steps: Sequence[Step]) -> Trace:
    """Follow every directive through an episode; an episode that broke before the recipe has none."""
    reveal = episode.reveal
    if not 0 <= reveal < len(steps):
        return Trace((), (), (), reveal, episode.begin)
    marks: dict[str, str] = {}
    done: dict[str, int] = {}
    for row in survival(steps, reveal):
        name = row["directive"]
        present = row["present"] or episode.job.cell.memory == FULL
        marks[name] = marks.get(name, "0" * reveal) + ("1" if present else "0")
        if row["done"]:
            done.setdefault(name, row["step"])
    # The last step of an episode has no state of its own: nothing is to be decided any more.
    filled = tuple(text.ljust(len(steps), text[-1]) for text in marks.values())
    return Trace(tuple(marks), filled, tuple(done.get(name, -1) for name in marks), reveal, episode.begin)


def is_written(episode: Episode, step: Step) -> bool:
    """Whether the step has a state: all have, but for the one after the last decision."""
    return step.index < episode.begin or step.decision is not None


class Curves:
    """Share of the recipe that the state holds, by rewrites since it was shown, until the task begins.

    Later steps would mislead: what was remembered is carried out and gone, what was forgotten stays to be counted.
    """

    def __init__(self) -> None:
        self._shares: dict[Key, list[list[float]]] = {}

    def add(self, cell: Cell, one: Trace) -> None:
        shares = self._shares.setdefault((cell.memory, cell.budget, cell.protocol), [])
        last = min(one.begin, len(one.present[0]) - 1)
        for rewrites, step in enumerate(range(one.reveal, last + 1)):
            if rewrites == len(shares):
                shares.append([])
            shares[rewrites].append(held(one, step))

    def rows(self) -> list[dict[str, object]]:
        return [
            {
                "memory": memory,
                "budget": budget,
                "protocol": protocol,
                "share": [round(sum(values) / len(values), 4) for values in shares],
                "counts": [len(values) for values in shares],
            }
            for (memory, budget, protocol), shares in self._shares.items()
        ]


def held(one: Trace, step: int) -> float:
    """Share of the directives that the state of a step holds."""
    return sum(marks[step] == "1" for marks in one.present) / len(one.present) if one.present else 0.0


def losses(study: Study, limit: int) -> list[Loss]:
    """Examples of lost directives, the first of each game and memory, spread over the cells."""
    found: list[Loss] = []
    for game in study.games:
        for cell in study.cells:
            episode = study.episodes[cell].get(game)
            if episode is not None and cell.memory != FULL and len(found) < limit:
                found += first_loss(episode, study.steps(episode.key))
    return found


def first_loss(episode: Episode, steps: Sequence[Step]) -> list[Loss]:
    """The first rewrite after the reveal that dropped a directive still needed, as a list of one or none."""
    one = trace(episode, steps)
    for step in range(one.reveal + 1, len(steps)):
        for text, marks, done in zip(one.directives, one.present, one.done, strict=True):
            if marks[step - 1 : step + 1] == "10" and not 0 <= done <= step:
                before, after = steps[step - 1].write.state, steps[step].write.state
                return [Loss(episode.job.cell, episode.job.game, text, step, step - one.reveal, before, after)]
    return []
