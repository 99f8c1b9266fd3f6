"""A tiny checkpoint and its adapters, good and bad, and the prompts it is asked."""

from pathlib import Path

from tests.tiny import make_adapter, make_tiny

from dssr.models.base import Message

CONTEXT = 1024
WORKING = ("first", "second")
ADAPTERS = (*WORKING, "broken")
"""`broken` holds values that are not numbers."""
MODELS = (None, *WORKING)
PROMPTS = [
    (Message("system", "Answer with a letter."), Message("user", f"Room {n}. " + "You see a fridge. " * (1 + 3 * n)))
    for n in range(8)
]


def make_checkpoint(folder: Path) -> Path:
    """Writes `base`, its adapters, and `foreign`, an adapter of another base; returns the folder."""
    # vLLM's attention on a CPU takes heads of 32 and more.
    make_tiny(folder / "base", hidden=128)
    for seed, name in enumerate(ADAPTERS, start=1):
        make_adapter(folder / name, folder / "base", seed)
    _spoil(folder / "broken" / "adapter_model.safetensors")
    make_adapter(folder / "foreign", make_tiny(folder / "other", hidden=64), seed=1)
    return folder


def _spoil(file: Path) -> None:
    from safetensors.torch import load_file, save_file

    tensors = load_file(file)
    for tensor in tensors.values():
        tensor.fill_(float("nan"))
    save_file(tensors, file, metadata={"format": "pt"})
