"""LoRA adapters on one base model: safetensors only, checked against the base before they are loaded."""

import hashlib
import json
import math
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from dssr.errors import ModelError
from dssr.seeds import digest_of

WEIGHTS = "adapter_model.safetensors"
SETTINGS = "adapter_config.json"
STAMP = "dssr_base.json"
PREFIX = "base_model.model."
"""Of every tensor that peft saves; it leaves out, without a word, what is named otherwise."""
PLAIN = frozenset(
    {
        *("r", "lora_alpha", "target_modules", "peft_type", "init_lora_weights", "bias"),
        *("base_model_name_or_path", "revision", "task_type", "auto_mapping", "peft_version"),
        *("lora_dropout", "inference_mode", "megatron_core", "qalora_group_size", "loftq_config", "runtime_config"),
    }
)
"""Settings of plain LoRA: checked one by one, or without effect once an adapter is trained. Every other is a variant
that changes the arithmetic (or may, in a version to come) and must be off, as our backends do not all apply it alike.
"""
INITIAL = (None, True, False, "gaussian")
"""Ways to start that leave the base as it is; others (`pissa`, `olora`, …) take a part out of it, also on loading."""
NUMBERS = frozenset({"F64", "F32", "F16", "BF16"})


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
    """Writes beside an adapter which base weights it was trained on, so that no other base is used with it, and what
    its files hold, so that an altered one is not taken for it."""
    files = {name: file_digest(folder / name) for name in (SETTINGS, WEIGHTS)}
    (folder / STAMP).write_text(json.dumps({"weights": weights, "files": files}) + "\n")


class Adapters:
    """The adapters of one base and which of them is in force."""

    def __init__(self, model: Any, base: str, weights: str, folders: Mapping[str, str]) -> None:
        self._peft: Any = None
        self._internal: dict[str, str] = {}
        self._digests: dict[str, str] = {}
        self._shapes: dict[str, str] = {}
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

    @property
    def shapes(self) -> dict[str, str]:
        """Of every shape, rank and layers, one adapter's name: those of one shape are computed alike."""
        return {shape: name for name, shape in reversed(self._shapes.items())}

    @property
    def inner(self) -> dict[str, str]:
        """Each adapter's name and peft's own name for it."""
        return dict(self._internal)

    def let_go(self) -> None:
        """Forgets the network, when its weights were copied: names and digests stay."""
        self._peft = None

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
        settings = json.loads((folder / SETTINGS).read_text())
        targets = settings["target_modules"]
        layers = [targets] if isinstance(targets, str) else sorted(targets)
        self._shapes[name] = f"rank {settings['r']} on {' '.join(layers)}"


def check_adapter(folder: Path, name: str, model: Any, base: str, weights: str) -> None:
    """Refuses an adapter that is not plain LoRA in safetensors, not of these base weights, or not whole."""
    if not (folder / SETTINGS).is_file():
        raise ModelError(f"Adapter {name}: {folder} holds no {SETTINGS}; give the folder of a saved LoRA adapter.")
    if not (folder / WEIGHTS).is_file():
        raise ModelError(f"Adapter {name}: {folder} holds no {WEIGHTS}; only safetensors adapters are loaded.")
    try:
        settings = json.loads((folder / SETTINGS).read_text())
        trained_on = str(settings.get("base_model_name_or_path"))
    except (OSError, ValueError, AttributeError, RecursionError) as error:
        raise ModelError(
            f"Adapter {name}: the settings in {folder} cannot be read ({error}); save it again."
        ) from error
    _check_settings(settings, name)
    stranger = _hub_name(trained_on) and _hub_name(base) and trained_on != base
    if stranger or not fits_base(folder, weights):
        raise ModelError(f"Adapter {name} was trained on {trained_on}, not on the weights of {base}; use its own base.")
    _check_tensors(folder, name, model, base, settings)


def _check_settings(settings: Mapping[str, Any], name: str) -> None:
    """Refuses whatever is not plain LoRA, by the name of the setting."""
    if settings.get("peft_type") != "LORA":
        raise ModelError(f"Adapter {name} is not a plain LoRA adapter; dssr loads no other kind.")
    wrong = sorted(key for key, value in settings.items() if key not in PLAIN and value)
    if settings.get("bias", "none") != "none":
        wrong.append("bias")
    initial = settings.get("init_lora_weights")
    if not any(initial is one or (isinstance(initial, str) and initial == one) for one in INITIAL):
        wrong.append("init_lora_weights")
    if wrong:
        raise ModelError(
            f"Adapter {name} sets {wrong[0]} to {json.dumps(settings[wrong[0]])[:80]}, which is not plain LoRA; "
            "dssr loads no other kind."
        )
    rank, alpha, targets = (settings.get(key) for key in ("r", "lora_alpha", "target_modules"))
    if type(rank) is not int or rank < 1:
        raise ModelError(f"Adapter {name} has the rank (r) {rank!r}, which must be a whole number from 1 on.")
    if isinstance(alpha, bool) or not isinstance(alpha, int | float) or not math.isfinite(alpha):
        raise ModelError(f"Adapter {name} has the lora_alpha {alpha!r}, which must be a number.")
    if not isinstance(targets, str) and not (
        isinstance(targets, list) and all(isinstance(one, str) for one in targets)
    ):
        raise ModelError(f"Adapter {name} has target_modules that are no list of layer names; save it again.")


