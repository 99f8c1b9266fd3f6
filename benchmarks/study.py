"""The whole study: answers that models compute, against the same stages one by one.

The baseline asks every prompt anew: no cache, no walk that shares the steps of a shorter one, every candidate rolled
forward alone to its last decision. The scripted model has no speed to measure; calls are what a large model is paid
for.
"""

import os
import tempfile
from pathlib import Path

from tests.studies.test_study import CONFIG, GAMES

import dssr
from benchmarks.common import Ratio
from dssr.config import load
from dssr.measure.candidates import Candidate, WritePoint
from dssr.measure.score import needed
from dssr.record.log import read
from dssr.types import Search
from dssr.worlds.shipped import unpack

MOST = 0.4
"""Share of the baseline's calls that may be computed."""


def run() -> list[Ratio]:
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            unpack(GAMES, "data/six")
            Path("small.toml").write_text(CONFIG)
            last = dssr.study("small.toml", out="study", approval="To count its calls.")[-1]
            alone = one_by_one(Path("study"), load("small.toml").writer.targets)
        finally:
            os.chdir(before)
    if last.answers is None:
        raise AssertionError("the study counted no answers")
    name = f"whole study: calls (at most {MOST:g} of the baseline's)"
    return [Ratio(name, last.answers, alone, "each stage on its own", alone / last.answers, 1 / MOST, "calls")]


def one_by_one(study: Path, sizes: tuple[int, ...]) -> int:
    """Calls of the stages of a study if nothing were shared: prompts as the leak checks counted them, but candidates,
    whose roll-forwards meet, by what each would take alone."""
    calls = 0
    for log in sorted(study.rglob("searches.jsonl")):
        found = [one for _, one in read(log, Search)]
        calls += sum(one.writer_prompts + one.reader_prompts for one in found if one.what != "candidates")
        points = {one.key: one for _, one in read(log.parent / "points.jsonl", WritePoint)}
        tried = [one for _, one in read(log.parent / "candidates.jsonl", Candidate)]
        if any(one.what == "candidates" for one in found):
            calls += sum(_alone(points[one.point], sizes) for one in tried if one.point in points)
    return calls


def _alone(point: WritePoint, sizes: tuple[int, ...]) -> int:
    """Its own write, the rewrites up to its last decision, and a choice at each decision that a score looks at."""
    targets = needed(point.targets, sizes)
    return 1 + (targets[-1] - point.step if targets else 0) + len(targets)
