"""Training on whole chains of rewrites, with the scripted writer on real games."""

import random
from pathlib import Path

import msgspec
import pytest

import dssr
from dssr.config import Config, WriterConfig
from dssr.errors import UsageError
from dssr.measure.candidates import CHAIN, Candidate
from dssr.models.scripted.learning import read_adapter, write_adapter
from dssr.record.run import Run
from dssr.training.round import Round, round_jobs
from dssr.training.variants import variant_of
from dssr.worlds.archive import Archive
from dssr.worlds.shipped import unpack

GAMES = Path(__file__).parents[1] / "games" / "six.tar.xz"
WRITER = WriterConfig(
    episodes_per_game=1,
    points=12,
    rounds=1,
    chain_points=6,
    chain_candidates=3,
    chain_targets=4,
    chain_fillers=((0, 5), (10,)),
    selection_budget=64,
    validation_games=1,
)


def candidate(index: int, score: float) -> Candidate:
    """A chain that is nothing but its score."""
    return Candidate("p", index, f"state {index}", None, False, {CHAIN: score})


@pytest.mark.parametrize(
    ("name", "scores", "learnt"),
    [
        ("chains", (-1.0, -3.0, -0.5), 2),
        ("chains-greedy", (-1.0, -3.0, -0.5), 0),
        ("chains-better", (-1.0, -3.0, -0.5), 2),
        ("chains-better", (-0.5, -3.0, -0.5), None),
    ],
)
def test_which_chain_is_learnt(name: str, scores: tuple[float, ...], learnt: int | None) -> None:
    """Catches a control that chooses after all, and a best chain learnt where the greedy one is as good."""
    found = variant_of(name, WRITER).learnt([candidate(*one) for one in enumerate(scores)], random.Random(0))
    assert (None if found is None else found.index) == learnt


def test_a_random_chain_ignores_scores() -> None:
    """Catches the control that must not choose: the drawn chain is the same whatever the scores are."""
    variant = variant_of("chains-random", WRITER)
    for seed in range(20):
        one, other = (
            variant.learnt([candidate(i, s) for i, s in enumerate(scores)], random.Random(seed))
            for scores in ((-1.0, -2.0, -3.0), (-3.0, -2.0, -1.0))
        )
        assert one is not None
        assert other is not None
        assert one.index == other.index


def test_fillers_grow_from_round_to_round() -> None:
    """Catches a curriculum that is not followed, or that ends with its list."""
    variant, config = variant_of("chains", WRITER), Config(name="x", writer=WRITER)
    assert [variant.walks(number) for number in range(4)] == [(0, 5), (10,), (10,), (10,)]
    assert variant_of("dssr", WRITER).walks(0) == ()
    assert round_jobs([], config, "summary", 0, 0, (5,)) == []


