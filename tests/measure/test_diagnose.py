"""Whole diagnoses: interrupted and continued, with failures, planned, judged."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.sessions import open_agent
from tests.tiny import make_tiny

from dssr.config import MeasureConfig, ModelConfig, ProtocolConfig
from dssr.errors import ConfigError, ModelError, RecordError, StatsError, UsageError
from dssr.measure.comparisons import contrast_rows
from dssr.measure.diagnose import measure_grid
from dssr.measure.gates import Case, best_prompted, checks_of
from dssr.measure.grid import cells_of, grid_of, jobs_of
from dssr.measure.plan import Rates, plan_grid, totals
from dssr.measure.rows import cell_rows
from dssr.measure.study import Study
from dssr.models.base import Choose, Chosen, Generate, Generated, Model
from dssr.models.engine.hf import HFModel
from dssr.models.engine.network import Rows
from dssr.models.load import load_model
from dssr.models.scripted import ScriptedModel
from dssr.record.run import Run
from dssr.session import Session
from dssr.types import Audit, Grid, Standing
from dssr.worlds.archive import Worlds

LOGS = ("episodes", "steps", "audits", "prompts")
SMALL: dict[str, Any] = {"memories": ["full", "lastk", "summary"], "budgets": [16, 64], "fillers": [0]}


class Stopped(Exception):
    """Stands for a kill between two episodes."""


class Faulty(ScriptedModel):
    """Breaks on the prompts that hold a given text, as a server might."""

    def __init__(self, text: str, hot: bool = False) -> None:
        super().__init__(0.9, 65536)
        self.text = text
        self.hot = hot

    async def generate(self, request: Generate) -> Generated:
        if self.text in request.messages[-1].content and (not self.hot or request.temperature > 0):
            raise ModelError("the line went dead")
        return await super().generate(request)


def continue_until(path: Path, bench: Any, stop: int | None) -> None:
    """Work on the run in `path`, as `dssr diagnose --resume` does, and break off after `stop` more episodes."""
    config, model = bench.levels(1), ScriptedModel(0.9, 65536)
    grid = grid_of(config, bench.archive, **SMALL)
    first: int | None = None

    def stopping(here: Standing) -> None:
        nonlocal first
        first = here.done if first is None else first
        if stop is not None and here.done >= first + stop:
            raise Stopped

    async def go() -> None:
        async with Session(config, stopping, bench.archive, (model, model)) as session:
            await measure_grid(session, grid, path, resume=True)

    asyncio.run(go())


def test_interrupted_runs_end_the_same(bench: Any) -> None:
    """Broken off after every few episodes and continued, the logs are byte for byte those of an undisturbed run:
    catches lines in finishing order, lines written twice, and prompts chosen anew after a restart."""
    whole, parts = bench.folder / "whole", bench.folder / "parts"
    continue_until(whole, bench, None)
    for stop in (1, 2, 3):
        with pytest.raises(Stopped):
            continue_until(parts, bench, stop)
    continue_until(parts, bench, None)
    for log in LOGS:
        assert (parts / f"{log}.jsonl").read_bytes() == (whole / f"{log}.jsonl").read_bytes(), log
    episodes = (whole / "episodes.jsonl").read_text().splitlines()
    assert len(episodes) == 2 * 5


def test_other_settings_are_not_continued(bench: Any, diagnosed: Run) -> None:
    """A run directory of another question is refused, finished or not."""
    with pytest.raises(RecordError):
        bench.diagnose("shared", lag=True)


def test_a_failed_episode_is_no_loss(bench: Any) -> None:
    """One game whose writer breaks down is counted as an error, leaves the means of the others alone, and any
    comparison that would need it names it."""
    config = bench.levels(1)
    word = _own_word(bench, "valid-1-001", "valid-1-000")
    run = bench.diagnose("faulty", config, Faulty(word), memories=["full", "summary"], budgets=[64], fillers=[0])
    study = Study.load([run])
    full, summary = cell_rows(study)
    assert (summary.games, summary.errors, full.errors) == (1, 1, 0)
    assert summary.success is not None
    assert summary.success.estimate in (0.0, 1.0)
    assert run.summary is not None
    assert run.summary["errors"] == 1
    problem = contrast_rows(study)[0].problem
    assert problem is not None
    assert "only full has valid-1-001" in problem


def test_a_failed_audit_is_no_zero(bench: Any) -> None:
    """An audit that breaks leaves the episode standing, its regret missing and the trouble written down."""
    config = bench.levels(1)
    run = bench.diagnose("hot", config, Faulty("", hot=True), memories=["summary"], budgets=[64], fillers=[0])
    row = cell_rows(Study.load([run]))[0]
    assert (row.games, row.errors, row.kappa, row.points) == (2, 0, None, 0)
    assert run.summary is not None
    assert run.summary["problems"] == 2


def _own_word(bench: Any, game: str, other: str) -> str:
    """A word that only this game's first observation holds."""
    worlds, texts = Worlds(bench.archive), []
    for one in (game, other):
        with worlds.playing(one) as world:
            moment = world.start().moment
            texts.append((moment.observation, " ".join(moment.privileged.entities)))
    worlds.close()
    (own, _), (first, things) = texts
    return sorted(set(own.split()) - set(f"{first} {things}".split()), key=len)[-1]


