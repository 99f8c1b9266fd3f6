"""One class per boundary. Every message is one sentence: what was wrong, and what to do."""

from collections.abc import Iterator
from contextlib import contextmanager


class DssrError(Exception):
    """Root of all errors that a user can cause or meet; the command line prints these without a traceback."""

    exit_code = 1


class ConfigError(DssrError):
    """A configuration file, key or combination of settings that cannot be used."""

    exit_code = 2


class UsageError(DssrError):
    """A command called with arguments that do not fit each other or the files they name."""

    exit_code = 2


class RecordError(DssrError):
    """A run directory that cannot be created, continued or trusted."""

    exit_code = 2


class SealError(DssrError):
    """The test split is sealed: not approved, or opened before."""

    exit_code = 2


class GameError(DssrError):
    """A game file, archive or game engine that is missing, altered or misbehaving."""


class ModelError(DssrError):
    """A model that cannot be loaded, or that answered with something unusable."""


class WorkerError(DssrError):
    """Workers that cannot be started, reached or kept alive."""


class BudgetError(DssrError):
    """A state that would break its token budget."""


class LeakError(DssrError):
    """Privileged text found, or a structure that could carry it, in a prompt."""


class StatsError(DssrError):
    """Data that cannot be compared or summarised as asked."""


class PlaceError(DssrError):
    """A file or folder that the system does not let us read or write: a full disk, a folder that is a file, …"""


@contextmanager
def in_one_sentence() -> Iterator[None]:
    """Turns what the operating system refuses into a `PlaceError`; for whatever no boundary has put into words."""
    try:
        yield
    except BrokenPipeError:  # whoever read our output has gone; no trouble of ours
        raise
    except OSError as error:
        place = f"{error.filename} cannot be used" if error.filename else "The system refused to read or write"
        raise PlaceError(
            f"{place}: {error.strerror or error}; free or repair the place, then give the same command again."
        ) from error
    except UnicodeError as error:
        raise PlaceError(f"A file or a name is no text in UTF-8 ({error}); restore or rename it.") from error
