"""LoRA adapters on one base model: safetensors only, checked against the base before they are loaded."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dssr.errors import ModelError
from dssr.seeds import digest_of

WEIGHTS = "adapter_model.safetensors"
SETTINGS = "adapter_config.json"
STAMP = "dssr_base.json"


def file_digest(*files: Path) -> str:
    """Digest of the files' contents."""
    digest = hashlib.blake2b(digest_size=16)
    for file in files:
        with file.open("rb") as stream:
            while chunk := stream.read(1 << 22):
                digest.update(chunk)
    return digest.hexdigest()


def weights_digest(folder: str, revision: str | None = None) -> str:
    """Identity of base weights: a folder's, or a downloaded hub model's."""
    path = Path(folder)
    if not path.is_dir():
        from transformers.utils import cached_file

        path = Path(cached_file(folder, "config.json", revision=revision)).parent
    return file_digest(path / "config.json", *sorted(path.glob("*.safetensors")))


def adapter_digest(folder: Path) -> str:
    """Identity of an adapter: its weights and settings, but neither where its base lay nor the order of its layers."""
    settings = json.loads((folder / SETTINGS).read_text())
    settings.pop("base_model_name_or_path", None)
    plain = {name: sorted(value) if isinstance(value, list) else value for name, value in settings.items()}
    return digest_of(plain, file_digest(folder / WEIGHTS))


def stamp_adapter(folder: Path, weights: str) -> None:
    """Writes beside an adapter which base weights it was trained on, so that no other base is used with it."""
    (folder / STAMP).write_text(json.dumps({"weights": weights}) + "\n")


class Adapters:
    """The adapters of one base and which of them is in force."""

    def __init__(self, model: Any, base: str, weights: str, folders: Mapping[str, str]) -> None:
        self._peft: Any = None
        self._internal: dict[str, str] = {}
        self._digests: dict[str, str] = {}
        self._active: str | None = None
        for name in sorted(folders):
            folder = Path(folders[name])
            check_adapter(folder, name, model, base, weights)
            self._load(folder, name, model)
        if self._peft is not None:
            self._peft.base_model.disable_adapter_layers()

    @property
    def names(self) -> list[str]:
        """The loaded adapters."""
        return list(self._digests)

    def digest(self, name: str | None) -> str | None:
        """Digest of an adapter's weights; None for the bare base. Refuses a name that is not loaded."""
        if name is None:
            return None
        if name not in self._digests:
            known = ", ".join(self._digests) or "none"
            raise ModelError(f"Adapter {name} is not loaded (loaded: {known}); name its folder under `adapters`.")
        return self._digests[name]

    def use(self, name: str | None) -> None:
        """Puts an adapter in force, or the bare base."""
        if name == self._active:
            return
        self.digest(name)
        if name is None:
            self._peft.base_model.disable_adapter_layers()
        else:
            if self._active is None:
                self._peft.base_model.enable_adapter_layers()
            self._peft.base_model.set_adapter(self._internal[name], inference_mode=True)
        self._active = name

    def _load(self, folder: Path, name: str, model: Any) -> None:
        from peft import PeftModel

        internal = f"adapter{len(self._internal)}"
        # Without autocasting: adapters run in the base's type, as they were saved.
        if self._peft is None:
            self._peft = PeftModel.from_pretrained(
                model, str(folder), adapter_name=internal, autocast_adapter_dtype=False
            )
        else:
            self._peft.load_adapter(str(folder), adapter_name=internal, autocast_adapter_dtype=False)
        self._peft.to(model.dtype)
        self._peft.eval()
        self._internal[name] = internal
        self._digests[name] = adapter_digest(folder)


def check_adapter(folder: Path, name: str, model: Any, base: str, weights: str) -> None:
    """Refuses an adapter that is not plain LoRA in safetensors, or not of these base weights."""
    if not (folder / SETTINGS).is_file():
        raise ModelError(f"Adapter {name}: {folder} holds no {SETTINGS}; give the folder of a saved LoRA adapter.")
    if not (folder / WEIGHTS).is_file():
        raise ModelError(f"Adapter {name}: {folder} holds no {WEIGHTS}; only safetensors adapters are loaded.")
    try:
        settings = json.loads((folder / SETTINGS).read_text())
        trained_on = str(settings.get("base_model_name_or_path"))
    except (ValueError, AttributeError) as error:
        raise ModelError(
            f"Adapter {name}: the settings in {folder} cannot be read ({error}); save it again."
        ) from error
    if settings.get("peft_type") != "LORA" or settings.get("modules_to_save"):
        raise ModelError(f"Adapter {name} is not a plain LoRA adapter; dssr loads no other kind.")
    stranger = _hub_name(trained_on) and _hub_name(base) and trained_on != base
    if stranger or not fits_base(folder, weights):
        raise ModelError(f"Adapter {name} was trained on {trained_on}, not on the weights of {base}; use its own base.")
    _check_shapes(folder, name, model, base, trained_on)


def fits_base(folder: Path, weights: str) -> bool:
    """Whether the adapter's stamp names these base weights; one without a stamp is given the benefit of the doubt."""
    file = folder / STAMP
    if not file.is_file():
        return True
    try:
        return bool(json.loads(file.read_text())["weights"] == weights)
    except (ValueError, KeyError, TypeError) as error:
        raise ModelError(f"The stamp {file} cannot be read ({error}); save the adapter again.") from error


def _hub_name(text: str) -> bool:
    return text.count("/") == 1 and not text.startswith((".", "/")) and not Path(text).exists()


def _check_shapes(folder: Path, name: str, model: Any, base: str, trained_on: str) -> None:
    from safetensors import SafetensorError, safe_open

    modules = dict(model.named_modules())
    try:
        with safe_open(str(folder / WEIGHTS), framework="pt") as file:
            shapes = {key: tuple(file.get_slice(key).get_shape()) for key in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise ModelError(f"Adapter {name}: {folder / WEIGHTS} is damaged ({error}); save it again.") from error
    for key, shape in shapes.items():
        place, _, part = key.removeprefix("base_model.model.").partition(".lora_")
        module = modules.get(place)
        # An earlier adapter has wrapped the layer: what counts is the layer inside.
        module = getattr(module, "base_layer", module)
        weight = getattr(module, "weight", None)
        if part not in ("A.weight", "B.weight"):
            raise ModelError(f"Adapter {name} holds {key}, which is not part of a plain LoRA adapter.")
        if place.endswith(("lm_head", "embed_tokens")):
            raise ModelError(f"Adapter {name} changes {place}; dssr takes adapters of the layers in between only.")
        side = 1 if part == "A.weight" else 0
        if weight is None or shape[side] != weight.shape[side]:
            raise ModelError(
                f"Adapter {name} was trained on {trained_on} and does not fit {base} (at {place}); use its own base."
            )