@pytest.fixture(scope="module")
def line(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Round 0 of a line of chains."""
    folder = tmp_path_factory.mktemp("chains")
    unpack(GAMES, folder / "data" / "six")
    scripted = dssr.load("scripted")
    config = msgspec.structs.replace(
        scripted,
        data=str(folder / "data"),
        runs=str(folder / "runs"),
        games=msgspec.structs.replace(scripted.games, archive="six", train=3, valid=2, test=1),
        agent=msgspec.structs.replace(scripted.agent, budgets=(64,)),
        protocol=msgspec.structs.replace(scripted.protocol, fillers=(0, 10)),
        measure=msgspec.structs.replace(scripted.measure, points=1, oracle_samples=1),
        writer=WRITER,
    )
    dssr.train(config, "chains", rounds="0-1", out=folder / "study", force=True, workers=1)
    return folder / "study" / "chains-s0"


def test_all_writes_of_the_best_chain_are_learnt(line: Path) -> None:
    """Catches chains learnt in part, requests that show another state than the chain had, and the wrong chain: the
    examples are rebuilt by hand from the log."""
    run = Run.open(line / "round-0")
    work = Round(run, run.config, variant_of("chains", WRITER), 0, 0)
    examples = work.examples(Archive.open(Path(run.config.data) / "six"))
    groups: dict[str, list[Candidate]] = {}
    for one in run.read("candidates", Candidate):
        groups.setdefault(one.point, []).append(one)
    best = [max(group, key=lambda one: (one.scores[CHAIN], -one.index)) for group in groups.values()]
    assert sum(1 + len(one.chain) for one in best) == len(examples) > len(best)
    states = [state for one in best for state in (one.state, *one.chain)]
    assert sorted(example.reply for example in examples) == sorted(states)
    for one in best:
        for before, after in zip((one.state, *one.chain), one.chain, strict=False):
            asked = [example for example in examples if example.reply == after]
            assert any(f"Previous state:\n{before or '(empty)'}\n" in e.messages[-1].content for e in asked)


def test_a_preference_is_where_two_chains_part(line: Path) -> None:
    """Catches pairs whose two replies answer different requests, pairs of chains that score alike, and worse ones that
    are preferred: rebuilt by hand from the log."""
    run, variant = Run.open(line / "round-0"), variant_of("chains-pairs", WRITER)
    work = Round(run, run.config, msgspec.structs.replace(variant, gap=1e-6), 2, 0)
    found = work.preferences(Archive.open(Path(run.config.data) / "six"))
    chains: dict[str, list[tuple[float, int, tuple[str, ...]]]] = {}
    for one in run.read("candidates", Candidate):
        chains.setdefault(one.point, []).append((one.scores[CHAIN], -one.index, (one.state, *one.chain)))
    expected = set()
    for group in chains.values():
        (high, _, better), (low, _, worse) = max(group), min(group)
        if high - low >= 1e-6:
            before = [state for state, other in zip(better, worse, strict=True) if state == other]
            at = next(place for place, state in enumerate(better) if state != worse[place])
            assert list(better[:at]) == before[:at]
            expected.add((better[at], worse[at]))
    assert expected
    assert expected <= {(pair.chosen, pair.rejected) for pair in found}
    assert all(pair.chosen != pair.rejected for pair in found)
    assert [variant.imitates(number) for number in range(4)] == [True, True, False, False]
    assert [variant_of("dssr", WRITER).imitates(number) for number in range(3)] == [True, False, False]
    assert variant_of("chains", WRITER).imitates(9)


def test_the_first_chain_is_greedy_and_the_line_goes_on_from_its_adapter(line: Path) -> None:
    """Catches a comparison with something else than the greedy chain, and rounds that start afresh."""
    greedy = [one for one in Run.open(line / "round-0").read("candidates", Candidate) if one.index == 0]
    assert greedy
    assert (line / "adapters" / "r0").exists()
    assert (line / "adapters" / "r1").exists()
    memory = Run.open(line / "round-1").info.arguments["memory"]
    assert memory.endswith("@r0")


def test_taught_chains_go_on_from_the_line_of_hindsight(line: Path) -> None:
    """Catches chains that begin with the main line's adapter or the untrained writer, and a round 0 of their own."""
    config, study = Run.open(line).config, line.parent
    with pytest.raises(UsageError, match="--variant hindsight"):
        dssr.train(config, "chains-taught", rounds="1", out=study, force=True, workers=1)
    with pytest.raises(UsageError, match="begins with round 1, from the adapter that hindsight"):
        dssr.train(config, "chains-taught", rounds="0-1", out=study, force=True, resume=True, workers=1)
    write_adapter(study / "hindsight-s0" / "adapters" / "r0", 0.5, {})
    dssr.train(config, "chains-taught", rounds="1", out=study, force=True, resume=True, workers=1)
    taught = study / "chains-taught-s0"
    assert read_adapter(taught / "adapters" / "r0") == 0.5
    assert "hindsight-s0" in (taught / "adapters" / "r0" / "card.json").read_text()
    assert not (taught / "round-0").exists()
    assert Run.open(taught / "round-1").info.arguments["memory"].endswith("@r0")
