"""`dssr train`: rounds of training the writer from the reader's loss, for one variant or the selected one."""

import asyncio
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dssr.cli.common import DEFAULT_CONFIG, ConfigOption, JsonOption, ResumeOption, emit, load_config, say
from dssr.cli.diagnose import with_bounds
from dssr.cli.reader import AdapterOption
from dssr.config import Config
from dssr.errors import RecordError, UsageError

if TYPE_CHECKING:
    from dssr.train.forecast import Forecast
    from dssr.train.line import Line
    from dssr.train.results import RoundResult

VariantOption = Annotated[
    str | None,
    typer.Option("--variant", help="dssr, k1, k4, no-hint, outcome or a4; with --seeds the selected one if left out."),
]
RoundsOption = Annotated[
    str | None, typer.Option("--rounds", help="A round or a range such as 0-3; all of the configuration if left out.")
]
SeedOption = Annotated[int, typer.Option("--seed", min=0, help="Of collection, candidates and training.")]
SeedsOption = Annotated[
    int | None, typer.Option("--seeds", min=2, help="Train the selected configuration again with so many seeds.")
]
StudyOption = Annotated[
    Path | None, typer.Option("--out", "-o", help="Folder of the study: every variant and seed is a line inside it.")
]
ForceOption = Annotated[bool, typer.Option("--force", help="Use a reader that was not accepted; it is recorded.")]


def register(app: typer.Typer) -> None:
    app.command("train")(train)


def train(
    config: ConfigOption = DEFAULT_CONFIG,
    variant: VariantOption = None,
    rounds: RoundsOption = None,
    seed: SeedOption = 0,
    seeds: SeedsOption = None,
    adapter: AdapterOption = None,
    out: StudyOption = None,
    force: ForceOption = False,
    resume: ResumeOption = False,
    as_json: JsonOption = False,
) -> None:
    """Train the writer: collect, try candidates, score them by the reader's later loss, fine-tune, validate."""
    from dssr.train.reader.dagger import with_reader

    settings = load_config(config)
    if settings.writer_model.backend not in ("hf", "vllm"):
        backend = settings.writer_model.backend
        raise UsageError(f"The {backend} backend has no weights to train; use a configuration with hf or vllm.")
    if adapter is not None:
        settings = with_reader(settings, adapter)
    study = out or Path(settings.runs) / f"train-{settings.name}-{settings.digest()[:8]}"
    work = Training(settings, study, force, resume, as_json)
    if seeds is None:
        work.show(work.line(variant or "dssr", seed, span_of(rounds, settings)))
    elif rounds is not None:
        raise UsageError("--seeds trains up to the selected round; leave --rounds out.")
    else:
        work.retrain(variant, seed, seeds)


def span_of(text: str | None, settings: Config) -> range:
    """The rounds asked for."""
    last = settings.writer.rounds
    if text is None:
        return range(last + 1)
    found = re.fullmatch(r"(\d+)(?:-(\d+))?", text.strip())
    if found is None:
        raise UsageError(f"--rounds is {text!r}; give one round or a range such as 0-{last}.")
    first, end = int(found[1]), int(found[2] or found[1])
    if not first <= end <= last:
        raise UsageError(f"--rounds is {text}; rounds rise from 0 to {last} in this configuration.")
    return range(first, end + 1)


