"""Files appear whole or not at all, and one process writes a directory at a time."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dssr.errors import RecordError

PRIVATE_FOLDER = 0o700
PRIVATE_FILE = 0o600
"""Prompts, replies and host names are the user's own; who wants to share a run sets its modes."""


def write_all(descriptor: int, data: bytes) -> None:
    """Write every byte and make the disk hold it before returning."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
    os.fsync(descriptor)


def sync_folder(folder: Path) -> None:
    """Make a rename or a new name in the folder survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_whole(path: Path, data: bytes) -> None:
    """Create or replace a file so that a reader sees the old content or the new, never a part."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.part")
    with told(f"Cannot write {path}"):
        try:
            descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, PRIVATE_FILE)
            try:
                write_all(descriptor, data)
            finally:
                os.close(descriptor)
            os.replace(draft, path)
            sync_folder(path.parent)
        except OSError:
            draft.unlink(missing_ok=True)
            raise


@contextmanager
def told(trouble: str) -> Iterator[None]:
    """Turn an operating system error into one sentence."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise RecordError(f"{trouble}: {reason}; free or repair the place and run again with --resume.") from error


class Lock:
    """Held by the one process that writes a directory; the system releases it when the process dies."""

    def __init__(self, path: Path, wait: bool = False) -> None:
        """Held elsewhere, it is refused, or with `wait` waited for."""
        with told(f"Cannot lock {path.parent}"):
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT, PRIVATE_FILE)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except OSError as error:
            os.close(self._descriptor)
            raise RecordError(
                f"{path.parent} is being written by another process; wait for it or choose another directory."
            ) from error

    def release(self) -> None:
        """Let another process write."""
        os.close(self._descriptor)