def test_only_what_was_asked(bench: Any) -> None:
    """The grid has one cell per memory, budget and filler, `full` without budgets, games limited per room count."""
    ask = grid_of(bench.config, bench.archive, memories=["full", "summary"], budgets=[64, 128], fillers=[0, 5], games=1)
    cells = cells_of(ask, bench.config)
    assert [(cell.memory, cell.budget, cell.filler) for cell in cells] == [
        ("full", None, 0),
        ("full", None, 5),
        ("summary", 64, 0),
        ("summary", 64, 5),
        ("summary", 128, 0),
        ("summary", 128, 5),
    ]
    assert ask.games == ("valid-6-000",)
    for bad in ({"budgets": [0]}, {"fillers": [-1]}, {"games": 0}):
        with pytest.raises(UsageError):
            grid_of(bench.config, bench.archive, **bad)


def test_an_unknown_memory_is_refused_before_anything_is_written(bench: Any) -> None:
    """A misspelt memory must not leave a run directory behind."""
    with pytest.raises(ConfigError, match="sumary"):
        bench.diagnose("misspelt", memories=["sumary"])
    assert not (bench.folder / "runs" / "misspelt").exists()


class Counting(ScriptedModel):
    """Counts its calls."""

    def __init__(self) -> None:
        super().__init__(1.0, 65536)
        self.calls = 0

    async def generate(self, request: Generate) -> Generated:
        self.calls += 1
        return await super().generate(request)

    async def choose(self, request: Choose) -> Chosen:
        self.calls += 1
        return await super().choose(request)


def test_plan_counts_the_calls(bench: Any) -> None:
    """With a reader that plays the optimal plan, the calls made are the calls planned, within what equal oracle
    samples save; prices and rates turn tokens into cost and hours."""
    config, model = bench.levels(1), Counting()
    ask = grid_of(config, bench.archive, memories=["full"], fillers=[0])
    with open_agent(config, bench.archive, model, jobs_of(ask, config)) as agent:
        loads = plan_grid(ask, config, agent)
    bench.diagnose("counted", config, model, memories=["full"], fillers=[0])
    assert [load.work for load in loads] == ["decisions"]
    assert model.calls == loads[0].calls
    total = totals(loads, Rates(read=100.0, write=10.0, price_in=2.0, price_out=8.0))
    assert total["hours"] == pytest.approx(loads[0].computed_in / 100 / 3600)
    assert total["cost"] == pytest.approx(loads[0].tokens_in * 2e-6)
    assert totals(loads, Rates())["hours"] is None


def test_plan_knows_shared_walks(bench: Any) -> None:
    """Phase A of a shorter walk is written once: its calls are planned, but neither as new ones nor with tokens, which
    hours and cost follow from."""
    model = ScriptedModel(0.9, 65536)
    ask = grid_of(bench.config, bench.archive, memories=["summary"], budgets=[64], fillers=[0, 10], games=1)
    one = grid_of(bench.config, bench.archive, memories=["summary"], budgets=[64], fillers=[0], games=1)

    def writes(asked: Grid) -> Any:
        with open_agent(bench.config, bench.archive, model, jobs_of(asked, bench.config)) as agent:
            return next(load for load in plan_grid(asked, bench.config, agent) if load.work == "state writes")

    assert writes(one).new_calls == writes(one).calls
    assert writes(ask).new_calls < writes(ask).calls
    assert writes(ask).tokens_out == 64 * writes(ask).new_calls
    longer = msgspec.structs.replace(one, fillers=(10,))
    assert writes(longer).tokens_in < writes(ask).tokens_in < writes(longer).tokens_in + writes(one).tokens_in