class Training:
    """The lines of one study, trained one after the other."""

    def __init__(self, settings: Config, study: Path, force: bool, resume: bool, quiet: bool) -> None:
        self.settings, self.study = settings, study
        self.force, self.resume, self.quiet = force, resume, quiet

    def line(self, variant: str, seed: int, span: range) -> dict[str, Any]:
        """Train one line, and say what it came to."""
        from dssr.cli.board import Board
        from dssr.train.line import Line, line_folder

        place = line_folder(self.study, variant, seed)
        board = Board(f"{variant}, seed {seed}", span)
        line = Line(self.settings, variant, seed, place, board.tell, self.force)
        if line.finished:
            raise RecordError(f"{place} is finished; read it with `dssr report {place}` or choose another --out.")
        if place.exists() and not self.resume:
            raise RecordError(f"{place} exists; continue it with --resume, or choose another --out.")
        line.check(span)
        expected = self.prepare(line, span)
        with board:
            rows = line.train(span, board.row)
        return {
            "line": str(place),
            "forced": self.force,
            "expected": expected,
            "finished": line.finished,
            "rounds": rows,
        }

    def prepare(self, line: "Line", span: range) -> dict[str, Any]:
        """Ask whether the reader may be trained on, and say what the work will take."""
        import msgspec

        from dssr.measure.plan import rates
        from dssr.train.forecast import forecast, sample_grid
        from dssr.train.reader.accept import require_accepted

        with line.agent(-1) as agent:
            line.identify(agent)
            if not self.force:
                require_accepted(self.settings, agent.reader.fingerprint())
            speed = asyncio.run(rates(sample_grid(line), self.settings, agent))
            expected = forecast(line, span, agent, speed)
        self._say_expected(expected, speed, line.directory)
        return {**msgspec.to_builtins(expected), "read_rate": speed[0], "write_rate": speed[1]}

    def _say_expected(self, expected: "Forecast", speed: tuple[float, float], place: Path) -> None:
        from dssr.train.forecast import TRAINING

        for load in expected.loads:
            say(
                f"{load.work}: {load.calls:,} to {load.most_calls:,} calls, {load.tokens_in:,} to "
                f"{load.most_tokens_in:,} tokens to read, {load.tokens_out:,} to {load.most_tokens_out:,} to write",
                self.quiet,
            )
        say(
            f"about {expected.hours:.2g} to {expected.most_hours:.2g} hours at {speed[0]:,.0f} tokens read and "
            f"{speed[1]:,.0f} written a second, as a few calls just measured; a trained token is taken as {TRAINING:g} "
            f"read ones, repeated calls as new; into {place}",
            self.quiet,
        )

    def show(self, told: dict[str, Any]) -> None:
        """The rounds of one line."""
        from dssr.cli.board import printable

        if self.quiet:
            emit(told, True)
            return
        rows = told["rounds"]
        emit([printable(row) for row in rows if "success" in row], False)
        emit(changes(rows), False, "against the untrained writer, paired by game")
        if rows[-1]["ended"]:
            typer.echo(rows[-1]["ended"])
        elif not told["finished"]:
            typer.echo("Later rounds: the same command with --resume and a longer --rounds.")
        typer.echo(f"line: {told['line']}; tables: dssr report {told['line']}")

    def retrain(self, variant: str | None, seed: int, count: int) -> None:
        """The selected configuration (or the best round of one variant) with several seeds."""
        import msgspec

        from dssr.train.line import line_folder
        from dssr.train.results import selected
        from dssr.train.variants import MAIN, names, variant_of

        known = names(self.settings.writer) if variant is None else (variant,)
        titles = {variant_of(name, self.settings.writer).title: name for name in known}
        results = [row for name in titles.values() for row in self.results(name, seed)]
        if not results:
            raise UsageError(
                f"{self.study} holds no trained line of seed {seed}; run `dssr train` without --seeds first."
            )
        chosen = selected(results)
        name, span = titles[chosen.writer], range(chosen.round + 1)
        say(f"selected: {name}, round {chosen.round}, success {chosen.success:.3f}", self.quiet)
        needed = [name] if variant_of(name, self.settings.writer).own else [MAIN, name]
        found = []
        for one in range(seed, seed + count):
            for part in needed:
                if not self.done(part, one, span):
                    self.line(part, one, span)
            found += [row for row in self.results(name, one) if row.round == chosen.round]
        rows = [
            {"seed": row.seed, "F'": row.filler, "success": row.success, "kappa": row.kappa, "games": row.games}
            for row in found
        ]
        lines = [str(line_folder(self.study, name, one)) for one in range(seed, seed + count)]
        if self.quiet:
            emit({"selected": msgspec.to_builtins(chosen), "seeds": rows, "lines": lines}, True)
            return
        emit(rows, False)
        typer.echo(f"tables: dssr report {' '.join(lines)}")

    def results(self, variant: str, seed: int) -> "list[RoundResult]":
        """What a line's validation has stored so far."""
        from dssr.record.run import Run
        from dssr.train.line import line_folder
        from dssr.train.results import RoundResult

        place = line_folder(self.study, variant, seed)
        return list(Run.open(place).read("rounds", RoundResult)) if place.exists() else []

    def done(self, variant: str, seed: int, span: range) -> bool:
        """Whether a line has nothing left to do of these rounds: it has had the last of them, or has ended."""
        from dssr.train.line import line_folder

        ended = (line_folder(self.study, variant, seed) / "summary.json").exists()
        return ended or any(row.round == span[-1] for row in self.results(variant, seed))


def changes(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Success and kappa minus the untrained writer's, by round, with intervals."""
    found: dict[tuple[int, str], dict[str, Any]] = {}
    for row in rows:
        for one in row.get("against_untrained", ()):
            line = found.setdefault((row["round"], one["filler"]), {"round": row["round"], "F'": one["filler"]})
            line |= {"games": one["games"], one["quantity"]: with_bounds(one, "difference")}
    return list(found.values())
