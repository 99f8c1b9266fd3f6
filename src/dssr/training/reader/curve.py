"""The reader's learning curve: the final reader trained again on smaller samples of the points it learnt from.

Nothing is collected anew. A smaller sample is a part of every larger one, has the same shares of contexts, and is
trained by the same recipe from the same seed; all readers answer the same held-out points. The largest sample gives
the final reader itself.
"""

from collections.abc import Sequence
from pathlib import Path

from dssr.config import Config
from dssr.errors import UsageError
from dssr.record.run import Run
from dssr.session import configured, place_of, silent, verb
from dssr.training.reader.accuracy import ALL, ReaderAccuracy
from dssr.training.reader.dagger import Dagger, stored_accuracies, training_place
from dssr.training.reader.points import ReaderPoint, nested
from dssr.types import Progress, Record

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
    progress: Progress = silent,
) -> Run:
    """Train the final reader on nested samples of so many points per iteration, and ask each at held-out points.

    `training` is the folder of a finished `reader_train`, the configuration's own if left out.
    """
    settings = configured(config)
    dagger = Dagger(settings, Path(training) if training else training_place(settings), progress)
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
