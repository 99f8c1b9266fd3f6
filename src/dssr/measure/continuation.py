"""Does a score foretell the return? Candidates at logged write points are scored, and each is played on to the end.

Everything is logged under content keys, so a study broken off computes only what it still owes:
episodes, steps, prompts   the trajectories
checks                     points from which the log was reproduced
candidates, continuations  what was tried at a point and how each game ended; `points` closes the point
returns                    rank agreement of every score with the return
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from operator import attrgetter
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from dssr.agent.episode import Agent, continue_episode, first_difference, stored
from dssr.agent.leaks import keep_searches
from dssr.agent.memory import TRAINED, split_name
from dssr.agent.prompts import RETENTION
from dssr.config import Config
from dssr.errors import ConfigError, GameError, ModelError, RecordError, StatsError, UsageError
from dssr.measure.candidates import (
    Candidate,
    CandidateScorer,
    OpenPoint,
    Sampling,
    Trouble,
    WritePoint,
    points_of,
    sample_points,
)
from dssr.measure.grid import arguments_of, grid_of, jobs_of
from dssr.measure.study import Study
from dssr.record.run import Run
from dssr.scale.shards import each
from dssr.session import Bench, Session, Stage, configured, place_of, silent, verb
from dssr.stats.bootstrap import Array, Interval, Resampler
from dssr.stats.contrasts import within_point
from dssr.types import Episode, Grid, Job, Phase, Played, Progress, Record, Search, Split, Workers
from dssr.worlds.archive import Archive

LEAST = 2
"""Candidates at a point: fewer cannot be ranked."""
KEY, GROUP = attrgetter("key"), attrgetter("group")
log = logging.getLogger("dssr")


# ---------------------------------------------------------------- asking for a study


@verb
async def continuation(
    config: Config | str = "nano",
    *,
    split: Split = "valid",
    points: int | None = None,
    games: int | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    workers: Workers | int | None = None,
    progress: Progress = silent,
) -> Study:
    """Play candidates of logged write points to the end, and correlate their scores with their returns."""
    settings = configured(config)
    async with Session(settings, progress, workers=workers) as session:
        grid = continuation_grid(settings, session.archive, split, games)
        count = settings.continuation.points if points is None else points
        place = Path(out) if out else place_of(settings, "continuation", grid.split, grid.games, count)
        return Study.load([await study_continuations(session, grid, count, place, resume)])


async def study_continuations(session: Session, grid: Grid, points: int, place: Path, resume: bool = False) -> Run:
    """The whole study into one run: play, check that logs are reproduced, try candidates, summarise."""
    check_size(session.config, points)
    jobs = continuation_jobs(grid, session.config)
    tried = f"{points} points x {session.config.continuation.candidates} candidates"
    log.info("%d trajectories, then %s, each played to the end; into %s", len(jobs), tried, place)
    with session.run(place, "continuation", jobs, arguments_of(grid) | {"points": points}, resume) as (run, agent):
        study = Continuation(session, run, jobs, points, agent)
        await study.play()
        await study.check()
        await study.judge()
        session.finish(run, study.rows())
    return Run.open(place)


def continuation_grid(config: Config, archive: Archive, split: str = "valid", games: int | None = None) -> Grid:
    """The trajectories of the study, one per game and filler."""
    study = config.continuation
    if split not in ("train", "valid"):
        raise UsageError(f"The study plays train or valid games, not {split!r}; the test split is for `dssr evaluate`.")
    style = split_name(study.memory)[0]
    if style not in (*RETENTION, TRAINED):
        raise ConfigError(
            f"The setting continuation.memory is {study.memory!r}, which has no candidates to sample; "
            f"use one of {', '.join(RETENTION)} or dssr@ADAPTER."
        )
    named: Split = "train" if split == "train" else "valid"
    return grid_of(config, archive, [study.memory], [study.budget], games=games, split=named)


def continuation_jobs(grid: Grid, config: Config) -> tuple[Job, ...]:
    """Without chance, whatever the configuration plays with: a continuation must be able to follow the log."""
    return tuple(msgspec.structs.replace(job, temperature=0.0, epsilon=0.0) for job in jobs_of(grid, config))


def check_size(config: Config, points: int) -> None:
    """Refuse a study that could not say anything."""
    if points < 1:
        raise UsageError(f"A study of {points} points measures nothing; give --points or set continuation.points.")
    if (count := config.continuation.candidates) < LEAST:
        raise ConfigError(f"The setting continuation.candidates is {count}; {LEAST} are the least that can be ranked.")


# ---------------------------------------------------------------- the study


class Checked(Record, frozen=True):
    """A point from which playing on gave the logged episode."""

    point: str
    steps: int
    """Played anew, each as logged."""


class Tried(Record, frozen=True):
    """What became of one point."""

    point: WritePoint
    candidates: tuple[Candidate, ...] = ()
    ends: tuple[Episode, ...] = ()
    """Of the distinct states that the game was played on from."""
    trouble: Trouble | None = None
    """Why the point has neither; None when it has both."""
    searches: tuple[Search, ...] = ()
    """Of the prompts sent for all points of the shard; its first point has them."""


async def reproduce(bench: Bench, one: OpenPoint) -> tuple[Checked, Search]:
    """Play on from the logged state of a point."""
    point, logged = one.point, one.played
    again = await continue_episode(logged.episode, logged.steps, point.step, bench.agent)
    where = f"step {point.step} of episode {point.episode} ({logged.episode.job.game}, filler {point.filler})"
    if again.episode.error is not None:
        raise ModelError(f"The check of {where} failed: {again.episode.error}")
    differs = first_difference(logged.steps, again.steps)
    if differs is not None:
        raise RecordError(
            f"Continued from {where}, the game departs from the log at step {differs}: the model does not answer "
            "equal requests equally, and no return could be trusted; use a backend that does, such as hf."
        )
    assert again.search is not None
    return Checked(point.key, len(again.steps) - point.step), again.search


async def try_points(sampling: Sampling, bench: Bench, points: Sequence[OpenPoint]) -> list[Tried]:
    """Score and play on candidates of one trajectory's points, whose roll-forwards are shared and then let go."""
    scorer = CandidateScorer(points[0].played, bench.agent, sampling, bench.config.writer, bench.config.seed)
    first, *rest = await each(_try, scorer, [one.point for one in points])
    return [msgspec.structs.replace(first, searches=tuple(scorer.searches())), *rest]


