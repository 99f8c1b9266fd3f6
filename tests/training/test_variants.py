"""What each variant learns from: the episodes and candidates of the main line, its own, or both in turn."""

import asyncio
import json
from pathlib import Path

import msgspec
import pytest
import torch
from tests.tiny import make_tiny
from tests.training.study import study

from dssr.agent.episode import stored
from dssr.config import Config, load
from dssr.errors import UsageError
from dssr.measure import candidates as scoring
from dssr.measure.candidates import Candidate, CandidateScorer, Sampling, WritePoint
from dssr.record.log import Content, read_digests, write_digests
from dssr.record.run import Run
from dssr.session import Session, silent
from dssr.training import fit as lora
from dssr.training.line import Line
from dssr.training.lines import Lines, SeedsResult
from dssr.training.results import PairRow
from dssr.training.round import Round, adapter_folder, returns_sample
from dssr.training.variants import names, variant_of
from dssr.types import Episode, Phase
from dssr.worlds.archive import Archive

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    return make_tiny(tmp_path_factory.mktemp("base") / "model")


@pytest.fixture(scope="module")
def config(archive: Archive, base: Path, tmp_path_factory: pytest.TempPathFactory) -> Config:
    config = study(archive, base, tmp_path_factory.mktemp("data"))
    return msgspec.structs.replace(config, writer=msgspec.structs.replace(config.writer, rounds=2))