def fits_base(folder: Path, weights: str) -> bool:
    """Whether the adapter's stamp names these base weights; one without a stamp is given the benefit of the doubt.

    One whose files are not those of the stamp is refused.
    """
    file = folder / STAMP
    if not file.is_file():
        return True
    try:
        stamp = json.loads(file.read_text())
        # Those of before say nothing of the files.
        altered = [name for name, digest in stamp.get("files", {}).items() if file_digest(folder / name) != digest]
        fits = bool(stamp["weights"] == weights)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ModelError(f"The stamp {file} cannot be read ({error}); save the adapter again.") from error
    if altered:
        raise ModelError(f"{folder / altered[0]} was altered since the adapter was saved; restore it from a copy.")
    return fits


def _hub_name(text: str) -> bool:
    return text.count("/") == 1 and not text.startswith((".", "/")) and not Path(text).exists()


def _check_tensors(folder: Path, name: str, model: Any, base: str, settings: Mapping[str, Any]) -> None:
    """Refuses tensors that the settings and the base do not imply, and the want of any that they do: a layer without
    its tensors would run as if it had not been trained."""
    from safetensors import SafetensorError, safe_open

    layers = _layers(model)
    try:
        with safe_open(str(folder / WEIGHTS), framework="pt") as file:
            slices = {key: file.get_slice(key) for key in file.keys()}  # noqa: SIM118
            shapes = {key: tuple(one.get_shape()) for key, one in slices.items()}
            kinds = {key: str(one.get_dtype()) for key, one in slices.items()}
    except (SafetensorError, OSError) as error:
        raise ModelError(f"Adapter {name}: {folder / WEIGHTS} is damaged ({error}); save it again.") from error
    rank, trained_on = settings["r"], settings.get("base_model_name_or_path")
    for key, shape in shapes.items():
        place, _, part = key.removeprefix(PREFIX).partition(".lora_")
        if part not in ("A.weight", "B.weight") or not key.startswith(PREFIX) or kinds[key] not in NUMBERS:
            raise ModelError(f"Adapter {name} holds {key}, which is not part of a plain LoRA adapter.")
        if place.endswith(("lm_head", "embed_tokens")):
            raise ModelError(f"Adapter {name} changes {place}; dssr takes adapters of the layers in between only.")
        side = 1 if part == "A.weight" else 0
        if place not in layers or len(shape) != 2 or shape[side] != layers[place][side]:
            raise ModelError(
                f"Adapter {name} was trained on {trained_on} and does not fit {base} (at {place}); use its own base."
            )
        if shape[1 - side] != rank:
            raise ModelError(
                f"Adapter {name} has rank {shape[1 - side]} at {place}, but its settings say r = {rank}; save it again."
            )
    wanted = {
        f"{PREFIX}{place}.lora_{part}.weight"
        for place in _targeted(layers, settings["target_modules"], name)
        for part in "AB"
    }
    if missing := sorted(wanted - shapes.keys()):
        raise ModelError(
            f"Adapter {name} lacks {len(missing)} of {len(wanted)} tensors that its settings ask for "
            f"(the first is {missing[0]}); it is incomplete, save it again."
        )
    if extra := sorted(shapes.keys() - wanted):
        raise ModelError(
            f"Adapter {name} holds {extra[0]}, a layer that its target_modules do not name; save it again."
        )
    if not wanted:
        raise ModelError(f"Adapter {name} changes no layer of {base}; use its own base.")


def _layers(model: Any) -> dict[str, tuple[int, ...]]:
    """Shapes of the weights of all layers that an adapter may be on; what earlier adapters put there is looked past."""
    found = {}
    for place, module in model.named_modules():
        if ".base_layer" in place or ".lora_" in place:
            continue
        weight = getattr(getattr(module, "base_layer", module), "weight", None)
        if weight is not None and weight.dim() == 2:
            found[place] = tuple(weight.shape)
    return found


def _targeted(layers: Iterable[str], targets: str | list[str], name: str) -> list[str]:
    """The layers that `target_modules` means: ends of names, a pattern for whole names, or all but the head."""
    if isinstance(targets, list):
        return [place for place in layers if any(place == one or place.endswith(f".{one}") for one in targets)]
    if targets == "all-linear":
        return [place for place in layers if not place.endswith(("lm_head", "embed_tokens"))]
    try:
        pattern = re.compile(targets)
    except re.error as error:
        raise ModelError(f"Adapter {name} has target_modules that are no pattern ({error}); save it again.") from None
    return [place for place in layers if pattern.fullmatch(place)]
