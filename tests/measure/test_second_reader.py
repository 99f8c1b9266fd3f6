"""A second reader with a tokenizer of its own reads the states of the first: budgets are counted by one tokenizer."""

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from dssr.agent.episode import play_job
from dssr.agent.leaks import Watch
from dssr.config import AgentConfig, Config, ModelConfig, ReaderConfig
from dssr.errors import ConfigError
from dssr.measure.audit import audit_episode
from dssr.models.scripted import ScriptedModel
from dssr.models.scripted.model import WordTokenizer
from dssr.session import Session
from dssr.types import Cell, Job, Played

BUDGET = 64
WRITTEN = ("lastk", "oracle-b", "summary")


class Letters:
    """Every character is a token: about five times as many as words."""

    name = "letters"

    def encode(self, text: str) -> list[int]:
        return [ord(letter) for letter in text]

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(map(chr, ids))


class SecondReader(ScriptedModel):
    """Reads as the first does, and counts otherwise."""

    @property
    def tokenizer(self) -> Any:
        return Letters()

    def fingerprint(self, adapter: str | None = None) -> str:
        return "second"


def played_with(bench: Any, memory: str, reader: ScriptedModel, config: Config) -> tuple[Played, Sequence[Any]]:
    """One episode whose actions are the reference's, so that only the tokenizer can tell two readers apart."""
    game = next(game.id for game in bench.archive.games("valid") if game.level == 6)
    job = Job(game, Cell(memory, BUDGET, 10, "post"), seed=0, temperature=0.0, epsilon=0.0, driver="reference")

    async def go() -> tuple[Played, Sequence[Any]]:
        writer = ScriptedModel(0.93, 65536)
        async with Session(config, archive=bench.archive, models=(writer, reader)) as session:
            agent = session.agent([job])
            played = await play_job(job, agent)
            with agent.worlds.playing(game) as world:
                goal = world.goal
            return played, await audit_episode(played, goal, agent, config.measure, Watch("", ""))

    return asyncio.run(go())


def second_of(config: Config) -> Config:
    """The configuration under the second reader, as the shipped `-r2` files say it."""
    return msgspec.structs.replace(
        config,
        reader_model=ModelConfig(backend="scripted", path="letters", context_length=65536),
        agent=msgspec.structs.replace(config.agent, budget_tokenizer="scripted"),
    )


@pytest.mark.parametrize("memory", WRITTEN)
def test_both_readers_read_the_same_states(bench: Any, memory: str) -> None:
    """Catches budgets counted by whichever reader reads: 64 words would become 64 letters, another text.

    A state of 40 words or more has well over 64 letters, so the letter count proves that letters did not cut it."""
    first, audited = played_with(bench, memory, ScriptedModel(0.93, 65536), bench.config)
    second, again = played_with(bench, memory, SecondReader(0.93, 65536), second_of(bench.config))
    states = [step.write.state for step in first.steps]
    assert [step.write.state for step in second.steps] == states
    assert max(len(WordTokenizer().encode(state)) for state in states) <= BUDGET
    assert max(len(state) for state in states) > BUDGET
    # The hindsight states of the audit are states too.
    assert [audit.oracle_state for audit in again] == [audit.oracle_state for audit in audited]
    assert max(len(audit.oracle_state) for audit in again) > BUDGET


def test_without_the_setting_the_reader_counts(bench: Any) -> None:
    """Catches a setting that is ignored: unset, the second reader's own tokenizer cuts, to 64 letters."""
    config = second_of(bench.config)
    plain = msgspec.structs.replace(config, agent=AgentConfig(memories=("lastk",), budgets=(BUDGET,)))
    played, _ = played_with(bench, "lastk", SecondReader(0.93, 65536), plain)
    assert 0 < max(len(step.write.state) for step in played.steps) <= BUDGET
    assert config.counts_with == "scripted"
    assert plain.counts_with == "letters"


def test_the_bare_base_is_not_taken_for_the_trained_reader(bench: Any) -> None:
    """Catches a diagnosis whose reader was never trained although the configuration means a trained one; a plan and the
    reader's own training say that they start from the bare model."""
    config = msgspec.structs.replace(bench.config, reader=ReaderConfig(trained=True))
    models = (ScriptedModel(0.93, 65536), ScriptedModel(0.93, 65536))
    with pytest.raises(ConfigError, match=r"none is named: make one with `dssr reader train`, put .*\.$"):
        bench.diagnose("bare-reader", config)
    assert not (bench.folder / "runs" / "bare-reader").exists()
    assert Session(config, archive=bench.archive, models=models, bare_reader=True).agent()