@pytest.fixture(scope="module")
def place(config: Config, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study with the main line, trained to round 1, and the data of its round 2."""
    folder = tmp_path_factory.mktemp("study")
    main = Line(config, "dssr", 0, folder / "dssr-s0", silent)
    asyncio.run(main.train(range(2)))
    asyncio.run(main.data(2))
    return folder


def points(place: Path, line: str, number: int) -> list[WritePoint]:
    return list(Run.open(place / line / f"round-{number}").read("points", WritePoint))


def candidates(place: Path, line: str, number: int) -> dict[tuple[str, int], Candidate]:
    found = Run.open(place / line / f"round-{number}").read("candidates", Candidate)
    return {(one.point, one.index): one for one in found}


def contents(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_variants_share_candidates_and_differ_in_what_they_learn_from(
    archive: Archive, base: Path, tmp_path: Path
) -> None:
    """Catches a variant that samples its own candidates where it should re-rank the common ones, or ranks as dssr does.

    Scores are swapped by hand in the stored candidates, so that S1 and S2 disagree about the best.
    """
    config = study(archive, base, tmp_path / "data")
    k1 = Line(config, "k1", 0, tmp_path / "k1-s0", silent)
    with pytest.raises(UsageError, match="--variant dssr"):
        asyncio.run(k1.train(range(1)))
    assert not (tmp_path / "k1-s0").exists()
    dssr = Line(config, "dssr", 0, tmp_path / "dssr-s0", silent)
    groups = asyncio.run(dssr.data(0)).groups()
    log = tmp_path / "dssr-s0" / "round-0" / "candidates.jsonl"
    lines = []
    for group in groups.values():
        for one in group:
            scores = {"S1": float(one.index), "S2": -float(one.index)}
            changed = msgspec.to_builtins(msgspec.structs.replace(one, scores=scores))
            lines.append(msgspec.json.encode({"key": f"{one.point}:{one.index:02d}", **changed}))
    log.write_bytes(b"\n".join(lines) + b"\n")
    write_digests(log.parent, {**(read_digests(log.parent) or {}), log.name: Content.in_file(log)})
    archive_of = dssr.archive
    first, last = (asyncio.run(line.data(0)).examples(archive_of) for line in (dssr, k1))
    assert [one.reply for one in first] == [group[0].state for group in groups.values()]
    assert [one.reply for one in last] == [group[-1].state for group in groups.values()]
    rows = asyncio.run(k1.train(range(1)))
    assert rows[-1]["ended"] is None
    assert not (tmp_path / "k1-s0" / "round-0").exists()
    assert adapter_folder(tmp_path / "k1-s0", 0).exists()


def test_outcome_plays_on_from_the_main_lines_candidates(config: Config, place: Path) -> None:
    """Catches an outcome line that collects episodes, draws points or samples candidates of its own, plays on with its
    own writer instead of the one that collected, takes the reader's loss, or writes into the main line."""
    before = contents(place / "dssr-s0")
    outcome = Line(config, "outcome", 0, place / "outcome-s0", silent)
    rows = asyncio.run(outcome.train(range(2)))
    assert [row["round"] for row in rows] == ["untrained", 0, 1]
    assert contents(place / "dssr-s0") == before
    for number in (0, 1):
        folder = place / "outcome-s0" / f"round-{number}"
        assert not (folder / "episodes.jsonl").exists()
        info = Run.open(folder).info
        assert info.arguments["episodes"] == f"dssr-s0/round-{number}"
        main, own = (points(place, line, number) for line in ("dssr-s0", "outcome-s0"))
        assert own
        assert {one.key for one in own} < {one.key for one in main}
        assert sum(one.phase == "A" for one in own) <= 0.25 * len(own)
        shared, scored = (candidates(place, line, number) for line in ("dssr-s0", "outcome-s0"))
        assert len(scored) == 3 * len(own)
        for key, one in scored.items():
            assert set(one.scores) == {"return"}
            assert 0 <= one.scores["return"] <= 1
            assert msgspec.structs.replace(one, scores={}) == msgspec.structs.replace(shared[key], scores={})
    asyncio.run(outcome.data(2))
    writers = {line: Run.open(place / line / "round-2").info.models["writer@r1"] for line in ("dssr-s0", "outcome-s0")}
    assert writers["outcome-s0"] == writers["dssr-s0"]
    mine, theirs = (lora.content_hash(adapter_folder(place / line, 1)) for line in ("outcome-s0", "dssr-s0"))
    assert mine != theirs, "so the writer above was really the other line's"
    shares = [row.alike for row in Run.open(place / "outcome-s0").read("pairs", PairRow) if row.group == "all"]
    same = [len({one.scores["return"] for one in group}) == 1 for group in outcome.stored_data(0).groups().values()]
    assert shares[0] == pytest.approx(sum(same) / len(same))


@pytest.mark.parametrize(
    ("supply", "count", "drawn"),
    [
        ((500, 1500), 1000, (250, 750)),
        ((100, 1500), 1000, (100, 900)),
        ((500, 300), 1000, (100, 300)),
        ((4, 4), 6, (1, 4)),
    ],
)
def test_at_most_a_quarter_of_outcome_points_is_from_phase_a(
    supply: tuple[int, int], count: int, drawn: tuple[int, int]
) -> None:
    """Catches more than 25 % from Phase A where Phase B is short: 300 points of Phase B allow 100, of 400 in all."""
    phases: tuple[Phase, Phase] = ("A", "B")
    all_of = [
        WritePoint(f"{phase}{number}", 1, 0, 64, phase, 0, (9,))
        for phase, many in zip(phases, supply, strict=True)
        for number in range(many)
    ]
    found = returns_sample(all_of, count, 0.25, "seed")
    assert tuple(sum(one.phase == phase for one in found) for phase in "AB") == drawn


def test_a4_starts_from_the_main_lines_first_adapter_and_episodes(
    config: Config, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches a round 0 of its own, episodes of its own in round 1, points drawn after the filter (which would be eight
    again), and a round 2 that still uses the main line's.

    Random states hold no directive, so every second of the input states is taken for one that does.
    """
    played = {one.episode.key: one for one in stored(Run.open(place / "dssr-s0" / "round-1"))}
    drawn = points(place, "dssr-s0", 1)

    def given(point: WritePoint) -> str:
        return played[point.episode].steps[point.step - 1].write.state

    holding = set([given(point) for point in drawn if point.since_reveal > 0][::2])
    monkeypatch.setattr(scoring, "coverage", lambda state, facts: float(state in holding))
    line = Line(config, "a4", 0, place / "a4-s0", silent)
    with pytest.raises(UsageError, match="a4 begins with round 1"):
        line.check(range(2))
    rows = asyncio.run(line.train(range(1, 2)))
    assert [row["round"] for row in rows] == ["untrained", 1]
    own, main = (adapter_folder(place / name, 0) for name in ("a4-s0", "dssr-s0"))
    assert lora.content_hash(own) == lora.content_hash(main)
    assert json.loads((own / "card.json").read_text())["copied"] == "dssr-s0/adapters/r0"
    assert not (place / "a4-s0" / "round-0").exists()
    assert not (place / "a4-s0" / "round-1" / "episodes.jsonl").exists()

    kept = [point for point in drawn if point.since_reveal <= 0 or given(point) in holding]
    assert points(place, "a4-s0", 1) == kept
    assert 0 < len(kept) < len(drawn) == 8
    assert any(point.since_reveal > 0 for point in kept)
    assert len(candidates(place, "a4-s0", 1)) == 4 * len(kept)

    asyncio.run(line.data(2))
    episodes = list(Run.open(place / "a4-s0" / "round-2").read("episodes", Episode))
    assert {one.job.cell.memory for one in episodes} == {"dssr@r1"}
    assert not {one.key for one in episodes} & {
        one.key for one in Run.open(place / "dssr-s0" / "round-2").read("episodes", Episode)
    }


def test_a_line_of_before_is_reported_but_not_continued(config: Config, place: Path, tmp_path: Path) -> None:
    """Catches a line that collected for itself, as outcome and a4 once did, continued by other rules half-way."""
    folder = tmp_path / "outcome-s0" / "round-0"
    folder.mkdir(parents=True)
    (folder / "episodes.jsonl").touch()
    with pytest.raises(UsageError, match="can be reported but not continued"):
        Line(config, "outcome", 0, tmp_path / "outcome-s0", silent).check(range(1))


def test_no_hint_keeps_what_the_reader_is_never_offered(config: Config, place: Path) -> None:
    """Catches candidates left out for `look` or `examine`, which are admissible but never among the options."""
    source = Run.open(place / "dssr-s0" / "round-0")
    point = next(source.read("points", WritePoint))
    played = next(one for one in stored(source) if one.episode.key == point.episode)

    async def hints(*states: str) -> list[bool]:
        async with Session(config) as session:
            scorer = CandidateScorer(played, session.agent(), Sampling(len(states), 1.0), config.writer, 0)

            async def sample(view: object, previous: str, temperature: float, index: int, samples: int = 1) -> str:
                return states[index]

            async def nothing(point: WritePoint, state: str) -> dict[str, float]:
                return {"S2": 0.0}

            scorer.memory.sample = sample  # type: ignore[method-assign]
            scorer.recursive = nothing  # type: ignore[method-assign]
            assert "look" not in scorer.offered[point.step]
            option = scorer.offered[point.step][0]
            assert len(scorer.offered) == len(played.steps)
            states = (*states, option)
            scorer.sampling = Sampling(len(states), 1.0)
            return [one.hint for one in await scorer.candidates(point)]

    assert asyncio.run(hints("look", "inventory", "take a look")) == [False, False, False, True]


def test_seeds_share_the_pairs_and_the_start_and_differ_in_the_training_seed(
    config: Config, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Catches seeds that collect anew, start elsewhere or learn from other pairs; a round 0 whose fresh adapter starts
    from other numbers; adapters that no configuration names; and seeds that are trained twice."""
    main = Line(config, "dssr", 0, place / "dssr-s0", silent)
    learnt: list[tuple[object, ...]] = []

    def spied(fit: lora.Fit, preferences: object, previous: Path, *rest: object) -> str:
        learnt.append((fit.seed, fit.start, preferences, previous))
        return train(fit, preferences, previous, *rest)  # type: ignore[arg-type]

    train = lora.train_dpo
    monkeypatch.setattr(lora, "train_dpo", spied)
    monkeypatch.setattr(Round, "collect", None)
    monkeypatch.setattr(Round, "score", None)
    for extra in (1, 2):
        asyncio.run(main.retrain(1, extra))
    monkeypatch.undo()
    pairs = main.stored_data(1).preferences(main.archive)
    assert [one[2:] for one in learnt] == [(pairs, adapter_folder(place / "dssr-s0", 0))] * 2
    assert len({one[0] for one in learnt} | {main._fit(1).seed}) == 3
    assert {one[1] for one in learnt} == {main._fit(1).seed}
    hashes = {lora.content_hash(adapter_folder(place / "dssr-s0", 1, extra)) for extra in range(3)}
    assert len(hashes) == 3
    assert not (place / "dssr-s1").exists()

    rows = asyncio.run(main.retrain(0, 1))
    assert [(row.round, row.seed) for row in rows] == [(0, 1)]
    assert lora.content_hash(adapter_folder(place / "dssr-s0", 0, 1)) != lora.content_hash(
        adapter_folder(place / "dssr-s0", 0)
    )
    first, again = main._fit(0), main._fit(0, 1)
    assert first.seed != again.seed
    starts = [lora.fresh(fit).state_dict() for fit in (first, again)]
    assert all(torch.equal(starts[0][name], starts[1][name]) for name in starts[0])


def test_the_selected_seeds_have_names_to_measure_with(config: Config, place: Path) -> None:
    """Catches seeds that are not validated, not reported by their training seed, or that no configuration names."""
    before = contents(place / "dssr-s0" / "round-1")

    def ask() -> SeedsResult:
        return asyncio.run(Lines(config, place, True, False).retrain("dssr", 0, 2))

    found = ask()
    number = found.selected.round
    assert [(row.seed, row.round) for row in found.seeds] == [(0, number), (1, number)]
    assert found.memories == ["dssr@dssr/s0", "dssr@dssr/s1"]
    named = load(found.config).writer_model.adapters
    for extra in range(2):
        assert named[f"dssr/s{extra}"] == str(adapter_folder(place / "dssr-s0", number, extra))
    assert found.lines == [str(place / "dssr-s0"), str(place / "dssr-s0" / "seeds" / f"r{number}-s1")]
    assert contents(place / "dssr-s0" / "round-1") == before
    repeated = ask()
    assert repeated.expected == {}
    assert repeated.seeds == found.seeds
    with pytest.raises(UsageError, match=r"cannot be trained again: .*round-5 is not there"):
        Line(config, "dssr", 0, place / "dssr-s0", silent).check_again(5)
    other = msgspec.structs.replace(config, seed=7)
    with pytest.raises(UsageError, match="made with another configuration"):
        Line(other, "dssr", 0, place / "dssr-s0", silent).check_again(1)


def test_which_variant_makes_what(config: Config) -> None:
    """Catches a variant that is counted, or trained, with data that another one makes."""
    made = {name: variant_of(name, config.writer) for name in names(config.writer)}
    assert {name: [one.collects(number) for number in range(3)] for name, one in made.items()} == {
        "dssr": [True] * 3, "k1": [False] * 3, "no-hint": [False] * 3, "outcome": [False] * 3,
        "a4": [False, False, True],
    }  # fmt: skip
    assert {name for name, one in made.items() if one.makes_data} == {"dssr", "outcome", "a4"}
    assert {name for name, one in made.items() if one.samples} == {"dssr", "a4"}
    assert {name: one.first for name, one in made.items() if one.first} == {"a4": 1}
