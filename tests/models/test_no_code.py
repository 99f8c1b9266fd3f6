"""Weights are data: nothing that lies in their folder is run."""

import ast
import builtins
import json
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from dssr.config import ModelConfig
from dssr.errors import ModelError
from dssr.models.load import load_model
from dssr.models.tokenizers import open_tokenizer

ROOT, PARTS = Path(__file__).parents[2], ("src", "nano/src", "benchmarks", "examples", "tools")
LOADERS = ("from_pretrained", "from_config", "AsyncEngineArgs")
PLAIN = ("PeftModel",)
"""Adapters are settings and tensors; peft's loader knows no code of theirs."""


def hostile(folder: Path, tiny: Path, **settings: Any) -> Path:
    """A copy of the tiny model that asks for code of its own, which leaves a file behind when it is run."""
    shutil.copytree(tiny, folder)
    (folder / "evil.py").write_text(f"open({str(folder / 'ran')!r}, 'w').close()\n")
    for name, fields in (
        ("config.json", {"auto_map": {"AutoConfig": "evil.Evil", "AutoModelForCausalLM": "evil.Evil"}, **settings}),
        ("tokenizer_config.json", {"auto_map": {"AutoTokenizer": [None, "evil.Evil"]}, "tokenizer_class": "Evil"}),
    ):
        file = folder / name
        file.write_text(json.dumps(json.loads(file.read_text()) | fields))
    return folder


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Questions on standard input; each is answered with yes, as a pipe might."""
    questions: list[str] = []

    def answer(question: str = "") -> str:
        questions.append(question)
        return "y"

    monkeypatch.setattr(builtins, "input", answer)
    return questions


def test_the_engine_runs_no_code_of_a_checkpoint(tmp_path: Path, tiny: Path, asked: list[str]) -> None:
    """Catches a model folder whose own code is run, or a question about it: `yes |` would answer that."""
    folder = hostile(tmp_path / "model", tiny, model_type="evil")
    with pytest.raises(ModelError, match=r"No model could be read from .*\.$"):
        load_model(ModelConfig(backend="hf", path=str(folder), dtype="float32", device="cpu"))
    assert not asked
    assert not (folder / "ran").exists()


def test_a_tokenizer_runs_no_code(tmp_path: Path, tiny: Path, asked: list[str]) -> None:
    """Catches a tokenizer folder whose own code is run; its tokenizer.json may be read without it."""
    folder = hostile(tmp_path / "model", tiny)
    with suppress(ModelError):
        open_tokenizer(folder, "evil")
    assert not asked
    assert not (folder / "ran").exists()


def test_training_runs_no_code_of_its_base(tmp_path: Path, tiny: Path, asked: list[str]) -> None:
    """Catches the trainers' loader, which is another call than the engine's."""
    pytest.importorskip("trl")
    from dssr.training.fit import Fit, load_base

    folder = hostile(tmp_path / "model", tiny, model_type="evil")
    fit = Fit(str(folder), 0, tmp_path, tmp_path / "out", rate=0.1, epochs=1, batch=1, warmup=0.0, rank=2, alpha=4)
    with pytest.raises(ModelError, match="No model could be read"):
        load_base(fit)
    assert not asked
    assert not (folder / "ran").exists()


def test_every_loader_is_told_to_run_no_code() -> None:
    """Catches the next call that forgets it: the library's own default is to ask."""
    found = 0
    for file in (file for part in PARTS for file in (ROOT / part).rglob("*.py")):
        for call in ast.walk(ast.parse(file.read_text())):
            if not isinstance(call, ast.Call) or ast.unparse(call.func).split(".")[-1] not in LOADERS:
                continue
            if ast.unparse(call.func).split(".")[0] in PLAIN:
                continue
            found += 1
            settings = {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords}
            assert settings.get("trust_remote_code") == "False", f"{file.name}: {ast.unparse(call)}"
    assert found >= 9
