"""The approval lists runs; each of them sees the test games once, whoever moves, edits or races."""

import multiprocessing
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dssr.config import Config, ProtocolConfig
from dssr.errors import RecordError, SealError
from dssr.record import run as runs
from dssr.record.run import Run
from dssr.record.seal import APPROVED, OPENED, Approval, Evaluation, Seal

DAY = "2030-01-02T00:00:00+00:00"
CONFIG = Config(name="final")
ARGUMENTS: dict[str, Any] = {"memories": ["dssr@a4"], "budgets": [128], "fillers": [0, 40], "games": ["test-6-000"]}
MODELS = {"reader": "r1", "writer": "w1", "writer@a4": "w1+a4"}
CONTENTS = {"games": "g1", "prompts": "p1", "dssr@a4": "m1"}


def evaluation(config: Config = CONFIG, **changes: Any) -> Evaluation:
    """The run that is approved, or one that differs from it."""
    arguments = ARGUMENTS | changes.get("arguments", {})
    models = MODELS | changes.get("models", {})
    return Evaluation.of(config, arguments, models, CONTENTS | changes.get("contents", {}))


@pytest.fixture
def seal(tmp_path: Path) -> Seal:
    made = Seal(tmp_path / "seal")
    made.approve(evaluation(), "the group, after round 3 was chosen on valid", DAY)
    return made


def opened(
    seal: Seal, place: Path, asked: Evaluation | None = None, resume: bool = False, config: Config = CONFIG
) -> Run:
    """Start a run on the test games, as a session does, and stop at once."""
    asked = evaluation() if asked is None else asked

    def start() -> Run:
        return Run.start(
            place, command="diagnose", config=config, models=asked.models, arguments=asked.arguments, resume=resume
        )

    with seal.open(asked, place, resume, start) as run:
        return run


def test_an_approved_run_opens_once_and_may_come_back(seal: Seal, tmp_path: Path) -> None:
    """Catches a split that opens without approval, twice for one run, or not again for the run that was killed."""
    with pytest.raises(SealError, match="dssr gates approve"):
        opened(Seal(tmp_path / "other"), tmp_path / "run")
    first = opened(seal, tmp_path / "run")
    (line,) = seal.openings
    assert (line.place, line.id) == (str((tmp_path / "run").resolve()), first.info.id)
    assert (line.digest, line.arguments, line.models) == (CONFIG.digest(), ARGUMENTS, MODELS)
    assert len(first.info.id) == 32
    assert opened(seal, tmp_path / "run", resume=True).info.id == first.info.id
    assert len(seal.openings) == 1
    with pytest.raises(SealError, match=r"opened for final-.* open once for each approved run"):
        opened(seal, tmp_path / "second")
    assert not (tmp_path / "second").exists()


def test_every_approved_run_opens_and_the_list_is_then_closed(seal: Seal, tmp_path: Path) -> None:
    """Catches an evaluation of two readers of which only one may run, and a run approved after games were seen."""
    second = evaluation(models={"reader": "r2"})
    made = seal.approve(second, "the second reader", DAY)
    assert made.name != seal.approvals[0].name
    with pytest.raises(SealError, match="given once"):
        seal.approve(second, "again", DAY)
    opened(seal, tmp_path / "one")
    with pytest.raises(SealError, match="no run can be approved after that"):
        seal.approve(evaluation(models={"reader": "r3"}), "a third reader", DAY)
    opened(seal, tmp_path / "two", second)
    assert [line.name for line in seal.openings] == [approval.name for approval in seal.approvals]
    with pytest.raises(SealError, match="words"):
        Seal(tmp_path / "other").approve(second, "  ", DAY)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"models": {"reader": "r2"}}, "in the content of reader;"),
        ({"models": {"writer@a4": "w1+retrained"}}, "in the content of writer@a4;"),
        ({"arguments": {"budgets": [64, 128]}}, r"in budgets \(64, 128 instead of 128\);"),
        ({"arguments": {"fillers": [0]}}, r"in fillers \(0 instead of 0, 40\);"),
        ({"arguments": {"memories": ["slots"]}}, r"in memories \(slots instead of dssr@a4\);"),
        ({"arguments": {"games": ["test-6-001"]}}, "in games;"),
        ({"contents": {"games": "g2"}}, "in the content of games;"),
        ({"contents": {"prompts": "p2"}}, "in the content of prompts;"),
        ({"config": msgspec.structs.replace(CONFIG, protocol=ProtocolConfig(kind="pre"))}, "in config.protocol.kind;"),
    ],
)
def test_what_differs_from_the_approval_is_refused_and_named(
    seal: Seal, tmp_path: Path, changes: dict[str, Any], named: str
) -> None:
    """Catches a run on test games that nobody approved: before, any run of any configuration could take the opening."""
    with pytest.raises(SealError, match=named):
        opened(seal, tmp_path / "run", evaluation(**changes))
    assert not (tmp_path / "run").exists()
    assert not seal.openings


