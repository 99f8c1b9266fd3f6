"""Packed archives: one `.tar.xz` file with `archive.json`, `manifest.jsonl` and both files of every game, as
`dssr games make` wrote them. The same archive always packs to the same tar. To pack one again:

    dssr games make --config demo --archive made/demo
    python -c "from dssr.worlds.shipped import pack; pack('made/demo', 'demo.tar.xz')"

The demo's lies in `archives/` beside this file, and `provided` unpacks it where nothing is yet, so that a first run
makes no games; those of the tests lie in `tests/games/`.
"""

import io
import lzma
import os
import tarfile
import tempfile
from pathlib import Path

from dssr.errors import GameError
from dssr.record.log import clear_drafts
from dssr.worlds.archive import MANIFEST, SETTINGS, Archive, store_digests

FOLDER = Path(__file__).parent / "archives"
"""Of the packed archives that come with the package."""
SUFFIX = ".tar.xz"


def provided(folder: str | Path) -> Path:
    """The folder of an archive, unpacked first if nothing is there and an archive of this name is shipped."""
    folder = Path(folder)
    packed = FOLDER / f"{folder.name}{SUFFIX}"
    if not packed.exists():
        return folder
    try:
        empty = not folder.exists() or not any(folder.iterdir())
    except OSError as error:
        raise GameError(f"Archive {folder} cannot be read ({error.strerror}): choose another data folder.") from error
    if empty:
        unpack(packed, folder)
    elif not (folder / SETTINGS).exists():
        raise GameError(f"{folder} holds no whole archive: delete it, and the one shipped with dssr is unpacked there.")
    return folder


def pack(folder: str | Path, file: str | Path) -> None:
    """Writes a finished archive, without its stored steps, into one file."""
    archive = Archive.open(folder)
    names = [SETTINGS, MANIFEST]
    for game in archive.games():
        archive.verify(game)
        names += [str(part.relative_to(archive.folder)) for part in archive.domain.files(archive.folder / game.file)]
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name in sorted(names):
            content = (archive.folder / name).read_bytes()
            if name == MANIFEST:  # games are listed as they are finished, which differs from time to time
                content = b"".join(sorted(content.splitlines(keepends=True)))
            tar.addfile(_member(name, len(content)), io.BytesIO(content))
    Path(file).write_bytes(lzma.compress(plain.getvalue(), preset=9 | lzma.PRESET_EXTREME))


def unpack(file: str | Path, folder: str | Path) -> None:
    """Makes the folder of a packed archive: whole, with every digest checked, or not at all.

    When two processes unpack at once, the first to finish provides the folder and both can use it.
    """
    file, folder = Path(file), Path(folder)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        clear_drafts(folder.parent, folder.name)
        with tempfile.TemporaryDirectory(f".{os.getpid()}.part", f".{folder.name}.", folder.parent) as scratch:
            made = Path(scratch) / folder.name
            made.mkdir()  # the scratch folder itself is closed to other users
            _write_members(file, made)
            _check(file, made)
            store_digests(made, made / MANIFEST)
            try:
                os.rename(made, folder)
            except OSError:
                if not (folder / MANIFEST).exists():
                    raise
    except OSError as error:
        raise GameError(
            f"{file.name} cannot be unpacked into {folder} ({error.strerror}): choose another data folder."
        ) from error


def _member(name: str, size: int) -> tarfile.TarInfo:
    """A file in the tar, with nothing of the machine or the day: time 0, owner 0."""
    member = tarfile.TarInfo(name)
    member.size = size
    member.mode = 0o644
    return member


def _write_members(file: Path, folder: Path) -> None:
    try:
        with tarfile.open(fileobj=io.BytesIO(lzma.decompress(file.read_bytes()))) as tar:
            for member in tar:
                target = folder / member.name
                content = tar.extractfile(member)
                if content is None or ".." in Path(member.name).parts or Path(member.name).is_absolute():
                    raise GameError(f"{file} holds {member.name!r}, which is no file of an archive: pack it again.")
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(content.read())
    except (lzma.LZMAError, tarfile.TarError, EOFError) as error:
        raise GameError(f"{file} is damaged ({error}): restore it or install dssr again.") from error


def _check(file: Path, folder: Path) -> None:
    """Refuses games that are not the listed ones."""
    for name in (SETTINGS, MANIFEST):
        if not (folder / name).exists():
            raise GameError(f"{file} is damaged ({name} is missing): restore it or install dssr again.")
    archive = Archive.open(folder)
    for game in archive.games():
        try:
            archive.verify(game)
        except GameError:
            raise GameError(f"{file} is damaged (game {game.id} is altered): install dssr again.") from None
