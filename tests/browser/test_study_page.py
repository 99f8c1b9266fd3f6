"""The page of a whole study in a real browser."""

from pathlib import Path
from typing import Any

import pytest
from tests.browser import pages
from tests.browser.pages import all_of
from tests.reports.synthetic import make_run

from dssr.reports.study_page import StudySources, study_report

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A validation grid, and test games with trained writers."""
    folder = tmp_path_factory.mktemp("study")
    valid = make_run(folder / "valid", 3, ("full", "summary", "belief", "slots"), (64, 128), (0, 20, 40))
    trained = ("full", "summary", "belief", "slots", "dssr@a4/s0", "dssr@a4/s1", "dssr@a4/s2", "dssr@outcome")
    test = make_run(folder / "test", 4, trained, (128,), (0, 20, 40))
    sources = StudySources("made", {"valid": [str(valid)], "test": [str(test)]}, None, {"dssr": "dssr@a4"})
    return study_report(sources, folder / "out")[0]


@pytest.mark.parametrize("width", [1280, 390])
def test_it_can_be_read_everywhere(browser: Any, page: Path, width: int) -> None:
    """Catches content beyond the edge of the screen, a wide table without a hint, a broken picture, and numbers that do
    not say where they come from."""
    pages.open_page(browser, page, width)
    pages.at_rest(browser)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    cut = (
        "return [...document.querySelectorAll('.wide')].filter(n => n.checkVisibility() && n.scrollWidth >"
        " n.clientWidth + 2 && n.parentNode.dataset.right !== 'true').length"
    )
    assert browser.execute_script(cut) == 0
    broken = "return [...document.images].filter(i => !i.complete || !i.naturalWidth || !i.alt).length"
    assert browser.execute_script(broken) == 0
    assert len(all_of(browser, "figure img")) >= 10
    tips = "return [...document.querySelectorAll('#table-valid-grid td.num')].map(n => n.tipText && n.tipText())"
    origins = browser.execute_script(tips)
    assert len(origins) > 50
    assert all("runs: " in text and "rows: memory " in text for text in origins)
    link = all_of(browser, "nav a")[-1]
    browser.execute_script("arguments[0].scrollIntoView({inline: 'nearest', behavior: 'instant'})", link)
    browser.execute_script("arguments[0].click()", link)
    pages.at_rest(browser)
    top, bar, end = browser.execute_script(
        "return [document.querySelector('#sources h2').getBoundingClientRect().top,"
        " document.querySelector('.bar').getBoundingClientRect().bottom,"
        " scrollY + innerHeight >= document.documentElement.scrollHeight - 2]"
    )
    assert bar <= top
    assert top <= bar + 60 or end
    assert pages.complaints(browser) == []
