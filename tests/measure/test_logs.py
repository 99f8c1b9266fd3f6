"""Audits of logs: the same numbers as games give, a control that tells, losses that agree, and bad input refused."""

import json
import re
from pathlib import Path

import msgspec
import pytest
from tests.measure.conftest import Bench
from tests.tiny import make_tiny
from tests.traces.logs import CONFIG, Copyist, made_trace, run_audit

import dssr
from dssr.agent.episode import Agent
from dssr.agent.prompts import Reader, load_prompts, render_history
from dssr.config import ModelConfig
from dssr.errors import ModelError, RecordError, UsageError
from dssr.measure.log_audit import Auditor, LogAsk, Schedule
from dssr.measure.log_facts import TracePoint, stratum_rows
from dssr.measure.log_losses import Control, sensitivity
from dssr.measure.logs import Sources
from dssr.measure.rows import cell_rows
from dssr.models.base import Choose, Chosen, Generate, Generated, Likelihood, TokenScores
from dssr.record.log import SITTINGS
from dssr.record.run import Run
from dssr.reports.study_tables import study_tables
from dssr.traces.trace import Redactor, Trace, TraceArchive, TraceDecision, write_traces
from dssr.types import Audit, Episode
from dssr.worlds.archive import Worlds

HOARDER, TIDIER = "tests.traces.logs:Hoarder", "tests.traces.logs:Tidier"
TRACES = [made_trace(number, 1, 5, 8) for number in range(12)]


def test_a_memory_that_keeps_everything_has_no_regret(tmp_path: Path) -> None:
    """Catches regret that comes from the instrument: where memory and hindsight both keep all, kappa is zero but for
    the reader's noise; where the memory forgets, it is not."""
    study = run_audit(TRACES, tmp_path / "run", Copyist(noise=0.05), [HOARDER, TIDIER])
    keeps, forgets = cell_rows(study)
    assert keeps.kappa is not None
    assert keeps.kappa.low <= 0 <= keeps.kappa.high
    assert abs(keeps.kappa.estimate) < 0.5
    assert forgets.kappa is not None
    assert forgets.kappa.low > 3
    for audit in study.runs[0].read("audits", Audit):
        assert audit.delta == pytest.approx(audit.beta + audit.kappa, abs=1e-9)
    assert (study.runs[0].summary or {})["sensitivity"]["sensitive"] is True


def test_a_reader_that_ignores_its_context_is_called_insensitive(tmp_path: Path) -> None:
    """Catches numbers claimed from a reader that does not read: 20 of 20, with noise of its own that a single test
    would now and then take for a response. Facts are told all the same."""
    for number in range(20):
        traces = [made_trace(100 * number + one, 1, 5, 8) for one in range(6)]
        study = run_audit(traces, tmp_path / str(number), Copyist(0.5, blind=True), [TIDIER])
        summary = study.runs[0].summary or {}
        assert summary["sensitivity"]["sensitive"] is False, number
        assert summary["sensitivity"]["sentence"].startswith("Reader insensitive")
        assert summary["answers"] == []
        assert all(row["kappa"] is None for row in summary["cells"])
        assert summary["survival"][0]["dropped"] == 6


def test_too_few_decisions_are_no_test(tmp_path: Path) -> None:
    """Catches a verdict from a single decision."""
    study = run_audit(TRACES[:1], tmp_path / "run", Copyist(), [TIDIER])
    assert "not tested" in (study.runs[0].summary or {})["sensitivity"]["sentence"]
    assert sensitivity([], CONFIG.traces).sensitive is False
    one = Control("a", 1, ("x",), 0.0, 5.0, 0.0, 5.0)
    assert sensitivity([one] * 3, CONFIG.traces).sensitive


