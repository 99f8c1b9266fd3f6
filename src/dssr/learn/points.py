"""Which writes of the collected episodes are done again: half from Phase A, even over (filler, budget) cells."""

from collections import defaultdict
from collections.abc import Iterable, Sequence

from dssr.measure.score import decision_steps
from dssr.seeds import rng_of
from dssr.types import Episode, Step, View, WritePoint


def points_of(episode: Episode, steps: Sequence[Step], horizon: int) -> list[WritePoint]:
    """Every write of an episode that some decision within the horizon depends on."""
    budget = episode.job.cell.budget
    if episode.error is not None or budget is None:
        return []
    found = []
    for step in steps:
        targets = decision_steps(steps, step.index, horizon)
        if targets:
            found.append(
                WritePoint(
                    episode=episode.key,
                    step=step.index,
                    filler=episode.job.cell.filler,
                    budget=budget,
                    phase="A" if step.decision is None else "B",
                    since_reveal=step.index - episode.reveal,
                    targets=targets,
                )
            )
    return found


def request_at(steps: Sequence[Step], index: int, goal: str) -> tuple[View, str]:
    """What the writer was given at a step: the view, and the state it had."""
    previous = steps[index - 1].write.state if index else ""
    return View(goal=goal, last_action=steps[index].action, observation=steps[index].observation), previous


def sample_points(points: Iterable[WritePoint], count: int, phase_a_share: float, *seed: object) -> list[WritePoint]:
    """At most `count` points: the wanted share from Phase A, and within a phase as even over cells as supply allows."""
    supply: dict[str, list[WritePoint]] = {"A": [], "B": []}
    for point in points:
        supply[point.phase].append(point)
    from_a = round(count * phase_a_share)
    chosen = _even(supply["A"], from_a, *seed, "A") + _even(supply["B"], count - from_a, *seed, "B")
    return sorted(chosen, key=lambda point: point.key)


def _even(points: Sequence[WritePoint], count: int, *seed: object) -> list[WritePoint]:
    """Draw from the cells in turn, so that a scarce cell gives all it has and the others share the rest."""
    cells: dict[tuple[int, int], list[WritePoint]] = defaultdict(list)
    for point in sorted(points, key=lambda point: point.key):
        cells[point.filler, point.budget].append(point)
    for cell in sorted(cells):
        rng_of(*seed, cell).shuffle(cells[cell])
    chosen: list[WritePoint] = []
    while len(chosen) < count and any(cells.values()):
        for cell in sorted(cells):
            if cells[cell] and len(chosen) < count:
                chosen.append(cells[cell].pop())
    return chosen
