"""The episodes of the page in a real browser: found, stepped through, compared, and kept apart in a large study."""

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.browser import pages
from tests.browser.pages import all_of, choose, explorer, press, resize, step_of, until

from dssr.measure.study import Study

pytestmark = pytest.mark.browser


def test_the_explorer_opens_on_the_most_telling_episode(view: Any, page: Path) -> None:
    """Catches an explorer that opens on any episode instead of the lost one with the largest regret, and beside it on
    one that was lost too although another memory won the same game."""
    study = Study.load([page.parent.parent / "run"])
    kappa, key, step, game = max(
        (audit.kappa, audit.episode[:12], audit.step, game)
        for cell in study.cells
        for game, audits in study.audits[cell].items()
        for audit in audits
        if cell.memory != "oracle-b" and study.episodes[cell][game].outcome == "lost"
    )
    explorer(view)
    assert view.execute_script("return [E.sides[0].key, E.sides[0].outcome, E.step]") == [key, "lost", step]
    assert f"{kappa:.2f} nats at step {step}" in view.find_element("css selector", "#explorer .lede").text
    assert view.find_element("css selector", ".pane .loss-box.kappa b").text == f"{kappa:.2f}"
    assert view.execute_script("return [E.sides[1].outcome, E.sides[1].game]") == ["won", game]
    command = view.execute_script("return document.querySelector('.pane .command').textContent")
    assert command == f"dssr fork {study.runs[0].path} {key} {step}"


def test_any_two_episodes_side_by_side(view: Any) -> None:
    """Catches panes that show another episode than was chosen, a right side that cannot differ in game, budget or
    filler, and one that does not follow the left where the two agree."""
    explorer(view)
    choose(view, "left", "game", "valid-6-003")
    choose(view, "left", "memory", "guide")
    choose(view, "left", "filler", "20")
    choose(view, "left", "budget", "64")
    choose(view, "right", "memory", "oracle-b")
    until(lambda: view.execute_script("return E.sides[1] && E.sides[1].cell.memory") == "oracle-b")
    sides = "return E.sides.map(s => s && [s.game, s.cell.memory, s.cell.budget, s.cell.filler])"
    assert view.execute_script(sides) == [["valid-6-003", "guide", 64, 20], ["valid-6-003", "oracle-b", 64, 20]]
    observations = [pane.find_element("css selector", ".text").text for pane in all_of(view, ".pane")]
    assert observations[0] == observations[1]
    choose(view, "right", "game", "valid-6-005")
    choose(view, "right", "memory", "guide")
    choose(view, "right", "budget", "256")
    choose(view, "right", "filler", "0")
    wanted = [["valid-6-003", "guide", 64, 20], ["valid-6-005", "guide", 256, 0]]
    until(lambda: view.execute_script(sides) == wanted)
    choose(view, "left", "filler", "40")
    until(lambda: view.execute_script(sides)[0] == ["valid-6-003", "guide", 64, 40])
    assert view.execute_script(sides)[1] == wanted[1]
    assert [pane.get_attribute("data-memory") for pane in all_of(view, ".pane")] == ["guide", "guide"]
    jumps = view.find_element("id", "jumps").get_attribute("textContent")
    assert "guide, valid-6-005, 256 tokens, F′ 0" in jumps
    keys = view.execute_script("return E.sides.map(s => s.key)")
    assert f"left={keys[0]}&right={keys[1]}&step={step_of(view)}" in view.current_url
    again = view.current_url
    view.get("about:blank")
    view.get(again)
    until(lambda: all_of(view, "#panes .pane"))
    assert view.execute_script("return E.sides.map(s => s.key)") == keys
    choose(view, "right", "memory", "(none)")
    assert len(all_of(view, ".pane")) == 1


def test_two_states_are_marked_against_each_other(view: Any) -> None:
    """Catches marks that compare a state with another one than asked for."""
    explorer(view)
    view.execute_script("go(E.sides[0].begin)")
    view.execute_script("const s = $('against'); s.value = 'other'; s.dispatchEvent(new Event('change'))")
    script = (
        "const n = document.querySelector('.pane .state').cloneNode(true);"
        "n.querySelectorAll('ins').forEach(i => i.remove()); return [n.textContent, stateAt(E.sides[1], E.step)]"
    )
    kept, other = view.execute_script(script)
    assert re.sub(r"\s+", "", kept) == re.sub(r"\s+", "", other)


