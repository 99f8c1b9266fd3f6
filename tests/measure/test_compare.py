"""`dssr compare`: numbers worked out by hand, the rule of the verdict, what is refused, and the exit code."""

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import pytest
from tests.measure.conftest import Bench
from tests.measure.made import Point, Result, make_run
from tests.traces.logs import Copyist, made_trace, run_audit
from typer.testing import CliRunner

import dssr
from dssr.cli.main import build
from dssr.config import AgentConfig, Config, MeasureConfig, StatsConfig
from dssr.errors import DssrError, StatsError, UsageError
from dssr.measure.compare import Comparison, ComparisonRow, Finding, _told_apart, find
from dssr.record.run import Run
from dssr.stats.bootstrap import Interval
from dssr.traces.trace import TraceDecision
from dssr.types import Audit, Cell

CONFIG = Config(name="made", stats=StatsConfig(resamples=2000))
HOARDER, TIDIER = "tests.traces.logs:Hoarder", "tests.traces.logs:Tidier"
A = [0.2] * 8
B = [0.5, 0.7] * 4
"""B - A is 0.3 and 0.5 in turn: mean 0.4, standard deviation sqrt(8 * 0.01 / 7), standard error 0.0378."""


def side(kappas: Sequence[float], wins: int, beta: float = 0.1) -> dict[str, Result]:
    """One audited decision per game; the first games are won."""
    return {
        f"valid-6-{number:03d}": Result(number < wins, (Point(kappa, beta=beta),))
        for number, kappa in enumerate(kappas)
    }


def cell(memory: str, budget: int | None = 64, filler: int = 0) -> Cell:
    return Cell(memory, budget, filler, "post")


def run_of(path: Path, cells: Mapping[Cell, Mapping[str, Result]], config: Config = CONFIG) -> Path:
    return make_run(path, config, cells).path


def row_of(found: Comparison, metric: str) -> ComparisonRow:
    (row,) = (row for row in found.rows if row.metric == metric)
    return row


def test_the_numbers_are_those_worked_out_by_hand(tmp_path: Path) -> None:
    """Catches a difference of the wrong sign or not paired by game, an interval narrower than Student's, and another
    minimum detectable effect than (1.960 + 0.842) standard errors = 0.1059."""
    run = run_of(tmp_path / "run", {cell("summary"): side(A, 8), cell("guide"): side(B, 2)})
    found = dssr.compare("summary", "guide", within=[run])
    kappa = row_of(found, "kappa")
    assert kappa.games == 8
    assert kappa.a == pytest.approx(0.2)
    assert kappa.b == pytest.approx(0.6)
    assert kappa.difference is not None
    assert kappa.difference.estimate == pytest.approx(0.4)
    error = (8 * 0.01 / 7) ** 0.5 / 8**0.5
    assert kappa.detectable == pytest.approx(2.8016 * error, rel=1e-4)
    assert kappa.difference.low <= 0.4 - 2.3646 * error + 1e-6  # Student's t, 7 degrees of freedom
    assert kappa.difference.low > 0.1
    assert kappa.finding == row_of(found, "delta").finding == "worse"
    beta = row_of(found, "beta")
    assert beta.difference == Interval(0.0, 0.0, 0.0)
    assert (beta.detectable, beta.finding) == (None, "unclear")  # games that are all alike show no spread
    success = row_of(found, "success")
    assert (success.a, success.b) == (1.0, 0.25)
    assert success.difference is not None
    assert success.difference == Interval(-0.75, -1.0, 1.0)  # two games of eight alike: their spread is not known
    assert success.finding == "unclear"
    assert "B is worse by more than 0.10" in kappa.sentence


def test_the_first_side_is_the_one_to_keep_up_with(tmp_path: Path) -> None:
    """Catches sides that are swapped: what was worse one way round is better the other way."""
    run = run_of(tmp_path / "run", {cell("summary"): side(A, 8), cell("guide"): side(B, 0)})
    found = dssr.compare("guide", "summary", within=[run])
    assert row_of(found, "delta").finding == row_of(found, "success").finding == "better"
    assert not found.worse


