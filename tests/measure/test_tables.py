"""Tables against the raw logs, recomputed here in plain Python that shares no code with them."""

import dataclasses
import html
import json
from collections import defaultdict
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import polars
import pytest
from msgspec.structs import replace
from tests.tiny import finished_again

from dssr.errors import StatsError, UsageError
from dssr.measure.comparisons import contrast_rows, gap_and_success, relation
from dssr.measure.frames import FRAMES
from dssr.measure.lag import chunk_rows, lag_bin_rows, rewrite_contrast_rows, rewrite_rows
from dssr.measure.rows import cell_rows, filler_rows, flat, slope_rows
from dssr.measure.study import Study
from dssr.measure.verdicts import answer_rows
from dssr.record.run import Run
from dssr.stats.bootstrap import Interval

Key = tuple[str, int | None, int]


def lines(run: Run, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run.path / f"{name}.jsonl").read_text().splitlines()]


class Raw:
    """Per cell and game, straight from the JSON lines."""

    def __init__(self, run: Run) -> None:
        self.won: dict[Key, dict[str, float]] = defaultdict(dict)
        where: dict[str, tuple[Key, str]] = {}
        for one in lines(run, "episodes"):
            cell = one["job"]["cell"]
            key = (cell["memory"], cell["budget"], cell["filler"])
            where[one["key"]] = (key, one["job"]["game"])
            self.won[key][one["job"]["game"]] = 1.0 if one["outcome"] == "won" else 0.0
        points: dict[str, dict[Key, dict[str, list[float]]]] = {
            name: defaultdict(lambda: defaultdict(list)) for name in ("delta", "beta", "kappa")
        }
        self.audits = lines(run, "audits")
        for one in self.audits:
            key, game = where[one["episode"]]
            points["delta"][key][game].append(one["nll_state"] - one["nll_full"])
            points["beta"][key][game].append(one["nll_oracle"] - one["nll_full"])
            points["kappa"][key][game].append(one["nll_state"] - one["nll_oracle"])
        self.loss = {
            name: {key: {g: fmean(v) for g, v in games.items()} for key, games in cells.items()}
            for name, cells in points.items()
        }


def bounds(values: list[float], resamples: int, seed: int) -> tuple[float, float]:
    """Percentile interval of a mean, one resample after the other; only the draws come from numpy."""
    draws = np.random.default_rng(seed).integers(0, len(values), (resamples, len(values))).tolist()
    means = sorted(fmean([values[i] for i in draw]) for draw in draws)

    def percentile(share: float) -> float:
        place = share * (len(means) - 1)
        low = int(place)
        return means[low] + (place - low) * (means[min(low + 1, len(means) - 1)] - means[low])

    return percentile(0.025), percentile(0.975)


@pytest.fixture(scope="module")
def raw(diagnosed: Run) -> Raw:
    return Raw(diagnosed)


@pytest.fixture(scope="module")
def study(diagnosed: Run) -> Study:
    return Study.load([diagnosed])


def same(found: Interval | None, values: dict[str, float]) -> None:
    ordered = [values[game] for game in sorted(values)]
    assert found is not None
    assert found.estimate == pytest.approx(fmean(ordered), abs=1e-9)
    assert (found.low, found.high) == pytest.approx(bounds(ordered, 200, 0), abs=1e-9)


def test_identity_in_the_logs(raw: Raw) -> None:
    """delta = beta + kappa at every audited point of a run, from the stored losses."""
    assert len(raw.audits) >= 20
    for one in raw.audits:
        delta, beta = one["nll_state"] - one["nll_full"], one["nll_oracle"] - one["nll_full"]
        assert delta == pytest.approx(beta + (one["nll_state"] - one["nll_oracle"]), abs=1e-12)


