"""The study of score against return, on real games with the scripted model."""

import asyncio
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import msgspec
import pytest
import typer
from tests.sessions import open_agent
from typer.testing import CliRunner

from dssr.agent.episode import continue_episode, stored
from dssr.cli import study as study_commands
from dssr.cli import train
from dssr.config import (
    AgentConfig,
    Config,
    ContinuationConfig,
    GamesConfig,
    GatesConfig,
    ModelConfig,
    ProtocolConfig,
    StatsConfig,
    WriterConfig,
    resolved,
)
from dssr.errors import ConfigError, ModelError, RecordError, StatsError, UsageError
from dssr.measure.candidates import Candidate, CandidateScorer, WritePoint
from dssr.measure.continuation import (
    Checked,
    Returns,
    continuation_grid,
    continuation_jobs,
    return_rows,
    study_continuations,
)
from dssr.measure.gates import Case, checks_of
from dssr.measure.study import Study
from dssr.models.base import Choose, Chosen, Generate, Generated
from dssr.models.scripted import ScriptedModel
from dssr.record.run import Run
from dssr.reports.write import make_report
from dssr.session import Session
from dssr.stats.bootstrap import Resampler
from dssr.training.variants import variant_of
from dssr.types import Cell, Episode, Job
from dssr.worlds.archive import Archive

POINTS, CANDIDATES, RETENTION = 16, 6, 0.7
SCORES = ["S1", "S2", "S4", "W1", "W2", "W4"]
LOGS = ("episodes", "steps", "prompts", "checks", "candidates", "continuations", "points", "returns")


def study(budget: int = 32, **changes: Any) -> Config:
    """One-room games, so forgetful a writer that what it keeps decides some of them."""
    return Config(
        name="study",
        cache_gib=0,
        games=GamesConfig(archive="small", levels=(1,)),
        protocol=ProtocolConfig(fillers=(0,), max_actions=12),
        writer_model=ModelConfig(backend="scripted", path="scripted", retention=RETENTION, context_length=65536),
        agent=AgentConfig(memories=("summary",), budgets=(budget,)),
        stats=StatsConfig(resamples=100),
        gates=GatesConfig(budget=budget),
        writer=WriterConfig(targets=(1, 2, 4)),
        continuation=ContinuationConfig(points=POINTS, candidates=CANDIDATES, budget=budget, **changes),
    )


class Scripted(ScriptedModel):
    """The writer of the study."""

    def __init__(self) -> None:
        super().__init__(RETENTION, 65536)


def go(config: Config, archive: Archive, place: Path, model: ScriptedModel, resume: bool = False) -> Run:
    ask = continuation_grid(config, archive, "train")
    points = config.continuation.points

    async def work() -> Run:
        async with Session(config, archive=archive, models=(model, model)) as session:
            return await study_continuations(session, ask, points, place, resume)

    return asyncio.run(work())


