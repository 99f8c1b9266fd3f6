"""Open worlds, shared by the episodes that play the same game."""

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager

from dssr.worlds.cooking.archive import Archive
from dssr.worlds.cooking.world import World

IDLE = 16
"""Worlds kept open although nobody plays them: the next job is often of the same game."""


class Worlds:
    """One archive's games, opened when first played and closed when long unused."""

    def __init__(self, archive: Archive) -> None:
        self.archive = archive
        self._open: OrderedDict[str, World] = OrderedDict()
        self._players: dict[str, int] = {}

    @contextmanager
    def playing(self, game: str) -> Iterator[World]:
        """The world of a game, guaranteed to stay open inside the block."""
        if game not in self._open:
            self._open[game] = World.open(self.archive, self.archive.game(game))
        self._open.move_to_end(game)
        self._players[game] = self._players.get(game, 0) + 1
        try:
            yield self._open[game]
        finally:
            self._players[game] -= 1
            self._close(IDLE)

    def close(self) -> None:
        self._close(0)

    def _close(self, keep: int) -> None:
        idle = [game for game in self._open if not self._players.get(game)]
        for game in idle[: max(0, len(idle) - keep)]:
            self._open.pop(game).close()