def test_cells_agree_with_the_logs(study: Study, raw: Raw) -> None:
    """Success, delta, beta, kappa and their bounds in every cell; `full` has no audit and no invented zero."""
    rows = cell_rows(study)
    assert {(row.memory, row.budget, row.filler) for row in rows} == set(raw.won)
    for row in rows:
        key = (row.memory, row.budget, row.filler)
        same(row.success, raw.won[key])
        for name in ("delta", "beta", "kappa"):
            if row.memory == "full":
                assert getattr(row, name) is None
            else:
                same(getattr(row, name), raw.loss[name][key])
        assert (row.games, row.errors) == (2, 0)


def test_counts_agree_with_the_logs(study: Study, diagnosed: Run) -> None:
    """Disagreements, ties, actions, tokens and truncations, counted from the step lines."""
    jobs = {one["key"]: one["job"]["cell"] for one in lines(diagnosed, "episodes")}
    steps = lines(diagnosed, "steps")
    for row in cell_rows(study):
        cell = {name: getattr(row, name) for name in ("memory", "budget", "filler", "protocol")}
        mine = [one for one in steps if jobs[one["key"].split(":")[0]] == cell]
        decisions = [one["decision"] for one in mine if one["decision"]]
        differ = [one for one in decisions if one["argmax"] != one["options"]["reference"]]
        assert row.disagreements == len(differ)
        assert row.ties == sum(one["tie"] for one in differ)
        assert row.actions == len(decisions) / 2
        writes = [one["write"] for one in mine if one["write"]["tokens"]]
        assert (row.tokens is None) == (row.memory == "full")
        if writes:
            assert row.tokens == pytest.approx(fmean(one["tokens"] for one in writes))
            assert row.truncated == pytest.approx(fmean(one["truncated"] for one in writes))
    assert any(row.disagreements for row in cell_rows(study))


def test_lag_means_and_slopes_agree_with_the_logs(study: Study, raw: Raw) -> None:
    """The lag value is the mean of a game's two per-filler means; the slope is least squares over (game, filler)."""
    for row in filler_rows(study):
        if row.memory != "full":
            cells = [raw.loss["kappa"][row.memory, row.budget, filler] for filler in (5, 10)]
            same(row.kappa, {game: fmean(cell[game] for cell in cells) for game in cells[0]})
        cells = [raw.won[row.memory, row.budget, filler] for filler in (5, 10)]
        same(row.success, {game: fmean(cell[game] for cell in cells) for game in cells[0]})
    assert {one.memory for one in slope_rows(study)} == {"summary", "guide"}
    for one in slope_rows(study):
        points = [(f, v) for f in (0, 5, 10) for v in raw.loss["kappa"][one.memory, one.budget, f].values()]
        xs, ys = zip(*points, strict=True)
        x, y = fmean(xs), fmean(ys)
        expected = sum((a - x) * (b - y) for a, b in points) / sum((a - x) ** 2 for a in xs)
        assert one.slope is not None
        assert one.slope.estimate == pytest.approx(expected, abs=1e-9)


def test_contrasts_agree_with_the_logs(study: Study, raw: Raw) -> None:
    """Paired differences against summary, at each filler and over the lag fillers, for every other memory."""
    rows = contrast_rows(study)
    assert {(row.memory, row.quantity) for row in rows} == {
        ("full", "success"),
        ("guide", "success"),
        ("guide", "kappa"),
    }
    assert {row.filler for row in rows} == {"0", "5", "10", "5/10"}
    for row in rows:
        fillers = [int(one) for one in row.filler.split("/")]
        source = raw.won if row.quantity == "success" else raw.loss["kappa"]
        budget = None if row.memory == "full" else row.budget
        one = [source[row.memory, budget, filler] for filler in fillers]
        other = [source["summary", row.budget, filler] for filler in fillers]
        values = {g: fmean(c[g] for c in one) - fmean(c[g] for c in other) for g in one[0]}
        same(row.difference, values)
    with pytest.raises(StatsError, match="'slots'"):
        contrast_rows(study, "slots")