def test_what_is_known_before_models_load_is_compared_alone(seal: Seal) -> None:
    """Catches minutes of loading before a wrong budget is told, and a refusal because no fingerprint is known yet."""
    early = msgspec.structs.replace(evaluation(), models={})
    assert seal.check_approved(early, models_known=False).name == seal.approvals[0].name
    with pytest.raises(SealError, match="its models"):
        seal.check_approved(early)
    with pytest.raises(SealError, match="budgets"):
        seal.check_approved(evaluation(arguments={"budgets": [1]}), models_known=False)


def test_the_opened_run_moved_away_opens_nothing(seal: Seal, tmp_path: Path) -> None:
    """Catches the split opened again at the same place: the opening held a path, and three runs passed through it."""
    place = tmp_path / "run"
    opened(seal, place)
    other = msgspec.structs.replace(CONFIG, protocol=ProtocolConfig(kind="pre"))
    for turn in range(3):
        place.rename(tmp_path / f"hidden-{turn}")
        with pytest.raises(SealError, match="that run is gone"):
            opened(seal, place)
        with pytest.raises(SealError, match="that run is gone"):
            opened(seal, place, resume=True)
        with pytest.raises(SealError, match=r"in config\.protocol\.kind"):
            opened(seal, place, evaluation(other), config=other)
        assert not place.exists()
        Run.start(place, command="diagnose", config=CONFIG, models=MODELS, arguments=ARGUMENTS).close()
        with pytest.raises(SealError, match="where another run lies now"):
            opened(seal, place, resume=True)
        place.rename(tmp_path / f"planted-{turn}")
        (tmp_path / f"hidden-{turn}").rename(place)
        opened(seal, place, resume=True)
    assert len(seal.openings) == 1


def test_the_opened_run_goes_on_where_it_was_moved(seal: Seal, tmp_path: Path) -> None:
    """Catches a study that cannot go on elsewhere, a copy that goes on beside its original, and a move that leaves no
    trace."""
    first, copy, moved = (tmp_path / name for name in ("first", "copy", "moved"))
    opened(seal, first)
    shutil.copytree(first, copy)
    with pytest.raises(SealError, match="they open once"):
        opened(seal, copy, resume=True)
    first.rename(moved)
    with pytest.raises(SealError, match="that run is gone"):
        opened(seal, moved)
    opened(seal, moved, resume=True)
    opened(seal, moved, resume=True)
    assert [Path(one.place).name for one in seal.openings] == ["first", "moved"]
    with pytest.raises(SealError, match="they open once"):
        opened(seal, copy, resume=True)


def test_a_run_that_cannot_start_opens_nothing(seal: Seal, tmp_path: Path) -> None:
    """Catches an opening on record for a run that does not exist, which nobody could ever continue."""
    (tmp_path / "taken").mkdir()
    with pytest.raises(RecordError, match="holds no run"):
        opened(seal, tmp_path / "taken")
    assert not seal.openings


