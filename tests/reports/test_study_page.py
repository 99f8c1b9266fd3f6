"""The page of a whole study: what reproduced, every table, and where each number comes from."""

import os
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from tests.reports.synthetic import make_run

from dssr.config import GatesConfig
from dssr.errors import UsageError
from dssr.measure import verdicts
from dssr.measure.gates import Case, Ledger, checks_of
from dssr.measure.study import Study
from dssr.measure.verdicts import Check, statements, verdict
from dssr.record.run import Run
from dssr.reports import findings
from dssr.reports.findings import FINDINGS, Claimed, Published, word_for
from dssr.reports.study_page import STAGES, StudySources, source_of, study_report
from dssr.reports.tables import latex_text
from dssr.stats.bootstrap import Resampler
from dssr.types import Protocol

FILLERS = (0, 10, 20, 40)
TRAINED = ("dssr@a4/s0", "dssr@a4/s1", "dssr@a4/s2", "dssr@outcome", "dssr@k1", "dssr@no-hint")
ROLES = {"dssr": "dssr@a4", "outcome": "dssr@outcome", "one_target": "dssr@k1", "no_hint": "dssr@no-hint"}
WALKS: dict[Protocol, tuple[int, ...]] = {"pre": (0, 40), "brief": (40,), "post": (40,), "post-brief": (40,)}


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> StudySources:
    """A made-up study: validation grid, pilot, test; its gates were written first, and one was judged."""
    folder = tmp_path_factory.mktemp("study")
    ledger = Ledger(folder / "ledger.jsonl")
    ledger.write(statements(GatesConfig(), (20, 40)), "2000-01-01T00:00:00+00:00")
    formats = ("full", "oracle-b", "summary", "belief", "slots", "guide")
    reader = "Qwen/Qwen3-4B-Instruct-2507"  # of which values were published
    tested = ("full", "summary", "belief", "slots", "guide", *TRAINED)
    valid = make_run(folder / "valid", 3, formats, (64, 128), FILLERS, reader=reader)
    test = make_run(folder / "test", 3, tested, (128,), FILLERS, reader=reader, split="test")
    pilot = [make_run(folder / f"pilot-{k}", 3, ("summary",), (128,), f, protocol=k) for k, f in WALKS.items()]
    judged = verdict("G1b", ledger.statement("G1b"), checks_of("G1b", Case(Study.load([valid]))))
    ledger.judge(judged, {str(valid): "2001-01-01T00:00:00+00:00"}, "2002-01-01T00:00:00+00:00")
    stages = {"test": [str(test)], "valid": [str(valid)], "pilot": [str(one) for one in pilot]}
    return StudySources("made", stages, str(ledger.path), ROLES)


