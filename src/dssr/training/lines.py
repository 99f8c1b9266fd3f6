"""Train the writer: one line of rounds for a variant and a seed, or the selected variant again with more seeds."""

import itertools
import logging
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from dssr.agent.episode import Agent
from dssr.agent.memory import with_adapter
from dssr.config import Config, resolved
from dssr.errors import RecordError, UsageError
from dssr.measure.plan import duration, measured_rates
from dssr.record.log import write_whole
from dssr.record.run import Run
from dssr.session import configured, silent, verb
from dssr.training.forecast import TRAINING, Forecast, forecast, sample_grid, seeds_forecast
from dssr.training.line import Line, Row, line_folder
from dssr.training.reader import require_accepted, with_reader
from dssr.training.results import RoundResult, ValidatedRound, selected
from dssr.training.round import adapter_folder
from dssr.training.variants import MAIN, names, variant_of
from dssr.types import Progress, Record, Workers

log = logging.getLogger("dssr")


class LineResult(Record, frozen=True):
    """What training one line came to."""

    line: str
    """Its directory, which is a run."""
    forced: bool
    """Trained on a reader that had not been accepted."""
    expected: dict[str, Any]
    """What it was expected to take, counted before it started."""
    finished: bool
    rounds: list[Row]


class SeedsResult(Record, frozen=True):
    """The selected round of a variant, trained with several seeds."""

    selected: ValidatedRound
    seeds: list[RoundResult]
    """Per seed and filler."""
    lines: list[str]
    """What to report: the line, then a run for every further seed."""
    expected: dict[str, Any]
    """What it was expected to take, counted before it started; empty when nothing was left to do."""
    memories: list[str]
    """The memory of every seed, such as `dssr@a4/s0`."""
    config: str
    """The configuration with these adapters, to measure the memories with: `--config` of any command."""


@verb
async def train(
    config: Config | str = "nano",
    variant: str = MAIN,
    *,
    rounds: str | None = None,
    seed: int = 0,
    adapter: str | Path | None = None,
    out: str | Path | None = None,
    force: bool = False,
    resume: bool = False,
    workers: Workers | int | None = None,
    progress: Progress = silent,
) -> LineResult:
    """Train the writer: collect, try candidates, score them by the reader's later loss, fine-tune, validate.

    `rounds` is one round or a range such as `0-3`; `adapter` is the reader's. `out` is the folder of the study: every
    variant and seed is a line inside it.
    """
    lines = Lines(_settings(config, adapter), out, force, resume, progress, workers)
    first = variant_of(variant, lines.config.writer).first
    return await lines.train(variant, seed, span_of(rounds, lines.config, first))


@verb
async def train_seeds(
    config: Config | str = "nano",
    variant: str | None = None,
    *,
    seed: int = 0,
    seeds: int = 3,
    adapter: str | Path | None = None,
    out: str | Path | None = None,
    force: bool = False,
    resume: bool = False,
    workers: Workers | int | None = None,
    progress: Progress = silent,
) -> SeedsResult:
    """Train the selected round again from the same adapter and the same pairs, so that it has so many seeds in all.

    Nothing is collected anew. `variant` restricts the choice to its rounds.
    """
    lines = Lines(_settings(config, adapter), out, force, resume, progress, workers)
    return await lines.retrain(variant, seed, seeds)


def _settings(config: Config | str, adapter: str | Path | None) -> Config:
    settings = configured(config)
    if settings.writer_model.backend == "server":
        raise UsageError(
            "A served model's weights are out of reach; train with a configuration of hf, vllm or scripted."
        )
    return settings if adapter is None else with_reader(settings, Path(adapter))


def span_of(text: str | None, config: Config, start: int = 0) -> range:
    """The rounds asked for; all of them from `start` on if none are."""
    last = config.writer.rounds
    if text is None:
        return range(start, last + 1)
    found = re.fullmatch(r"(\d+)(?:-(\d+))?", text.strip())
    if found is None:
        raise UsageError(f"The rounds are {text!r}; give one round or a range such as 0-{last}.")
    first, end = int(found[1]), int(found[2] or found[1])
    if not first <= end <= last:
        raise UsageError(f"The rounds are {text}; rounds rise from 0 to {last} in this configuration.")
    return range(first, end + 1)