@pytest.mark.parametrize(
    ("low", "high", "games", "good", "tolerance", "said"),
    [
        (0.2, 0.5, 8, -1, 0.1, "worse"),
        (0.2, 0.5, 8, 1, 0.1, "better"),
        (0.05, 0.5, 8, -1, 0.1, "unclear"),
        (0.05, 0.5, 8, -1, 0.0, "worse"),
        (-0.5, -0.2, 8, -1, 0.1, "better"),
        (-0.05, 0.05, 29, -1, 0.1, "unclear"),
        (-0.05, 0.05, 30, -1, 0.1, "alike"),
        (0.2, 0.5, 5, -1, 0.1, "few"),
    ],
)
def test_the_rule(low: float, high: float, games: int, good: int, tolerance: float, said: Finding) -> None:
    """Catches a claim whose interval does not lie wholly beyond the tolerance, a claim of too few games, and "alike"
    said of fewer games than a small loss needs to be seen."""
    assert find(Interval((low + high) / 2, low, high), games, good, tolerance) == said


def test_what_is_not_shown_is_never_denied(tmp_path: Path) -> None:
    """Catches a sentence that takes a missing proof for a proof: noise around zero is "not shown", with the smallest
    difference that would have been."""
    noisy = [0.2 + 0.3 * (-1) ** number for number in range(8)]
    run = run_of(tmp_path / "run", {cell("summary"): side(A, 8), cell("guide"): side(noisy, 8)})
    found = dssr.compare("summary", "guide", within=[run])
    (verdict,) = found.verdicts
    assert verdict.finding == "unclear"
    assert "is not shown, either way; a true difference of 0." in verdict.sentence
    for word in ("no difference", "is not worse", "is not better"):
        assert word not in verdict.sentence


def test_two_runs_are_compared_memory_by_memory(tmp_path: Path) -> None:
    """Catches two prompts that cannot be compared: the same memories of two runs are paired by name and budget, over
    all fillers; a single memory of each is paired whatever its name."""
    first = run_of(
        tmp_path / "a", {cell(name, 64, filler): side(A, 8) for name in ("summary", "guide") for filler in (0, 20)}
    )
    cells = {cell(name, 64, filler): side(B, 8) for name in ("summary", "guide") for filler in (0, 20)}
    second = run_of(tmp_path / "b", cells)
    found = dssr.compare(first, second)
    assert (found.a, found.b) == ("a", "b")
    assert [(row.first, row.second) for row in found.verdicts] == [("summary", "summary"), ("guide", "guide")]
    assert all(row.games == 8 for row in found.rows)
    assert [row.first for row in dssr.compare(first, second, memories=["guide"]).verdicts] == ["guide"]
    alone = [run_of(tmp_path / name, {cell(name): side(A, 8)}) for name in ("one", "two")]
    assert [(row.first, row.second) for row in dssr.compare(*alone).verdicts] == [("one", "two")]


def with_reader(path: Path, reader: str, device: str = "cpu", config: Config = CONFIG) -> Path:
    """A run of the usual side, said to have been read by this model on this device."""
    made = run_of(path, {cell("summary"): side(A, 8)}, config)
    info = json.loads((made / "run.json").read_text())
    info["models"]["reader"] = reader
    info["provenance"]["device"] = device
    info["digests"] = False  # altered on purpose
    (made / "run.json").write_text(json.dumps(info))
    return made