@pytest.fixture(scope="module")
def made(sources: StudySources, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of its report."""
    out = tmp_path_factory.mktemp("made") / "out"
    assert study_report(sources, out)[0] == out / "index.html"
    return out


def of(gate: str, check: str) -> Claimed:
    return next(one for one in FINDINGS if (one.gate, one.check) == (gate, check))


# ---------------------------------------------------------------- findings


@pytest.mark.parametrize(
    ("gate", "check", "value"),
    [
        ("G1a", "kappa(far) - kappa(near), summary", 1.10 - 0.85),
        ("G1a", "kappa(far) - kappa(near), slots", 1.69 - 0.49),
        ("G1a", "kappa(long lag) - kappa(short lag)", (15 * 1.89 + 123 * 1.97 + 146 * 1.87 + 141 * 2.30) / 425 - 0.61),
        ("G2a", "success(dssr) - success(best prompted)", (2.2 + 1.9 - 1.1 - 0) / 200),
        ("G2a", "success(dssr) - success(outcome)", (2.2 + 1.9 - 1.1 - 0) / 200),
        ("G2a", "success(dssr) - success(summary), near filler", 0.104 - 0.033),
        ("G2b", "relative change of kappa", (1.36 + 1.58) / (1.35 + 1.66) - 1),
        ("G2c", "success(K long) - success(K = 1)", (1.1 + 1.1 - 1.1 - 0) / 200),
        ("G2e", "share kept without action hints", (3.3 + 2.2 - 1.1) / (2.2 + 1.9 - 1.1)),
        ("pilot", "post - base0", 1.07),
    ],
)
def test_published_numbers_by_hand(gate: str, check: str, value: float) -> None:
    """Catches a published value taken from another row, column or budget."""
    found = of(gate, check).published()
    assert found is not None
    assert found.estimate == pytest.approx(value, abs=1e-9)


def test_the_slope_is_that_of_four_published_points() -> None:
    """Catches a slope over other fillers than the published ones."""
    found = of("G2b", "slope(dssr) - slope(summary)").published()
    x = np.array([0.0, 10.0, 20.0, 40.0]) - 17.5
    first, second = np.array([0.62, 1.20, 1.36, 1.58]), np.array([0.79, 1.05, 1.35, 1.66])
    assert found is not None
    assert found.estimate == pytest.approx(float(x @ (first - second) / (x @ x)))


def test_every_finding_names_a_check_that_its_gate_makes() -> None:
    """Catches a renamed check, after which a finding would say `not measured` for ever."""
    sampler, gates = Resampler(resamples=20), GatesConfig()
    rng = np.random.default_rng(0)
    a, b, c = rng.normal(1, 0.1, (3, 9))
    points, names = rng.random((9, 4)), [f"g{n}" for n in range(9)]
    formats = dict.fromkeys(gates.formats, (a, b))
    made = {
        "G1a": verdicts.regret_grows_with_lag(formats, a, b, sampler),
        "G1b": verdicts.gap_predicts_failure(rng.random((6, 9)), rng.random((6, 9)), sampler),
        "G1c": verdicts.score_is_informative(points, points[::-1], points, names, gates, sampler),
        "G2a": verdicts.success_gain(np.stack([a, b, c]), np.stack([a, b]), gates, sampler),
        "G2b": verdicts.regret_falls(np.stack([a, b]), rng.random((2, 2, 9)), np.array([0.0, 20.0]), gates, sampler),
        "G2c": verdicts.horizon_matters(np.stack([a, b]), np.stack([a, b]), sampler),
        "G2d": verdicts.gain_kept("share kept under the second reader", a, b, 0.5, sampler).checks,
        "G2e": verdicts.gain_kept("share kept without action hints", a, b, 0.5, sampler).checks,
    }
    for one in FINDINGS:
        if one.gate != findings.PILOT:
            assert sum(check.what.startswith(one.check) for check in made[one.gate]) == 1, one.check


SURE, UNSURE, POINT = Published(1.0, 0.5, 1.5, ""), Published(1.0, -0.5, 2.5, ""), Published(1.0, None, None, "")


@pytest.mark.parametrize(
    ("low", "high", "published", "word"),
    [
        (0.2, 1.8, SURE, "reproduced"),
        (0.2, 1.8, UNSURE, "shown here, not published"),
        (0.2, 1.8, POINT, "same direction as published"),
        (0.2, 1.8, None, "holds here"),
        (-0.2, 1.8, SURE, "not shown here"),
        (-0.2, 1.8, UNSURE, "not shown, as published"),
        (-0.2, 1.8, POINT, "not shown here"),
        (-0.2, 1.8, None, "not shown here"),
        (-1.8, -0.2, SURE, "the opposite here"),
    ],
)
def test_what_is_said_of_two_results(low: float, high: float, published: Published | None, word: str) -> None:
    """Catches an effect called reproduced that cannot be told from zero, here or there, although its check passed."""
    middle = (low + high) / 2
    ours = Check("x", middle, low, high, 0.0, middle > 0)
    assert word_for(Claimed("G", "x", "claim", "nats", "nats", lambda: published), ours, published) == word


def test_thresholds_and_allowed_losses_count() -> None:
    """Catches a gain below its threshold called shown, and a loss within what is allowed called the opposite."""
    gain = Claimed("G", "x", "c", "percent", "points", lambda: None, lambda gates: gates.gain)
    small = Published(0.05, 0.01, 0.09, "")
    assert word_for(gain, Check("x", 0.1, 0.02, 0.2, 0.08, True), small) == "shown here, not published"
    assert word_for(gain, Check("x", 0.05, 0.02, 0.08, 0.08, False), small) == "not shown, as published"
    cost = Claimed("G", "x", "c", "percent", "points", lambda: None, lambda gates: -gates.loss_allowed)
    assert word_for(cost, Check("x", -0.015, -0.02, -0.01, -0.03, True), None) == "holds here"
    assert word_for(cost, Check("x", 0.01, -0.2, 0.2, -0.03, True), None) == "not shown here"
    assert word_for(cost, Check("x", -0.1, -0.2, -0.05, -0.03, False), None) == "the opposite here"


def test_our_numbers_come_from_the_stages_or_the_ledger(sources: StudySources) -> None:
    """Catches a contrast of the pilot between other conditions, a verdict of the ledger passed over, and a gate without
    runs that is not said to be missing."""
    every = findings.outcomes(sources.stages, Ledger(sources.ledger or ""), sources.roles)
    found = {(one.finding.gate, one.finding.check): one for one in every}
    pilot = Study.load(sources.stages["pilot"])
    by_cell: dict[tuple[str, int], list[float]] = {
        (cell.protocol, cell.filler): [
            float(np.mean([audit.kappa for audit in pilot.audits[cell][game]])) for game in pilot.games
        ]
        for cell in pilot.cells
    }
    for name, first, second in (
        ("brief40 - base40", ("brief", 40), ("pre", 40)),
        ("post - base0", ("post", 40), ("pre", 0)),
        ("post+brief - base0", ("post-brief", 40), ("pre", 0)),
    ):
        ours = found["pilot", name].ours
        assert ours is not None
        assert ours.estimate == pytest.approx(np.mean(by_cell[first]) - np.mean(by_cell[second]))
    assert found["G1b", "Spearman(delta, success)"].why == "judged, see the ledger"
    assert "not judged" in found["G2a", "success(dssr) - success(best prompted)"].why
    assert "holds no relevance lags" in found["G1a", "kappa(long lag) - kappa(short lag)"].why
    assert "no stage 'continuation'" in found["G1c", "rho(S_long, return)"].why
    assert "second reader" in found["G2d", "share kept under the second reader"].why


# ---------------------------------------------------------------- forms


class Reader(HTMLParser):
    """Collects addresses, identifiers and the cells that say where they come from."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.ids: list[str] = []
        self.origins: list[str] = []
        self.scripts = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        known = dict(attrs)
        self.addresses += [value for name, value in attrs if name in ("src", "href") and value]
        self.ids += [known["id"] or ""] if "id" in known else []
        self.origins += [known["data-origin"] or ""] if "data-origin" in known else []
        self.scripts += tag == "script"


def test_one_file_that_needs_no_other(made: Path, sources: StudySources) -> None:
    """Catches a page that fetches something, a link to nowhere, a row without its origin, a state that runs as markup,
    and two tables of one name."""
    page = (made / "index.html").read_text("utf-8")
    found = Reader()
    found.feed(page)
    assert found.scripts == 1
    local = [address for address in found.addresses if not address.startswith(("#", "data:image/svg+xml;base64,"))]
    assert sorted(local) == [f"stages/{name}/index.html" for name in ("pilot", "test", "valid")]
    assert all((made / address).exists() for address in local)
    assert {address[1:] for address in found.addresses if address.startswith("#")} <= set(found.ids)
    assert len(found.ids) == len(set(found.ids))
    rows = [origin for origin in found.origins if "rows: " in origin]
    assert len(rows) > 200
    assert any("memory summary, budget 128, filler 20, protocol post (3 games" in origin for origin in rows)
    assert all(any(path in origin for paths in sources.stages.values() for path in paths) for origin in rows)
    assert "<img src=x" not in page


def test_stages_show_their_own_tables(made: Path) -> None:
    """Catches published test values beside the validation grid, and a pilot that repeats every table."""
    names = {file.stem for file in (made / "tables").iterdir()}
    assert {"valid-grid", "test-grid", "valid-decomposition", "test-contrasts", "pilot-protocols"} <= names
    assert "valid-paper-stage2full" in names
    assert not names & {"valid-paper-testci", "test-paper-stage2full", "pilot-grid"}
    assert {name.split("-")[0] for name in names} == {"valid", "test", "pilot"}
    assert set(STAGES) >= {"valid", "test", "pilot"}


def test_the_ledger_and_the_gates_are_there(made: Path) -> None:
    """Catches a verdict without its estimate, interval or detectable effect."""
    text = (made / "study.md").read_text("utf-8")
    assert re.search(r"\| G1b \| passed \| Spearman.* \| -0\.\d{4} \[-.*\] \| 0\.0000 \| 0\.\d{4} \|", text)
    assert text.count("gate G") == 9
    assert "2002-01-01 verdict G1b" in text


def test_digests_are_those_of_the_results(made: Path, sources: StudySources, tmp_path: Path) -> None:
    """Catches a digest that another person's equal run would not have, and one that does not see a changed result."""
    copy = tmp_path / "elsewhere"
    shutil.copytree(sources.stages["valid"][0], copy)
    (copy / "resumes.jsonl").write_text('{"key":"x"}\n')

    def digest() -> str:
        return source_of("valid", Run.open(copy)).digest

    first = digest()
    assert first in (made / "study.md").read_text("utf-8")
    with (copy / "audits.jsonl").open("a") as file:
        file.write("\n")
    assert digest() != first


def test_a_stage_that_cannot_be_read_is_said(sources: StudySources, tmp_path: Path) -> None:
    """Catches one unfinished run that takes the page of the whole study with it."""
    copy = tmp_path / "unfinished"
    shutil.copytree(sources.stages["valid"][0], copy)
    (copy / "summary.json").unlink()
    study_report(StudySources("x", {"valid": [str(copy)], "test": sources.stages["test"]}), tmp_path / "out")
    page = (tmp_path / "out" / "index.html").read_text("utf-8")
    assert "is not finished; continue it with --resume" in page
    assert "test-grid" in page
    with pytest.raises(UsageError, match="No stage"):
        study_report(StudySources("x", {"valid": []}), tmp_path / "none")
    assert not (tmp_path / "none").exists()


@pytest.mark.slow
def test_the_same_study_gives_the_same_files(made: Path, sources: StudySources, tmp_path: Path) -> None:
    """Catches time stamps and unordered sets in the output."""
    study_report(sources, tmp_path / "again")
    files = sorted(file.relative_to(made) for file in made.rglob("*") if file.is_file() and file.suffix != ".pdf")
    for file in files:
        if file.parts[:2] != ("latex", "study.log") and file.suffix not in (".aux", ".log", ".out"):
            assert (tmp_path / "again" / file).read_bytes() == (made / file).read_bytes(), file


def test_any_text_is_latex() -> None:
    """Catches letters that stop LaTeX: control characters, emoji, other scripts, its own signs."""
    shown = latex_text("a_b & 50 % {x} \\ \u2028 é 🍳 ﬁ 中 κ′ <tag> x² “q” \x07")
    assert "🍳" not in shown
    assert "中" not in shown
    assert "é" in shown
    assert r"\_" in shown
    assert "fi" in shown
    assert "x2" in shown
    assert all(letter.isascii() or letter == "é" for letter in shown)


@pytest.mark.slow
def test_the_document_compiles(made: Path, tmp_path: Path) -> None:
    """Catches a table or name that stops LaTeX: states of the made-up runs hold markup, quotes and emoji."""
    if shutil.which("pdflatex") is None:
        message = "needs pdflatex: apt-get install texlive-latex-base texlive-latex-recommended"
        pytest.fail(message) if os.environ.get("DSSR_REQUIRE_ALL") else pytest.skip(message)
    alone = tmp_path / "latex"
    shutil.copytree(made / "latex", alone)
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "study.tex"]
    done = subprocess.run(command, cwd=alone, capture_output=True, text=True, errors="replace", check=False)
    assert done.returncode == 0, done.stdout[-3000:]
    assert (alone / "study.pdf").stat().st_size > 100_000
