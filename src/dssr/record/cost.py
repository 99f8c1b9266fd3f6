"""What a run cost: model calls, tokens, processor time and the time on the clock, over all its sittings.

A meter writes a line to `costs.jsonl` every few seconds and at the end, so that a sitting that was killed is counted
too. The sum of the lines is the cost. Times differ between equal runs: the file is no part of what is compared.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from time import monotonic, process_time
from types import TracebackType
from typing import Protocol

import msgspec

from dssr.errors import RecordError
from dssr.record.log import COSTS, DAMAGE, add_line, damaged_line, lines
from dssr.record.run import Run
from dssr.types import Counts, Record

EVERY = 10.0
"""Seconds between two lines, and the most that a kill takes out of the account."""


class Cost(Record, frozen=True):
    """What was spent: between two lines of `costs.jsonl`, or on a whole run."""

    calls: int = 0
    """Asked of models."""
    cached: int = 0
    """Of these, answered from the answer cache."""
    computed: int = 0
    """Of these, answered by a model; the rest were the same as a call under way, failed, or were cut off by a kill."""
    tokens_in: int = 0
    """Of the prompts of computed calls, each counted whole, and of texts that a model scored."""
    tokens_out: int = 0
    """Written by models."""
    cpu_seconds: float = 0.0
    """Processor time of this program and its workers; that of a model server is its own."""
    seconds: float = 0.0
    """On the clock, from before the models are loaded."""

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(*(getattr(self, name) + getattr(other, name) for name in self.__struct_fields__))

    @property
    def sentence(self) -> str:
        """As people say it."""
        return (
            f"{self.calls:,} model calls, {self.cached:,} answered from the cache and {self.computed:,} computed; "
            f"{self.tokens_in:,} tokens in, {self.tokens_out:,} written; {self.cpu_seconds / 60:.1f} CPU minutes, "
            f"{self.seconds / 60:.1f} minutes on the clock"
        )


def cost_of(run: Run) -> Cost | None:
    """Of all sittings of a run so far; None of one that was made before costs were stored."""
    file = run.log_file(Path(COSTS).stem)
    found: list[Cost] = []
    for number, line in lines(file):
        try:
            found.append(msgspec.json.decode(line, type=Cost))
        except DAMAGE as error:
            raise damaged_line(file, number, error) from error
    return sum(found, Cost()) if found else None


class Spender(Protocol):
    """A model here, or a worker with models elsewhere."""

    @property
    def counts(self) -> Counts:
        """All that it was asked, and a worker took, since it was opened."""
        ...


class Meter:
    """Writes down what one sitting spends. Runs from when it is made to `stop`, or to the end of a `with`."""

    def __init__(self, place: Path, spenders: Callable[[], Sequence[Spender]]) -> None:
        """`spenders` gives whoever spends at the moment, besides this process."""
        self._file = place / COSTS
        self._spenders = spenders
        self._seen = {one: one.counts for one in spenders()}
        self._cpu, self._clock = process_time(), monotonic()
        self._stopped = False

    def __enter__(self) -> "Meter":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.stop()
        except RecordError:
            if error is None:  # else what went wrong before is the one to tell
                raise

    def lap(self) -> None:
        """Write a line if the last one is a while ago."""
        if not self._stopped and monotonic() - self._clock >= EVERY:
            self._write()

    def stop(self) -> None:
        """Write the last line; nothing is written after it."""
        if not self._stopped:
            self._stopped = True
            self._write()

    def _write(self) -> None:
        now = {one: one.counts for one in self._spenders()}
        spent = sum((counts - self._seen.get(one, Counts()) for one, counts in now.items()), Counts())
        cpu, clock = process_time(), monotonic()
        line = Cost(
            calls=spent.calls,
            cached=spent.hits,
            computed=spent.computed,
            tokens_in=spent.read,
            tokens_out=spent.written,
            cpu_seconds=round(spent.cpu + cpu - self._cpu, 3),
            seconds=round(clock - self._clock, 3),
        )
        add_line(self._file, line)
        self._seen, self._cpu, self._clock = now, cpu, clock
