"""Texts as a page prints them."""

from pathlib import Path

import pytest
from tests.reports.synthetic import make_run

from dssr.measure.rows import cell_rows
from dssr.measure.study import Study
from dssr.measure.verdicts import CAUSES
from dssr.reports.page import BADGES, LOGGED, answers, badge_of, played, study_view
from dssr.reports.tables import prose, typeset, unbroken
from dssr.reports.view import pack

SPACE = "\N{NO-BREAK SPACE}"


def test_numbers_stay_in_one_piece() -> None:
    """Catches an interval or a per cent sign that can be parted from its number, and words that are glued together."""
    assert typeset("-0.52 [-1.63, 0.46]") == f"−0.52 [−1.63,{SPACE}0.46]"
    assert unbroken("Won 41.7 % of games at 64 / 80 tokens") == f"Won 41.7{SPACE}% of games at 64 / 80 tokens"
    assert unbroken("no-hint lost it") == "no-hint lost it"


def test_sentences_become_html() -> None:
    """Catches raw backticks on a page, markup of others that runs, and a name or option whose hyphens become minus
    signs."""
    told = prose("`dssr lag runs/a-1 --out x` of <b> gives -0.5 [-1, 2] for no-hint")
    assert told == f"<code>dssr lag runs/a-1 --out x</code> of &lt;b&gt; gives −0.5 [−1,{SPACE}2] for no-hint"


def test_badges_speak_of_what_was_resampled() -> None:
    """Catches games on the page of logs, and a cause without a badge."""
    assert BADGES.keys() == CAUSES.keys()
    assert (badge_of("few"), badge_of("few", "logs")) == ("Too few games", "Too few logs")
    assert badge_of("unclear", "tasks") == "Cannot tell from these tasks"


@pytest.mark.parametrize(
    ("lived", "said"),
    [(0, "more than half of the recipe was never taken up"), (1, "half of the recipe was gone after one rewrite")],
)
def test_how_long_facts_lived_is_a_sentence(tmp_path: Path, lived: int, said: str) -> None:
    """Catches "gone after 0 rewrites", and the plural that logs need."""
    rows = cell_rows(Study.load([make_run(tmp_path / "run", 2, ("full", "summary"), (64,), (0,))]))
    (_, told) = answers(rows, [], {"summary": lived}, played("recipe"))
    assert told.text.endswith(f"; {said}.")
    (_, told) = answers(rows, [], {"summary": 4}, LOGGED)
    assert told.text.endswith("; half of the needed values were gone after 4 rewrites.")


def test_a_memory_keeps_its_hyphens(tmp_path: Path) -> None:
    """Catches a name on the page that cannot be typed: its hyphen was once a minus sign."""
    study = Study.load([make_run(tmp_path / "run", 2, ("full", "no-hint-notes"), (64,), (0,))])
    view = study_view(study, pack(study))
    assert "no-hint-notes, κ = " in view.notes["explorer"]
