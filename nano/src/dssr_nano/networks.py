"""The shipped networks. Each folder of `weights/` holds what is a network's own; tokenizers, which several share, lie
once in `weights/tokenizers/`. Whoever loads a network gets a complete Hugging Face folder, put together in the user's
cache.
"""

import shutil
from pathlib import Path
from typing import Literal

from dssr.errors import ModelError

Role = Literal["reader", "writer", "house", "house-writer"]
"""Each role has a network of its own: learned together, reading kept writing from being learned (LOG.md). `house` is a
reader for games whose foods lie in several rooms and starts as the reader, `house-writer` starts as the writer."""
WEIGHTS = Path(__file__).parent / "weights"
"""Folder of the networks: `writer`, `reader`, and what else is shipped beside them."""
CONFIGS = Path(__file__).parent / "configs"
"""Folder of the configurations that use them."""
TOKENIZERS = WEIGHTS / "tokenizers"
"""Files that all tokenizers have in common, and a folder for each of the tokenizers, named after its vocabulary."""
TOKENIZER_OF = {
    "writer": "bpe-4608",
    "reader": "bpe-4608",
    "R2": "bpe-4608",
    "house": "bpe-4656",
    "house-writer": "bpe-4656",
}
CARD = "README.md"


def weights(part: str) -> Path:
    """The complete folder of one network, for names such as `nano/writer`, or of an adapter, `nano/adapters/chains`."""
    from dssr.models.adapters import file_digest
    from dssr.models.load import cached_folder
    from dssr.seeds import digest_of

    there = ", ".join(f"nano/{name}" for name in shipped()) or "none"
    if not part:
        raise ModelError(f"nano has a network for each role; say one of {there}.")
    if part in adapters():
        return WEIGHTS / part
    if part not in shipped():
        raise ModelError(f"nano/{part} is not in this installation (there: {there}); make it with `dssr nano build`.")
    files = files_of(part)

    def fill(folder: Path) -> None:
        for name, file in files.items():
            shutil.copyfile(file, folder / name)

    # Copied, not linked: a later build may change the file in the package, and the copy must stay what its name says.
    return cached_folder(f"nano-{part}-{digest_of({name: file_digest(file) for name, file in files.items()})}", fill)


def shipped() -> list[str]:
    """The names of all networks of this installation."""
    return sorted(file.parent.name for file in WEIGHTS.glob("*/config.json"))


def adapters() -> list[str]:
    """The names of all adapters of this installation: trained writers, for the network that their card names."""
    return sorted(str(file.parent.relative_to(WEIGHTS)) for file in WEIGHTS.glob("adapters/*/adapter_config.json"))


def files_of(network: str) -> dict[str, Path]:
    """By name, the files that make up a network's folder; its own come before shared ones."""
    places = [WEIGHTS / network, TOKENIZERS]
    if network in TOKENIZER_OF:
        places.insert(1, TOKENIZERS / TOKENIZER_OF[network])
    found: dict[str, Path] = {}
    for place in places:
        for file in sorted(place.iterdir()):
            if file.is_file() and file.name != CARD:
                found.setdefault(file.name, file)
    return found


def drop_shared(network: str) -> None:
    """Delete from a network's folder what it shares with others: a build writes complete folders."""
    for place in (TOKENIZERS / TOKENIZER_OF.get(network, ""), TOKENIZERS):
        for file in place.iterdir():
            own = WEIGHTS / network / file.name
            if file.is_file() and own.is_file() and own.read_bytes() == file.read_bytes():
                own.unlink()