class Lines:
    """The lines of one study, trained one after the other."""

    def __init__(
        self,
        config: Config,
        out: str | Path | None,
        force: bool,
        resume: bool,
        progress: Progress = silent,
        workers: Workers | int | None = None,
    ) -> None:
        self.config, self.force, self.resume = config, force, resume
        self.progress, self.workers = progress, workers
        self.study = Path(out) if out else Path(config.runs) / f"train-{config.name}-{config.digest()[:8]}"

    async def train(self, variant: str, seed: int, span: range) -> LineResult:
        """Train one line, and say what it came to."""
        place = line_folder(self.study, variant, seed)
        line = self._line(variant, seed)
        if line.finished:
            raise RecordError(f"{place} is finished; read it with `dssr report {place}` or choose another --out.")
        if place.exists() and not self.resume:
            raise RecordError(f"{place} exists; continue it with --resume, or choose another --out.")
        line.check(span)
        expected = await self._prepare(line, lambda agent, speed: forecast(line, span, agent, speed))
        rows = await line.train(span)
        return LineResult(str(place), self.force, expected, line.finished, rows)

    def _line(self, variant: str, seed: int) -> Line:
        place = line_folder(self.study, variant, seed)
        return Line(self.config, variant, seed, place, self.progress, self.force, self.workers)

    async def _prepare(self, line: Line, count: Callable[[Agent, tuple[float, float]], Forecast]) -> dict[str, Any]:
        """Ask whether the reader may be trained on, and say what the work will take."""
        async with line.session(-1) as session:
            agent = session.agent()
            if not self.force:
                require_accepted(self.config, agent.reader.fingerprint())
            speed = await measured_rates(sample_grid(line), self.config, agent)
            expected = count(agent, speed)
        _say_expected(expected, speed, line.directory)
        return {**msgspec.to_builtins(expected), "read_rate": speed[0], "write_rate": speed[1]}

    async def retrain(self, variant: str | None, seed: int, count: int) -> SeedsResult:
        """The selected round (or the best one of a variant) with several seeds, the first of which is there already."""
        known = names(self.config.writer) if variant is None else (variant,)
        titles = {variant_of(name, self.config.writer).title: name for name in known}
        results = [row for name in titles.values() for row in self.results(name, seed)]
        if not results:
            raise UsageError(
                f"{self.study} holds no trained line of seed {seed}; run `dssr train` without --seeds first."
            )
        chosen = selected(results)
        name, number = titles[chosen.writer], chosen.round
        log.info("selected: %s, round %d, success %.3f", name, number, chosen.success)
        line = self._line(name, seed)
        line.check_again(number)
        again = range(1, count)
        expected: dict[str, Any] = {}
        if not all(line.retrained(number, extra) for extra in again):
            expected = await self._prepare(line, lambda agent, speed: seeds_forecast(line, number, again, agent, speed))
        found = [row for row in self.results(name, seed) if row.round == number]
        for extra in again:
            found += await line.retrain(number, extra)
        lines = [line.directory, *(line.again(number, extra) for extra in again)]
        made = next(extra for extra in itertools.count(count) if not line.retrained(number, extra))
        adapters = [f"{name}/s{extra}" for extra in range(made)]  # those of an earlier call keep their names
        return SeedsResult(
            selected=chosen,
            seeds=found,
            lines=[*map(str, lines)],
            expected=expected,
            memories=[with_adapter(self.config.writer.memory, adapter) for adapter in adapters[:count]],
            config=str(self._settings_file(line, number, adapters)),
        )

    def _settings_file(self, line: Line, number: int, names: Sequence[str]) -> Path:
        """The configuration in which each seed of a round is an adapter of this name, as a file beside its runs."""
        made = {name: str(adapter_folder(line.directory, number, extra)) for extra, name in enumerate(names)}
        file = line.directory / "seeds.toml"
        write_whole(file, resolved(line.with_adapters(made)).encode())
        return file

    def results(self, variant: str, seed: int) -> list[RoundResult]:
        """What a line's validation has stored so far."""
        place = line_folder(self.study, variant, seed)
        return list(Run.open(place).read("rounds", RoundResult)) if place.exists() else []


def _say_expected(expected: Forecast, speed: tuple[float, float], place: Path) -> None:
    for load in expected.loads:
        log.info(
            f"{load.work}: {load.calls:,} to {load.most_calls:,} calls, {load.tokens_in:,} to "
            f"{load.most_tokens_in:,} tokens to read, {load.tokens_out:,} to {load.most_tokens_out:,} to write"
        )
    log.info(
        f"about {duration(expected.hours)} to {duration(expected.most_hours)} at {speed[0]:,.0f} tokens read and "
        f"{speed[1]:,.0f} written a second, as a few calls just measured; a trained token is taken as {TRAINING:g} "
        f"read ones, repeated calls as new; into {place}"
    )