def test_what_cannot_be_compared_is_refused_in_one_sentence(tmp_path: Path) -> None:
    """Catches a difference that would be the readers', the devices', the tokenizers', the games' or the settings', and
    not the memories'."""
    base = with_reader(tmp_path / "base", "r1")
    tokenizer = msgspec.structs.replace(CONFIG, agent=AgentConfig(budget_tokenizer="another"))
    points = msgspec.structs.replace(CONFIG, measure=MeasureConfig(points=2))
    fewer = run_of(tmp_path / "fewer", {cell("summary"): side(A[:6], 6)})
    cases: list[tuple[str, Path, str]] = [
        ("reader", with_reader(tmp_path / "reader", "r2"), "different readers"),
        ("device", with_reader(tmp_path / "device", "r1", "gpu"), "one table never mixes devices"),
        ("tokens", with_reader(tmp_path / "tokens", "r1", config=tokenizer), "counts budgets by the tokenizer"),
        ("points", with_reader(tmp_path / "points", "r1", config=points), "measure.points is 6 in one and 2"),
    ]
    for name, other, said in cases:
        with pytest.raises(StatsError, match=said) as caught:
            dssr.compare(base, other)
        assert str(caught.value).count("\n") == 0, name
    plain = run_of(tmp_path / "plain", {cell("summary"): side(A, 8)})
    larger = run_of(tmp_path / "larger", {cell("summary", 128): side(A, 8)})
    longer = run_of(tmp_path / "longer", {cell("summary", 64, 20): side(A, 8)})
    mixed = [run_of(tmp_path / f"mixed{n}", {cell(f"{n}{k}"): side(A, 8) for k in range(2)}) for n in "ab"]
    with pytest.raises(StatsError, match=r"only .*plain has valid-6-006, valid-6-007"):
        dssr.compare(plain, fewer)
    with pytest.raises(StatsError, match="no budget in common"):
        dssr.compare(plain, larger)
    with pytest.raises(StatsError, match="fillers"):
        dssr.compare(plain, longer)
    with pytest.raises(StatsError, match="no memory in common"):
        dssr.compare(*mixed)
    with pytest.raises(StatsError, match="guide is not in"):
        dssr.compare("summary", "guide", within=[plain])
    with pytest.raises(UsageError, match="one run"):
        dssr.compare(plain, plain)
    with pytest.raises(UsageError, match="one memory"):
        dssr.compare("summary", "summary", within=[plain])
    with pytest.raises(UsageError, match="tolerance"):
        dssr.compare("summary", "guide", within=[plain], tolerance=-1.0)


def test_a_broken_episode_leaves_its_row_blank(tmp_path: Path) -> None:
    """Catches an episode that broke counted as a loss: its game has no value, the row says which, and nothing is
    judged by it."""
    broken = {**side(B, 8), "valid-6-003": Result(None)}
    run = run_of(tmp_path / "run", {cell("summary"): side(A, 8), cell("guide"): broken})
    found = dssr.compare("summary", "guide", within=[run])
    row = row_of(found, "delta")
    assert (row.difference, row.finding) == (None, None)
    assert row.problem is not None
    assert "valid-6-003" in row.problem
    with pytest.raises(StatsError, match="cannot be judged by delta"):
        _ = found.worse


def command(*words: str | Path) -> tuple[int, str]:
    """A command's exit code and what it printed, or its sentence."""
    done = CliRunner().invoke(build(), [str(word) for word in words])
    if isinstance(done.exception, DssrError):
        return done.exception.exit_code, str(done.exception)
    return done.exit_code, done.output


def test_the_exit_code_tells_an_automatic_check(tmp_path: Path) -> None:
    """Catches a check that passes what is worse, fails what is not shown to be, or waves through what it could never
    fail."""
    run = run_of(tmp_path / "run", {cell("summary"): side(A, 8), cell("guide"): side(B, 0)})
    ask = ("--in", run, "--fail-if-worse")
    assert command("compare", "summary", "guide", *ask)[0] == 3
    assert command("compare", "summary", "guide", "--in", run)[0] == 0
    assert command("compare", "guide", "summary", *ask)[0] == 0
    assert command("compare", "summary", "guide", *ask, "--tolerance", "0.9")[0] == 0
    assert command("compare", "summary", "guide", *ask, "--metric", "beta")[0] == 0
    assert command("compare", "summary", "guide", *ask, "--metric", "success")[0] == 3
    few = run_of(tmp_path / "few", {cell("summary"): side(A[:4], 4), cell("guide"): side(B[:4], 0)})
    code, said = command("compare", "summary", "guide", "--in", few, "--fail-if-worse")
    assert (code, "4 pairs never show" in said) == (2, True)
    code, said = command("compare", "summary", "guide", *ask, "--metric", "facts")
    assert (code, "audits of logs alone" in said) == (2, True)


