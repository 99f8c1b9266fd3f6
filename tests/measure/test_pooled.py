"""Seeds pooled per game, and tables over sampled points, on runs made of numbers that can be worked out by hand."""

import json
from functools import partial
from pathlib import Path

import msgspec
import pytest
from tests.measure.made import RECIPE, Point, Result, cells, make_run, won
from tests.tiny import finished_again

from dssr.config import Config, GatesConfig, MeasureConfig, StatsConfig, WriterConfig, load
from dssr.errors import ConfigError, StatsError
from dssr.measure.comparisons import contrast_rows, gap_and_success
from dssr.measure.gates import Case, Ledger, check_gates, checks_of
from dssr.measure.lag import rewrite_contrast_rows, rewrite_rows
from dssr.measure.rows import cell_rows
from dssr.measure.sampled import filler_check, filler_lag_rows, lag_table_rows, spread, tie_rows, word_for_filler
from dssr.measure.study import Study
from dssr.measure.verdicts import statements, verdict
from dssr.reports.study_tables import study_tables
from dssr.settings import names
from dssr.types import Cell

SMALL = Config(name="made", stats=StatsConfig(resamples=400))
LONG = (0, 20, 40)


def seeds_of(path: Path, per_seed: list[dict[str, Result]], config: Config = SMALL, filler: int = 20) -> Study:
    """A study of one writer's seeds at one filler, beside `summary`, which loses every game."""
    base = {game: Result(False, (Point(1.0, 5),)) for game in per_seed[0]}
    made = {Cell("summary", 128, filler, "post"): base}
    made |= {Cell(f"dssr@a4/s{n}", 128, filler, "post"): games for n, games in enumerate(per_seed)}
    return Study.load([make_run(path, config, made)])


# ---------------------------------------------------------------- seeds


def test_seeds_are_pooled_per_game(tmp_path: Path) -> None:
    """Games a, b. Seed 0 wins both, seeds 1 and 2 win a: a is 1, b is 1/3, so the mean is 2/3 over *two* games; six
    games in a row would give the same mean and an interval that is too narrow. Kappa of a: seed 0 has the points 0 and
    2 (mean 1), the others 4: (1 + 4 + 4) / 3 = 3, where its points alone would give 2.5; of b it is 0."""
    zero = Result(False, (Point(0.0, 5),))
    first = {"a": Result(True, (Point(0.0, 5), Point(2.0, 5))), "b": Result(True, (Point(0.0, 5),))}
    other = {"a": Result(True, (Point(4.0, 5),)), "b": zero}
    study = seeds_of(tmp_path / "run", [first, other, other])
    rows = {row.memory: row for row in cell_rows(study)}
    assert list(rows) == ["summary", "dssr@a4", "dssr@a4/s0", "dssr@a4/s1", "dssr@a4/s2"]
    pooled = rows["dssr@a4"]
    assert pooled.success is not None
    assert pooled.kappa is not None
    assert (pooled.games, pooled.seeds, pooled.problem) == (2, 3, None)
    assert pooled.success.estimate == pytest.approx(2 / 3)
    assert (pooled.success.low, pooled.success.high) == pytest.approx((1 / 3, 1.0)), (
        "resamples of two games, not of six"
    )
    assert pooled.kappa.estimate == pytest.approx((3 + 0) / 2)
    (contrast,) = (r for r in contrast_rows(study) if r.memory == "dssr@a4" and r.quantity == "kappa")
    assert contrast.difference is not None
    assert contrast.difference.estimate == pytest.approx(1.5 - 1.0)
    (bins,) = (r for r in rewrite_rows(study) if r.memory == "dssr@a4" and r.points)
    assert bins.kappa is not None
    assert bins.points == 7
    assert bins.kappa.estimate == pytest.approx((0 + 2 + 4 + 4) / 7), "a mean over points"
    (change,) = (r for r in rewrite_contrast_rows(study, "dssr@a4", "summary") if r.games)
    assert change.difference is not None
    assert change.difference.estimate == pytest.approx(1.5 - 1.0), "a contrast averages seeds per game first"


