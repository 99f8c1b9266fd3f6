"""A line of rounds: train one variant from the untrained writer on, and validate after every round."""

import shutil
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from dssr.agent.memory import with_adapter
from dssr.config import Config
from dssr.errors import UsageError
from dssr.measure.diagnose import measure_grid
from dssr.measure.grid import grid_of
from dssr.measure.rows import flat
from dssr.models.load import weights_folder
from dssr.record.run import Run
from dssr.seeds import seed_of
from dssr.session import Session, silent
from dssr.training.results import (
    UNTRAINED,
    RoundResult,
    against_untrained,
    best_rounds,
    coverage_rows,
    credit_rows,
    pair_row,
    round_results,
    shown,
    untrained_results,
)
from dssr.training.round import GapReport, Round, adapter_folder, round_jobs
from dssr.training.variants import MAIN, Variant, variant_of
from dssr.types import Grid, Progress
from dssr.worlds.archive import Archive

if TYPE_CHECKING:
    pass

if TYPE_CHECKING:
    from dssr.training.fit import Fit

Row = dict[str, Any]


class Line:
    """One variant and one seed, in one directory, which is itself a run:

    rounds, credit, pairs, coverage   logs that the report reads
    round-N/      a run: episodes, points, candidates of round N; a variant that shares candidates has none
    adapters/rN/  what round N trained
    valid-N/      a run: the validation grid of adapter N; valid-untrained/ beside it
    """

    def __init__(
        self,
        config: Config,
        variant: str,
        seed: int,
        directory: Path,
        progress: Progress = silent,
        forced: bool = False,
    ) -> None:
        self.config, self.seed, self.directory, self.forced = config, seed, directory, forced
        self.progress = progress
        self.variant: Variant = variant_of(variant, config.writer)
        self.archive: Archive = Session(config).archive

    @property
    def source(self) -> Path:
        """The line whose candidates this one learns from."""
        return self.directory if self.variant.own else line_folder(self.directory.parent, MAIN, self.seed)

    @property
    def finished(self) -> bool:
        """Whether its summary is written."""
        return (self.directory / "summary.json").exists()

    async def train(self, rounds: range) -> list[Row]:
        """Do what is owed of these rounds; stops early when there is nothing to learn from."""
        if self.finished:
            rows: list[Row] = (Run.open(self.directory).summary or {})["rounds"]
            return rows
        self.check(rounds)
        rows = []
        arguments = {"variant": self.variant.name, "seed": self.seed, "forced": self.forced}
        async with self.session(-1) as session:
            with session.run(self.directory, "train", (), arguments, resume=True) as (run, _):
                await session.close()  # the models were asked who they are; every round opens its own
                for number in (None, *range(rounds.stop)):
                    row = await self._untrained(run) if number is None else await self.round(run, number)
                    rows.append(row)
                    self.progress(_told(row), 1, 1)
                    if row["ended"]:
                        break
                if rows[-1]["ended"] or rounds.stop > self.config.writer.rounds:
                    session.finish(run, self._summary(run, rows))
        return rows

    async def round(self, run: Run, number: int) -> Row:
        """Data, adapter and validation of one round."""
        if not self.variant.own and not self._stored(number):
            return {"round": number, "ended": f"The line of {MAIN} ended before round {number}, and this one with it."}
        work = await self.data(number)
        report = work.report()
        self._describe(run, work)
        head = {"round": number, **msgspec.structs.asdict(report), "ended": None}
        if not adapter_folder(self.directory, number).exists() and not self.fit(work):
            return {**head, "ended": self._why(number, report)}
        valid, untrained = await self.validate(number), await self.validate(None)
        contrasts = against_untrained(valid, untrained)
        results = round_results(valid, contrasts, self.variant.title, number, self.seed)
        _log(run, results)
        return {**head, **shown(results), "against_untrained": [*map(flat, contrasts)]}

    async def data(self, number: int) -> Round:
        """The round's episodes, points and candidates: collected if that is owed, or those of the main variant."""
        path = self.source / f"round-{number}"
        if not self._stored(number) and self.variant.own:
            await self._collect(path, number)
        return Round(Run.open(path), self.config, self.variant, number, self.seed)

    async def _collect(self, path: Path, number: int) -> None:
        memory = self.memory(number - 1)
        jobs = round_jobs(self.archive.games("train"), self.config, memory, number, self.seed)
        arguments = {"variant": self.variant.name, "round": number, "seed": self.seed, "memory": memory}
        arguments["line"] = self.config.digest()
        async with self.session(number - 1) as session:
            with session.run(path, "round", jobs, arguments, resume=True) as (run, agent):
                work = Round(run, self.config, self.variant, number, self.seed)
                await work.collect(session, agent, jobs)
                await work.score(session, agent)
                session.finish(run, msgspec.structs.asdict(work.report()))

    def fit(self, work: Round) -> bool:
        """Train the round's adapter from its stored data; False when there is nothing to learn from."""
        from dssr.training.fit import PreferenceLoss, train_dpo, train_sft

        number, writer = work.number, self.config.writer
        fit = self._fit(number)
        fit.out.parent.mkdir(parents=True, exist_ok=True)
        examples = work.examples(self.archive) if number == 0 else []
        preferences = work.preferences(self.archive) if number > 0 else []
        if examples:
            train_sft(fit, examples, partial(self.progress, "train"))
        elif preferences:
            loss = PreferenceLoss(writer.dpo_beta, writer.chosen_weight)
            before = adapter_folder(self.directory, number - 1)
            train_dpo(fit, preferences, before, loss, partial(self.progress, "train"))
        shutil.rmtree(fit.work, ignore_errors=True)  # checkpoints: the adapter is all that counts now
        return bool(examples or preferences)

    def _fit(self, number: int) -> "Fit":
        """How a round trains: round 0 by SFT, later ones by DPO."""
        from dssr.training.fit import Fit

        model, writer, name = self.config.writer_model, self.config.writer, self.variant.name
        first = number == 0
        return Fit(
            base=weights_folder(model.path),
            dtype=model.dtype,
            revision=model.revision,
            device=model.device,
            rate=writer.sft_learning_rate if first else writer.dpo_learning_rate,
            epochs=writer.sft_epochs if first else writer.dpo_epochs,
            batch=writer.sft_batch if first else writer.dpo_batch,
            warmup=writer.warmup,
            rank=writer.rank,
            alpha=writer.alpha,
            seed=seed_of("fit", self.seed, number),
            work=self.directory / "work" / f"r{number}",
            out=adapter_folder(self.directory, number),
            card={"name": f"{name} r{number}", "variant": name, "config": self.config.digest()},
        )

    async def validate(self, number: int | None) -> Run:
        """The validation grid at the selection budget; `None` is the untrained writer."""
        path = self.directory / f"valid-{UNTRAINED if number is None else number}"
        if (path / "summary.json").exists():
            return Run.open(path)
        newest = -1 if number is None else number

        def validating(stage: str, done: int, of: int) -> None:
            self.progress("validate", done, of)

        async with self.session(newest) as session:
            session.progress = validating
            return await measure_grid(session, self.grid(self.memory(newest)), path, resume=True)

    def memory(self, newest: int) -> str:
        """The name of the trained memory after round `newest`; -1 is the untrained one."""
        style = self.config.writer.memory
        return style if newest < 0 else with_adapter(style, f"r{newest}")

    def grid(self, memory: str) -> Grid:
        """What is validated of a memory."""
        writer = self.config.writer
        return grid_of(self.config, self.archive, [memory], [writer.selection_budget], games=writer.validation_games)

    def session(self, newest: int) -> Session:
        """Models with the adapters of rounds up to `newest`, to be closed before training, which needs their memory."""
        return Session(self._with_adapters(newest), self.progress, self.archive)

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
            info = Run.open(path).info
            if info.arguments.get("line", info.digest) != self.config.digest():
                raise UsageError(f"{path} was made with another configuration, so its candidates are not shared.")
        ended = (self.source / "summary.json").exists()
        if not ended and not all(map(self._stored, rounds)):
            raise UsageError(
                f"{self.variant.name} learns from the candidates of {MAIN}, and {self.source} does not hold those of "
                f"rounds {rounds.start}-{rounds.stop - 1}; make them first, by this command with --variant {MAIN}."
            )

    def _stored(self, number: int) -> bool:
        return (self.source / f"round-{number}" / "summary.json").exists()

    async def _untrained(self, run: Run) -> Row:
        results = untrained_results(await self.validate(None), self.seed)
        _log(run, results)
        return {"round": UNTRAINED, "ended": None, **shown(results)}

    def _describe(self, run: Run, work: Round) -> None:
        """Log what the round's candidates reward."""
        number, seed = work.number, f", seed {self.seed}" if self.seed else ""
        name = f"{self.variant.title}, round {number}{seed}"
        points, groups, score = work.points(), work.groups(), self.variant.score
        credit = credit_rows(name, points, groups, score, self.config.measure.credit_bins)
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


def _told(row: Row) -> str:
    """A round in a few words, for progress."""
    name = row["round"] if row["round"] == UNTRAINED else f"round {row['round']}"
    if row["ended"]:
        return f"{name}: ended"
    kappa = "" if row["kappa"] is None else f", κ {row['kappa']:.2f}"
    return f"{name}: success {row['success']:.2f}{kappa}"


def line_folder(study: Path, variant: str, seed: int) -> Path:
    """Where a line lies among the others of its study."""
    return study / f"{variant}-s{seed}"