def test_markdown_for_a_pull_request(tmp_path: Path) -> None:
    """Catches Markdown that a pull request would not show as a table with the verdict, and a file without it."""
    run = run_of(tmp_path / "run", {cell("summary"): side(A, 8), cell("guide"): side(B, 2)})
    file = tmp_path / "comment.md"
    code, said = command("compare", "summary", "guide", "--in", run, "--markdown", "-o", file)
    assert code == 0
    assert file.read_text() == said
    lines = said.splitlines()
    assert lines[0] == "### A = summary, B = guide"
    assert "| summary → guide | 64 | κ, nats | 8 | 0.20 | 0.60 | 0.40 [" in said
    assert "- **B is worse.** summary → guide at 64 tokens: δ, nats: B − A = 0.40 [" in said
    assert len({line.count(" | ") for line in lines if line.startswith("|")}) == 1
    plain = json.loads(
        command("compare", "summary", "guide", "--in", run, "--fail-if-worse", "--json")[1].split("\n")[0]
    )
    assert plain["worse"] is True


def test_a_diagnosis_is_compared_for_real(bench: Bench) -> None:
    """Catches a comparison that does not work on what `dssr diagnose` stores, or whose means are not those of the
    answers: the scripted model on two games, three fillers, which are too few for any verdict."""
    run = bench.diagnose("compared")
    found = dssr.compare("summary", "guide", within=[run.path])
    means = {row.memory: row.delta.estimate for row in dssr.Study.load([run]).answers() if row.delta is not None}
    (verdict,) = found.verdicts
    assert verdict.a == pytest.approx(means["summary"])
    assert verdict.b == pytest.approx(means["guide"])
    assert (verdict.games, verdict.finding) == (2, "few")
    assert row_of(dssr.compare("full", "summary", within=[run.path]), "success").games == 2
    again = bench.diagnose("compared-again")
    same = dssr.compare(run.path, again.path)
    assert [row.first for row in same.verdicts] == ["summary", "guide"]
    assert all(row.difference is not None and row.difference.estimate == 0 for row in same.verdicts)


def test_audits_of_logs_are_compared_for_real(tmp_path: Path) -> None:
    """Catches a comparison that does not work on what `dssr audit` stores: a memory that forgets against one that keeps
    everything, in one run and in two, by the reader's loss and by the values kept, which need no reader."""
    traces = [made_trace(number, 1, 5, 8) for number in range(12)]
    both = run_audit(traces, tmp_path / "both", Copyist(noise=0.05), [HOARDER, TIDIER]).runs[0].path
    apart = [
        run_audit(traces, tmp_path / name.rpartition(":")[2], Copyist(noise=0.05), [name]).runs[0].path
        for name in (HOARDER, TIDIER)
    ]
    for found in (dssr.compare(HOARDER, TIDIER, within=[both]), dssr.compare(*apart)):
        (verdict,) = found.verdicts
        assert (verdict.finding, verdict.games) == ("worse", 12)
        facts = row_of(found, "facts")
        assert (facts.a, facts.b, facts.finding) == (1.0, 0.0, "worse")
        assert found.worse
    assert dssr.compare(HOARDER, TIDIER, within=[both]).rows == dssr.compare(*apart).rows


