"""Which readers passed the gate: one file per reader under the data folder.

Its name is a digest of the reader's fingerprint (weights, adapter, chat template, numerics), its instruction and the
kind of games, so that a reader changed in any of them has to pass anew.

The acceptance gate: online success with the full history and no filler, averaged over levels.
"""

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
from msgspec import field

from dssr.agent.prompts import load_prompts
from dssr.config import Config
from dssr.errors import RecordError, StatsError, UsageError
from dssr.record.files import write_whole
from dssr.seeds import digest_of
from dssr.types import Episode, Record


class Acceptance(Record, frozen=True):
    reader: str
    """Fingerprint."""
    success: float
    """With the full history and no filler, averaged over levels."""
    games: int
    levels: dict[str, float] = field(name="rooms")
    """The same at each level."""
    run: str
    """Where it was measured."""


def acceptance_file(config: Config, reader: str) -> Path:
    """Where the acceptance of a reader, given by its fingerprint, is written down."""
    name = digest_of(reader, load_prompts(config.agent.prompts).reader, msgspec.to_builtins(config.games))
    return Path(config.data) / "readers" / f"{name}.json"


def note_acceptance(config: Config, reader: str, verdict: dict[str, Any], run: Path) -> Path:
    """Write down what a reader reached, good or bad; a later measurement replaces an earlier one."""
    success, games, levels = (verdict[name] for name in ("success", "games", "rooms"))
    file = acceptance_file(config, reader)
    file.parent.mkdir(parents=True, exist_ok=True)
    content = msgspec.json.encode(Acceptance(reader, success, games, levels, str(run)))
    write_whole(file, msgspec.json.format(content, indent=1) + b"\n")
    return file


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


def acceptance(episodes: Iterable[Episode], threshold: float) -> dict[str, Any]:
    """`success`, `games`, `accepted` and the success at each level; an error is no verdict."""
    won: dict[int, list[bool]] = defaultdict(list)
    for episode in episodes:
        if episode.error is not None:
            raise StatsError(
                f"Game {episode.job.game} failed ({episode.error}); the reader cannot be judged without it."
            )
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
        "rooms": by_level,
    }