def test_runs_are_logs_with_the_same_numbers(bench: Bench, tmp_path: Path) -> None:
    """Catches a log whose rendering, points, hindsight or loss differ from those of games: beta and kappa of a stored
    run come out again, cell by cell; and so they do where the memory is rolled anew over the exported file."""
    run = bench.diagnose("as-logs")
    study = dssr.audit(run.path, out=tmp_path / "logged")
    plain = {(row.memory, row.budget, row.filler): row for row in cell_rows(dssr.Study.load([run]))}
    rows = cell_rows(study)
    assert len(rows) == 6
    for row in rows:
        known = plain[row.memory, row.budget, row.filler]
        assert row.points == known.points > 0
        assert row.delta == known.delta
        assert row.beta == known.beta
        assert row.kappa == known.kappa
        assert row.kappa_first == known.kappa_first


def test_rewrites_every_few_steps_and_over_a_size(tmp_path: Path) -> None:
    """Catches a schedule that is ignored: fewer writes, raw steps after the last state, and nothing lost before the
    first rewrite."""
    for name, every, over in (("every", 4, None), ("over", 1, 70)):
        study = run_audit(TRACES, tmp_path / name, Copyist(), [TIDIER], every=every, over=over)
        (episode, *_) = study.runs[0].read("episodes", Episode)
        notes = [step.write.note is None for step in study.steps(episode.key)]
        assert 1 < sum(notes) < 10
        if name == "every":
            assert [place for place, wrote in enumerate(notes) if wrote] == [3, 7, 11]
        points = list(study.runs[0].read("trace_points", TracePoint))
        assert min(point.rewrite for point in points) >= 2
        assert any(point.rewrite < point.step for point in points) or name == "over"


def test_repeats_stand_apart(tmp_path: Path) -> None:
    """Catches exact repeats counted into beta and kappa, where a reader that copies looks as if it understood."""
    traces = []
    for trace in TRACES:
        first = msgspec.structs.replace(trace.steps[4], decision=TraceDecision("look around 3"))
        traces.append(msgspec.structs.replace(trace, steps=(*trace.steps[:4], first, *trace.steps[5:]), points=(4, 8)))
    study = run_audit(traces, tmp_path / "run", Copyist(), [TIDIER])
    strata = {row.stratum: row for row in stratum_rows(study)}
    assert strata["repeat"].points == strata["carried"].points == len(traces)
    assert all(audit.step == 8 for audit in study.runs[0].read("audits", Audit))


class Chooser(Copyist):
    """Gives no probabilities: asked for one token it picks the option whose file the context shows, else any; it keeps
    what it was asked."""

    def fingerprint(self, adapter: str | None = None) -> str:
        return "chooser"

    async def choose(self, request: Choose) -> Chosen:
        raise ModelError("chooser gives no probabilities.")

    async def likelihood(self, request: Likelihood) -> TokenScores:
        raise ModelError("chooser gives no probabilities.")

    async def generate(self, request: Generate) -> Generated:
        if request.max_tokens > 1:
            return await super().generate(request)
        text = request.messages[-1].content
        self.seen.append(text)
        context = text.partition("<CONTEXT>")[2].partition("</CONTEXT>")[0]
        options = re.findall(r"^([A-Za-z])[.:)] (.*)$", text.partition("Options:")[2], re.M)
        known = [label for label, action in options if action.split()[-1] in context]
        letters = known or [label for label, _ in options]
        return Generated(letters[request.seed % len(letters)], 1)


