"""What a trained reader is worth: the gate it must pass before anything is measured with it, and its learning curve.

The gate is online success with the full history and no filler. What a reader reached lies in one file per reader under
the data folder. The file's name is a digest of the reader's fingerprint (weights, adapter, chat template, numerics),
its instruction and the kind of games, so that a reader changed in any of them has to be tried anew.

The curve trains the final reader again on smaller samples of the points it learnt from. Nothing is collected anew: a
smaller sample is a part of every larger one, has the same shares of contexts, and is trained by the same recipe from
the same seed; all readers answer the same held-out points. The largest sample gives the final reader itself.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import field

from dssr.agent.prompts import load_prompts
from dssr.config import Config
from dssr.errors import RecordError, StatsError, UsageError
from dssr.measure.diagnose import measure_grid
from dssr.measure.plan import grid_of
from dssr.record.log import write_whole
from dssr.record.run import Run
from dssr.seeds import digest_of
from dssr.session import Session, configured, place_of, silent, verb
from dssr.training.reader.accuracy import ALL, ReaderAccuracy
from dssr.training.reader.dagger import Dagger, stored_accuracies, training_place, with_reader
from dssr.training.reader.points import ReaderPoint, nested
from dssr.types import Episode, Progress, Record, Workers


class Acceptance(Record, frozen=True):
    """What one reader reached, as it is written down."""

    reader: str
    """Fingerprint."""
    success: float
    """With the full history and no filler, averaged over levels."""
    games: int
    levels: dict[str, float] = field(name="rooms")
    """The same at each level."""
    run: str
    """Where it was measured."""
    threshold: float = 0.0
    """What it had to reach."""

    @property
    def accepted(self) -> bool:
        """Whether it did."""
        return self.success >= self.threshold


@verb
async def reader_accept(
    config: Config | str = "nano",
    *,
    adapter: str | Path | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    workers: Workers | int | None = None,
    progress: Progress = silent,
) -> Acceptance:
    """Play validation games with the full history and no filler, and write down whether the reader is good enough."""
    settings = configured(config)
    if adapter is not None:
        settings = with_reader(settings, Path(adapter))
    async with Session(settings, progress, workers=workers) as session:
        grid = grid_of(settings, session.archive, ["full"], fillers=[0])
        if len(grid.games) < settings.reader.accept_games:
            raise StatsError(
                f"{len(grid.games)} validation games are too few to accept a reader; make "
                f"{settings.reader.accept_games} or more, or set reader.accept_games."
            )
        place = Path(out) if out else place_of(settings, "reader-accept", msgspec.to_builtins(grid))
        run = await measure_grid(session, grid, place, resume)
    verdict = acceptance(run.read("episodes", Episode), settings.reader.accept)
    return note_acceptance(settings, run.info.models["reader"], verdict, run.path)


def acceptance(episodes: Iterable[Episode], threshold: float) -> dict[str, Any]:
    """`success`, `games`, `accepted` and the success at each level; an error is no verdict."""
    won: dict[int, list[bool]] = defaultdict(list)
    for episode in episodes:
        if episode.error is not None:
            error = episode.error.rstrip(".")
            raise StatsError(f"Game {episode.job.game} failed ({error}); the reader cannot be judged without it.")
        won[episode.level].append(episode.outcome == "won")
    if not won:
        raise StatsError("No episode was played, so the reader cannot be judged; make the archive's valid games first.")
    by_level = {str(level): sum(values) / len(values) for level, values in sorted(won.items())}
    success = sum(by_level.values()) / len(by_level)
    return {
        "success": success,
        "games": sum(map(len, won.values())),
        "accepted": success >= threshold,
        "threshold": threshold,
        "levels": by_level,
    }


# ---------------------------------------------------------------- what is written down


def note_acceptance(config: Config, reader: str, verdict: dict[str, Any], run: Path) -> Acceptance:
    """Write down what a reader reached, good or bad; a later measurement replaces an earlier one."""
    measured = {name: verdict[name] for name in ("success", "games", "levels")}
    noted = Acceptance(reader=reader, run=str(run), threshold=config.reader.accept, **measured)
    file = acceptance_file(config, reader)
    file.parent.mkdir(parents=True, exist_ok=True)
    content = msgspec.json.encode(noted)
    write_whole(file, msgspec.json.format(content, indent=1) + b"\n")
    return noted


def known_acceptance(config: Config, reader: str) -> Acceptance | None:
    """What is written down of a reader."""
    file = acceptance_file(config, reader)
    if not file.is_file():
        return None
    try:
        return msgspec.json.decode(file.read_bytes(), type=Acceptance)
    except msgspec.MsgspecError as error:
        raise RecordError(f"{file} is damaged ({error}); run `dssr reader accept` again.") from error


def require_accepted(config: Config, reader: str) -> Acceptance:
    """The reader's acceptance, or one sentence why there is none."""
    found, least = known_acceptance(config, reader), config.reader.accept
    if found is None:
        raise UsageError(
            "This reader has not been accepted; run `dssr reader accept` with the same configuration, "
            "or train on it all the same with --force, which is recorded."
        )
    if found.success < least:
        raise UsageError(
            f"This reader wins {found.success:.0%} of {found.games} games with the full history, below the {least:.0%} "
            "it must reach; train a better one, or use it all the same with --force, which is recorded."
        )
    return found