async def _try(scorer: CandidateScorer, point: WritePoint) -> Tried:
    """A model or game that fails costs its point and no other."""
    try:
        chains = scorer.sampling.tries == "chains"
        candidates = await (scorer.studied_chains(point) if chains else scorer.studied(point))
        starts = dict.fromkeys(scorer.start_of(point, one) for one in candidates)
        ends = [await scorer.continued(*start) for start in starts]
    except (ModelError, GameError) as error:
        return Tried(point, trouble=Trouble(point.key, str(error)))
    return Tried(point, tuple(candidates), tuple(ends))


class Continuation:
    """One study in one run directory: `play`, then `check`, then `judge`, then `rows`."""

    def __init__(self, session: Session, run: Run, jobs: Sequence[Job], points: int, agent: Agent) -> None:
        self.session, self.run, self.jobs, self.agent = session, run, jobs, agent
        self.config = config = session.config
        self.wanted = points
        asked, writer = config.continuation, config.writer
        heat = writer.chain_temperature if asked.tries == "chains" else writer.candidate_temperature
        self.sampling = Sampling(asked.candidates, heat, asked.tries, asked.enforced or None)

    async def play(self) -> None:
        """The trajectories."""
        await self.session.play(self.run, self.agent, self.jobs, "trajectories")

    @cached_property
    def played(self) -> dict[str, Played]:
        """The trajectories that did not fail."""
        return {one.episode.key: one for one in stored(self.run) if one.episode.error is None}

    @cached_property
    def points(self) -> list[WritePoint]:
        """The sampled write points, in the order of their keys."""
        horizon = self.config.writer.horizon
        supply = [point for one in self.played.values() for point in points_of(one.episode, one.steps, horizon)]
        if not supply:
            raise StatsError(
                f"{self.run.path} has no write point: none of its {len(self.jobs)} trajectories reached a decision; "
                "its episodes.jsonl says why."
            )
        share = self.config.writer.phase_a_share
        return sample_points(supply, self.wanted, share, "continuation", self.config.seed)

    async def check(self) -> None:
        """Play on from every logged state: it must come out as logged, or returns would compare different games."""

        def keep(found: tuple[Checked, Search]) -> None:
            checked, search = found
            keep_searches(self.run, f"{checked.point}:check", [search])
            self.run.append("checks", checked.point, checked)

        do = partial(each, reproduce)
        await self._work(Stage("points reproduced", "checks", self.open_points, KEY, GROUP, do, keep))

    async def judge(self) -> None:
        """Candidates of every point: scored, and played on to the end."""
        do = partial(try_points, self.sampling)
        await self._work(Stage("points continued", "points", self.open_points, KEY, GROUP, do, self._store))

    async def _work(self, stage: Stage[OpenPoint, Any]) -> None:
        await self.session.work(self.run, stage)

    @cached_property
    def open_points(self) -> list[OpenPoint]:
        """The sampled write points with their trajectories."""
        return [OpenPoint(point, self.played[point.episode]) for point in self.points]

    def _store(self, tried: Tried) -> None:
        """The point's own line goes last and makes it count."""
        key = tried.point.key
        keep_searches(self.run, key, tried.searches)
        if tried.trouble is not None:
            self.run.append("troubles", key, tried.trouble)
        else:
            self.run.extend("candidates", [(f"{key}:{one.index:02d}", one) for one in tried.candidates])
            self.run.extend("continuations", [(end.key, end) for end in tried.ends])
        self.run.append("points", key, tried.point)

    def rows(self) -> dict[str, Any]:
        """Store the rank agreements; what a finished study says, from its own logs."""
        troubles = sum(1 for _ in self.run.read("troubles", Trouble))
        if troubles == len(self.points):
            raise ModelError(f"Every point of {self.run.path} failed, so it measures nothing; see its troubles.jsonl.")
        stats = self.config.stats
        found = Returns.read(self.run)
        rows = return_rows(found, Resampler(stats.resamples, stats.seed, stats.level))
        alike = agreement_rows(found, Resampler(stats.resamples, stats.seed, stats.level))
        self.run.extend("returns", [(row.score, row) for row in rows])
        self.run.extend("returns", [(f"{row.score}:{row.of}", row) for row in alike])
        return {
            "returns": [msgspec.to_builtins(row) for row in rows],
            "agreement": [msgspec.to_builtins(row) for row in alike],
            "unmeasured": [name for name in found.scores if name not in {row.score for row in rows}],
            "points": len(self.points),
            "asked": self.wanted,
            "phase_a": sum(point.phase == "A" for point in self.points),
            "without_variance": len(found.returns) - found.varied,
            "troubles": troubles,
            "candidates": self.sampling.candidates,
            "distinct": sum(1 for _ in self.run.read("continuations", Episode)),
            "trajectories": len(self.jobs),
            "errors": len(self.jobs) - len(self.played),
        }