def test_rewrites_agree_with_the_logs(study: Study, raw: Raw, diagnosed: Run) -> None:
    """Every audited point is in exactly one bin, and the first filled bin has the mean of its points."""
    rows = [row for row in rewrite_rows(study) if row.memory == "summary"]
    keys = {one["key"]: one["job"] for one in lines(diagnosed, "episodes")}
    mine = [one for one in raw.audits if keys[one["episode"]]["cell"]["memory"] == "summary"]
    assert sum(row.points for row in rows) == len(mine)
    filled = next(row for row in rows if row.points)
    low, _, high = filled.bin.rstrip("+").partition("-")
    inside = [one for one in mine if int(low) <= one["rewrites"] <= int(high or low)]
    assert filled.kappa is not None
    assert filled.points == len(inside)
    assert filled.kappa.estimate == pytest.approx(fmean(one["nll_state"] - one["nll_oracle"] for one in inside))
    for row in rewrite_contrast_rows(study, "guide", "summary"):
        assert row.games + len(row.left_out) <= 2


def test_lag_bins_and_chunks(study: Study, diagnosed: Run) -> None:
    """Shares of chunk kinds add up to one per threshold, and bins hold the points whose largest rise passes it."""
    shares: dict[float, float] = defaultdict(float)
    for row in chunk_rows(study):
        shares[row.threshold] += row.share
    assert all(total == pytest.approx(1) for total in shares.values())
    passing = [one for one in lines(diagnosed, "lags") if max(one["rises"]) >= 0.5]
    rows = [row for row in lag_bin_rows(study) if row.threshold == 0.5]
    assert sum(row.points for row in rows) == len(passing) > 0


def test_relation_and_answers(study: Study) -> None:
    """Nine cells (2 memories and, at delta 0, `full`, at 3 fillers) are too few for a rank correlation over them; every
    memory with a budget gets one sentence with its numbers."""
    assert relation(study) is None
    assert [len(values) for values in gap_and_success(study)] == [9, 9]
    answers = answer_rows(study)
    assert [row.memory for row in answers] == ["summary", "guide"]
    for row in answers:
        assert row.kappa is not None
        assert f"{row.kappa.estimate:.2f}" in row.sentence


def test_summary_of_the_run_is_these_tables(study: Study, diagnosed: Run) -> None:
    """What the run stored when it finished is what its logs give later."""
    assert diagnosed.summary is not None
    assert diagnosed.summary["cells"] == json.loads(json.dumps([flat(row) for row in cell_rows(study)]))
    assert diagnosed.summary["answers"] == json.loads(json.dumps([flat(row) for row in answer_rows(study)]))


# ---------------------------------------------------------------- for Python users


def test_frames_agree_with_the_logs(study: Study, raw: Raw, diagnosed: Run) -> None:
    """Every name gives a frame; audits join to their cell and game; nothing is lost or counted twice."""
    for name in FRAMES:
        assert len(study.frame(name).columns) > 2
    audits = study.frame("audits")
    assert len(audits) == len(raw.audits)
    for (memory, budget, filler, game), part in audits.group_by("memory", "budget", "filler", "game"):
        kappa = part["kappa"].to_list()
        assert fmean(kappa) == pytest.approx(raw.loss["kappa"][memory, budget, filler][game])
        assert part["delta"].to_list() == pytest.approx((part["beta"] + part["kappa"]).to_list())
    assert len(study.frame("episodes")) == len(lines(diagnosed, "episodes"))
    assert len(study.frame("steps")) == len(lines(diagnosed, "steps"))
    passing = [one for one in lines(diagnosed, "lags") if max(one["rises"]) >= 0.5]
    assert study.frame("lags")["lag"].count() == len(passing)
    cells = study.frame("cells")
    assert cells.rows(named=True) == [flat(row) for row in cell_rows(study)]
    assert {"kappa", "kappa_low", "kappa_high"} <= set(cells.columns)


