"""Continue a logged episode from any of its steps, with the logged state or another."""

from collections.abc import Sequence

from dssr.agent.budget import enforce
from dssr.agent.episode import Desk, Played, Resume, play
from dssr.errors import UsageError
from dssr.types import Episode, Step


async def fork(episode: Episode, steps: Sequence[Step], index: int, desk: Desk, state: str | None = None) -> Played:
    """Play on from step `index`, its state replaced by `state` if one is given.

    Without one the continuation starts from what was logged, and comes out as it was logged.
    """
    if not 0 <= index < len(steps):
        raise UsageError(f"Episode {episode.key} has steps 0 to {len(steps) - 1}; {index} is none of them.")
    write = steps[index].write
    if state is not None:
        budget = episode.job.cell.budget
        if budget is None:
            raise UsageError("The memory full has no state that could be replaced; continue another format.")
        write = enforce(state, budget, desk.reader.tokenizer)
    return await play(episode.job, desk, Resume(tuple(steps[:index]), write))


def first_difference(logged: Sequence[Step], played: Sequence[Step]) -> int | None:
    """The first step at which two records of an episode differ; None when they are the same."""
    for place, (old, new) in enumerate(zip(logged, played, strict=False)):
        if old != new:
            return place
    return None if len(logged) == len(played) else min(len(logged), len(played))