def test_a_kill_between_the_run_and_its_opening_loses_nothing(
    seal: Seal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches an approved run that can neither start anew nor go on because its directory was made and its opening was
    not written: no game was seen, so it goes on and is opened then."""
    with monkeypatch.context() as full:

        def no_space(seal: Seal, name: str, key: str, line: object) -> None:
            raise RecordError("Cannot append to the list: no space is left; free some.")

        full.setattr(Seal, "_append", no_space)
        with pytest.raises(RecordError, match="no space"):
            opened(seal, tmp_path / "run")
    assert not seal.openings
    assert opened(seal, tmp_path / "run", resume=True).info.id == seal.openings[0].id


def test_an_interrupted_line_is_no_opening(seal: Seal, tmp_path: Path) -> None:
    """Catches a line cut short by a kill that shuts the split, or that swallows the next line. The games open only
    after the line is whole, so a part of one means that nothing was seen."""
    (seal.folder / OPENED).write_bytes(b'{"key":"final-')
    assert not seal.openings
    opened(seal, tmp_path / "run")
    assert len(seal.openings) == 1


@pytest.mark.parametrize("name", [APPROVED, OPENED])
def test_a_damaged_list_keeps_it_shut(seal: Seal, tmp_path: Path, name: str) -> None:
    """Catches a list that cannot be read and counts as an approval, or as no opening."""
    (seal.folder / name).write_text("{\n")
    with pytest.raises(SealError, match=r"damaged.* stays shut until it is restored"):
        opened(seal, tmp_path / "run")


def test_the_seal_of_the_version_before(tmp_path: Path) -> None:
    """Catches an old approval, in words for any run, that still opens; and an old opening that is forgotten."""
    seal = Seal(tmp_path)
    (tmp_path / "approved.json").write_text('{"text":"the group","date":"2029-01-01"}\n')
    with pytest.raises(SealError, match="dssr gates approve"):
        opened(seal, tmp_path / "run")
    seal.approve(evaluation(), "by list", DAY)
    (tmp_path / "opened.json").write_text('{"run":"/old/run","date":"2029-01-02"}\n')
    for act in (lambda: opened(seal, tmp_path / "run"), lambda: seal.approve(evaluation(), "more", DAY)):
        with pytest.raises(SealError, match="opened before by /old/run on 2029-01-02"):
            act()
    (tmp_path / "opened.json").write_text("{")
    with pytest.raises(SealError, match="damaged"):
        opened(seal, tmp_path / "run")


# ---------------------------------------------------------------- two processes at once


def raced(acts: list[Callable[[], object]]) -> list[str]:
    """What each of several processes, let loose at the same moment, ended with."""
    context = multiprocessing.get_context("fork")
    gate, told = context.Barrier(len(acts)), context.Queue()

    def contend(number: int) -> None:
        gate.wait()
        try:
            acts[number]()
            told.put((number, "won"))
        except Exception as error:
            told.put((number, f"{type(error).__name__}: {error}"))

    racers = [context.Process(target=contend, args=(number,)) for number in range(len(acts))]
    for racer in racers:
        racer.start()
    ends = dict(told.get(timeout=600) for _ in racers)
    for racer in racers:
        racer.join()
    return [ends[number] for number in range(len(acts))]


@pytest.mark.parametrize("shared", [False, True], ids=["two-places", "one-place"])
def test_of_two_processes_one_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shared: bool) -> None:
    """Catches two openings of one run, and a loser who is told that the file is damaged (1 in 20, before)."""
    origin = runs.gather()
    monkeypatch.setattr(runs, "gather", lambda: origin)
    for turn in range(20):
        seal = Seal(tmp_path / f"seal-{turn}")
        seal.approve(evaluation(), "the group", DAY)
        places = [tmp_path / f"{turn}-{0 if shared else number}" for number in range(2)]
        ends = raced([partial(opened, seal, place) for place in places])
        assert sorted(end == "won" for end in ends) == [False, True], ends
        (lost,) = (end for end in ends if end != "won")
        winner = places[ends.index("won")]
        assert lost.startswith(f"SealError: The test games were opened for {seal.approvals[0].name} by {winner} on "), (
            lost
        )
        assert len(seal.openings) == 1
        assert [place.exists() for place in places] == [shared or end == "won" for end in ends]


def test_an_approval_that_races_an_opening_comes_before_it_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches a run approved after games were seen because both were checked before either was written."""
    origin = runs.gather()
    monkeypatch.setattr(runs, "gather", lambda: origin)
    for turn in range(20):
        seal = Seal(tmp_path / f"seal-{turn}")
        seal.approve(evaluation(), "the group", DAY)
        late = evaluation(models={"reader": "r2"})
        ends = raced([partial(opened, seal, tmp_path / f"{turn}"), partial(seal.approve, late, "late", DAY)])
        assert ends[0] == "won"
        assert (ends[1] == "won") == (len(seal.approvals) == 2)
        assert ends[1] == "won" or "no run can be approved after that" in ends[1]


def test_stored_lines_are_whole_records(seal: Seal) -> None:
    """Catches a list that lost what the approval is about: who, when, which configuration, models and budgets."""
    (line,) = (seal.folder / APPROVED).read_bytes().splitlines()
    stored = msgspec.json.decode(line, type=Approval)
    assert stored.run == evaluation()
    assert (stored.text, stored.date) == ("the group, after round 3 was chosen on valid", DAY)
    assert stored.run.arguments["budgets"] == [128]
    assert stored.run.models["writer@a4"] == "w1+a4"
    assert "data" not in stored.run.config
