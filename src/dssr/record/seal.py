"""The seal on the test split: it opens once, after an explicit approval, for one run."""

import os
from pathlib import Path
from typing import TypeVar

import msgspec

from dssr.errors import SealError
from dssr.record.files import sync_folder, told, write_all
from dssr.types import Record

T = TypeVar("T", bound=Record)


class Approval(Record, frozen=True):
    """The words that allow the test split to be opened."""

    text: str
    """Who approved what."""
    date: str


class Opening(Record, frozen=True):
    """The one opening of the test split."""

    run: str
    """Resolved directory of the one run that may see the test games."""
    date: str


class Seal:
    """Two marker files in a folder, each written once and never changed."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    @property
    def approval(self) -> Approval | None:
        """None while nobody has approved."""
        return self._read("approved.json", Approval)

    @property
    def opening(self) -> Opening | None:
        """None while the split is sealed."""
        return self._read("opened.json", Opening)

    def approve(self, text: str, date: str) -> None:
        """Leave the marker without which the test split stays shut."""
        if not text.strip():
            raise SealError("An approval needs words: say who approves opening the test split, and for what.")
        if not self._write("approved.json", Approval(text, date)):
            raise SealError(f"{self.folder} was approved before; an approval is given once.")

    def open(self, run: str | Path, date: str) -> None:
        """Open the split for this run. The same run may come back to finish; any other is refused."""
        if self.approval is None:
            raise SealError(
                "The test split is sealed; once everything is decided on valid, approve it with "
                "`dssr gates approve TEXT`."
            )
        asked = str(Path(run).resolve())
        if not self._write("opened.json", Opening(asked, date)):
            opened = self.opening
            if opened is None or opened.run != asked:
                by = "" if opened is None else f" by {opened.run} on {opened.date}"
                raise SealError(f"The test split was opened before{by}; it opens once.")

    def _write(self, name: str, marker: Record) -> bool:
        """False when the marker is there already."""
        with told(f"Cannot write the seal in {self.folder}"):
            self.folder.mkdir(parents=True, exist_ok=True)
            try:
                descriptor = os.open(self.folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o444)
            except FileExistsError:
                return False
            try:
                write_all(descriptor, msgspec.json.encode(marker) + b"\n")
            finally:
                os.close(descriptor)
            sync_folder(self.folder)
        return True

    def _read(self, name: str, kind: type[T]) -> T | None:
        path = self.folder / name
        if not path.exists():
            return None
        try:
            return msgspec.json.decode(path.read_bytes(), type=kind)
        except msgspec.MsgspecError as error:
            raise SealError(f"{path} is damaged ({error}); the test split stays shut until it is restored.") from error
