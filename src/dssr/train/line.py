"""A line of rounds: train one variant from the untrained writer on, and validate after every round."""

import asyncio
import shutil
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from math import ceil
from pathlib import Path
from typing import Any

import msgspec

from dssr.agent.episode import Agent
from dssr.agent.leaks import refuse_leaks
from dssr.config import Config
from dssr.errors import UsageError
from dssr.measure.diagnose import diagnose, summary_of
from dssr.measure.grid import Grid, arguments_of, fingerprints, grid_of, jobs_of, open_archive, staffed_agent
from dssr.models.load import weights_folder
from dssr.record.run import Run
from dssr.seeds import seed_of
from dssr.train.results import (
    BASE,
    UNTRAINED,
    against_untrained,
    best_rounds,
    coverage_rows,
    credit_rows,
    pair_row,
    round_results,
    shown,
    untrained_results,
)
from dssr.train.round import GapReport, Round, adapter_folder, round_jobs
from dssr.train.variants import MAIN, Variant, variant_of
from dssr.types import Job, RoundResult, Tell
from dssr.worlds.archive import Archive

Row = dict[str, Any]


class Line:
    """One variant and one seed, in one directory, which is itself a run:

    rounds, credit, pairs, coverage   logs that the report reads
    round-N/      a run: episodes, points, candidates of round N; a variant that shares candidates has none
    adapters/rN/  what round N trained
    valid-N/      a run: the validation grid of adapter N; valid-untrained/ beside it
    """

    def __init__(
        self, config: Config, variant: str, seed: int, directory: Path, tell: Tell, forced: bool = False
    ) -> None:
        self.config, self.seed, self.directory, self.tell, self.forced = config, seed, directory, tell, forced
        self.variant: Variant = variant_of(variant, config.writer)
        self.archive: Archive = open_archive(config)
        self.models: dict[str, str] | None = None

    @property
    def source(self) -> Path:
        """The line whose candidates this one learns from."""
        return self.directory if self.variant.own else line_folder(self.directory.parent, MAIN, self.seed)

    @property
    def finished(self) -> bool:
        return (self.directory / "summary.json").exists()

    def train(self, rounds: range, on_round: Callable[[Row], None]) -> list[Row]:
        """Do what is owed of these rounds; stops early when there is nothing to learn from."""
        if self.finished:
            rows: list[Row] = (Run.open(self.directory).summary or {})["rounds"]
            for row in rows:
                on_round(row)
            return rows
        self.check(rounds)
        rows = []
        with self._open() as run:
            for number in (None, *range(rounds.stop)):
                row = self._untrained(run) if number is None else self.round(run, number)
                rows.append(row)
                on_round(row)
                if row["ended"]:
                    break
            if rows[-1]["ended"] or rounds.stop > self.config.writer.rounds:
                run.finish(self._summary(run, rows))
        return rows

    def identify(self, agent: Agent) -> None:
        """Note which models the line is of."""
        self.models = {"writer": agent.writer.fingerprint(), "reader": agent.reader.fingerprint()}

    def round(self, run: Run, number: int) -> Row:
        """Data, adapter and validation of one round."""
        if not self.variant.own and not self._stored(number):
            return {"round": number, "ended": f"The line of {MAIN} ended before round {number}, and this one with it."}
        work = self.data(number)
        report = work.report()
        self._describe(run, work)
        head = {"round": number, **msgspec.structs.asdict(report), "ended": None}
        if not adapter_folder(self.directory, number).exists() and not self.fit(work):
            return {**head, "ended": self._why(number, report)}
        valid, untrained = self.validate(number), self.validate(None)
        contrasts = against_untrained(valid, untrained)
        results = round_results(valid, contrasts, self.variant.title, number, self.seed)
        _log(run, results)
        return {**head, **shown(results), "against_untrained": contrasts}

    def data(self, number: int) -> Round:
        """The round's episodes, points and candidates: collected if that is owed, or those of the main variant."""
        path = self.source / f"round-{number}"
        if not self._stored(number) and self.variant.own:
            self._collect(path, number)
        return Round(Run.open(path), self.config, self.variant, number, self.seed, self.tell)

    def _collect(self, path: Path, number: int) -> None:
        memory = BASE if number == 0 else f"dssr@r{number - 1}"
        games = self.archive.games("train")
        jobs = round_jobs(games, self.config, memory, number, self.seed)
        with self.agent(number - 1, jobs) as agent, self._start(path, agent, number, memory) as run:
            work = Round(run, self.config, self.variant, number, self.seed, self.tell)

            async def go() -> None:
                await work.collect(agent, games, memory)
                refuse_leaks(run, agent.worlds)
                await work.judge(agent)

            asyncio.run(go())
            run.finish(msgspec.structs.asdict(work.report()))

    def fit(self, work: Round) -> bool:
        """Train the round's adapter from its stored data; False when there is nothing to learn from."""
        from dssr.train.fit import train_dpo, train_sft
        from dssr.train.lora import on_cpu

        number, model, writer = work.number, self.config.writer_model, self.config.writer
        card = {"name": f"{self.variant.name} r{number}", "variant": self.variant.name, "config": self.config.digest()}
        places = (self.directory / "work" / f"r{number}", adapter_folder(self.directory, number))
        places[1].parent.mkdir(parents=True, exist_ok=True)
        seed = seed_of("fit", self.seed, number)
        examples = work.examples(self.archive) if number == 0 else []
        preferences = work.preferences(self.archive) if number > 0 else []
        steps = ceil(len(examples) / writer.sft_batch) * writer.sft_epochs
        steps += ceil(len(preferences) / writer.dpo_batch) * writer.dpo_epochs

        def told(step: int) -> None:
            self.tell("train", step, steps)

        base, cpu = weights_folder(model.path), on_cpu(model.device)
        if examples:
            train_sft(base, model.dtype, examples, writer, *places, seed, card, cpu, told, model.revision)
        elif preferences:
            before = adapter_folder(self.directory, number - 1)
            train_dpo(base, model.dtype, before, preferences, writer, *places, seed, card, cpu, told, model.revision)
        shutil.rmtree(places[0], ignore_errors=True)  # checkpoints: the adapter is all that counts now
        return bool(examples or preferences)

    def validate(self, number: int | None) -> Run:
        """The validation grid at the selection budget; `None` is the untrained writer."""
        path = self.directory / f"valid-{UNTRAINED if number is None else number}"
        if (path / "summary.json").exists():
            return Run.open(path)
        memory, newest = (BASE, -1) if number is None else (f"dssr@r{number}", number)
        grid = self.grid(memory)
        jobs = jobs_of(grid, self.config)
        done = 0

        def advance(count: int) -> None:
            nonlocal done
            done += count
            self.tell("validate", done, len(jobs))

        with (
            self.agent(newest, jobs) as agent,
            Run.start(
                path,
                command="diagnose",
                config=self._with_adapters(newest),
                models=fingerprints(grid, agent),
                arguments=arguments_of(grid),
                resume=path.exists(),
            ) as run,
        ):
            asyncio.run(diagnose(run, jobs, agent, self.config.measure, done=advance))
            refuse_leaks(run, agent.worlds)
            run.finish(summary_of(run))
        return Run.open(path)

    def grid(self, memory: str) -> Grid:
        """What is validated of a memory."""
        writer = self.config.writer
        return grid_of(self.config, self.archive, [memory], [writer.selection_budget], games=writer.validation_games)

    def agent(self, newest: int, jobs: Sequence[Job] = ()) -> AbstractContextManager[Agent]:
        """Models with the adapters of rounds up to `newest`, opened for a while and closed before training."""
        return staffed_agent(self._with_adapters(newest), self.archive, jobs)

    def _with_adapters(self, newest: int) -> Config:
        made = {f"r{number}": str(adapter_folder(self.directory, number)) for number in range(newest + 1)}
        model = self.config.writer_model
        return msgspec.structs.replace(
            self.config, writer_model=msgspec.structs.replace(model, adapters={**model.adapters, **made})
        )

    def check(self, rounds: range) -> None:
        """Refuse rounds that lack what they start from."""
        before = adapter_folder(self.directory, rounds.start - 1)
        if rounds.start > 0 and not before.exists():
            raise UsageError(
                f"Round {rounds.start} starts from {before}, which is not there; train the earlier rounds."
            )
        if self.variant.own:
            return
        for number in filter(self._stored, rounds):
            path = self.source / f"round-{number}"
            if Run.open(path).info.digest != self.config.digest():
                raise UsageError(f"{path} was made with another configuration, so its candidates are not shared.")
        ended = (self.source / "summary.json").exists()
        if not ended and not all(map(self._stored, rounds)):
            raise UsageError(
                f"{self.variant.name} learns from the candidates of {MAIN}, and {self.source} does not hold those of "
                f"rounds {rounds.start}-{rounds.stop - 1}; make them first, by this command with --variant {MAIN}."
            )

    def _stored(self, number: int) -> bool:
        return (self.source / f"round-{number}" / "summary.json").exists()

    def _open(self) -> Run:
        if self.models is None:
            with self.agent(-1) as agent:
                self.identify(agent)
        return Run.start(
            self.directory,
            command="train",
            config=self.config,
            models=self.models or {},
            arguments={"variant": self.variant.name, "seed": self.seed, "forced": self.forced},
            resume=self.directory.exists(),
        )

    def _start(self, path: Path, agent: Agent, number: int, memory: str) -> Run:
        models = {"writer": agent.writer.fingerprint(), "reader": agent.reader.fingerprint()}
        arguments = {"variant": self.variant.name, "round": number, "seed": self.seed, "memory": memory}
        return Run.start(
            path, command="round", config=self.config, models=models, arguments=arguments, resume=path.exists()
        )

    def _untrained(self, run: Run) -> Row:
        results = untrained_results(self.validate(None), self.seed)
        _log(run, results)
        return {"round": UNTRAINED, "ended": None, **shown(results)}

    def _describe(self, run: Run, work: Round) -> None:
        """Log what the round's candidates reward."""
        number, seed = work.number, f", seed {self.seed}" if self.seed else ""
        name = f"{self.variant.title}, round {number}{seed}"
        points, groups, score = work.points(), work.groups(), self.variant.score
        credit = credit_rows(name, points, groups, score)
        run.extend("credit", [(f"{number}:{row.group}", row) for row in credit])
        kept = coverage_rows(name, points, groups, self.config.measure.rewrite_bins)
        run.extend("coverage", [(f"{number}:{row.since}", row) for row in kept])
        most = self.config.writer.pairs_per_point
        run.append("pairs", str(number), pair_row(name, groups, score, self.variant.gap, most))

    def _why(self, number: int, gaps: GapReport) -> str:
        name = self.variant.name
        if number == 0 or not gaps.points:
            return f"Round {number} of {name} has no candidate to learn from; the line ends here."
        return (
            f"Round {number} of {name} has no pair at least {self.variant.gap:g} apart, so the line ends with round "
            f"{number - 1}: over {gaps.points} points, best minus worst has quartiles {gaps.lower:.3g}, "
            f"{gaps.median:.3g} and {gaps.upper:.3g}, and is {gaps.largest:.3g} at most."
        )

    def _summary(self, run: Run, rows: Sequence[Row]) -> Row:
        best = best_rounds(run.read("rounds", RoundResult)).get(self.variant.title)
        return {
            "writer": self.variant.title,
            "seed": self.seed,
            "forced": self.forced,
            "ended": rows[-1]["ended"],
            "best": None if best is None else msgspec.to_builtins(best),
            "rounds": list(rows),
        }


def _log(run: Run, results: Sequence[RoundResult]) -> None:
    run.extend("rounds", [(f"{one.round}:{one.filler}", one) for one in results])


def line_folder(study: Path, variant: str, seed: int) -> Path:
    """Where a line lies among the others of its study."""
    return study / f"{variant}-s{seed}"
