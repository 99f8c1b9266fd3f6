"""Records of logs by name, read when they are asked for.

A study of ten thousand episodes has some hundred megabytes of records, and a table looks at one cell at a time. So it
holds where they lie, and of the records themselves those that were used last, a bounded number of them.
"""

from array import array
from collections import OrderedDict
from collections.abc import Callable, ItemsView, Iterable, Iterator, Mapping, ValuesView
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec

from dssr.record import log
from dssr.types import Record

R = TypeVar("R", bound=Record)
T = TypeVar("T")
V = TypeVar("V")
HELD = 400
"""Names whose records are held, for all shelves of some logs; a shelf with more is read anew whenever it is gone
through."""
Place = tuple[int, int, int]
"""Number of a log, first byte, length."""


class Logs(Generic[R]):
    """Logs with records of one kind."""

    def __init__(self, kind: type[R]) -> None:
        self._decoder = msgspec.json.Decoder(kind)
        self._paths: list[Path] = []
        self._held: OrderedDict[int, dict[str, Any]] = OrderedDict()
        """What stands on the shelves that were used last."""

    def scan(self, path: Path) -> Iterator[tuple[R, Place]]:
        """Every record of one more log, and where it lies."""
        return self._placed(path, log.measured(path, self._decoder))

    def scan_keys(self, path: Path) -> Iterator[tuple[str, Place]]:
        """As `scan`, but the keys alone."""
        return self._placed(path, log.keys(path))

    def _placed(self, path: Path, found: Iterable[tuple[T, int]]) -> Iterator[tuple[T, Place]]:
        self._paths.append(path)
        number, first = len(self._paths) - 1, 0
        for one, length in found:
            yield one, (number, first, length)
            first += length

    def path(self, number: int) -> Path:
        """The log of this number."""
        return self._paths[number]

    def read(self, places: "array[int]") -> list[R]:
        """The records that lie there; a place is three numbers."""
        found: list[R] = []
        for at in range(0, len(places), 3):
            number, first, length = places[at : at + 3]
            with self._paths[number].open("rb") as file:
                file.seek(first)
                found += self._decoder.decode_lines(file.read(length))
        return found

    def held(self, shelf: "Shelf[R, V]") -> dict[str, V]:
        """All that stands on a shelf, which has no more than `HELD` names."""
        if id(shelf) not in self._held:
            self._held[id(shelf)] = {name: shelf.alone(name) for name in shelf}
            while sum(map(len, self._held.values())) > HELD:
                self._held.popitem(last=False)
        self._held.move_to_end(id(shelf))
        return self._held[id(shelf)]


class Shelf(Mapping[str, V], Generic[R, V]):
    """What `made` makes of the records of each name. It lives as long as its logs, which know it by its identity."""

    def __init__(self, logs: Logs[R], made: Callable[[list[R]], V]) -> None:
        self._logs, self._made = logs, made
        self._numbers: dict[str, int] = {}
        self._first = array("q")
        """By number: where the first stretch of a name's records lies."""
        self._others: dict[str, array[int]] = {}
        """Where further stretches lie, of the few names that have more than one."""

    def put(self, name: str, place: Place) -> None:
        """One more record of a name."""
        number = self._numbers.setdefault(name, len(self._numbers))
        at = 3 * number
        if at == len(self._first):
            self._first.extend(place)
            return
        others = self._others.get(name)
        last, end = (self._first, at + 3) if others is None else (others, len(others))
        if last[end - 3] == place[0] and last[end - 2] + last[end - 1] == place[1]:
            last[end - 1] += place[2]
        else:
            self._others.setdefault(name, array("q")).extend(place)

    def alone(self, name: str) -> V:
        """What stands under one name, read anew."""
        at = 3 * self._numbers[name]
        return self._made(self._logs.read(self._first[at : at + 3] + self._others.get(name, array("q"))))

    def path(self, name: str) -> Path:
        """The log that holds the first of its records."""
        return self._logs.path(self._first[3 * self._numbers[name]])

    def __getitem__(self, name: str) -> V:
        return self.alone(name)

    def items(self) -> ItemsView[str, V]:
        """All of them, which are then held for a while if they are not too many: a table goes through a cell more than
        once."""
        return self._logs.held(self).items() if len(self) <= HELD else super().items()

    def values(self) -> ValuesView[V]:
        """As `items`, without the names."""
        return self._logs.held(self).values() if len(self) <= HELD else super().values()

    def __iter__(self) -> Iterator[str]:
        return iter(self._numbers)

    def __len__(self) -> int:
        return len(self._numbers)

    def __contains__(self, name: object) -> bool:
        return name in self._numbers