def test_a_model_without_probabilities_is_audited_by_its_choices(tmp_path: Path) -> None:
    """Catches an audit that fails without probabilities, regret where nothing was forgotten, an error of drawing that
    is not told, and distractors that the log had shown before: those a reader finds or avoids by their looks."""
    model = Chooser()
    study = run_audit(TRACES, tmp_path / "run", model, [HOARDER, TIDIER])
    assert (study.runs[0].summary or {})["losses"] == ["choice"]
    assert (study.runs[0].summary or {})["sensitivity"]["sensitive"] is True
    keeps, forgets = cell_rows(study)
    assert keeps.kappa is not None
    assert keeps.kappa.low <= 0 <= keeps.kappa.high
    assert forgets.kappa is not None
    assert forgets.kappa.low > 0
    (table,) = (one for one in study_tables(study)[0] if one.name == "strata")
    assert [column.key for column in table.columns][-1] == "sampling_error"
    assert all(row.sampling_error > 0 for row in stratum_rows(study) if row.stratum == "carried")
    digests = Sources(TRACES, Redactor()).outline.digests
    judge = Auditor(
        Agent(Worlds(TraceArchive(digests, tmp_path)), model, Reader(model), load_prompts(), 1),
        CONFIG,
        LogAsk("", Schedule(), ("choice",), tuple(action for trace in TRACES for action in trace.actions)),
    ).judges["log"]
    for trace in TRACES:
        asked = judge.question(trace, 8)
        assert asked.options is not None
        past = render_history(trace.steps[:9], None)
        others = [action for action in asked.options.actions if action != asked.reference]
        assert len(others) == CONFIG.traces.distractors
        assert not [action for action in others if action in past]


def test_an_audit_is_a_run_like_any_other(tmp_path: Path) -> None:
    """Catches an audit that is not determined by its question, or that a resume changes."""
    first = run_audit(TRACES, tmp_path / "a", Copyist(), [HOARDER, TIDIER])
    run_audit(TRACES, tmp_path / "b", Copyist(), [HOARDER, TIDIER])
    files = sorted(path.name for path in (tmp_path / "a").glob("*.jsonl") if path.name not in SITTINGS)
    assert files == [
        "audits.jsonl",
        "controls.jsonl",
        "episodes.jsonl",
        "prompts.jsonl",
        "searches.jsonl",
        "steps.jsonl",
        "trace_points.jsonl",
        "traces.jsonl",
    ]
    for name in [*files, "summary.json"]:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes(), name
    for name in ("summary.json", "digests.json"):
        (tmp_path / "b" / name).unlink()
    kept = (tmp_path / "b" / "episodes.jsonl").read_bytes().splitlines(keepends=True)
    (tmp_path / "b" / "episodes.jsonl").write_bytes(b"".join(kept[:5]))
    run_audit(TRACES, tmp_path / "b", Copyist(), [HOARDER, TIDIER], resume=True)
    for name in [*files, "summary.json"]:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes(), name
    assert [first.goal(trace.id) for trace in TRACES] == [trace.goal for trace in TRACES]
    assert first.goal("no such trace") == ""
    with pytest.raises(RecordError, match="exists"):
        run_audit(TRACES, tmp_path / "a", Copyist(), [HOARDER, TIDIER])


def test_secrets_reach_nobody(tmp_path: Path) -> None:
    """Catches a secret of a log in a prompt or in the record, once it is on the list."""
    secret = "hunter2-token"
    steps = tuple(
        msgspec.structs.replace(step, observation=f"{step.observation} key={secret}") for step in TRACES[0].steps
    )
    model = Copyist()
    run_audit(
        [msgspec.structs.replace(TRACES[0], steps=steps)],
        tmp_path / "run",
        model,
        ["summary"],
        redact=["/hunter\\d-\\w+/"],
    )
    assert model.seen
    assert not any(secret in text for text in model.seen)
    assert not any(secret in path.read_text() for path in (tmp_path / "run").iterdir())
    assert any("[redacted]" in text for text in model.seen)


def test_too_long_a_history_is_told_by_name(tmp_path: Path) -> None:
    """Catches a history cut or a crash in mid-run: which log, which step, and what to do."""
    model = Copyist()
    model._context_length = 260
    with pytest.raises(
        UsageError, match=r"log-0 at step \d+ makes a \w+ prompt of \d+ tokens, over the 260.*--fitting"
    ):
        run_audit(TRACES, tmp_path / "run", model, ["lastk"], budgets=(20,))
    study = run_audit(TRACES, tmp_path / "fit", model, ["lastk"], budgets=(20,), fitting=True)
    assert (study.runs[0].summary or {})["left_out"] > 0


