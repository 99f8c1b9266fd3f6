"""Which readers are good enough to measure with: online success with the full history and no filler.

What a reader reached lies in one file per reader under the data folder. The file's name is a digest of the reader's
fingerprint (weights, adapter, chat template, numerics), its instruction and the kind of games, so that a reader changed
in any of them has to be tried anew.
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
from dssr.measure.diagnose import measure_grid
from dssr.measure.plan import grid_of
from dssr.record.files import write_whole
from dssr.seeds import digest_of
from dssr.session import Session, configured, place_of, silent, verb
from dssr.training.reader.dagger import with_reader
from dssr.types import Episode, Progress, Record


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
    progress: Progress = silent,
) -> Acceptance:
    """Play validation games with the full history and no filler, and write down whether the reader is good enough."""
    settings = configured(config)
    if adapter is not None:
        settings = with_reader(settings, Path(adapter))
    async with Session(settings, progress) as session:
        grid = grid_of(settings, session.archive, ["full"], fillers=[0])
        place = Path(out) if out else place_of(settings, "diagnose", msgspec.to_builtins(grid))
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
