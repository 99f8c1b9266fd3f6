"""Networks share what is equal on disk, and are complete Hugging Face folders for whoever loads them."""

import json
import shutil
from hashlib import sha256
from pathlib import Path

import pytest
from tokenizers import Tokenizer
from transformers import AutoConfig, AutoTokenizer

from dssr.config import load as load_config
from dssr.models.adapters import fits_base, weights_digest
from dssr.models.load import weights_folder
from dssr.settings import names
from dssr_nano import networks
from dssr_nano.networks import drop_shared, shipped, weights

OWN = {"README.md", "config.json", "model.safetensors"}
WHOLE = {
    "chat_template.jinja",
    "config.json",
    "generation_config.json",
    "model.safetensors",
    "tokenizer.json",
    "tokenizer_config.json",
}


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the shipped weights that a test may change, and a cache of its own."""
    shutil.copytree(networks.WEIGHTS, tmp_path / "weights")
    monkeypatch.setattr(networks, "WEIGHTS", tmp_path / "weights")
    monkeypatch.setattr(networks, "TOKENIZERS", tmp_path / "weights" / "tokenizers")
    monkeypatch.setenv("DSSR_HOME", str(tmp_path / "home"))
    return tmp_path / "weights"


def test_nothing_is_stored_twice() -> None:
    """Catches tokenizers copied into every network's folder again: a third of a megabyte each. That two networks have
    the same shape is not a copy."""
    files = [file for file in networks.WEIGHTS.rglob("*") if file.is_file() and file.name != "config.json"]
    assert len({sha256(file.read_bytes()).digest() for file in files}) == len(files)
    assert all({file.name for file in (networks.WEIGHTS / name).iterdir()} == OWN for name in shipped())


@pytest.mark.parametrize("name", shipped())
def test_every_network_is_a_complete_folder(name: str) -> None:
    """Catches a file that transformers would look for on the hub, and a tokenizer that belongs to another network."""
    folder = Path(weights_folder(f"nano/{name}"))
    assert {file.name for file in folder.iterdir()} == WHOLE
    assert len(AutoTokenizer.from_pretrained(folder)) == AutoConfig.from_pretrained(folder).vocab_size
    card = (networks.WEIGHTS / name / "README.md").read_text(encoding="utf-8")
    assert sha256((folder / "model.safetensors").read_bytes()).hexdigest() in card


def test_other_content_is_another_folder(package: Path) -> None:
    """Catches a stale copy: after an upgrade or a build the old weights would go on answering under the new name. The
    card is no part of a model, so its measurements may change."""
    before = weights("writer")
    (package / "writer" / "README.md").write_text("measured again")
    assert weights("writer") == before
    changed = (package / "writer" / "model.safetensors").read_bytes()[:-2] + b"\0\0"
    (package / "writer" / "model.safetensors").write_bytes(changed)
    after = weights("writer")
    assert after != before
    assert (after / "model.safetensors").read_bytes() == changed != (before / "model.safetensors").read_bytes()


def test_a_built_network_gives_up_only_what_is_shared(package: Path) -> None:
    """Catches a build that stores the shared tokenizer once more, and one with a tokenizer of its own that loses it."""
    whole = weights("house")
    shutil.copytree(whole, package / "house", dirs_exist_ok=True)
    drop_shared("house")
    assert {file.name for file in (package / "house").iterdir()} == OWN
    assert weights("house") == whole
    own = Tokenizer.from_file(str(whole / "tokenizer.json"))
    own.add_tokens(["anchovy"])
    own.save(str(package / "house" / "tokenizer.json"))
    drop_shared("house")
    assert Tokenizer.from_file(str(weights("house") / "tokenizer.json")).token_to_id("anchovy") is not None


def test_its_configurations_are_found() -> None:
    """Catches an entry point that leads nowhere: `nano` is what every command uses unless told otherwise."""
    shipped_here = {file.stem for file in networks.CONFIGS.glob("*.toml")}
    assert shipped_here == {"nano", "nano-chains", "nano-house", "nano-open", "nano-r2", "nano-small"}
    assert shipped_here <= set(names())
    assert load_config("nano-house").writer_model.path == "nano/house-writer"


def test_the_readme_shows_every_file_of_the_factory() -> None:
    """Catches a map of the folder that names files which are gone, or leaves out new ones."""
    told = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    files = {file.name for file in Path(networks.__file__).parent.glob("factory/*.py")} - {"__init__.py"}
    assert {word for word in told.split() if word.endswith(".py")} == files | {"networks.py", "cli.py"}


def test_shipped_adapters_are_of_the_shipped_writer() -> None:
    """Catches an adapter that was left behind when the writer was built anew, and one that names a place where it was
    made: its stamp must hold the digest of the writer's weights and of its own files."""
    assert networks.adapters() == ["adapters/chains"]
    writer = weights_digest(weights_folder("nano/writer"), None)
    for name in networks.adapters():
        folder = Path(weights_folder(f"nano/{name}"))
        assert fits_base(folder, writer)
        assert json.loads((folder / "adapter_config.json").read_text())["base_model_name_or_path"] == "nano/writer"