def test_other_decisions_or_other_logs_are_no_pair(tmp_path: Path) -> None:
    """Catches audits of different decisions, or of logs of the same name and another text, taken for a pair; the same
    decisions measured twice are one."""
    traces = [made_trace(number, 1, 5, 8) for number in range(6)]
    first = run_audit(traces, tmp_path / "first", Copyist(), [TIDIER]).runs[0].path
    changed = [msgspec.structs.replace(trace, goal="Another goal.") for trace in traces]
    other = run_audit(changed, tmp_path / "other", Copyist(), [TIDIER]).runs[0].path
    with pytest.raises(StatsError, match="not the same text"):
        dssr.compare(first, other)
    twice = []
    for trace in traces:  # the file is needed at step 3, before the sixth step's first rewrite, and at step 8 again
        value = trace.steps[8].decision
        assert value is not None
        asked = {3: value.reference, 8: value.reference.replace("open", "close")}
        steps = [
            msgspec.structs.replace(step, decision=TraceDecision(asked[index])) if index in asked else step
            for index, step in enumerate(trace.steps)
        ]
        twice.append(msgspec.structs.replace(trace, steps=tuple(steps)))
    often = run_audit(twice, tmp_path / "often", Copyist(), [HOARDER]).runs[0].path
    seldom = run_audit(twice, tmp_path / "seldom", Copyist(), [HOARDER], every=6).runs[0].path
    assert {one.step for one in Run.open(often).read("audits", Audit)} == {3, 8}
    assert {one.step for one in Run.open(seldom).read("audits", Audit)} == {8}
    code, said = command("compare", often, seldom)
    assert (code, "Different decisions of the log log-0 were audited" in said) == (StatsError.exit_code, True)
    again = Path(shutil.copytree(often, tmp_path / "again"))
    assert dssr.compare(often, again).verdicts[0].games == 6


def test_a_check_of_two_audits_fails_what_is_worse_and_writes_the_comment(tmp_path: Path) -> None:
    """Catches an exit code or a comment that work on games alone: of two audits the one that forgets fails, in either
    order the right one, by the reader's loss and by the values kept."""
    traces = [made_trace(number, 1, 5, 8) for number in range(8)]
    before, after = (
        run_audit(traces, tmp_path / name, Copyist(noise=0.05), [memory]).runs[0].path
        for name, memory in (("before", HOARDER), ("after", TIDIER))
    )
    file = tmp_path / "comment.md"
    code, said = command("compare", before, after, "--fail-if-worse", "--markdown", "-o", file)
    assert code == 3
    assert said == file.read_text() + "B is worse by delta: exit code 3\n"
    assert said.splitlines()[0] == "### A = before, B = after"
    assert "- **B is worse.** tests.traces.logs:Hoarder → tests.traces.logs:Tidier at 400 tokens: δ, nats" in said
    assert "| values kept, points | 8 | 100 | 0 | -100" in said
    assert command("compare", before, after, "--fail-if-worse", "--metric", "facts")[0] == 3
    assert command("compare", after, before, "--fail-if-worse")[0] == 0


def test_a_blind_reader_leaves_the_values_kept(tmp_path: Path) -> None:
    """Catches a loss compared although the reader was found insensitive: the note says so, and facts alone have
    values."""
    traces = [made_trace(number, 1, 5, 8) for number in range(6)]
    run = run_audit(traces, tmp_path / "run", Copyist(0.5, blind=True), [HOARDER, TIDIER]).runs[0].path
    found = dssr.compare(HOARDER, TIDIER, within=[run], metric="facts")
    assert [row.metric for row in found.rows if row.difference is not None] == ["facts"]
    assert found.worse
    assert any("insensitive" in note for note in found.notes)


def test_runs_of_one_name_are_told_apart() -> None:
    """Catches a comparison of `chains/valid-2` with `random/valid-2` that calls both sides `valid-2`."""
    assert _told_apart(Path("lines/chains/valid-2"), Path("lines/random/valid-2")) == (
        "chains/valid-2",
        "random/valid-2",
    )
    assert _told_apart(Path("runs/old"), Path("elsewhere/new")) == ("old", "new")
