"""The page in a real browser: it opens at once, and every part can be used with mouse and keyboard."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.reports.synthetic import NASTY, make_run

from dssr.reports.write import make_report

pytestmark = pytest.mark.browser
LARGE = ("full", "oracle-b", "lastk", "summary", "slots", "belief", "guide")


@pytest.fixture(scope="session")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """532 episodes: seven memories, three budgets, four fillers, seven games; one episode failed."""
    folder = tmp_path_factory.mktemp("page")
    run = make_run(folder / "run", 7, LARGE, (64, 128, 256), (0, 10, 20, 40), errors=1)
    made = make_report([run], folder / "out", ["page"], against_paper=True)
    return Path(made.files[0])


@pytest.fixture
def view(browser: Any, page: Path) -> Iterator[Any]:
    """The page, opened afresh on a desktop; at the end, nothing may have been reported on the console."""
    resize(browser, 1280, 900)
    browser.get("about:blank")
    browser.get_log("browser")
    browser.get(page.resolve().as_uri())
    browser.execute_script("document.documentElement.style.scrollBehavior = 'auto'")
    yield browser
    assert [entry for entry in browser.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")] == []


def resize(browser: Any, width: int, height: int) -> None:
    settings = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", settings)


def all_of(view: Any, selector: str) -> list[Any]:
    found: list[Any] = view.find_elements("css selector", selector)
    return found


def until(check: Callable[[], Any], seconds: float = 600.0) -> Any:
    """What the check returns as soon as it is true; the limit is for a page that never gets there."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := check():
            return found
        time.sleep(0.05)
    raise AssertionError("the page did not come to the expected state")


def show(view: Any, name: str) -> None:
    view.execute_script("document.getElementById(arguments[0]).scrollIntoView()", name)
    until(lambda: view.execute_script("return document.getElementById(arguments[0]).dataset.drawn", name))


def explorer(view: Any) -> None:
    show(view, "explorer")
    until(lambda: all_of(view, "#panes .pane"))


def press(view: Any, key: str) -> None:
    view.execute_cdp_cmd(
        "Input.dispatchKeyEvent", {"type": "keyDown", "key": key, "text": key if len(key) == 1 else ""}
    )
    view.execute_cdp_cmd("Input.dispatchKeyEvent", {"type": "keyUp", "key": key})


def choose(view: Any, name: str, value: str) -> None:
    script = (
        "const s = document.getElementById(arguments[0]); s.value = arguments[1]; s.dispatchEvent(new Event('change'))"
    )
    view.execute_script(script, f"pick-{name}", value)


def step_of(view: Any) -> int:
    return int(view.execute_script("return document.getElementById('slider').value"))


def test_a_large_run_opens_without_its_episodes(view: Any) -> None:
    """Catches a page that unpacks or draws everything before it shows anything; the time that takes is the machine's,
    so it is the work that is counted."""
    until(lambda: view.execute_script("return document.documentElement.dataset.ready"))
    until(lambda: all_of(view, "#answers li"))
    assert not all_of(view, "#explorer[data-drawn]")
    assert view.execute_script("return unpacked.size") == 0
    explorer(view)
    assert view.execute_script("return unpacked.size") == 1


def test_every_part_is_drawn(view: Any) -> None:
    """Catches a section that stays empty."""
    assert len(all_of(view, "#answers li")) == len(LARGE)
    for name in ("grid", "decomposition", "filler", "rewrites", "association", "survival"):
        show(view, name)
        shapes = all_of(view, f"#{name}-body svg, #{name}-body table")
        assert shapes, name
    assert "dssr lag" in view.execute_script(
        "document.getElementById('lag').scrollIntoView(); return lag.textContent"
    ) or (until(lambda: "dssr lag" in view.execute_script("return document.getElementById('lag').textContent")))