def acceptance_file(config: Config, reader: str) -> Path:
    """Where the acceptance of a reader, given by its fingerprint, is written down."""
    name = digest_of(reader, load_prompts(config.agent.prompts).reader, msgspec.to_builtins(config.games))
    return Path(config.data) / "readers" / f"{name}.json"


# ---------------------------------------------------------------- learning curve

PARTS = 3
"""Sizes of the curve unless others are asked for: thirds of the stored sample, 2k, 4k and 6k of the method's 6k."""


@verb
async def reader_curve(
    config: Config | str = "nano",
    *,
    points: Sequence[int] | None = None,
    training: str | Path | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    workers: Workers | int | None = None,
    progress: Progress = silent,
) -> Run:
    """Train the final reader on nested samples of so many points per iteration, and ask each at held-out points.

    `training` is the folder of a finished `reader_train`, the configuration's own if left out.
    """
    settings = configured(config)
    dagger = Dagger(settings, Path(training) if training else training_place(settings), progress, workers)
    samples = await _samples(dagger)
    most = max(map(len, samples.train))
    sizes = sorted(set(points)) if points else [most * part // PARTS for part in range(1, PARTS + 1)]
    if sizes[0] < 1 or sizes[-1] > most:
        raise UsageError(f"{dagger.directory} has {most} points an iteration; ask for sizes from 1 to {most}.")
    asked = {"points": sizes, "training": str(dagger.directory)}
    place = Path(out) if out else place_of(dagger.config, "reader-curve", asked)
    models = {"reader": dagger.base}
    with Run.start(
        place, command="reader-curve", config=dagger.config, models=models, arguments=asked, resume=resume
    ) as run:
        for size in sizes:
            adapter = place / "adapters" / str(size)
            learnt = [point for sample in samples.train for point in sample[:size]]
            dagger.fit(dagger.last, learnt, samples.held_out, adapter, place / "work" / str(size))
            run.extend("reader_curve", [(row.key, row) for row in stored_accuracies(adapter, dagger.last)])
        run.finish({"sizes": sizes, "held_out": len(samples.held_out)})
    return Run.open(place)


def curve_rows(run: Run) -> list[ReaderAccuracy]:
    """The curve itself: the rows over all context variants, the bare base first."""
    return [row for row in run.read("reader_curve", ReaderAccuracy) if row.memory == ALL]


class _Samples(Record, frozen=True):
    train: list[list[ReaderPoint]]
    """By iteration, each in an order whose every beginning is a sample."""
    held_out: list[ReaderPoint]


async def _samples(dagger: Dagger) -> _Samples:
    """The stored points of a finished training of the same configuration."""
    if not dagger.adapter(dagger.last).exists():
        raise UsageError(
            f"{dagger.directory} holds no finished training; run `dssr reader train` with the same configuration first."
        )
    if Run.open(dagger.directory / "collect-1-train").info.digest != dagger.config.digest():
        raise UsageError(
            f"{dagger.directory} was trained with another configuration; give the one in its collect-1-train/run.json."
        )
    numbers = range(1, dagger.last + 1)
    config, seed = dagger.config.reader, dagger.config.seed
    train = [nested(await dagger.points(number), config, "reader curve", seed, number) for number in numbers]
    held_out = [point for number in numbers for point in await dagger.monitor(number)]
    if not held_out:
        raise UsageError(f"{dagger.directory} held no game out; a curve needs `reader.held_out` above 0 and two games.")
    return _Samples(train, held_out)