# ---------------------------------------------------------------- scores against returns

RETURN = "return"


class ReturnRow(Record, frozen=True):
    """Rank agreement of one score with the realised return; log `returns` of a continuation run."""

    score: str
    """Its name: `S1`, …, `W1`, …, `E1`, …, `chain`."""
    rho: float
    """Mean over points of Spearman's correlation among their candidates."""
    rho_low: float | None
    """None where all points are of one game."""
    rho_high: float | None
    points: int
    """Points where both the score and the return vary."""
    without_variance: int
    """Points where all candidates ended with the same return."""
    unranked: int = 0
    """Points where returns differ but all candidates have the same score: no correlation there either."""
    of: str = "return"
    """What the score is correlated with: `return`, or the recursive score of as many targets."""

    @property
    def rho_interval(self) -> Interval:
        """Rank correlation of score and return within points, with its bounds."""
        return Interval.stored(self.rho, self.rho_low, self.rho_high)


@dataclass(frozen=True)
class Returns:
    """One row per write point, one column per candidate."""

    games: tuple[str, ...]
    """The game of each point: points of one game are resampled together."""
    returns: Array
    scores: Mapping[str, Array]
    """By name, in the order in which candidates store them: `S1`, …, `W1`, …, `E1`, …"""
    phases: tuple[Phase, ...]
    """The phase of each point."""

    @classmethod
    def read(cls, run: Run) -> "Returns":
        """All points of a run whose candidates were continued, in the order of its log."""
        episodes = {episode.key: episode for episode in run.read("episodes", Episode)}
        points: dict[str, list[Candidate]] = {}
        for candidate in run.read("candidates", Candidate):
            if RETURN in candidate.scores:
                points.setdefault(candidate.point, []).append(candidate)
        if not points:
            raise StatsError(f"{run.path} holds no continued candidates; `dssr continuation` makes them.")
        names = list(next(iter(points.values()))[0].scores)
        table = {name: np.array([[one.scores[name] for one in group] for group in points.values()]) for name in names}
        returns = table.pop(RETURN)
        where = [(episodes[key], int(step)) for key, _, step in (point.partition(":") for point in points)]
        games = tuple(episode.job.game for episode, _ in where)
        return cls(games, returns, table, tuple("A" if step < episode.begin else "B" for episode, step in where))

    def of_phase(self, phase: Phase) -> "Returns":
        """The points of one phase alone."""
        kept = [place for place, one in enumerate(self.phases) if one == phase]
        scores = {name: values[kept] for name, values in self.scores.items()}
        return Returns(tuple(self.games[place] for place in kept), self.returns[kept], scores, (phase,) * len(kept))

    @property
    def varied(self) -> int:
        """Points at which the return depends on the candidate."""
        return int((np.ptp(self.returns, axis=1) > 0).sum())