def test_filters_and_quantities(view: Any) -> None:
    """Catches filters that do not reach the grid, and a grid that shows one quantity under another's name."""
    show(view, "grid")
    rows = len(all_of(view, "#grid-table tbody tr"))
    assert rows == 1 + 3 * 6
    view.find_element("css selector", "[data-filter=memory][data-value=belief]").click()
    assert len(all_of(view, "#grid-table tbody tr")) == rows - 3
    view.find_element("css selector", "[data-filter=budget][data-value='64']").click()
    assert len(all_of(view, "#grid-table tbody tr")) == 1 + 2 * 5
    view.find_element("css selector", "[data-filter=filler][data-value='10']").click()
    assert len(all_of(view, "#grid-table thead th")) == 2 + 3
    success = view.execute_script("return document.querySelector('#grid-table tbody').textContent")
    view.find_element("css selector", "[data-quantity=kappa]").click()
    kappa = view.execute_script("return document.querySelector('#grid-table tbody').textContent")
    assert "%" in success
    assert "%" not in kappa
    assert "paper" in success


def test_stepping_through_an_episode(view: Any) -> None:
    """Catches keys, buttons or slider that do not move, and a state that does not change with the step."""
    explorer(view)
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
    assert all_of(view, ".pane ins")
    assert all_of(view, ".pane del")
    view.find_element("id", "removed").click()
    assert not any(one.is_displayed() for one in all_of(view, ".pane del"))
    press(view, "End")
    assert step_of(view) == int(view.execute_script("return slider.max"))


def test_two_memories_side_by_side(view: Any) -> None:
    """Catches panes that show the wrong memory, budget or game."""
    explorer(view)
    choose(view, "game", "valid-6-003")
    choose(view, "filler", "20")
    choose(view, "budget", "64")
    until(lambda: "/ 64" in view.execute_script("return panes.textContent"))
    names = [option.text for option in all_of(view, "#pick-left option")]
    assert names == list(LARGE)
    choose(view, "left", str(names.index("guide")))
    choose(view, "right", str(names.index("oracle-b")))
    assert [pane.get_attribute("data-memory") for pane in all_of(view, ".pane")] == ["guide", "oracle-b"]
    observations = [pane.find_element("css selector", ".text").text for pane in all_of(view, ".pane")]
    assert observations[0] == observations[1]
    choose(view, "right", "(none)")
    assert len(all_of(view, ".pane")) == 1
    assert "game=valid-6-003" in view.current_url


def test_jumping_to_a_lost_fact_and_to_a_decision(view: Any) -> None:
    """Catches marks that lead to another step, and options that do not add up to one."""
    explorer(view)
    loss = all_of(view, ".jump.loss")[0]
    step, fact = int(loss.get_attribute("data-step")), loss.text.split("“")[1].rstrip("”")
    memory = loss.text.split(": ")[1].split(" lost")[0]
    loss.click()
    assert step_of(view) == step
    pane = view.find_element("css selector", f".pane[data-memory={memory}]")
    ingredient = fact.split(" the ")[1]
    assert ingredient in " ".join(one.text for one in pane.find_elements("css selector", ".state del, .state"))
    audit = all_of(view, ".jump.audit")[0]
    view.execute_script("arguments[0].click()", audit)
    assert all_of(view, ".loss-box.kappa")
    shown = view.execute_script(
        "return [...document.querySelector('.options').querySelectorAll('.num')].map((n) => n.textContent)"
    )
    total = sum(float(text.rstrip(" %")) for text in shown if not text.startswith("<"))
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


def test_hostile_texts_are_shown_as_text(view: Any) -> None:
    """Catches a state that runs as markup: the made-up states try to change the title and to load an image."""
    explorer(view)
    view.execute_script("slider.value = 3; slider.dispatchEvent(new Event('input'))")
    assert view.title.startswith("dssr")
    assert not all_of(view, "main img")
    assert NASTY.split(" ")[0] in view.find_element("css selector", ".pane .state").text


@pytest.mark.parametrize("width", [360, 768])
def test_it_fits_a_phone(view: Any, width: int) -> None:
    """Catches content that makes the whole page scroll sideways."""
    resize(view, width, 780)
    for name in ("grid", "decomposition", "filler", "rewrites", "association", "survival"):
        show(view, name)
    explorer(view)
    assert view.execute_script("return document.documentElement.scrollWidth") <= width


def test_dark_and_light_differ(view: Any) -> None:
    """Catches a theme button without effect."""
    colour = "return getComputedStyle(document.body).backgroundColor"
    light = view.execute_script(colour)
    view.find_element("id", "theme").click()
    assert view.execute_script(colour) != light