def test_a_missing_seed_is_said_and_not_averaged_away(tmp_path: Path) -> None:
    """Two seeds of three, a seed without one of the cells, and a game that one seed lacks: each is a sentence where
    the old way would have been a mean of fewer."""
    both = won(1, 2)
    two = seeds_of(tmp_path / "two", [both, both])
    assert "dssr@a4" not in {row.memory for row in cell_rows(two)}
    with pytest.raises(StatsError, match=r"hold 2 of its 3 seeds \(dssr@a4/s0, dssr@a4/s1\)"):
        checks_of("plain", Case(two, dssr="dssr@a4"))
    (grid, *_), _ = study_tables(two)
    assert "2 of its 3 seeds" in grid.note
    made = {Cell(f"dssr@a4/s{n}", 128, f, "post"): both for n in range(3) for f in (20, 40) if (n, f) != (2, 40)}
    gap = Study.load([make_run(tmp_path / "gap", SMALL, made)])
    with pytest.raises(StatsError, match="its seed dssr@a4/s2 was not measured there"):
        checks_of("plain", Case(gap, dssr="dssr@a4"))
    broken = seeds_of(tmp_path / "broken", [both, both, both | {"valid-6-001": Result(None)}])
    (row,) = (one for one in cell_rows(broken) if one.memory == "dssr@a4")
    assert row.success is None
    assert row.problem is not None
    assert "only dssr@a4/s0 has valid-6-001" in row.problem
    (contrast,) = (r for r in contrast_rows(broken) if r.memory == "dssr@a4" and r.quantity == "success")
    assert contrast.problem == row.problem


def test_a_name_that_means_two_things_is_refused(tmp_path: Path) -> None:
    """An adapter called `a4` beside its seeds: which of the two would `dssr@a4` be?"""
    made = {Cell(name, 128, 0, "post"): won(1, 2) for name in ("dssr@a4", "dssr@a4/s0")}
    study = Study.load([make_run(tmp_path / "run", SMALL, made)])
    with pytest.raises(StatsError, match="the name would mean two things"):
        cell_rows(study)


# ---------------------------------------------------------------- gates


def published(path: Path) -> Study:
    """Wins of 90 test games at filler 0, 20, 40 and 128 tokens, as published for the first reader."""
    table = {
        "full": (86, 87, 85),
        "summary": (3, 1, 0),
        "belief": (10, 0, 0),
        "slots": (9, 0, 0),
        "guide": (13, 0, 2),
        "dssr@a4/s0": (3, 1, 0),
        "dssr@a4/s1": (14, 5, 2),
        "dssr@a4/s2": (11, 0, 3),
        "dssr@outcome": (8, 1, 0),
        "dssr@k1": (6, 1, 0),
        "dssr@no-hint": (8, 3, 2),
    }
    made = {
        cell: won(wins, 90)
        for name, row in table.items()
        for cell, wins in zip(cells(name, LONG, None if name == "full" else 128), row, strict=True)
    }
    return Study.load([make_run(path, SMALL, made)])


def test_the_published_case_is_replayed(tmp_path: Path) -> None:
    """The published wins, through Study, gates and ledger. DSSR over three seeds at filler 20/40 wins
    (1 + 5 + 0 + 0 + 2 + 3) of 540 = 2.04 %; summary, the best of the three formats, 1 of 180 = 0.56 %: a gain of 1.48
    points, not 8. `guide` (2 of 180) has more and is not among the formats. At filler 0 DSSR has 28 of 270 against 3 of
    90: 7.04 points above."""
    study = published(tmp_path / "run")
    roles = {"dssr": "dssr@a4", "outcome": "dssr@outcome", "one_target": "dssr@k1", "no_hint": "dssr@no-hint"}
    case = Case(study, **roles, second=study)
    found = checks_of("G2a", case)
    gain, outcome, near = found.checks
    assert gain.estimate == pytest.approx(11 / 540 - 1 / 180)
    assert outcome.estimate == pytest.approx(11 / 540 - 1 / 180)
    assert near.estimate == pytest.approx(28 / 270 - 3 / 90)
    assert [check.passed for check in found.checks] == [False, False, True]
    assert found.notes[0] == "The best prompted memory is summary."
    assert gain.detectable is not None
    assert 0 < gain.detectable < 0.08, "90 games would have shown 8 points"
    ledger = Ledger(tmp_path / "ledger.jsonl")
    words = statements(study.config.gates, (20, 40))
    ledger.write(words, "2020-01-01T00:00:00+00:00")
    for gate in ("G2a", "G2c", "G2d", "G2e", "plain"):
        said = verdict(gate, words[gate], checks_of(gate, case))
        ledger.judge(said, {"run": study.runs[0].info.provenance.started}, "2030-01-01T00:00:00+00:00")
    verdicts = {one.gate: one.verdict for one in ledger.entries() if one.verdict is not None}
    assert verdicts["G2a"].passed is False
    assert verdicts["G2a"].checks == found.checks, "estimates and intervals are kept"
    assert verdicts["G2c"].passed is False
    assert verdicts["plain"].passed is None
    ahead, shrinks = verdicts["G2c"].checks
    assert ahead.estimate == pytest.approx(11 / 540 - 1 / 180), "K = 1 wins 1 of 180"
    assert shrinks.estimate == pytest.approx((11 / 540 - 1 / 180) - (28 / 270 - 6 / 90)), "at filler 0 it is 3.7 points"
    against = [check.estimate for check in verdicts["plain"].checks]
    assert against == pytest.approx([11 / 540 - 2 / 180, 11 / 540 - 172 / 180]), "guide 2 of 180, full 172"
    kept = verdicts["G2e"].checks[-1]
    assert kept.estimate == pytest.approx((5 / 180 - 1 / 180) / (11 / 540 - 1 / 180)), "no-hint wins 5 of 180"
    # Seed 0, the one that was published under the second reader, gains nothing under the first: there is no share.
    second = Study.load(
        [
            make_run(
                tmp_path / "second",
                SMALL,
                {
                    cell: won(wins, 90)
                    for name, row in {"summary": (2, 0, 0), "dssr@a4/s0": (5, 0, 0)}.items()
                    for cell, wins in zip(cells(name, LONG), row, strict=True)
                },
            )
        ]
    )
    assert verdict("G2d", words["G2d"], checks_of("G2d", Case(study, dssr="dssr@a4/s0", second=second))).vacuous


