"""Facts over time: which rewrite lost what."""

from pathlib import Path

from dssr.measure.study import Study
from dssr.reports.survival import Curves, Timeline, losses, timeline
from dssr.types import Cell

CELL = Cell("summary", 64, 20, "post")


def test_curves_end_where_the_task_begins() -> None:
    """Catches a curve that goes on into the task, where a directive carried out looks like one that was lost."""
    curves = Curves()
    curves.add(CELL, Timeline(("dice the carrot", "fry the carrot"), ("011100", "010000"), (4, -1), 1, 3))
    curves.add(CELL, Timeline(("dice the carrot", "fry the carrot"), ("0110", "0110"), (-1, -1), 1, 2))
    (row,) = curves.rows()
    assert row.share == (1.0, 0.75, 0.5)
    assert row.counts == (2, 2, 1)


def test_timelines_follow_the_stored_states(whole_run: Path) -> None:
    """Catches an off-by-one between steps and marks: every mark is checked against the stored text."""
    study = Study.load([whole_run])
    checked = 0
    for cell in study.cells:
        if cell.memory not in ("summary", "guide"):
            continue
        for episode in study.episodes[cell].values():
            steps = study.steps(episode.key)
            one = timeline(study, episode, steps)
            assert one.facts
            for text, marks in zip(one.facts, one.present, strict=True):
                assert len(marks) == len(steps)
                for step in steps[:-1]:
                    assert (marks[step.index] == "1") == (step.index >= episode.reveal and text in step.write.state)
                    checked += 1
    assert checked > 1000


def test_losses_show_the_state_before_and_after(whole_run: Path) -> None:
    """Catches an example that blames the wrong rewrite."""
    found = losses(Study.load([whole_run]), 5)
    assert len(found) == 5
    for one in found:
        assert one.fact in one.before
        assert one.fact not in one.after
        assert one.rewrites > 0