def return_rows(found: Returns, sampler: Resampler) -> list[ReturnRow]:
    """One row per score. A score without a single point where it and the return both vary has no row."""
    rows = (_row(found, name, RETURN, found.returns, sampler) for name in found.scores)
    return [row for row in rows if row is not None]


def agreement_rows(found: Returns, sampler: Resampler) -> list[ReturnRow]:
    """Do the kinds of score rank candidates alike? Each window and enforced score with the recursive one of as many
    targets."""
    pairs = [(name, f"S{name[1:]}") for name in found.scores if name.startswith(("W", "E"))]
    rows = (_row(found, one, two, found.scores[two], sampler) for one, two in pairs if two in found.scores)
    return [row for row in rows if row is not None]


def _row(found: Returns, name: str, of: str, values: Array, sampler: Resampler) -> ReturnRow | None:
    scores, moved = found.scores[name], np.ptp(values, axis=1) > 0
    ranked = moved & (np.ptp(scores, axis=1) > 0)
    if not ranked.any():
        return None
    rho = within_point(scores, values, found.games, sampler).interval
    return ReturnRow(
        score=name,
        rho=rho.estimate,
        rho_low=rho.ends[0],
        rho_high=rho.ends[1],
        points=int(ranked.sum()),
        without_variance=int((~moved).sum()),
        unranked=int((moved & ~ranked).sum()),
        of=of,
    )