def test_frames_of_nothing_keep_their_types(bench: Any) -> None:
    """A run without audits has an empty frame of them and empty numbers, not columns of another kind."""
    bare = Study.load([bench.diagnose("untouched", memories=["full"], fillers=[0])])
    audits, cells = bare.frame("audits"), bare.frame("cells")
    assert len(audits) == 0
    assert audits.schema["kappa"] == cells.schema["kappa_low"] == polars.Float64
    with pytest.raises(StatsError, match="dssr diagnose"):
        bare.frame("answers")
    with pytest.raises(UsageError, match="no frame 'cell'; there are cells, answers"):
        bare.frame("cell")


def test_a_notebook_shows_cells_and_answers(study: Study) -> None:
    """The table has a line per cell and the answers in words, and a name cannot break out of it."""
    shown = study._repr_html_()
    assert shown.count("<tr>") == len(study.cells) + 1
    assert all(html.escape(row.sentence) in shown for row in answer_rows(study))
    assert "9 cells, 2 games" in repr(study)
    cell = study.cells[0]
    hostile = {replace(cell, memory="<script>"): study.episodes[cell]}
    text = dataclasses.replace(study, episodes=hostile, audits={one: {} for one in hostile})._repr_html_()
    assert "<script>" not in text
    assert "&lt;script&gt;" in text


# ---------------------------------------------------------------- bad input


def test_different_games_are_refused(bench: Any, diagnosed: Run) -> None:
    """A run on fewer games cannot stand beside one on more: the missing game is named."""
    fewer = bench.diagnose("fewer", memories=["lastk"], fillers=[0], games=1)
    with pytest.raises(StatsError, match=r"not measured on the same games: only .* has valid-6-001"):
        Study.load([diagnosed, fewer])


def test_mixed_devices_are_refused(bench: Any, diagnosed: Run) -> None:
    """Two machines never share a table."""
    other = bench.diagnose("device", memories=["lastk"], fillers=[0])
    file = other.path / "run.json"
    file.write_text(file.read_text().replace(other.info.provenance.device, "Abacus 3000"))
    finished_again(other.path)
    with pytest.raises(StatsError, match="on Abacus 3000; one table never mixes devices"):
        Study.load([diagnosed, Run.open(other.path)])


def test_another_episode_of_the_same_cell_is_refused(bench: Any, diagnosed: Run) -> None:
    """The same cell played by another model is another experiment, not more data."""
    from dssr.models.scripted import ScriptedModel

    other = bench.diagnose("again", memories=["summary"], fillers=[0], model=ScriptedModel(0.5, 65536))
    with pytest.raises(StatsError, match="holds another episode of valid-6-000"):
        Study.load([diagnosed, other])
    assert Study.load([diagnosed, diagnosed]).cells == Study.load([diagnosed]).cells


def test_empty_unfinished_and_failed_runs_are_refused(bench: Any, tmp_path: Path) -> None:
    """Each says what it is and what to do."""
    with pytest.raises(StatsError, match="no run to read"):
        Study.load([])
    with Run.start(tmp_path / "run", command="diagnose", config=bench.config, models={}) as run:
        with pytest.raises(StatsError, match="not finished"):
            Study.load([run])
        run.finish({})
    with pytest.raises(StatsError, match="holds no episode"):
        Study.load([tmp_path / "run"])
    with Run.start(tmp_path / "leak", command="diagnose", config=bench.config, models={}) as run:
        run.fail({"reason": "leak"})
    with pytest.raises(StatsError, match="marked as failed"):
        Study.load([tmp_path / "leak"])


def test_missing_audits_and_lags_name_their_command(bench: Any) -> None:
    """Without audits there is no regret, and without lags no lag bins: the sentence says which command makes them."""
    bare = Study.load([bench.diagnose("bare", memories=["full"], fillers=[0])])
    assert cell_rows(bare)[0].kappa is None
    for table in (slope_rows, answer_rows, rewrite_rows, relation):
        with pytest.raises(StatsError, match="dssr diagnose"):
            table(bare)
    with pytest.raises(StatsError, match="dssr lag"):
        chunk_rows(bare)
