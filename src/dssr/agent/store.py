"""Episodes in a run's logs. The episode's own line comes last: where it stands, its steps and prompts do too."""

from collections.abc import Iterable, Iterator

from dssr.errors import UsageError
from dssr.record.run import Run
from dssr.types import Episode, Played, Search, Step, StoredPrompt

SEARCHES = "searches"
"""Log of what the leak check found, one line per piece of work."""


def save(run: Run, played: Played) -> None:
    """Append one episode. Appending it again changes nothing."""
    key = played.episode.key
    run.extend("steps", [(f"{key}:{step.index:04d}", step) for step in played.steps])
    run.extend("prompts", [(f"{key}:{place:04d}", prompt) for place, prompt in enumerate(played.prompts)])
    keep_searches(run, key, [played.search] if played.search else [])
    run.append("episodes", key, played.episode)


def keep_searches(run: Run, key: str, searches: Iterable[Search]) -> None:
    """Append what the leak check says of one piece of work, before the line that makes the work count."""
    run.extend(SEARCHES, [(f"{key}:{search.what}", search) for search in searches])


def stored(run: Run) -> Iterator[Played]:
    """The finished episodes of a run, with their steps and prompts."""
    steps: dict[str, list[Step]] = {}
    for key, step in run.read_keyed("steps", Step):
        steps.setdefault(key.partition(":")[0], []).append(step)
    prompts: dict[str, list[StoredPrompt]] = {}
    for prompt in run.read("prompts", StoredPrompt):
        prompts.setdefault(prompt.episode, []).append(prompt)
    for episode in run.read("episodes", Episode):
        yield Played(episode, tuple(steps.pop(episode.key, ())), tuple(prompts.pop(episode.key, ())))


def find(run: Run, name: str) -> Played:
    """The one episode whose key begins with `name`."""
    found = [played for played in stored(run) if played.episode.key.startswith(name)]
    if len(found) != 1:
        keys = ", ".join(played.episode.key[:12] for played in (found or list(stored(run)))[:4])
        raise UsageError(f"{name!r} names {len(found)} episodes of {run.path}; give more of a key, such as {keys}.")
    return found[0]