def test_what_cannot_be_meant_is_refused(tmp_path: Path) -> None:
    """Catches an audit that starts although its question makes no sense."""
    for ask, said in (
        ({"memories": ["oracle-b"]}, "oracle-b"),
        ({"memories": ["logged"]}, "states of its own agent"),
        ({"memories": ["summary"], "every": 2, "over": 100}, "--every or --over"),
        ({"memories": ["summary"], "budgets": (0,)}, "at least 1 token"),
    ):
        with pytest.raises(UsageError, match=said):
            run_audit(TRACES, tmp_path / "none", Copyist(), **ask)
    with pytest.raises(UsageError, match="Two logs are called"):
        run_audit([TRACES[0], TRACES[0]], tmp_path / "none", Copyist(), ["summary"])
    with pytest.raises(UsageError, match="No log was given"):
        run_audit([], tmp_path / "none", Copyist(), ["summary"])
    assert not (tmp_path / "none").exists()


def test_states_that_the_agent_logged_are_audited(tmp_path: Path) -> None:
    """Catches logged compactions that are not read: the agent kept everything until step 6 and then nothing of use."""
    traces: list[Trace] = []
    for trace in TRACES:
        steps = list(trace.steps)
        steps[6] = msgspec.structs.replace(steps[6], state="All is well so far, nothing to report at all.")
        traces.append(msgspec.structs.replace(trace, steps=tuple(steps)))
    study = run_audit(traces, tmp_path / "run", Copyist(), ["logged"], budgets=(400,))
    (row,) = cell_rows(study)
    assert row.memory == "logged"
    assert row.delta is not None
    assert row.delta.low > 3
    run: Run = study.runs[0]
    assert {point.rewrite for point in run.read("trace_points", TracePoint)} == {6}
    assert json.loads((run.path / "summary.json").read_text())["blame"][0]["step"] == 6


def test_a_plan_counts_with_a_real_chat_template(tmp_path: Path) -> None:
    """Catches a plan that asks a chat template for what it refuses, such as a conversation without a message, and one
    that leaves out a kind of work."""
    model = ModelConfig(backend="hf", path=str(make_tiny(tmp_path / "tiny")), device="cpu", context_length=8192)
    config = msgspec.structs.replace(CONFIG, writer_model=model)
    found = dssr.plan_audit(TRACES[:2], config, ["summary", "lastk"], [64])
    calls = {load.work: load.calls for load in found.loads}
    assert calls["state writes"] == 2 * 12  # one memory that writes, two logs of twelve steps
    assert calls.keys() == {"state writes", "control reads", "oracle writes", "audit reads"}
    assert all(load.tokens_in > 0 for load in found.loads)


@pytest.mark.slow
def test_nano_runs_are_logs_with_the_same_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches the same with a real model: nano's diagnosis, exported as a trace file and audited under its
    configuration, gives the same beta and kappa to rounding, and nano passes the control."""
    monkeypatch.chdir(tmp_path)
    study = dssr.diagnose("demo", ["summary"], [80], [20], games=6, out="run")
    write_traces(iter(Sources("run", Redactor())), Path("traces.jsonl"))
    found = dssr.audit("traces.jsonl", "demo", ["logged"], [80], out="audit")
    (played,), (logged,) = cell_rows(study), cell_rows(found)
    assert logged.points == played.points > 0
    for name in ("delta", "beta", "kappa", "kappa_first"):
        one, other = getattr(played, name), getattr(logged, name)
        assert one.estimate == pytest.approx(other.estimate, abs=1e-6), name
    verdict = (found.runs[0].summary or {})["sensitivity"]
    assert verdict["sensitive"], verdict["sentence"]
