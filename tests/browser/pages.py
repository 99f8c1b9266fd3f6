"""Pages that the browser tests open, and how they look at them."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.reports.synthetic import make_run

from dssr.reports.view import Answer, BinRow, Bins, Estimate, PageView, PageWords, ViewCell
from dssr.reports.write import make_report

LARGE = ("full", "oracle-b", "lastk", "summary", "slots", "belief", "guide")
LONG = ("my_package.memories:CarefulNoteTaker", "dssr@runs/study-of-writers/reachability-line")
CHARTS = ("decomposition", "filler", "rewrites", "association", "survival")


def report(
    folder: Path, games: int, memories: tuple[str, ...] = LARGE, budgets: tuple[int, ...] = (64, 128, 256)
) -> Path:
    """The page of a made-up run; one episode of the last memory failed."""
    reader = "Qwen/Qwen3-4B-Instruct-2507"  # of which values were published
    run = make_run(folder / "run", games, memories, budgets, (0, 10, 20, 40), errors=1, reader=reader)
    return Path(make_report([run], folder / "out", ["page"], against_paper=True).files[0])


def sparse() -> PageView:
    """What traces of another agent could fill: no games, no success, one filler, bins that are empty or hold one."""

    def found(value: float, n: int) -> Estimate:
        many = n > 1
        return Estimate(value, value - 0.5 if many else None, value + 0.5 if many else None, n, f"{value:.2f}")

    values = [found(0.2, 5), found(0.4, 6), None, found(1.0, 4), None, found(2.0, 1)]
    cell = ViewCell("notes", 200, 0, "post", 6, found(1.0, 6), found(0.25, 6), found(0.75, 6), points=40)
    return PageView(
        title="traces",
        source="six traces",
        words=PageWords("task", "fact", "", "trace", "traces", "traces solved"),
        intervals="95 % intervals over traces",
        level="95 %",
        oracle="the best of 4 states",
        answers=[Answer("notes", "writer", "The writer chose badly", [("Cost ", False), ("0.75", True)])],
        cells=[cell],
        rewrites=Bins(["0", "1–2", "3–5", "6–9", "10–14", "15+"], [BinRow("notes", 200, values)]),
    )


def resize(browser: Any, width: int, height: int = 900) -> None:
    """Another window, a phone's when it is narrow."""
    settings = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", settings)


def open_page(browser: Any, page: Path, width: int = 1280, tail: str = "") -> None:
    """The page, opened afresh."""
    resize(browser, width)
    browser.get("about:blank")
    browser.get_log("browser")
    browser.get(page.resolve().as_uri() + tail)
    until(lambda: browser.execute_script("return document.documentElement.dataset.ready"))


def complaints(browser: Any) -> list[Any]:
    """What the page reported on the console."""
    return [entry for entry in browser.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]


def all_of(view: Any, selector: str) -> list[Any]:
    """Elements by CSS selector."""
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


def at_rest(view: Any) -> None:
    """Wait until the page has stopped scrolling and growing."""
    script = "return [scrollY, document.documentElement.scrollHeight]"
    before, same = None, 0
    while same < 5:
        now = view.execute_script(script)
        same, before = (same + 1 if now == before else 0), now
        time.sleep(0.1)


def explorer(view: Any) -> None:
    """Bring the explorer on the screen, with an episode in it."""
    view.execute_script(
        "document.documentElement.style.scrollBehavior = 'auto'; explorer_ = $('explorer'); explorer_.scrollIntoView()"
    )
    until(lambda: all_of(view, "#panes .pane"))


def press(view: Any, key: str) -> None:
    """One key."""
    text = key if len(key) == 1 else ""
    codes = {"Tab": 9, "Enter": 13}
    more = {"windowsVirtualKeyCode": codes[key]} if key in codes else {}
    view.execute_cdp_cmd("Input.dispatchKeyEvent", {"type": "keyDown", "key": key, "text": text, **more})
    view.execute_cdp_cmd("Input.dispatchKeyEvent", {"type": "keyUp", "key": key, **more})


def choose(view: Any, side: str, name: str, value: str) -> None:
    """Take a value in a picker of the explorer."""
    script = "const s = $(arguments[0]); s.value = arguments[1]; s.dispatchEvent(new Event('change'))"
    view.execute_script(script, f"pick-{side}-{name}", value)


def step_of(view: Any) -> int:
    """Where the explorer stands."""
    return int(view.execute_script("return $('slider').value"))
