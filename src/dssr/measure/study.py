"""The stored results of one or more runs, checked for being comparable and sorted by cell and game."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from dssr.config import Config
from dssr.errors import StatsError
from dssr.measure.shelves import Logs, Shelf
from dssr.record.run import Run
from dssr.stats.bootstrap import Resampler, align
from dssr.traces.trace import WORLD, TraceStore
from dssr.types import Audit, Cell, Episode, Lag, Record, Step
from dssr.worlds.base import Domain, find_domain

if TYPE_CHECKING:
    import polars

    from dssr.measure.verdicts import AnswerRow

SEED = re.compile(r"(?P<writer>.+@.+)/s(?P<seed>\d+)")
"""Name of a memory whose adapter is one seed of a writer: `dssr@a4/s0` is a seed of `dssr@a4`."""


class Problem(Record, frozen=True):
    """A measurement that failed on an episode that itself went well; log `problems`."""

    episode: str
    what: str
    error: str


@dataclass(frozen=True, repr=False)
class Study:
    """Everything tables and figures are made from. Build it with `Study.load`."""

    runs: tuple[Run, ...]
    episodes: Mapping[Cell, Mapping[str, Episode]]
    audits: Mapping[Cell, Mapping[str, Sequence[Audit]]]
    """Only games that have audits in that cell."""
    lags: dict[str, dict[int, Lag]]
    """By episode and step."""
    problems: tuple[Problem, ...]
    sampler: Resampler

    @property
    def domain(self) -> Domain:
        """The kind of world that the games are of."""
        return find_domain(self.config.games.world)

    @property
    def is_of_logs(self) -> bool:
        """Whether nothing was played: memories were rolled over logged episodes."""
        return self.config.games.world == WORLD

    def goal(self, trace: str) -> str:
        """What an audited log asks for; empty where none of the runs keeps it."""
        return next((found for store in self._traces if (found := store.goal(trace)) is not None), "")

    @cached_property
    def _traces(self) -> tuple[TraceStore, ...]:
        return tuple(TraceStore(run.log_file("traces")) for run in self.runs)

    @classmethod
    def load(cls, runs: Iterable[Run | str | Path]) -> "Study":
        """Finished runs as one study, or a sentence why they cannot be one."""
        opened = tuple(run if isinstance(run, Run) else Run.open(run) for run in runs)
        for run in opened:
            if run.failure is not None:
                raise StatsError(f"{run.path} is marked as failed, so its numbers are not shown; see its failed.json.")
            if not run.finished:
                raise StatsError(f"{run.path} is not finished; continue it with --resume first.")
        same_device(opened)
        return cls.gather(opened)

    @classmethod
    def gather(cls, runs: Sequence[Run]) -> "Study":
        """As `load`, for a run that is about to be finished."""
        if not runs:
            raise StatsError("There is no run to read; give the directory of one.")
        if len(runs) > 1:
            same_device(runs)
        played, measured = Logs(Episode), Logs(Audit)
        episodes: dict[Cell, Shelf[Episode, Episode]] = {}
        keys: dict[Cell, dict[str, str]] = {}
        for run in runs:
            for episode, place in played.scan(run.log_file("episodes")):
                cell, game = episode.job.cell, episode.job.game
                known = keys.setdefault(cell, {}).setdefault(game, episode.key)
                if known != episode.key:
                    raise StatsError(
                        f"{run.path} holds another episode of {game} for {name_of(cell)} than the runs before it; "
                        "report them apart."
                    )
                if cell not in episodes:
                    episodes[cell] = Shelf(played, itemgetter(0))
                if game not in episodes[cell]:
                    episodes[cell].put(game, place)
        if not episodes:
            raise StatsError(f"{runs[0].path} holds no episode; play some with `dssr diagnose`.")
        align({name_of(cell): dict.fromkeys(games, 0.0) for cell, games in episodes.items()})
        audits: dict[Cell, Shelf[Audit, list[Audit]]] = {cell: Shelf(measured, list) for cell in episodes}
        where = {key: (audits[cell], game) for cell, games in keys.items() for game, key in games.items()}
        del keys
        lags: dict[str, dict[int, Lag]] = {}
        seen: set[tuple[str, int]] = set()
        for run in runs:
            for audit, place in measured.scan(run.log_file("audits")):
                if audit.episode not in where:
                    continue
                if len(runs) > 1:  # which may hold the same episode, such as a grid and the lags of a part of it
                    if (audit.episode, audit.step) in seen:
                        continue
                    seen.add((audit.episode, audit.step))
                shelf_of, game = where[audit.episode]
                shelf_of.put(game, place)
            for lag in run.read("lags", Lag):
                lags.setdefault(lag.episode, {})[lag.step] = lag
        problems = tuple(problem for run in runs for problem in run.read("problems", Problem))
        stats = runs[0].config.stats
        sampler = Resampler(stats.resamples, stats.seed, stats.level, stats.power)
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

    @cached_property
    def pooled(self) -> dict[Cell, tuple[Cell, ...]]:
        """Cells of writers trained with several seeds, each with the played cells it stands for, one per seed.

        `dssr@a4/s0` and `dssr@a4/s1` are seeds of the writer `dssr@a4`. It is there only where every seed is: see
        `lacking`.
        """
        return {one: found for one, found in self._by_writer.items() if one not in self.lacking and len(found) > 1}

    @cached_property
    def lacking(self) -> dict[Cell, str]:
        """Cells of writers of which a seed is missing, and the sentence that says which."""
        seeds: dict[str, dict[str, None]] = {}
        for cell, found in self._by_writer.items():
            seeds.setdefault(cell.memory, {}).update((one.memory, None) for one in found)
        wanted, problems = self.config.writer.seeds, {}
        for cell, found in self._by_writer.items():
            known = seeds[cell.memory]
            missing = [name for name in known if name not in {one.memory for one in found}]
            if missing:
                problems[cell] = (
                    f"{name_of(cell)} has no value: its seed {missing[0]} was not measured there; measure it with "
                    f"`dssr diagnose --memory {missing[0]}`."
                )
            elif len(known) < wanted:
                problems[cell] = (
                    f"{name_of(cell)} has no value: these runs hold {len(known)} of its {wanted} seeds "
                    f"({', '.join(known)}); measure the others, or set writer.seeds."
                )
        return problems

    @cached_property
    def _by_writer(self) -> dict[Cell, tuple[Cell, ...]]:
        found: dict[Cell, tuple[Cell, ...]] = {}
        for cell in self.cells:
            seed = SEED.fullmatch(cell.memory)
            if seed:
                whole = msgspec.structs.replace(cell, memory=seed["writer"])
                found[whole] = (*found.get(whole, ()), cell)
        both = next((cell for cell in found if cell in self.episodes), None)
        if both is not None:
            raise StatsError(
                f"These runs hold {both.memory} itself and seeds of it ({found[both][0].memory}), so the name would "
                "mean two things; report them apart."
            )
        return found

    @property
    def conditions(self) -> tuple[Cell, ...]:
        """What tables have rows for: the cells, and before its first seed each writer that stands for several."""
        whole = {cells[0]: cell for cell, cells in self.pooled.items()}
        return tuple(one for cell in self.cells for one in ((whole[cell], cell) if cell in whole else (cell,)))

    def single(self, condition: Cell) -> tuple[Cell, ...]:
        """The played cells that a condition stands for: one per seed of a pooled writer, else itself."""
        return self.pooled.get(condition, (condition,))

    @property
    def games(self) -> tuple[str, ...]:
        """The games that every cell was played on."""
        return tuple(sorted(next(iter(self.episodes.values()))))

    @cached_property
    def _steps(self) -> Shelf[Step, list[Step]]:
        """By episode."""
        logs = Logs(Step)
        found = Shelf(logs, list)
        for run in self.runs:
            for key, place in logs.scan_keys(run.log_file("steps")):
                found.put(key.partition(":")[0], place)
        return found

    def steps(self, episode: str) -> list[Step]:
        """The steps of an episode, by its key, in order; read anew, since all of them can be too many to hold."""
        steps = self._steps.alone(episode) if episode in self._steps else []
        once = {step.index: step for step in steps}  # two runs may hold the same episode
        return [once[index] for index in sorted(once)]

    def folder(self, episode: str) -> Path | None:
        """The run directory that holds an episode's steps; None where none does."""
        return self._steps.path(episode).parent if episode in self._steps else None

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
        from dssr.measure.verdicts import answer_rows

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
            if self.runs[0].info.arguments.get("split") == "test":
                why = "lags of test games come from an evaluation that was approved with --lag, and from nothing else"
                raise StatsError(f"{path} holds no relevance lags; {why}.")
            raise StatsError(f"{path} holds no relevance lags; `dssr lag {path}` makes them: give its result along.")


def name_of(cell: Cell) -> str:
    """A cell in words."""
    size = "" if cell.budget is None else f" {cell.budget} tokens,"
    protocol = "" if cell.protocol == "post" else f" ({cell.protocol})"
    return f"{cell.memory},{size} filler {cell.filler}{protocol}"


def same_device(runs: Sequence[Run]) -> None:
    """Refuse runs of different devices; a run that was continued on another one is itself such a mixture."""
    devices: dict[str, Run] = {}
    for run in runs:
        mine = run.devices
        if len(mine) > 1:
            raise StatsError(
                f"{run.path} was begun on {mine[0]} and continued on {mine[1]}; one table never mixes devices: "
                "run it anew on one of them."
            )
        devices.setdefault(mine[0], run)
    if len(devices) > 1:
        (one, first), (other, second) = list(devices.items())[:2]
        raise StatsError(
            f"{first.path} ran on {one} and {second.path} on {other}; one table never mixes devices: report them apart."
        )