def test_the_published_regrets_are_replayed(tmp_path: Path) -> None:
    """The published means of κ, the same for every game: single games were not published, so estimates can be replayed
    and intervals not. G1a, validation: κ(40) − κ(0) is 1.10 − 0.85, 1.17 − 0.79, 1.69 − 0.49; by measured lag the bins
    from 5 on have (15 · 1.89 + 123 · 1.97 + 146 · 1.87 + 141 · 2.30) / 425 = 2.0423 against 0.61. G2b, test: (1.36 +
    1.58) / 2 = 1.47 against (1.35 + 1.66) / 2 = 1.505 is −2.3 %, not −40; the slopes are 19.1 / 875 and 19.025 / 875,
    so it is no flatter. G1b and G1c need δ of every cell and the candidates' returns, which were not published."""
    games = [f"valid-6-{number:03d}" for number in range(5)]

    def flat(*points: Point) -> dict[str, Result]:
        return {game: Result(False, points) for game in games}

    long = (15 * 1.89 + 123 * 1.97 + 146 * 1.87 + 141 * 2.30) / 425
    made: dict[Cell, dict[str, Result]] = {}
    for name, near, far in (("summary", 0.85, 1.10), ("belief", 0.79, 1.17), ("slots", 0.49, 1.69)):
        made[Cell(name, 128, 0, "post")] = flat(Point(near))
        made[Cell(name, 128, 20, "post")] = flat(Point(0.61, lag=3), Point(long, lag=20))
        made[Cell(name, 128, 40, "post")] = flat(Point(far))
    found = checks_of("G1a", Case(Study.load([make_run(tmp_path / "valid", SMALL, made)])))
    assert [check.estimate for check in found.checks] == pytest.approx([0.25, 0.38, 1.20, long - 0.61])
    regrets = {"summary": (0.79, 1.05, 1.35, 1.66), "dssr@a4": (0.62, 1.20, 1.36, 1.58)}
    tested = {
        cell: flat(Point(kappa))
        for name, row in regrets.items()
        for cell, kappa in zip(cells(name, (0, 10, 20, 40)), row, strict=True)
    }
    study = Study.load([make_run(tmp_path / "test", SMALL, tested)])
    change, slope = checks_of("G2b", Case(study, dssr="dssr@a4")).checks
    assert change.estimate == pytest.approx(1.47 / 1.505 - 1)
    assert slope.estimate == pytest.approx((19.1 - 19.025) / 875)
    assert (change.passed, slope.passed) == (False, False)


def test_a_vacuous_gate_is_named_so(tmp_path: Path) -> None:
    """A trained writer that wins no more than `summary` has no gain of which another reader could keep half."""
    made = {
        cell: won(wins, 10)
        for name, wins in (("summary", 3), ("dssr@x", 3), ("dssr@clean", 5))
        for cell in cells(name, LONG)
    }
    study = Study.load([make_run(tmp_path / "run", SMALL, made)])
    for gate in ("G2d", "G2e"):
        said = verdict(gate, "…", checks_of(gate, Case(study, dssr="dssr@x", no_hint="dssr@clean", second=study)))
        assert (said.vacuous, said.passed) == (True, None)


