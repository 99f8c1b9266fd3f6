"""Makes a model from its configuration. The heavy libraries are imported only by the backend that needs them."""

import os
import secrets
import shutil
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path

import msgspec

from dssr.config import Config, ModelConfig
from dssr.config_files import GET_NANO
from dssr.errors import ModelError
from dssr.models.base import Model, Tokenizer
from dssr.models.cache import Cache, CachedModel

TIERS = "dssr.tiers"
"""Entry points of this group are functions from the rest of a name (`writer` in `nano/writer`) to a folder."""
SCRIPTED = "scripted"
"""The tier without weights."""
PLUGGED = {"nano": GET_NANO}
"""Tiers that come in a package of their own, and how to get it."""


def load_model(config: ModelConfig) -> Model:
    """The model of a configuration, ready to answer."""
    _check_pinned(config)
    if config.backend in ("hf", "vllm"):
        found = {name: weights_folder(path) for name, path in config.adapters.items()}
        config = msgspec.structs.replace(config, adapters=found)
    if config.backend == "hf":
        return _load_hf(config)
    if config.backend == "vllm":
        from dssr.models.vllm import load_vllm

        return load_vllm(config)
    if config.backend == "server":
        from dssr.models.server import load_server

        return load_server(config)
    from dssr.models.scripted import ScriptedModel

    return ScriptedModel(config.retention, config.context_length)


def _check_pinned(config: ModelConfig) -> None:
    """A hub name without a revision is another model tomorrow."""
    if not config.pinned or config.revision is not None or config.backend not in ("hf", "vllm"):
        return
    folder = weights_folder(config.path)
    if folder == config.path and not Path(folder).is_dir():
        raise ModelError(
            f"{config.path} is pinned and has no revision: name the commit of its weights as `revision`, which the "
            "model's page lists under its files, or set pinned = false."
        )


def load_models(config: Config) -> tuple[Model, Model]:
    """Writer and reader, behind the configured response cache; one and the same object if they share a base."""
    cache = open_cache(config)
    writer: Model = CachedModel(load_model(config.writer_model), cache)
    if config.reader_model is None or config.reader_model == config.writer_model:
        return writer, writer
    return writer, CachedModel(load_model(config.reader_model), cache)


def open_cache(config: Config) -> Cache | None:
    """The response cache of a configuration; None when it is switched off."""
    if config.cache_gib <= 0:
        return None
    return Cache(Path(config.data) / "cache", int(config.cache_gib * 2**30))


def load_tokenizer(name: str, revision: str | None = None) -> Tokenizer:
    """The tokenizer of a tier, folder or hub name, without weights."""
    if name == SCRIPTED:
        from dssr.models.scripted.model import WordTokenizer

        return WordTokenizer()
    from dssr.models.tokenizers import open_tokenizer

    return open_tokenizer(weights_folder(name), name, revision)


def weights_folder(path: str) -> str:
    """Where the weights of a tier or one of its adapters lie; folders and hub names stand for themselves."""
    tier, _, part = path.partition("/")
    for found in entry_points(group=TIERS, name=tier):
        return str(found.load()(part))
    if tier in PLUGGED and not Path(path).exists():
        raise ModelError(f"The tier {tier} is not installed: {PLUGGED[tier]}.")
    return path


def cache_home() -> Path:
    """Where weights are kept that were made from others: $DSSR_HOME, or `dssr` in the user's cache folder."""
    if home := os.environ.get("DSSR_HOME"):
        return Path(home)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dssr"


def cached_folder(name: str, fill: Callable[[Path], None]) -> Path:
    """A folder of the user's cache that `fill` makes once: it appears whole or not at all, also when two processes ask
    for it at once. Put a digest of what it is made from into its name, so that other content is another folder."""
    folder = cache_home() / name
    if folder.is_dir():
        return folder
    draft = folder.with_name(f".{name}.{secrets.token_hex(4)}.part")
    try:
        draft.mkdir(parents=True)
        fill(draft)
        draft.rename(folder)
    except OSError as error:
        if not folder.is_dir():  # else another process has made it meanwhile
            raise ModelError(f"{folder} cannot be made ({error}); set DSSR_HOME to a folder with room.") from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return folder


def _load_hf(config: ModelConfig) -> Model:
    from dssr.models.engine.checkpoint import load_hf

    return load_hf(config, weights_folder(config.path))
