"""A line of rounds: train one variant from the untrained writer on, and validate after every round.

The selected round can be trained again with more seeds: from the same adapter and the same pairs, in another order.
"""

import shutil
from collections.abc import Mapping, Sequence
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
from dssr.models.scripted.learning import imitated, preferred, read_adapter, write_adapter
from dssr.record.run import Run
from dssr.seeds import rng_of, seed_of
from dssr.session import Session, counted, silent
from dssr.training.results import (
    ALL,
    UNTRAINED,
    RoundResult,
    against_untrained,
    best_rounds,
    coverage_rows,
    credit_rows,
    pair_rows,
    round_results,
    shown,
    untrained_results,
)
from dssr.training.round import Example, GapReport, Preference, Round, adapter_folder, adapter_name, round_jobs
from dssr.training.variants import MAIN, Variant, variant_of
from dssr.types import Episode, Grid, Progress, Standing, Workers
from dssr.worlds.archive import Archive
from dssr.worlds.base import settled

if TYPE_CHECKING:
    from dssr.training.fit import Fit

Row = dict[str, Any]


class Line:
    """One variant and one seed, in one directory, which is itself a run:

    rounds, credit, pairs, coverage   logs that the report reads
    round-N/      a run: episodes, points, candidates of round N; what a variant shares with the main line is there only
    adapters/rN/  what round N trained
    valid-N/      a run: the validation grid of adapter N; valid-untrained/ beside it
    seeds/rN-sI/  a run: log rounds of round N trained again; its adapter and grid are adapters/rN-sI/ and valid-N-sI/
    """

    def __init__(
        self,
        config: Config,
        variant: str,
        seed: int,
        directory: Path,
        progress: Progress = silent,
        forced: bool = False,
        workers: Workers | int | None = None,
    ) -> None:
        self.config, self.seed, self.directory, self.forced = config, seed, directory, forced
        self.progress, self.workers = progress, workers
        self.variant: Variant = variant_of(variant, config.writer)
        self.archive: Archive = Session(config).archive

    @property
    def main(self) -> Path:
        """The main line of the same seed, whose episodes and candidates this one may learn from."""
        return line_folder(self.directory.parent, MAIN, self.seed)

    @property
    def start(self) -> Path:
        """The line of the same seed whose adapter this one starts from, if not from the untrained writer."""
        return line_folder(self.directory.parent, self.variant.begins, self.seed)

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
                self._take_first()
                for number in (None, *range(self.variant.first, rounds.stop)):
                    row = await self._untrained(run) if number is None else await self.round(run, number)
                    rows.append(row)
                    self.progress(Standing(_told(row), 1, 1))
                    if row["ended"]:
                        break
                if rows[-1]["ended"] or rounds.stop > self.config.writer.rounds:
                    session.finish(run, self._summary(run, rows))
        return rows

    async def round(self, run: Run, number: int) -> Row:
        """Data, adapter and validation of one round."""
        if not self.variant.collects(number) and not _stored(self.main, number):
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
        """The round's episodes, points and candidates: made if that is owed, or those of the main line."""
        if self.variant.makes_data and not _stored(self.directory, number):
            await self._make(number)
        return self.stored_data(number)

    def stored_data(self, number: int) -> Round:
        """The same, when it is there."""
        run = Run.open(_place(self.directory if self.variant.makes_data else self.main, number))
        return Round(run, self.config, self.variant, number, self.seed, self._episodes(number))

    def _episodes(self, number: int) -> Run | None:
        """The main line's run, where its episodes are used; None where this line has its own, as older ones always."""
        if self.variant.collects(number) or (_place(self.directory, number) / "episodes.jsonl").exists():
            return None
        return Run.open(_place(self.main, number))

    async def _make(self, number: int) -> None:
        """Play the round's episodes, if they are not the main line's, and try and score candidates."""
        memory, source = self.memory(number - 1), self._episodes(number)
        arguments = {"variant": self.variant.name, "round": number, "seed": self.seed, "memory": memory}
        arguments["line"] = self.config.digest()
        if source is None:
            fillers = self.variant.walks(number)
            jobs = round_jobs(self.archive.games("train"), self.config, memory, number, self.seed, fillers)
        else:
            jobs = [episode.job for episode in source.read("episodes", Episode)]
            arguments["episodes"] = f"{self.main.name}/{source.path.name}"
        # Candidates of the main line are played on with the writer that wrote them.
        trained = self.directory if self.variant.samples else self.main
        async with self.session(number - 1, trained) as session:
            with session.run(_place(self.directory, number), "round", jobs, arguments, resume=True) as (run, agent):
                work = Round(run, self.config, self.variant, number, self.seed, source)
                if source is None:
                    await work.collect(session, agent, jobs)
                await work.score(session, agent)
                session.finish(run, msgspec.structs.asdict(work.report()))

    async def retrain(self, number: int, extra: int) -> list[RoundResult]:
        """Train a round again from the same adapter and the same pairs, with another seed, and validate it.

        Nothing is collected: the seed changes the order of the pairs alone.
        """
        place = self.again(number, extra)
        if not self.retrained(number, extra):
            arguments = {"variant": self.variant.name, "round": number, "seed": self.seed + extra}
            async with self.session(-1) as session:
                with session.run(place, "train", (), {**arguments, "forced": self.forced}, resume=True) as (run, _):
                    await session.close()
                    if not adapter_folder(self.directory, number, extra).exists():
                        self.fit(self.stored_data(number), extra)
                    valid = await self.validate(number, extra)
                    contrasts = against_untrained(valid, await self.validate(None))
                    results = round_results(valid, contrasts, self.variant.title, number, self.seed + extra)
                    _log(run, results)
                    session.finish(run, {**arguments, **shown(results)})
        return list(Run.open(place).read("rounds", RoundResult))

    def again(self, number: int, extra: int) -> Path:
        """The run of a round trained again."""
        return self.directory / "seeds" / adapter_name(number, extra)

    def retrained(self, number: int, extra: int) -> bool:
        """Whether that is done."""
        return (self.again(number, extra) / "summary.json").exists()

    def check_again(self, number: int) -> None:
        """Refuse to train a round again without what it was trained from."""
        data = _place(self.directory if self.variant.makes_data else self.main, number)
        before = [adapter_folder(self.directory, number - 1)] if number else []
        for path in (data, adapter_folder(self.directory, number), *before):
            if not path.exists():
                raise UsageError(f"Round {number} of {self.directory} cannot be trained again: {path} is not there.")
        if Run.open(self.directory).config.digest() != settled(self.config).digest():
            raise UsageError(f"{self.directory} was made with another configuration; use that one for its seeds.")

    def fit(self, work: Round, extra: int = 0) -> bool:
        """Train the round's adapter from its stored data; False when there is nothing to learn from."""
        number, writer = work.number, self.config.writer
        imitates = self.variant.imitates(number)
        examples = work.examples(self.archive) if imitates else []
        preferences = [] if imitates else work.preferences(self.archive)
        adapter_folder(self.directory, number).parent.mkdir(parents=True, exist_ok=True)
        if self.config.writer_model.backend == "scripted":
            self._fit_scripted(number, extra, examples, preferences)
            return bool(examples or preferences)
        from dssr.training.fit import PreferenceLoss, train_dpo, train_sft

        fit = self._fit(number, extra)
        before = adapter_folder(self.directory, number - 1)
        if examples:
            train_sft(fit, examples, counted(self.progress, "train"), before if number > 0 else None)
        elif preferences:
            loss = PreferenceLoss(writer.dpo_beta, writer.chosen_weight)
            train_dpo(fit, preferences, before, loss, counted(self.progress, "train"))
        shutil.rmtree(fit.work, ignore_errors=True)  # checkpoints: the adapter is all that counts now
        return bool(examples or preferences)

    def _fit_scripted(
        self, number: int, extra: int, examples: Sequence[Example], preferences: Sequence[Preference]
    ) -> None:
        """The scripted writer has one parameter and no order of examples: a further seed draws a sample of them."""
        data: list[Any] = [msgspec.structs.astuple(one) for one in (examples or preferences)]
        if not data:
            return
        if extra:
            data = rng_of("fit", self.seed, number, extra).choices(data, k=len(data))
        before = adapter_folder(self.directory, number - 1)
        found = imitated(data) if examples else preferred(read_adapter(before), data)
        card = {"name": f"{self.variant.name} {adapter_name(number, extra)}", "config": self.config.digest()}
        write_adapter(adapter_folder(self.directory, number, extra), found, card)

    def _fit(self, number: int, extra: int = 0) -> "Fit":
        """How a round trains: by SFT where it imitates, else by DPO."""
        from dssr.training.fit import Fit

        model, writer, name = self.config.writer_model, self.config.writer, self.variant.name
        first, folder = self.variant.imitates(number), adapter_name(number, extra)
        seed = seed_of("fit", self.seed, number)
        return Fit(
            base=weights_folder(model.path),
            dtype=model.dtype,
            revision=model.revision,
            device=model.device,
            rate=self.variant.rate if first else writer.dpo_learning_rate,
            epochs=writer.sft_epochs if first else writer.dpo_epochs,
            batch=writer.sft_batch if first else writer.dpo_batch,
            warmup=writer.warmup,
            rank=writer.rank,
            alpha=writer.alpha,
            seed=seed_of("fit", self.seed, number, extra) if extra else seed,
            start=seed,
            work=self.directory / "work" / folder,
            out=adapter_folder(self.directory, number, extra),
            card={"name": f"{name} {folder}", "variant": name, "config": self.config.digest()},
        )

    async def validate(self, number: int | None, extra: int = 0) -> Run:
        """The validation grid at the selection budget; `None` is the untrained writer."""
        path = self.directory / valid_name(number, extra)
        if (path / "summary.json").exists():
            return Run.open(path)
        newest = -1 if number is None else number

        def validating(standing: Standing) -> None:
            self.progress(msgspec.structs.replace(standing, stage="validate"))

        async with self.session(newest, extra=extra) as session:
            session.progress = validating
            return await measure_grid(session, self.grid(self.memory(newest, extra)), path, resume=True)

    def memory(self, newest: int, extra: int = 0) -> str:
        """The name of the trained memory after round `newest`; -1 is the untrained one."""
        style = self.config.writer.memory
        return style if newest < 0 else with_adapter(style, adapter_name(newest, extra))

    def grid(self, memory: str) -> Grid:
        """What is validated of a memory."""
        writer = self.config.writer
        return grid_of(self.config, self.archive, [memory], [writer.selection_budget], games=writer.validation_games)

    def session(self, newest: int, trained: Path | None = None, extra: int = 0) -> Session:
        """Models with the adapters of rounds up to `newest`, to be closed before training, which needs their memory.

        The adapters are those of this line, unless `trained` is another one.
        """
        line = self.directory if trained is None else trained
        numbers = {(number, 0) for number in range(newest + 1)} | ({(newest, extra)} if extra else set())
        made = {adapter_name(*one): str(adapter_folder(line, *one)) for one in sorted(numbers)}
        return Session(self.with_adapters(made), self.progress, self.archive, workers=self.workers)

    def with_adapters(self, folders: Mapping[str, str]) -> Config:
        """The configuration with these adapters of the writer beside its own."""
        model = self.config.writer_model
        return msgspec.structs.replace(
            self.config, writer_model=msgspec.structs.replace(model, adapters={**model.adapters, **folders})
        )

    def _take_first(self) -> None:
        """The other line's adapter that this one starts from, if it does not start from the untrained writer."""
        number = self.variant.first - 1
        if number >= 0 and not adapter_folder(self.directory, number).exists():
            source, target = adapter_folder(self.start, number), adapter_folder(self.directory, number)
            facts = {"copied": f"{self.start.name}/adapters/{source.name}", "line": self.variant.name}
            if self.config.writer_model.backend == "scripted":
                write_adapter(target, read_adapter(source), facts)
                return
            from dssr.training.fit import copy_adapter

            copy_adapter(source, target, facts)

    def check(self, rounds: range) -> None:
        """Refuse rounds that lack what they start from."""
        name, first, begins = self.variant.name, self.variant.first, self.variant.begins
        if rounds.start < first or not rounds:
            raise UsageError(
                f"{name} begins with round {first}, from the adapter that {begins} trained before it; ask for rounds "
                f"from {first} on, of a configuration that has them."
            )
        before = adapter_folder(self.directory, rounds.start - 1)
        if rounds.start > 0 and not before.exists():
            before = adapter_folder(self.start, first - 1) if rounds.start == first else before
            if not before.exists():
                raise UsageError(
                    f"Round {rounds.start} starts from {before}, which is not there; train the earlier rounds"
                    + (f", by this command with --variant {begins}." if rounds.start == first else ".")
                )
        for number in range(rounds.stop):
            if not self.variant.collects(number) and (_place(self.directory, number) / "episodes.jsonl").exists():
                raise UsageError(
                    f"{_place(self.directory, number)} holds episodes of its own, as an earlier version collected them "
                    f"for {name}; it can be reported but not continued, so choose another --out."
                )
        self._check_shared([number for number in rounds if not self.variant.collects(number)])

    def _check_shared(self, rounds: Sequence[int]) -> None:
        """Refuse what the main line does not hold yet, or made with other settings."""
        stored = [number for number in rounds if _stored(self.main, number)]
        for number in stored:
            path = _place(self.main, number)
            info = Run.open(path).info
            if info.arguments.get("line", info.digest) != self.config.digest():
                raise UsageError(f"{path} was made with another configuration, so its candidates are not shared.")
        ended = (self.main / "summary.json").exists()
        if not ended and stored != list(rounds):
            what = "episodes" if self.variant.samples else "candidates"
            raise UsageError(
                f"{self.variant.name} learns from the {what} of {MAIN}, and {self.main} does not hold those of rounds "
                f"{rounds[0]}-{rounds[-1]}; make them first, by this command with --variant {MAIN}."
            )

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
        kept = coverage_rows(name, points, groups, score, self.config.measure.rewrite_bins)
        run.extend("coverage", [(f"{number}:{row.since}", row) for row in kept])
        most = self.config.writer.pairs_per_point
        for row in pair_rows(name, points, groups, score, self.variant.gap, most):
            run.append("pairs", str(number) if row.group == ALL else f"{number}:{row.group}", row)

    def _why(self, number: int, gaps: GapReport) -> str:
        name = self.variant.name
        if self.variant.imitates(number) or not gaps.points:
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


def _place(line: Path, number: int) -> Path:
    """Where the data of a round lie in a line."""
    return line / f"round-{number}"


def _stored(line: Path, number: int) -> bool:
    """Whether the data of a round are complete."""
    return (_place(line, number) / "summary.json").exists()


def valid_name(number: int | None, extra: int = 0) -> str:
    """The folder of a validation in its line."""
    return f"valid-{UNTRAINED if number is None else number}" + (f"-s{extra}" if extra else "")


def line_folder(study: Path, variant: str, seed: int) -> Path:
    """Where a line lies among the others of its study."""
    return study / f"{variant}-s{seed}"