def test_plan_counts_what_is_computed(bench: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches hours that follow from whole prompts though most of their beginnings are computed once: hindsight
    samples of one history made the plan of a study eight times too long. The tokens that the engine reads are compared
    with the planned ones; only the lengths of states, which a random model fills to the budget, are left to chance."""
    config = msgspec.structs.replace(
        bench.levels(1),
        protocol=ProtocolConfig(fillers=(0,), max_actions=4),
        measure=MeasureConfig(points=2, oracle_samples=4),
    )
    model = reload(make_tiny(tmp_path / "tiny"))
    assert isinstance(model, HFModel)
    read, forward = [0], model.packed.forward

    def counted(rows: Rows, wanted: int = 0) -> Any:
        read[0] += len(rows) * (rows.tables.ndim == 1)  # those of a prompt
        return forward(rows, wanted)

    monkeypatch.setattr(model.packed, "forward", counted)
    grid = grid_of(config, bench.archive, memories=["full", "summary"], budgets=[32], games=1, lag=True)
    with open_agent(config, bench.archive, model, jobs_of(grid, config)) as agent:
        total = totals(plan_grid(grid, config, agent), Rates())
    bench.diagnose("computed", config, model, memories=["full", "summary"], budgets=[32], games=1, lag=True)
    assert total["computed_in"] is not None
    assert total["tokens_in"] is not None
    assert 0.5 < total["computed_in"] / read[0] < 2
    assert total["tokens_in"] > 3 * read[0]


def test_a_history_that_does_not_fit_is_refused_by_name(bench: Any) -> None:
    """Before the run starts, with the game and the length."""
    model = ScriptedModel(0.9, context_length=500)
    ask = grid_of(bench.config, bench.archive, memories=["summary"], fillers=[10], games=1)
    with (
        open_agent(bench.config, bench.archive, model, jobs_of(ask, bench.config)) as agent,
        pytest.raises(ModelError, match="history of valid-6-000 makes a reader prompt of"),
    ):
        plan_grid(ask, bench.config, agent)


def test_gates_on_a_run(diagnosed: Run) -> None:
    """Gates find their columns, or say what is missing and how to get it."""
    study = Study.load([diagnosed])
    assert best_prompted(study) in ("summary", "guide")
    assert [len(checks_of(gate, Case(study)).checks) for gate in ("G0", "G1a", "G1b")] == [2, 3, 1]
    assert "9 cells" in checks_of("G1b", Case(study)).checks[0].what
    assert "of 2 formats" in checks_of("G1a", Case(study)).notes[0]
    swapped = Case(study, dssr="guide", outcome="summary", one_target="summary", no_hint="summary", second=study)
    for gate, count in (("G2a", 3), ("G2b", 2), ("G2c", 2), ("plain", 2)):
        assert len(checks_of(gate, swapped).checks) == count
    for gate in ("G2d", "G2e"):
        found = checks_of(gate, swapped)
        assert len(found.checks) == (1 if found.vacuous else 2)
    with pytest.raises(UsageError, match="--dssr"):
        checks_of("G2c", Case(study))
    with pytest.raises(StatsError, match="dssr continuation"):
        checks_of("G1c", Case(study))
    with pytest.raises(StatsError, match="slots at 64 tokens is not in these runs"):
        checks_of("G2c", Case(study, dssr="slots", one_target="summary"))


def test_a_real_model(bench: Any, tmp_path: Path) -> None:
    """The same path with a real (tiny, random) transformer: the identity holds at every point, the losses are a
    language model's, and auditing in one batch with everything else equals auditing alone."""
    folder = make_tiny(tmp_path / "tiny")
    config = msgspec.structs.replace(
        bench.levels(1),
        protocol=ProtocolConfig(fillers=(0,), max_actions=3),
        measure=MeasureConfig(points=2, oracle_samples=2),
    )
    run = bench.diagnose("tiny", config, reload(folder), memories=["summary", "lastk"], budgets=[16], games=1)
    audits = list(run.read("audits", Audit))
    assert len(audits) == 4
    for one in audits:
        assert one.delta == pytest.approx(one.beta + one.kappa, abs=1e-12)
        assert one.nll_full > 0
    again = bench.diagnose("tiny-alone", config, reload(folder), memories=["summary"], budgets=[16], games=1)
    assert list(again.read("audits", Audit)) == audits[:2]


def reload(folder: Path) -> Model:
    return load_model(ModelConfig(backend="hf", path=str(folder), dtype="float32", device="cpu", context_length=8192))
