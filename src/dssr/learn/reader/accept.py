"""The acceptance gate: online success with the full history and no filler, averaged over room counts."""

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from dssr.errors import StatsError
from dssr.types import Episode


def acceptance(episodes: Iterable[Episode], threshold: float) -> dict[str, Any]:
    """`success`, `games`, `accepted` and the success of each room count; an error is no verdict."""
    won: dict[int, list[bool]] = defaultdict(list)
    for episode in episodes:
        if episode.error is not None:
            raise StatsError(
                f"Game {episode.job.game} failed ({episode.error}); the reader cannot be judged without it."
            )
        won[episode.rooms].append(episode.outcome == "won")
    if not won:
        raise StatsError("No episode was played, so the reader cannot be judged; make the archive's valid games first.")
    by_rooms = {str(rooms): sum(values) / len(values) for rooms, values in sorted(won.items())}
    success = sum(by_rooms.values()) / len(by_rooms)
    return {
        "success": success,
        "games": sum(map(len, won.values())),
        "accepted": success >= threshold,
        "threshold": threshold,
        "rooms": by_rooms,
    }