def test_stepping_through_an_episode(view: Any) -> None:
    """Catches keys, buttons or slider that do not move, and a state that does not change with the step."""
    explorer(view)
    view.execute_script("go(15)")
    begin = step_of(view)
    for key, change in (("ArrowRight", 1), ("ArrowRight", 2), ("ArrowLeft", 1)):
        press(view, key)
        assert step_of(view) == begin + change
    view.find_element("id", "next").click()
    assert step_of(view) == begin + 2
    press(view, "Home")
    assert step_of(view) == 0
    view.execute_script("slider.value = 20; slider.dispatchEvent(new Event('input'))")
    assert all("step 20" in pane.text for pane in all_of(view, ".pane"))
    assert "step 20 of" in view.find_element("id", "said").get_attribute("textContent")
    assert all_of(view, ".pane ins")
    assert all_of(view, ".pane del")
    view.find_element("id", "removed").click()
    assert not any(one.is_displayed() for one in all_of(view, ".pane del"))
    press(view, "End")
    assert step_of(view) == int(view.execute_script("return slider.max"))


def test_jumping_to_a_lost_fact_and_to_a_decision(view: Any) -> None:
    """Catches marks that lead to another step, and options that do not add up to one."""
    explorer(view)
    loss = all_of(view, ".jump.loss")[0]
    step, text = int(loss.get_attribute("data-step")), loss.get_attribute("textContent")
    memory, ingredient = loss.get_attribute("data-memory"), text.split("“")[1].rstrip("”").split(" the ")[1]
    view.execute_script("arguments[0].click()", loss)
    assert step_of(view) == step
    pane = view.find_element("css selector", f".pane[data-memory={memory}]")
    assert ingredient in " ".join(one.text for one in pane.find_elements("css selector", ".state del, .state"))
    view.execute_script("arguments[0].click()", all_of(view, ".jump.audit")[0])
    assert all_of(view, ".loss-box.kappa")
    shown = view.execute_script(
        "return [...document.querySelector('.pane').querySelectorAll('.options .num')].map((n) => n.textContent)"
    )
    total = sum(float(text.rstrip("%").strip()) for text in shown if not text.startswith("<"))
    assert total == pytest.approx(100, abs=0.7)
    assert all_of(view, ".options .best .tag.ref")
    assert all_of(view, ".options .played")


def test_the_timeline_opens_the_rewrite(view: Any) -> None:
    """Catches marks of the fact timeline that cannot be clicked or lead elsewhere."""
    explorer(view)
    before = len(all_of(view, "#facts path.lost"))
    view.find_element("id", "everyone").click()
    marks = until(lambda: all_of(view, "#facts path.lost"))
    assert len(marks) > before
    press(view, "Home")
    view.execute_script(
        "document.querySelector('#facts path.lost').dispatchEvent(new MouseEvent('click', {bubbles: true}))"
    )
    assert step_of(view) > 0


def test_a_large_study_stays_small(browser: Any, tmp_path: Path) -> None:
    """Catches a page that grows with the study, episodes beside it that do not open from a disk, and a copy of the page
    alone that breaks on them instead of saying what is missing."""
    page = pages.report(tmp_path, 48)
    assert page.stat().st_size < 3_500_000
    pages.open_page(browser, page)
    explorer(browser)
    assert browser.execute_script("return D.episodes.length") == 48 * 76
    lede = browser.find_element("css selector", "#explorer .lede").text
    beside = int(re.findall(r"the other (\d+) are in the folder", lede)[0])
    assert len(list((page.parent / "episodes").iterdir())) == beside > 0
    out = "return D.games.filter((g, i) => !$(`chunk-${i}`)).map(g => g.id)"
    away = browser.execute_script(out)[0]
    choose(browser, "left", "game", away)
    until(lambda: browser.execute_script("return E.sides[0].game") == away)
    assert away in browser.find_element("css selector", ".pane").text
    assert pages.complaints(browser) == []
    shutil.move(page, tmp_path / "alone.html")
    pages.open_page(browser, tmp_path / "alone.html")
    explorer(browser)
    before = browser.execute_script("return E.sides[0].game")
    choose(browser, "left", "game", away)
    note = until(lambda: browser.find_element("id", "explorer-note").text)
    assert "Copy the folder" in note
    assert browser.execute_script("return E.sides[0].game") == before
    resize(browser, 390)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= 390
