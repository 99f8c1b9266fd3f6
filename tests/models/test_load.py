"""Models whose weights wait: the same answers, fingerprints and token counts, and no torch where all is stored."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from dssr.config import Config, ModelConfig, load
from dssr.errors import RecordError
from dssr.models.base import Choose, Chosen, Generate, Generated, Message, Model
from dssr.models.cache import CachedModel
from dssr.models.load import DeferredModel, bare, load_model, load_models

PROMPT = (Message("system", "You keep notes."), Message("user", "Take the <|im_end|> knife.\nOptions: A B"))
WRITE = Generate(PROMPT, 6, 1.0, seed=3, adapter="first")
TEXT = "An ordinary line, naïve, with <|im_end|> in it."
HEAVY = "sorted({name.split('.')[0] for name in sys.modules} & {'torch', 'transformers', 'peft'})"


@pytest.fixture
def config(tiny: Path, tiny_adapters: dict[str, str], tmp_path: Path) -> Config:
    model = ModelConfig(
        backend="hf", path=str(tiny), dtype="float32", device="cpu", threads=1, adapters=dict(tiny_adapters)
    )
    return msgspec.structs.replace(load("scripted"), writer_model=model, reader_model=None, data=str(tmp_path))


@contextmanager
def opened(config: Config) -> Iterator[Model]:
    model, reader = load_models(config)
    assert model is reader
    try:
        yield model
    finally:
        asyncio.run(model.close())


def waits(model: Model) -> bool:
    assert isinstance(model, CachedModel)
    return isinstance(model.model, DeferredModel) and model.model._model is None


def adapter_of(config: Config) -> str:
    return sorted(config.writer_model.adapters)[0]


async def answers(model: Model, adapter: str) -> tuple[Generated, Chosen, int]:
    write = msgspec.structs.replace(WRITE, adapter=adapter)
    written, chosen = await model.generate(write), await model.choose(Choose(PROMPT, ("A", "B")))
    return written, chosen, model.prompt_tokens(PROMPT)


def test_a_repeat_answers_the_same_and_reads_no_weights(config: Config) -> None:
    """Catches a second run that loads a model for nothing, or that counts tokens or fingerprints otherwise."""
    adapter = adapter_of(config)
    with opened(config) as first:
        assert not isinstance(first, DeferredModel)
        said = asyncio.run(answers(first, adapter))
        facts = [(first.fingerprint(name), first.context_length, first.name) for name in (None, adapter)]
        ids = first.tokenizer.encode(TEXT)
        text = first.tokenizer.decode(ids)
    with opened(config) as again:
        assert asyncio.run(answers(again, adapter)) == said
        assert [(again.fingerprint(name), again.context_length, again.name) for name in (None, adapter)] == facts
        assert again.tokenizer.encode(TEXT) == ids
        assert again.tokenizer.decode(ids) == text
        assert waits(again)


def test_a_miss_reads_the_weights_and_answers_as_the_model_does(config: Config) -> None:
    """Catches a waiting model that cannot be woken, or that answers otherwise once it is."""
    with opened(config):
        pass
    new = Choose((*PROMPT, Message("user", "Now choose.")), ("A", "B", "C"))
    with opened(config) as waiting:
        assert waits(waiting)
        said = asyncio.run(waiting.choose(new))
        assert not waits(waiting)
    alone = load_model(config.writer_model)
    assert asyncio.run(alone.choose(new)) == said
    asyncio.run(alone.close())


def test_other_weights_settings_or_variables_are_loaded_anew(
    config: Config, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches a fingerprint taken over from files, settings or kernels that are not those of now."""
    with opened(config):
        pass
    copy = tmp_path / "copy"
    copy.mkdir()
    for file in tiny.iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    bare_model = msgspec.structs.replace(config.writer_model, path=str(copy), adapters={})
    moved = msgspec.structs.replace(config, writer_model=bare_model)
    with opened(moved) as model:
        before = model.fingerprint()
    content = (copy / "tokenizer.json").read_text()
    (copy / "tokenizer.json").write_text(content.replace('"added_tokens"', '"added_tokens" '))
    with opened(moved) as model:
        assert not waits(model)
        assert model.fingerprint() == before  # the file says the same in other bytes
    for change in ({"dtype": "bfloat16"}, {"context_length": 512}):
        other = msgspec.structs.replace(moved, writer_model=msgspec.structs.replace(bare_model, **change))
        with opened(other) as model:
            assert not waits(model)
            assert model.fingerprint() != before
    monkeypatch.setenv("ONEDNN_DEFAULT_FPMATH_MODE", "STRICT")
    with opened(moved) as model:
        assert not waits(model)


def test_a_model_that_changed_or_is_gone_ends_the_run(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches answers of two models under one fingerprint, and a missing model recorded as every episode's error: a
    `ModelError` would be."""
    with opened(config):
        pass
    with opened(config) as waiting:
        monkeypatch.setattr("dssr.models.engine.checkpoint.ENGINE", -1)
        with pytest.raises(RecordError, match="no longer computes as it did"):
            bare(waiting)
    monkeypatch.undo()
    with opened(config) as waiting:
        assert isinstance(waiting, CachedModel)
        config.writer_model.adapters["missing"] = "nowhere"
        with pytest.raises(RecordError, match="does not load"):
            bare(waiting)


def test_a_repeat_imports_no_torch(config: Config, tmp_path: Path) -> None:
    """Catches an import that costs a repeat more than all of its own work."""
    code = (
        "import asyncio, sys, msgspec, pathlib\n"
        "from dssr.config import Config\n"
        "from dssr.models.load import load_models\n"
        "from dssr.models.base import Choose, Message\n"
        "config = msgspec.json.decode(pathlib.Path(sys.argv[1]).read_bytes(), type=Config)\n"
        "model, _ = load_models(config)\n"
        "ask = Choose((Message('user', 'Choose.'),), ('A', 'B'))\n"
        "print(asyncio.run(model.choose(ask)).logprobs, model.prompt_tokens(ask.messages), model.fingerprint(),\n"
        "      model.tokenizer.encode('a knife'))\n"
        f"print({HEAVY})\n"
        "asyncio.run(model.close())\n"
    )
    file = tmp_path / "config.json"
    file.write_bytes(msgspec.json.encode(config))
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    calls = [[sys.executable, "-c", code, str(file)] for _ in range(2)]
    first, again = (subprocess.check_output(call, env=environment, text=True).splitlines() for call in calls)
    assert again[0] == first[0]
    assert "torch" in first[1]
    assert again[1] == "[]"
