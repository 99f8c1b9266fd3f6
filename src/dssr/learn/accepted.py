"""Which readers passed the gate: one file per reader under the data folder.

Its name is a digest of the reader's fingerprint (weights, adapter, chat template, numerics), its instruction and the
kind of games, so that a reader changed in any of them has to pass anew.
"""

from pathlib import Path
from typing import Any

import msgspec

from dssr.agent.texts import load_prompts
from dssr.config import Config
from dssr.errors import RecordError, UsageError
from dssr.record.files import write_whole
from dssr.seeds import digest_of
from dssr.types import Record


class Acceptance(Record, frozen=True):
    reader: str
    """Fingerprint."""
    success: float
    """With the full history and no filler, averaged over room counts."""
    games: int
    rooms: dict[str, float]
    run: str
    """Where it was measured."""


def acceptance_file(config: Config, reader: str) -> Path:
    """Where the acceptance of a reader, given by its fingerprint, is written down."""
    name = digest_of(reader, load_prompts(config.agent.prompts).reader, msgspec.to_builtins(config.games))
    return Path(config.data) / "readers" / f"{name}.json"


def note(config: Config, reader: str, verdict: dict[str, Any], run: Path) -> Path:
    """Write down what a reader reached, good or bad; a later measurement replaces an earlier one."""
    measured = {name: verdict[name] for name in ("success", "games", "rooms")}
    file = acceptance_file(config, reader)
    file.parent.mkdir(parents=True, exist_ok=True)
    content = msgspec.json.encode(Acceptance(reader=reader, run=str(run), **measured))
    write_whole(file, msgspec.json.format(content, indent=1) + b"\n")
    return file


def known(config: Config, reader: str) -> Acceptance | None:
    """What is written down of a reader."""
    file = acceptance_file(config, reader)
    if not file.is_file():
        return None
    try:
        return msgspec.json.decode(file.read_bytes(), type=Acceptance)
    except msgspec.MsgspecError as error:
        raise RecordError(f"{file} is damaged ({error}); run `dssr reader accept` again.") from error


def require(config: Config, reader: str) -> Acceptance:
    """The reader's acceptance, or one sentence why there is none."""
    found, least = known(config, reader), config.reader.accept
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
