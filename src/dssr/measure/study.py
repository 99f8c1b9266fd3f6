"""The stored results of one or more runs, checked for being comparable and sorted by cell and game."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from dssr.config import Config
from dssr.errors import StatsError
from dssr.record import log
from dssr.record.run import Run
from dssr.stats.bootstrap import Resampler, align
from dssr.types import Audit, Cell, Episode, Lag, Record, Step
from dssr.worlds.base import Domain, find_domain

if TYPE_CHECKING:
    import polars

    from dssr.measure.answers import AnswerRow

_KEY = re.compile(rb'\{"key":"([^":]+):')


class Problem(Record, frozen=True):
    """A measurement that failed on an episode that itself went well; log `problems`."""

    episode: str
    what: str
    error: str


@dataclass(frozen=True, repr=False)
class Study:
    """Everything tables and figures are made from. Build it with `Study.load`."""

    runs: tuple[Run, ...]
    episodes: dict[Cell, dict[str, Episode]]
    audits: dict[Cell, dict[str, list[Audit]]]
    """Only games that have audits in that cell."""
    lags: dict[str, dict[int, Lag]]
    """By episode and step."""
    problems: tuple[Problem, ...]
    sampler: Resampler

    @property
    def domain(self) -> Domain:
        """The kind of world that the games are of."""
        return find_domain(self.config.games.world)

    @classmethod
    def load(cls, runs: Iterable[Run | str | Path]) -> "Study":
        """Finished runs as one study, or a sentence why they cannot be one."""
        opened = tuple(run if isinstance(run, Run) else Run.open(run) for run in runs)
        for run in opened:
            if run.failure is not None:
                raise StatsError(f"{run.path} is marked as failed, so its numbers are not shown; see its failed.json.")
            if not run.finished:
                raise StatsError(f"{run.path} is not finished; continue it with --resume first.")
        return cls.gather(opened)

    @classmethod
    def gather(cls, runs: Sequence[Run]) -> "Study":
        """As `load`, for a run that is about to be finished."""
        if not runs:
            raise StatsError("There is no run to read; give the directory of one.")
        same_device(runs)
        episodes: dict[Cell, dict[str, Episode]] = {}
        for run in runs:
            for episode in run.read("episodes", Episode):
                _place(episodes.setdefault(episode.job.cell, {}), episode, run)
        if not episodes:
            raise StatsError(f"{runs[0].path} holds no episode; play some with `dssr diagnose`.")
        align({name_of(cell): dict.fromkeys(games, 0.0) for cell, games in episodes.items()})
        where = {one.key: (cell, game) for cell, games in episodes.items() for game, one in games.items()}
        audits: dict[Cell, dict[str, list[Audit]]] = {cell: {} for cell in episodes}
        lags: dict[str, dict[int, Lag]] = {}
        for run in runs:
            for audit in run.read("audits", Audit):
                if audit.episode in where:
                    cell, game = where[audit.episode]
                    audits[cell].setdefault(game, []).append(audit)
            for lag in run.read("lags", Lag):
                lags.setdefault(lag.episode, {})[lag.step] = lag
        problems = tuple(problem for run in runs for problem in run.read("problems", Problem))
        stats = runs[0].config.stats
        sampler = Resampler(stats.resamples, stats.seed, stats.level)
        return cls(tuple(runs), episodes, audits, lags, problems, sampler)

    @property
    def config(self) -> Config:
        """The settings of the first run."""
        return self.runs[0].config

    @property
    def device(self) -> str:
        """Where all the runs ran."""
        return self.runs[0].info.provenance.device

    @property
    def cells(self) -> tuple[Cell, ...]:
        """The conditions, in the order in which the runs met them; `frame("cells")` has their numbers."""
        return tuple(self.episodes)

    @property
    def games(self) -> tuple[str, ...]:
        """The games that every cell was played on."""
        return tuple(sorted(next(iter(self.episodes.values()))))

    @cached_property
    def _places(self) -> dict[str, list[tuple[Path, int, int]]]:
        """Where each episode's steps lie: file, first byte, length. The steps themselves can be too many to hold."""
        found: dict[str, list[tuple[Path, int, int]]] = {}
        for run in self.runs:
            path, place = run.path / "steps.jsonl", 0
            for _, line in log.lines(path):
                key = _KEY.match(line)
                if key:
                    found.setdefault(key[1].decode(), []).append((path, place, len(line)))
                place += len(line)
        return found

    def steps(self, episode: str) -> list[Step]:
        """The steps of an episode, by its key."""
        steps: dict[int, Step] = {}
        for path, places in groupby(self._places.get(episode, ()), key=lambda place: place[0]):
            with path.open("rb") as file:
                for _, place, length in places:
                    file.seek(place)
                    step = msgspec.json.decode(file.read(length), type=Step)
                    steps.setdefault(step.index, step)
        return [steps[index] for index in sorted(steps)]

    def frame(self, name: str) -> "polars.DataFrame":
        """A table of the study as a polars data frame: `cells`, `episodes`, `audits`, `steps`, `lags`, `answers`,
        `contrasts`, `slopes`, `rewrites` …; another name is answered with all there are.

        >>> study.frame("cells").select("memory", "budget", "filler", "kappa", "kappa_low", "kappa_high")
        """
        # Frames are made from rows, and rows from a study: imported here, this is no circle.
        from dssr.measure.frames import frame

        return frame(self, name)

    def answers(self) -> "list[AnswerRow]":
        """Per memory and budget, over all fillers: what is lost, and who loses it, in numbers and in one sentence."""
        from dssr.measure.answers import answer_rows

        return answer_rows(self)

    def __repr__(self) -> str:
        runs = ", ".join(run.path.name for run in self.runs)
        return f"Study({runs}: {len(self.cells)} cells, {len(self.games)} games)"

    def _repr_html_(self) -> str:
        """What a notebook shows: the cells with their intervals, and the answers in words."""
        from dssr.measure.frames import notebook_html

        return notebook_html(self)

    @property
    def audited_keys(self) -> frozenset[str]:
        """Episodes that have audits."""
        return frozenset(audit.episode for games in self.audits.values() for found in games.values() for audit in found)

    def need_audits(self) -> None:
        """Say how to get audits when there are none."""
        if not any(self.audits.values()):
            raise StatsError(
                f"{self.runs[0].path} holds no audits, so there is no delta, beta or kappa; "
                "`dssr diagnose` makes them, for every memory that has a budget."
            )

    def need_lags(self) -> None:
        """Say how to get relevance lags when there are none."""
        if not self.lags:
            path = self.runs[0].path
            raise StatsError(f"{path} holds no relevance lags; `dssr lag {path}` makes them: give its result along.")


def name_of(cell: Cell) -> str:
    """A cell in words."""
    size = "" if cell.budget is None else f" {cell.budget} tokens,"
    protocol = "" if cell.protocol == "post" else f" ({cell.protocol})"
    return f"{cell.memory},{size} filler {cell.filler}{protocol}"


def same_device(runs: Sequence[Run]) -> None:
    """Refuse runs of different devices."""
    devices = {run.info.provenance.device: run for run in runs}
    if len(devices) > 1:
        (one, first), (other, second) = list(devices.items())[:2]
        raise StatsError(
            f"{first.path} ran on {one} and {second.path} on {other}; one table never mixes devices: report them apart."
        )


def _place(games: dict[str, Episode], episode: Episode, run: Run) -> None:
    known = games.setdefault(episode.job.game, episode)
    if known.key != episode.key:
        raise StatsError(
            f"{run.path} holds another episode of {episode.job.game} for {name_of(episode.job.cell)} than the runs "
            "before it; report them apart."
        )
