"""Records of logs by name, read when they are asked for.

A study of ten thousand episodes has some hundred megabytes of records, and a table looks at one cell at a time. So it
holds where they lie, and of the records themselves those that were used last.
"""

from array import array
from collections import OrderedDict
from collections.abc import Callable, ItemsView, Iterable, Iterator, Mapping, Sequence, ValuesView
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec

from dssr.record import log
from dssr.types import Record

R = TypeVar("R", bound=Record)
T = TypeVar("T")
V = TypeVar("V")
HELD = 1024
"""Names whose records are held for all shelves of some logs; those of the shelf in use are, however many."""
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

    def path(self, place: Sequence[int]) -> Path:
        """The log that a place is in."""
        return self._paths[place[0]]

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
        """All that stands on a shelf."""
        if id(shelf) not in self._held:
            self._held[id(shelf)] = {name: shelf.alone(name) for name in shelf}
            while len(self._held) > 1 and sum(map(len, self._held.values())) > HELD:
                self._held.popitem(last=False)
        self._held.move_to_end(id(shelf))
        return self._held[id(shelf)]


class Shelf(Mapping[str, V], Generic[R, V]):
    """What `made` makes of the records of each name. It lives as long as its logs, which know it by its identity."""

    def __init__(self, logs: Logs[R], made: Callable[[list[R]], V]) -> None:
        self._logs, self._made = logs, made
        self._places: dict[str, array[int]] = {}

    def put(self, name: str, place: Place) -> None:
        """One more record of a name."""
        known = self._places.get(name)
        if known is None:
            self._places[name] = array("q", place)
        elif known[-3] == place[0] and known[-2] + known[-1] == place[1]:
            known[-1] += place[2]
        else:
            known.extend(place)

    def alone(self, name: str) -> V:
        """What stands under one name, read anew."""
        return self._made(self._logs.read(self._places[name]))

    def path(self, name: str) -> Path:
        """The log that holds the first of its records."""
        return self._logs.path(self._places[name])

    def __getitem__(self, name: str) -> V:
        return self.alone(name)

    def items(self) -> ItemsView[str, V]:
        """All of them, which are then held for a while: a table goes through a cell more than once."""
        return self._logs.held(self).items()

    def values(self) -> ValuesView[V]:
        """As `items`, without the names."""
        return self._logs.held(self).values()

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, name: object) -> bool:
        return name in self._places
