"""A line of rounds: train one variant from the untrained writer on, and validate after every round."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import msgspec

from dssr.agent.episode import Desk
from dssr.config import Config, ModelConfig
from dssr.games.archive import Archive
from dssr.learn.round import Round, Tell, adapter_folder
from dssr.learn.variants import Variant, variant_of
from dssr.measure.diagnose import diagnose, summary_of
from dssr.measure.grid import arguments_of, ask_of, fingerprints, jobs_of, open_archive, staffed_desk
from dssr.models.load import weights_folder
from dssr.record.run import Run
from dssr.seeds import seed_of
from dssr.types import Job

UNTRAINED = "summary"


class Line:
    """One variant and one seed, in one directory:

    round-N/      a run: episodes, points, candidates of round N
    adapters/rN/  what round N trained
    valid-N/      a run: the validation grid of adapter N; valid-untrained/ beside it
    """

    def __init__(self, config: Config, variant: str, seed: int, directory: Path, tell: Tell) -> None:
        self.config, self.seed, self.directory, self.tell = config, seed, directory, tell
        self.variant: Variant = variant_of(variant, config.writer)
        self.archive: Archive = open_archive(config)

    def train(self, rounds: range, on_round: Callable[[dict[str, Any]], None]) -> list[dict[str, Any]]:
        """Do what is owed of these rounds; stops early when no pair qualifies."""
        rows = [self.validate(None)]
        on_round(rows[0])
        for number in rounds:
            row = self.round(number)
            rows.append(row)
            on_round(row)
            if not adapter_folder(self.directory, number).exists():
                break
        return rows

    def round(self, number: int) -> dict[str, Any]:
        """Data, adapter and validation of one round."""
        report = self.data(number)
        if not adapter_folder(self.directory, number).exists() and not self.fit(number):
            return {"round": number, **report, "trained": False}
        return {"round": number, **report, "trained": True, **self.validate(number)}

    def data(self, number: int) -> dict[str, Any]:
        """Collect and judge; a finished round is only read."""
        path = self.directory / f"round-{number}"
        if (path / "summary.json").exists():
            return dict(Run.open(path).summary or {})
        memory = UNTRAINED if number == 0 else f"dssr@r{number - 1}"
        games = self.archive.games("train")
        with self.desk(number - 1) as desk, self._start(path, "round", desk, number, memory) as run:
            work = Round(run, self.config, self.variant, number, self.seed, self.tell)
            asyncio.run(self._gather(work, desk, games, memory))
            report = work.report()
            run.finish(report)
        return report

    async def _gather(self, work: Round, desk: Desk, games: Any, memory: str) -> None:
        await work.collect(desk, games, memory)
        await work.judge(desk)

    def fit(self, number: int) -> bool:
        """Train the round's adapter from its stored data; False when there is nothing to learn from."""
        from dssr.learn.dpo import train_dpo
        from dssr.learn.sft import train_sft

        run = Run.open(self.directory / f"round-{number}")
        work = Round(run, self.config, self.variant, number, self.seed, self.tell)
        model, writer = self.config.writer_model, self.config.writer
        card = {"name": f"{self.variant.name} r{number}", "variant": self.variant.name, "config": self.config.digest()}
        places = (self.directory / "work" / f"r{number}", adapter_folder(self.directory, number))
        places[1].parent.mkdir(parents=True, exist_ok=True)
        seed = seed_of("fit", self.seed, number)
        told = lambda step: self.tell("train", step, 0)  # noqa: E731
        with self.desk(number - 1) as desk:
            examples = work.examples(desk) if number == 0 else []
            preferences = work.preferences(desk) if number > 0 else []
        common = (weights_folder(model.path), model.dtype)
        cpu = model.device == "cpu" or model.backend == "hf"
        if examples:
            train_sft(*common, examples, writer, *places, seed, card, cpu, told)
        elif preferences:
            previous = adapter_folder(self.directory, number - 1)
            train_dpo(*common, previous, preferences, writer, *places, seed, card, cpu, told)
        return bool(examples or preferences)

    def validate(self, number: int | None) -> dict[str, Any]:
        """Success and regret per filler at the selection budget; `None` is the untrained writer."""
        name = "untrained" if number is None else str(number)
        memory = UNTRAINED if number is None else f"dssr@r{number}"
        path = self.directory / f"valid-{name}"
        if not (path / "summary.json").exists():
            budget = self.config.writer.selection_budget
            ask = ask_of(self.config, self.archive, [memory], [budget], split="valid")
            jobs = jobs_of(ask, self.config)
            with self.desk(-1 if number is None else number, jobs) as desk:
                config = self._with_adapters(-1 if number is None else number)
                with Run.start(
                    path,
                    command="diagnose",
                    config=config,
                    models=fingerprints(ask, desk),
                    arguments=arguments_of(ask),
                    resume=path.exists(),
                ) as run:
                    asyncio.run(diagnose(run, jobs, desk, self.config.measure))
                    run.finish(summary_of(run))
        cells = (Run.open(path).summary or {})["cells"]
        row: dict[str, Any] = {"round": name}
        for cell in cells:
            row[f"success F'={cell['filler']}"] = cell["success"]
            row[f"kappa F'={cell['filler']}"] = cell["kappa"]
        row["success"] = sum(cell["success"] for cell in cells) / len(cells)
        return row

    def desk(self, newest: int, jobs: Sequence[Job] = ()) -> AbstractContextManager[Desk]:
        """Models with the adapters of rounds up to `newest`, opened for a while and closed before training."""
        return staffed_desk(self._with_adapters(newest), self.archive, jobs)

    def _with_adapters(self, newest: int) -> Config:
        made = {f"r{number}": str(adapter_folder(self.directory, number)) for number in range(newest + 1)}
        model: ModelConfig = self.config.writer_model
        return msgspec.structs.replace(
            self.config, writer_model=msgspec.structs.replace(model, adapters={**model.adapters, **made})
        )

    def _start(self, path: Path, command: str, desk: Desk, number: int, memory: str) -> Run:
        models = {"writer": desk.writer.fingerprint(), "reader": desk.reader.fingerprint()}
        arguments = {"variant": self.variant.name, "round": number, "seed": self.seed, "memory": memory}
        return Run.start(
            path,
            command=command,
            config=self.config,
            models=models,
            arguments=arguments,
            resume=path.exists(),
        )