def test_the_relation_counts_full_at_zero(tmp_path: Path) -> None:
    """One format at two fillers and `full` at both: four cells, the first two rows with delta 0."""
    made = {cell: won(1, 2) for cell in cells("full", (0, 20), None)}
    lost = {"valid-6-000": Result(False, (Point(1.0),)), "valid-6-001": Result(False, (Point(3.0),))}
    made |= dict.fromkeys(cells("summary", (0, 20)), lost)
    delta, success = gap_and_success(Study.load([make_run(tmp_path / "run", SMALL, made)]))
    assert delta.mean(1).tolist() == [0, 0, 2, 2]
    assert success.mean(1).tolist() == [0.5, 0.5, 0, 0]


def test_every_shipped_configuration_has_its_gates_budget() -> None:
    """A gate at a budget that no run of the configuration measures can never be judged; nano's were such gates."""
    for name in names():
        check_gates(load(name))
    assert load("nano").gates.budget == 80
    wrong = Config(name="wrong", gates=GatesConfig(budget=100))
    with pytest.raises(ConfigError, match=r"gates.budget is 100, which is not one of agent.budgets \[64, 128, 256\]"):
        check_gates(wrong)


# ---------------------------------------------------------------- sampled points


def test_a_sample_is_spread_over_cells_and_drawn_by_seed() -> None:
    """Cells of 9, 2 and 5 items, 9 to be had: turn by turn 3, 2 and 3, then one more of a cell that still has some; the
    same seed gives the same, another seed others."""
    items = [[(cell, n) for n in range(size)] for cell, size in enumerate((9, 2, 5))]
    drawn = [spread(items, 9, partial(lambda seed, one: (seed, one), seed)) for seed in (0, 0, 1)]
    assert [sum(one[0] == cell for one in drawn[0]) for cell in range(3)] == [4, 2, 3]
    assert drawn[0] == drawn[1] != drawn[2]
    assert len(spread(items, 100, lambda one: (one,))) == 16


def test_the_lag_table_is_pooled_over_formats(tmp_path: Path) -> None:
    """Games a with five points of kappa 0 and b with one of 1, over two formats, all at lag 2: 1/6 over decisions, not
    1/2. `guide` and other budgets are no part of it, nor is a decision that hangs on nothing."""
    point = Point(0.0, lag=2, beta=0.5, full=0.25)
    made = {
        Cell("summary", 128, 0, "post"): {"a": Result(points=(point,) * 3), "b": Result(points=(Point(9.0, lag=0),))},
        Cell("slots", 128, 0, "post"): {"a": Result(points=(point,) * 2), "b": Result(points=(Point(1.0, lag=2),))},
        Cell("guide", 128, 0, "post"): {"a": Result(points=(Point(7.0, lag=2),)), "b": Result()},
        Cell("summary", 64, 0, "post"): {"a": Result(points=(Point(7.0, lag=2),)), "b": Result()},
    }
    study = Study.load([make_run(tmp_path / "run", SMALL, made)])
    (row,) = (one for one in lag_table_rows(study) if one.threshold == 0.5 and one.points)
    assert (row.bin, row.points, row.games, row.sampled) == ("1-4", 6, 2, 7)
    assert row.kappa is not None
    assert row.beta is not None
    assert row.nll_full is not None
    assert row.kappa.estimate == pytest.approx(1 / 6)
    assert (row.kappa.low, row.kappa.high) == (0.0, 1.0)
    assert row.beta.estimate == pytest.approx(5 * 0.5 / 6)
    assert row.nll_full.estimate == pytest.approx(5 * 0.25 / 6)
    few = Config(name="made", stats=StatsConfig(resamples=400), measure=MeasureConfig(lag_points=4))
    assert lag_table_rows(Study.load([make_run(tmp_path / "few", few, made)]))[0].sampled == 4


def test_ties_are_one_pooled_rate(tmp_path: Path) -> None:
    """Four ties of five in one game and none of one in the other: 4/6, not the mean of 0.8 and 0."""
    made = {
        Cell("summary", 128, 0, "post"): {"a": Result(ties=(True,) * 4 + (False,)), "b": Result()},
        Cell("slots", 128, 0, "post"): {"a": Result(), "b": Result(ties=(False,))},
    }
    (row,) = tie_rows(Study.load([make_run(tmp_path / "run", SMALL, made)]))
    assert (row.steps, row.of, row.ties) == (6, 6, 4)
    assert row.rate.estimate == pytest.approx(4 / 6)
    assert (row.rate.low, row.rate.high) == (0.0, 0.8)
    few = Config(name="made", stats=StatsConfig(resamples=400), measure=MeasureConfig(tie_steps=3))
    (row,) = tie_rows(Study.load([make_run(tmp_path / "few", few, made)]))
    assert (row.steps, row.of) == (3, 6)


# ---------------------------------------------------------------- is the filler lag?