@pytest.fixture(scope="module")
def run(archive: Archive, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return go(study(), archive, tmp_path_factory.mktemp("study") / "run", Scripted())


def test_the_enforced_score_stands_beside_the_others_when_asked_for(run: Run, archive: Archive, tmp_path: Path) -> None:
    """Catches a score that is missing, that changes the others or the returns, or that is the plain one again."""
    again = go(study(enforced=3), archive, tmp_path / "run", Scripted())
    both = [{(one.point, one.index): one for one in each.read("candidates", Candidate)} for each in (run, again)]
    assert both[0].keys() == both[1].keys()
    moved = 0
    for key, one in both[0].items():
        more = dict(both[1][key].scores)
        extra = {name: more.pop(name) for name in ("E1", "E2", "E4")}
        assert (one.state, one.scores) == (both[1][key].state, more)
        moved += extra["E4"] != more["S4"]
    assert moved > 0
    told = [{row["score"] for row in each.summary["returns"]} for each in (run, again) if each.summary is not None]
    assert told[0] <= set(SCORES)  # a score that ranks no point's candidates has no row
    assert told[1] - told[0]
    assert told[1] - told[0] <= {"E1", "E2", "E4"}
    assert told[0] <= told[1]


def test_chains_are_played_on_from_their_first_decision(run: Run, archive: Archive, tmp_path: Path) -> None:
    """Catches a chain whose return is that of its first write rolled on greedily, whose own score is missing or is the
    greedy chain's for all, and recursive scores that are not those of the first write."""
    chains = go(study(tries="chains"), archive, tmp_path / "run", Scripted())
    found = list(chains.read("candidates", Candidate))
    assert {name for one in found for name in one.scores} == {"S1", "S2", "S4", "chain", "return"}
    points = {point.key: point for point in chains.read("points", WritePoint)}
    jobs = continuation_jobs(continuation_grid(chains.config, archive, "train"), chains.config)
    played = {one.episode.key: one for one in stored(chains)}
    kept: set[bool] = set()
    with open_agent(chains.config, archive, Scripted(), jobs) as agent:
        for one in found:
            point = points[one.point]
            logged, first = played[point.episode], point.targets[0]
            states = (one.state, *one.chain)
            again = asyncio.run(
                continue_episode(logged.episode, logged.steps, first, agent, states[first - point.step])
            ).episode
            assert one.scores["return"] == again.score / again.max_score
            greedy = asyncio.run(continue_episode(logged.episode, logged.steps, point.step, agent, one.state)).episode
            kept.add(one.scores["return"] == greedy.score / greedy.max_score)
    assert kept == {True, False}, "sampled rewrites change how some games end, and not all"
    assert len({one.scores["chain"] for one in found}) > POINTS
    assert chains.summary is not None
    rows = {row["score"]: row for row in chains.summary["returns"]}
    assert set(rows) | set(chains.summary["unmeasured"]) == {"S1", "S2", "S4", "chain"}
    assert rows["chain"]["points"] + rows["chain"]["without_variance"] + rows["chain"]["unranked"] == POINTS


def ranks(values: list[float]) -> list[float]:
    """Mean ranks, the slow way."""
    return [sum(other < one for other in values) + (sum(other == one for other in values) + 1) / 2 for one in values]


def rho(one: list[float], other: list[float]) -> float:
    a, b = ranks(one), ranks(other)
    centre = (len(a) + 1) / 2
    up = sum((x - centre) * (y - centre) for x, y in zip(a, b, strict=True))
    return float(up / (sum((x - centre) ** 2 for x in a) * sum((y - centre) ** 2 for y in b)) ** 0.5)


def test_rows_are_the_logs_correlations(run: Run) -> None:
    """Recomputed from the raw lines: catches scores paired with the wrong return, a wrong mean, a wrong count."""
    points: dict[str, list[Any]] = defaultdict(list)
    for line in (run.path / "candidates.jsonl").read_text().splitlines():
        candidate = json.loads(line)
        points[candidate["point"]].append(candidate["scores"])
    assert run.summary is not None
    assert [len(group) for group in points.values()] == [CANDIDATES] * POINTS
    assert run.summary["points"] == POINTS
    assert run.summary["phase_a"] == POINTS // 2
    moved = [group for group in points.values() if len({one["return"] for one in group}) > 1]
    assert 0 < len(moved) < POINTS
    assert run.summary["without_variance"] == POINTS - len(moved)
    rows = {row["score"]: row for row in run.summary["returns"]}
    assert set(rows) | set(run.summary["unmeasured"]) == set(SCORES)
    for name, row in rows.items():
        ranked = [group for group in moved if len({one[name] for one in group}) > 1]
        by_hand = [rho([one[name] for one in group], [one["return"] for one in group]) for group in ranked]
        assert row["rho"] == pytest.approx(sum(by_hand) / len(by_hand))
        assert (row["points"], row["without_variance"]) == (len(ranked), POINTS - len(moved))
        assert row["points"] + row["without_variance"] + row["unranked"] == POINTS
        assert row["rho_low"] <= row["rho"] <= row["rho_high"]


def test_a_return_is_the_fork_of_its_candidate(run: Run, archive: Archive) -> None:
    """Catches a candidate continued from another step, with another state, or with chance left in."""
    config, model = run.config, Scripted()
    jobs = continuation_jobs(continuation_grid(config, archive, "train"), config)
    played = {one.episode.key: one for one in stored(run)}
    assert all(one.episode.job.temperature == one.episode.job.epsilon == 0 for one in played.values())
    ends = {end.key: end for end in run.read("continuations", Episode)}
    with open_agent(config, archive, model, jobs) as agent:
        for candidate in list(run.read("candidates", Candidate))[:: CANDIDATES - 1]:
            key, _, step = candidate.point.partition(":")
            again = asyncio.run(
                continue_episode(played[key].episode, played[key].steps, int(step), agent, candidate.state)
            ).episode
            assert candidate.scores["return"] == again.score / again.max_score
            assert ends[again.key] == again


class Counting(Scripted):
    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    async def choose(self, request: Choose) -> Chosen:
        self.calls += 1
        return await super().choose(request)


def test_equal_states_are_continued_once(run: Run, archive: Archive) -> None:
    """Catches a continuation per candidate: a scripted writer often says the same twice."""
    states = {(one.point, one.state) for one in run.read("candidates", Candidate)}
    assert run.summary is not None
    assert run.summary["distinct"] == len(states) < POINTS * CANDIDATES
    config, model = run.config, Counting()
    played = next(iter(stored(run)))
    with open_agent(config, archive, model, [played.episode.job]) as agent:
        bench = CandidateScorer(played, agent, variant_of("dssr", config.writer).sampling(0), config.writer, 0)

        async def three() -> list[Episode]:
            return list(await asyncio.gather(*(bench.continued(1, state) for state in ("salt.", "salt.", "pepper."))))

        one, same, other = asyncio.run(three())
    assert one == same
    assert model.calls == sum(end.steps - max(end.begin, 1) - 1 for end in (one, other))


def test_every_point_was_reproduced_first(run: Run) -> None:
    """Catches points that are tried without having been checked."""
    checks = {one.point: one.steps for one in run.read("checks", Checked)}
    points = list(run.read("points", WritePoint))
    assert set(checks) == {point.key for point in points}
    lengths = {episode.key: episode.steps for episode in run.read("episodes", Episode)}
    assert all(checks[point.key] == lengths[point.episode] - point.step for point in points)


class Drifting(Scripted):
    """Answers a request that it has seen before in other words."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[tuple[Any, ...]] = set()

    async def generate(self, request: Generate) -> Generated:
        found = await super().generate(request)
        asked = tuple(message.content for message in request.messages)
        if asked in self.seen:
            return Generated("nothing.", 2)
        self.seen.add(asked)
        return found


def test_a_log_that_is_not_reproduced_ends_the_study(archive: Archive, tmp_path: Path) -> None:
    """Catches returns computed with a model that does not answer equal requests equally; the point is named."""
    with pytest.raises(RecordError, match=r"step \d+ of episode \w+ \(train-1-\d+, filler 0\).* at step \d+"):
        go(study(), archive, tmp_path / "run", Drifting())
    left = Run.open(tmp_path / "run")
    assert not left.finished
    assert not (left.path / "candidates.jsonl").exists()


class Stopped(Exception):
    """Stands for a kill in the middle of a call."""


class Stopping(Scripted):
    def __init__(self, calls: int) -> None:
        super().__init__()
        self.left = calls

    async def generate(self, request: Generate) -> Generated:
        self.left -= 1
        if self.left < 0:
            raise Stopped
        return await super().generate(request)


def test_an_interrupted_study_ends_the_same(run: Run, archive: Archive, tmp_path: Path) -> None:
    """Stopped within play, check and judge and continued, the logs are byte for byte those of an undisturbed run:
    catches points sampled anew, lines in finishing order, lines written twice, and a check left out."""
    place, reached = tmp_path / "run", []
    for calls in (45, 90, 300):
        with pytest.raises(Stopped):
            go(study(), archive, place, Stopping(calls), resume=place.exists())
        reached.append([log for log in LOGS if (place / f"{log}.jsonl").exists()][-1])
    assert reached == ["prompts", "checks", "points"]
    closed = (place / "points.jsonl").read_bytes().splitlines(keepends=True)
    (place / "points.jsonl").write_bytes(b"".join(closed[:-1]))  # as if killed while a point was being stored
    go(study(), archive, place, Scripted(), resume=True)
    for log in LOGS:
        assert (place / f"{log}.jsonl").read_bytes() == (run.path / f"{log}.jsonl").read_bytes(), log
    assert (place / "summary.json").read_bytes() == (run.path / "summary.json").read_bytes()


def stored_points(
    place: Path, groups: list[tuple[str, list[float], list[float]]], later: int = 0, one: float = 0.0
) -> Run:
    """A run whose points have these scores and returns, each in a game of this name; the last `later` points are of
    Phase B, and the one-target score is `one` times the other."""
    with Run.start(place, command="continuation", config=Config(name="made"), models={}) as run:
        for number, (game, scores, returns) in enumerate(groups):
            key = f"e{number}"
            job = Job(game, Cell("summary", 64, 0, "post"), 0, 0.0, 0.0, "reader")
            begin = 4 if number < len(groups) - later else 3
            run.append("episodes", key, Episode(key, job, "valid", 6, "won", 11, 11, 9, 3, begin, 0, None))
            for index, (score, end) in enumerate(zip(scores, returns, strict=True)):
                found = {"S1": one * score, "S12": score, "return": end}
                candidate = Candidate(f"{key}:0003", index, f"state {index}", None, False, found)
                run.append("candidates", f"{key}:0003:{index:02d}", candidate)
        run.finish({})
    return Run.open(place)


WORKED = [
    ("a", [1.0, 2.0, 3.0, 4.0], [0.0, 0.5, 0.25, 1.0]),  # one swap: 1 - 6 * 2 / (4 * 15) = 0.8
    ("b", [1.0, 2.0, 3.0, 4.0], [1.0, 0.5, 0.25, 0.0]),  # reversed: -1
    ("b", [1.0, 2.0, 3.0, 4.0], [0.5, 0.5, 0.5, 0.5]),  # no return to foretell
    ("a", [2.0, 2.0, 2.0, 2.0], [0.5, 0.0, 0.5, 1.0]),  # a score that says nothing
]


def test_correlations_worked_by_hand(tmp_path: Path) -> None:
    """Catches a point without variance taken as zero, or counted under the wrong heading."""
    found = Returns.read(stored_points(tmp_path / "made", WORKED))
    assert found.varied == 3
    (row,) = return_rows(found, Resampler(resamples=200))
    assert row.score == "S12"
    assert row.rho == pytest.approx((0.8 - 1.0) / 2)
    assert (row.rho_low, row.rho_high) == pytest.approx((-1.0, 0.8))
    assert (row.points, row.without_variance, row.unranked) == (2, 1, 1)


def test_gate(tmp_path: Path) -> None:
    """G1c looks at the points of Phase A: of the first two worked points only the first is, so rho is 0.8 and not
    -0.1; the one-target score is its reverse, so the gain is 1.6. Without a point of Phase A there is no verdict."""
    made = Study.load([stored_points(tmp_path / "made", WORKED[:2], later=1, one=-1.0)])
    found = checks_of("G1c", Case(made))
    assert [check.estimate for check in found.checks] == pytest.approx([0.8, 1.6])
    assert [check.passed for check in found.checks] == [True, True]
    assert found.notes == ("Write points of Phase A: 1 of 2.",)
    with pytest.raises(StatsError, match="no write point of Phase A"):
        checks_of("G1c", Case(Study.load([stored_points(tmp_path / "late", WORKED[:2], later=2)])))
    with pytest.raises(StatsError, match="No write point has candidates that differ"):
        checks_of("G1c", Case(Study.load([stored_points(tmp_path / "same", WORKED[2:])])))


def test_returns_that_never_vary_are_a_result(archive: Archive, tmp_path: Path) -> None:
    """With too few tokens to matter every candidate ends alike: catches a crash, and a correlation of nothing."""
    found = go(study(budget=12), archive, tmp_path / "run", Scripted()).summary
    assert found is not None
    assert (found["returns"], found["unmeasured"], found["without_variance"]) == ([], SCORES, POINTS)


class Hot(Scripted):
    """Breaks when asked for samples about one game, or about any."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text

    async def generate(self, request: Generate) -> Generated:
        if request.temperature > 0 and self.text in request.messages[-1].content:
            raise ModelError("the line went dead")
        return await super().generate(request)


def test_a_failed_point_is_counted_and_no_zero(run: Run, archive: Archive, tmp_path: Path) -> None:
    """Catches a point whose candidates failed that enters the mean, and a study that ends well with nothing in it."""
    shown = [(point, step) for point in run.read("points", WritePoint) for step in _requests(run, point)]
    text = next(text for point, text in shown if sum(text in other for _, other in shown) == 1)
    made = go(study(), archive, tmp_path / "one", Hot(text)).summary
    assert made is not None
    assert (made["troubles"], made["points"]) == (1, POINTS)
    assert all(row["points"] + row["without_variance"] + row["unranked"] == POINTS - 1 for row in made["returns"])
    with pytest.raises(ModelError, match="Every point of"):
        go(study(), archive, tmp_path / "all", Hot(""))


def _requests(run: Run, point: WritePoint) -> list[str]:
    """The user message of the write at a point ends with this observation."""
    return [one.steps[point.step].observation for one in stored(run) if one.episode.key == point.episode]


@pytest.mark.parametrize("memory", ["lastk", "full", "oracle-b", "tests.agent.bench:Told"])
def test_a_memory_without_candidates_is_refused(memory: str, archive: Archive) -> None:
    """Catches a study of a memory that no model is asked for."""
    with pytest.raises(ConfigError, match="has no candidates to sample"):
        continuation_grid(study(memory=memory), archive)


class Shell:
    """The commands, as a user calls them."""

    def __init__(self, folder: Path, archive: Archive, config: Config) -> None:
        self.folder = folder
        (folder / "data").mkdir()
        (folder / "data" / "small").symlink_to(archive.folder)
        changed = msgspec.structs.replace(config, data=str(folder / "data"), runs=str(folder / "runs"))
        self.config = folder / "study.toml"
        self.config.write_text(resolved(changed))
        self.app = typer.Typer()
        for area in (train, study_commands):
            area.register(self.app)

    def __call__(self, *words: object) -> Any:
        result = CliRunner().invoke(self.app, [*map(str, words), "--config", str(self.config)])
        if result.exception is not None:
            raise result.exception
        return json.loads(result.stdout) if "--json" in words else result.stdout


def test_command(archive: Archive, tmp_path: Path) -> None:
    """From the command to the table of the report; bad input, and a gate on too few points, get a sentence."""
    shell = Shell(tmp_path, archive, study())
    shell("gates", "write")
    asked = ("continuation", "--split", "train", "--points", 24)  # with few, none may tell candidates apart
    found = shell(*asked, "--json")
    assert found["points"] == 24
    text = shell(*asked, "--out", tmp_path / "again")
    assert "of 24 points end alike" in text
    assert "ρ with return" in text
    (table,) = make_report([found["run"]], tmp_path / "report", ["markdown"]).tables
    assert (table.name, [row["score"] for row in table.plain()]) == (
        "score-return",
        [r["score"] for r in (*found["returns"], *found["agreement"])],
    )
    for words, error, sentence in (
        (asked, RecordError, "exists"),
        ((*asked, "--resume"), RecordError, "finished"),
        (("continuation", "--points", 0), UsageError, "A study of 0 points"),
        (("continuation", "--split", "test"), SystemExit, "2"),
        (("gates", "judge", "G1c", found["run"], tmp_path / "again"), UsageError, "one continuation run"),
        (("gates", "judge", "G1c", found["run"]), StatsError, "No write point has candidates that differ"),
    ):
        with pytest.raises(error, match=sentence):
            shell(*words)


def test_a_configuration_that_ranks_nothing_is_refused(archive: Archive, tmp_path: Path) -> None:
    """Catches a run that starts although its configuration has no points, or one candidate each."""
    for key, error in (("points", UsageError), ("candidates", ConfigError)):
        config = study()
        one = msgspec.structs.replace(config.continuation, **{key: 0})
        with pytest.raises(error, match=r"continuation\."):
            go(msgspec.structs.replace(config, continuation=one), archive, tmp_path / "run", Scripted())
    assert not (tmp_path / "run").exists()