def walked(path: Path, lags: dict[int, int], again: int, config: Config = SMALL) -> Study:
    """Two games of `summary` whose lag at each filler is given, and whose walks tell the recipe again so often."""
    made = {}
    for filler, lag in lags.items():
        walk = tuple(RECIPE if step < again else "Nothing to see." for step in range(filler))
        made[Cell("summary", 128, filler, "post")] = {
            game: Result(False, (Point(1.0, lag=lag), Point(1.0, lag=lag + 1)), walk) for game in ("a", "b")
        }
    return Study.load([make_run(path, config, made)])


def test_a_walk_that_tells_the_fact_again_is_not_lag(tmp_path: Path) -> None:
    """Lags 2 and 12 at fillers 0 and 10: one step per step, and the word is lag. With the recipe told at 4 of 10 steps
    the lag stays at 2: the share is 40 %, the slope 0, and table, gate and verdict speak of filler."""
    good = walked(tmp_path / "good", {0: 2, 10: 12}, again=0)
    assert [row.lag.estimate for row in filler_lag_rows(good) if row.lag] == [2.5, 12.5]
    assert filler_check(good).slope.estimate == pytest.approx(1.0)
    assert word_for_filler(good)[0] == "lag"
    bad = walked(tmp_path / "bad", {0: 2, 10: 2}, again=4)
    assert [(row.filler_steps, row.exposed) for row in filler_lag_rows(bad)] == [(0, None), (20, 0.4)]
    found = checks_of("G0", Case(bad))
    assert [check.passed for check in found.checks] == [False, None]
    assert found.checks[1].estimate == pytest.approx(0.4)
    assert "40 % of its steps tell the fact again" in found.notes[0]
    for study, word in ((good, "Lag"), (bad, "Filler")):
        titles = {table.name: table.title for table in study_tables(study)[0]}
        assert titles["lag-grid"].startswith(f"{word} grid")


def test_too_few_lags_are_said(tmp_path: Path) -> None:
    """Two games, two points each at a filler, all with a lag of 2 or 3 steps: catches sentences that blame the fillers
    of the run, or the resampling, for lags that are not there."""
    single = walked(tmp_path / "single", {0: 2}, again=0)
    with pytest.raises(
        StatsError, match="4 decision points have a lag, all of them at filler 0; it takes points of two"
    ):
        checks_of("G0", Case(single))
    gates = GatesConfig(formats=("summary",), near=0, far=10)
    short = walked(tmp_path / "short", {0: 2, 10: 2}, again=0, config=msgspec.structs.replace(SMALL, gates=gates))
    with pytest.raises(StatsError, match="No game has decision points with lags of 5 steps and more and of fewer"):
        checks_of("G1a", Case(short))


# ---------------------------------------------------------------- devices


def test_a_run_continued_elsewhere_is_a_mixture(tmp_path: Path) -> None:
    """The device of every session counts: `run.json` alone would call this run pure."""
    run = make_run(tmp_path / "run", SMALL, {Cell("summary", 128, 0, "post"): won(1, 2)})
    here = json.loads((run.path / "run.json").read_text())["provenance"]
    (run.path / "resumes.jsonl").write_text(json.dumps(here) + "\n")
    assert len(Study.load([finished_again(run.path)]).games) == 2
    with (run.path / "resumes.jsonl").open("a") as file:
        file.write(json.dumps(here | {"device": "Abacus 3000"}) + "\n")
    with pytest.raises(StatsError, match="continued on Abacus 3000"):
        Study.load([finished_again(run.path)])


def test_two_readers_on_two_devices_are_not_compared(tmp_path: Path) -> None:
    """A gate over two studies is one table: each study alone would pass the check."""
    first = published(tmp_path / "first")
    other = published(tmp_path / "other")
    file = other.runs[0].path / "run.json"
    file.write_text(file.read_text().replace(other.device, "Abacus 3000"))
    second = Study.load([finished_again(other.runs[0].path)])
    with pytest.raises(StatsError, match="on Abacus 3000; one table never mixes devices"):
        checks_of("G2d", Case(first, dssr="dssr@a4", second=second))


def test_a_single_seed_stands_for_itself(tmp_path: Path) -> None:
    """Where `writer.seeds` is 1 nothing is missing, and there is nothing to pool: one row, not two of the same."""
    single = Config(name="made", stats=StatsConfig(resamples=400), writer=WriterConfig(seeds=1))
    study = seeds_of(tmp_path / "run", [won(1, 2)], single)
    assert [row.memory for row in cell_rows(study)] == ["summary", "dssr@a4/s0"]
    assert not study.lacking
