"""The page in a real browser: every part can be read and used, on a desktop and on a phone."""

import base64
import re
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tests.browser import pages
from tests.browser.pages import CHARTS, LARGE, LONG, all_of, explorer, press, resize, until
from tests.reports.synthetic import NASTY

from dssr.measure.study import Study
from dssr.reports.study_tables import study_tables
from dssr.reports.tables import Table, cell_text
from dssr.reports.view import render

pytestmark = pytest.mark.browser
WIDTHS = pytest.mark.parametrize("width", [1280, 390])


@pytest.fixture(scope="session")
def named(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page of memories with long names."""
    return pages.report(tmp_path_factory.mktemp("named"), 3, ("full", "summary", *LONG), (64,))


# ---------------------------------------------------------------- reading


def test_episodes_are_unpacked_when_looked_at(view: Any) -> None:
    """Catches a page that unpacks every episode before it shows anything: the work is counted, not the time."""
    assert view.execute_script("return unpacked.size") == 0
    assert not all_of(view, "#explorer[data-drawn]")
    explorer(view)
    assert view.execute_script("return unpacked.size") == 1


def test_every_part_is_drawn_and_says_what_it_shows(view: Any) -> None:
    """Catches a part that stays empty, and a heading that does not name the quantities of its chart."""
    assert len(all_of(view, "#answers li")) == len(LARGE)
    assert "1 × the model answered with nothing" in view.find_element("css selector", ".failures").text
    signs = {"decomposition": "βκδ", "filler": "κF", "rewrites": "κ", "lag": "κℓ", "association": "δ", "survival": "%"}
    for name in CHARTS:
        until(partial(all_of, view, f"#{name}-body svg"))
        assert all_of(view, f"#{name}-body details table"), name
    for name, wanted in signs.items():
        heading = view.find_element("css selector", f"#{name} h2").text
        assert "?" not in heading
        assert all(sign in heading for sign in wanted) or "Share of" in heading, heading
    assert "dssr lag" in view.execute_script("return $('lag').textContent")


def test_numbers_are_those_of_the_tables(view: Any, page: Path) -> None:
    """Catches a number that the page rounds in another way than tables and terminal do."""
    tables, _ = study_tables(Study.load([page.parent.parent / "run"]))
    grid: Table = next(table for table in tables if table.name == "grid")
    columns = {column.key: column for column in grid.columns}
    shown = 0
    for name in ("success", "delta", "beta", "kappa"):
        view.find_element("css selector", f"[data-quantity={name}]").click()
        script = (
            "return [...document.querySelectorAll('#grid-table tbody tr')].map(r => [r.querySelector('th').textContent,"
            " ...[...r.querySelectorAll('td')].map(c => { c.querySelectorAll('.paper').forEach(n => n.remove());"
            " return c.textContent.trim() })])"
        )
        cells = {
            (memory, budget, filler): text.replace("−", "-").replace("\N{NO-BREAK SPACE}", " ")
            for memory, budget, *values in view.execute_script(script)
            for filler, text in zip((0, 10, 20, 40), values, strict=True)
        }
        for row in grid.rows:
            key = (row.memory, "–" if row.budget is None else str(row.budget), row.filler)  # type: ignore[attr-defined]
            assert cells[key] == cell_text(row, columns[name])
            shown += cells[key] != "–"
    assert shown > 200


@WIDTHS
def test_axes_are_written_as_people_write_them(browser: Any, page: Path, width: int) -> None:
    """Catches ticks like 2.5 rewrites or 0.30000000000000004, decimals that change along an axis, ticks that overlap,
    and an axis without a name or unit."""
    pages.open_page(browser, page, width)
    explorer(browser)
    script = (
        "return [...document.querySelectorAll('svg[role=img]')].map(g => ['x', 'y'].map(a =>"
        " [...g.querySelectorAll(`.tick.${a}`)].map(t => [t.textContent, t.getBoundingClientRect().left,"
        " t.getBoundingClientRect().right])).concat([[...g.querySelectorAll('.axis')].map(t => t.textContent)]))"
    )
    charts = until(lambda: browser.execute_script(script))
    assert len(charts) >= 10
    for x, y, names in charts:
        for ticks in (x, y):
            texts = [text for text, _, _ in ticks if text]
            numbers = [text for text in texts if "–" not in text and not text.endswith("+")]
            assert all(re.fullmatch(r"−?\d{1,3}(,\d{3})*(\.\d{1,2})?", text) for text in numbers), texts
            assert len({len(text.partition(".")[2]) for text in numbers if text != "0"}) <= 1, texts
        assert all(right <= left + 0.5 for (_, _, right), (_, left, _) in pairwise(x)), x
        assert names
        assert all(re.search(r"nats|%|steps?\b|rewrites", name) for name in names), names
        counted = [name for name in names if re.search(r"steps?\b|rewrites", name)]
        assert not counted or all("." not in text for text, _, _ in x), x


@WIDTHS
def test_long_names_break_at_sense(browser: Any, named: Path, width: int) -> None:
    """Catches names that are cut, or broken inside a word."""
    pages.open_page(browser, named, width)
    explorer(browser)
    script = (
        "const out = []; for (const name of document.querySelectorAll('.sense')) for (const part of name.childNodes)"
        " if (part.nodeType === 3) { const r = document.createRange(); r.selectNodeContents(part);"
        " out.push([part.textContent, new Set([...r.getClientRects()].map(b => Math.round(b.top))).size]) } return out"
    )
    parts = browser.execute_script(script)
    assert {text for text, _ in parts} >= {"my_", "package.", "memories:", "Careful", "Note", "Taker", "dssr@"}
    assert all(lines <= 1 for _, lines in parts)
    texts = browser.execute_script("return [...document.querySelectorAll('svg text')].map(t => t.textContent)")
    assert not [text for text in texts if "…" in text]
    bars = browser.execute_script(
        "return [...document.querySelectorAll('#decomposition svg .strong:not(.tick)')]"
        ".map(t => t.textContent).join('')"
    )
    assert all(name in bars for name in LONG)
    assert all_of(browser, "#filler .key")


@WIDTHS
def test_nothing_is_cut_off_without_a_hint(browser: Any, named: Path, width: int) -> None:
    """Catches content beyond the edge of the screen or of its box that nothing points to."""
    pages.open_page(browser, named, width)
    explorer(browser)
    pages.at_rest(browser)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    cut = (
        "return [...document.querySelectorAll('body *')].filter(n => n.checkVisibility() && !n.closest('.unseen, #tip')"
        " && n.scrollWidth > n.clientWidth + 2 && ['auto', 'scroll', 'hidden'].includes(getComputedStyle(n).overflowX)"
        " && !(n.parentNode.dataset.right === 'true' || n.parentNode.dataset.left === 'true')"
        " && n.tagName !== 'SELECT').map(n => n.outerHTML.slice(0, 90))"
    )
    assert browser.execute_script(cut) == []
    low = (
        cut.replace("scrollWidth", "scrollHeight")
        .replace("clientWidth", "clientHeight")
        .replace("overflowX", "overflowY")
    )
    assert (
        browser.execute_script(
            low.replace("dataset.left", "dataset.down").replace("n.tagName", "!n.closest('.scroll') && n.tagName")
        )
        == []
    )
    over = (
        "return [...document.querySelectorAll('#answers li')].filter(n => { const b = n.querySelector('.badge')"
        ".getBoundingClientRect(), w = n.querySelector('.why').getBoundingClientRect();"
        " return b.right > w.left && b.bottom > w.top + 2 }).length"
    )
    assert browser.execute_script(over) == 0
    outside = (
        "return [...document.querySelectorAll('svg text')].filter(t => { const b = t.getBoundingClientRect();"
        " return b.width && (b.left < -1 || b.right > innerWidth + 1) }).map(t => t.textContent)"
    )
    assert browser.execute_script(outside) == []
    if width == 390:
        assert all_of(browser, "#grid-body .hint[data-right=true]")
        assert all_of(browser, ".bar .hint[data-right=true]")
        browser.execute_script("const n = document.querySelector('#grid-body .scroll'); n.scrollLeft = n.scrollWidth")
        until(lambda: all_of(browser, "#grid-body .hint[data-right=false][data-left=true]"))


@WIDTHS
def test_numbers_stay_in_one_piece(browser: Any, page: Path, width: int) -> None:
    """Catches an interval or a per cent that is parted at the end of a line, and a grid that does not say what kind of
    intervals it has."""
    pages.open_page(browser, page, width)
    parted = (
        "const out = [], walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT); let n, seen = 0;"
        " while ((n = walk.nextNode())) { if (n.parentNode.closest('script, style')) continue;"
        " for (const m of n.textContent.matchAll(/\\[[^\\]]*\\]|[\\d.]+\\s%/g)) { const r = document.createRange();"
        " r.setStart(n, m.index); r.setEnd(n, m.index + m[0].length); seen++;"
        " if (new Set([...r.getClientRects()].map(b => Math.round(b.top))).size > 1) out.push(m[0]) } }"
        " return [seen, out]"
    )
    seen, found = browser.execute_script(parted)
    assert seen > 50
    assert found == []
    assert re.search(r"95\s% percentile intervals over games", browser.find_element("id", "grid-about").text)


def test_no_band_of_one_and_no_line_across_nothing(browser: Any, tmp_path: Path) -> None:
    """Catches an interval drawn for a single game and a line through bins in which nothing was measured; and parts
    without data on a page that was filled from something else than games."""
    file = tmp_path / "index.html"
    file.write_text(render(pages.sparse()), encoding="utf-8")
    pages.open_page(browser, file)
    until(lambda: all_of(browser, "#rewrites svg"))
    lines = [one.get_attribute("d").count("L") + 1 for one in all_of(browser, "#rewrites path.line")]
    assert lines == [2]
    assert len(all_of(browser, "#rewrites polygon.band")) == 1
    assert len(all_of(browser, "#rewrites line.band")) == 1
    assert len(all_of(browser, "#rewrites path.mark")) == 4
    sections = [one.get_attribute("id") for one in all_of(browser, "main section")]
    assert sections == ["grid", "decomposition", "rewrites", "words"]
    assert len(all_of(browser, "nav a")) == 4
    assert "traces" in browser.find_element("id", "grid-about").text
    assert pages.complaints(browser) == []


def test_hostile_texts_are_shown_as_text(view: Any) -> None:
    """Catches a state that runs as markup: the made-up states try to change the title and to load an image."""
    explorer(view)
    view.execute_script("slider.value = 3; slider.dispatchEvent(new Event('input'))")
    assert view.title.startswith("dssr")
    assert not all_of(view, "main img")
    assert NASTY.split(" ")[0] in view.find_element("css selector", ".pane .state").text


def test_dark_and_light_differ(view: Any) -> None:
    """Catches a theme button without effect."""
    colour = "return getComputedStyle(document.body).backgroundColor"
    light = view.execute_script(colour)
    view.find_element("id", "theme").click()
    assert view.execute_script(colour) != light


# ---------------------------------------------------------------- moving about


@WIDTHS
def test_links_land_on_the_first_click(browser: Any, page: Path, width: int) -> None:
    """Catches a link that ends elsewhere because parts above its target grow, or under the bar that stays on top."""
    pages.open_page(browser, page, width)
    targets = [link.get_attribute("href").rpartition("#")[2] for link in all_of(browser, "nav a")]
    assert len(targets) == 9
    for target in targets:
        pages.open_page(browser, page, width)
        link = browser.find_element("css selector", f"nav a[href='#{target}']")
        browser.execute_script(
            "arguments[0].scrollIntoView({block: 'nearest', inline: 'nearest', behavior: 'instant'})", link
        )
        link.click()
        pages.at_rest(browser)
        top, bar, end = browser.execute_script(
            "return [$(arguments[0]).querySelector('h2').getBoundingClientRect().top,"
            " document.querySelector('.bar').getBoundingClientRect().bottom,"
            " scrollY + innerHeight >= document.documentElement.scrollHeight - 2]",
            target,
        )
        assert bar <= top, target
        assert top <= bar + 60 or end, target
        assert browser.current_url.endswith(f"#{target}")
        assert browser.execute_script("return document.activeElement.textContent") == browser.execute_script(
            "return $(arguments[0]).querySelector('h2').textContent", target
        )


def test_filters_and_quantities(view: Any) -> None:
    """Catches filters that do not reach the grid, and a grid that shows one quantity under another's name."""
    rows = len(all_of(view, "#grid-table tbody tr"))
    assert rows == 1 + 3 * 6
    view.find_element("css selector", "[data-filter=memory][data-value=belief]").click()
    assert len(all_of(view, "#grid-table tbody tr")) == rows - 3
    view.find_element("css selector", "[data-filter=budget][data-value='64']").click()
    assert len(all_of(view, "#grid-table tbody tr")) == 1 + 2 * 5
    view.find_element("css selector", "[data-filter=filler][data-value='10']").click()
    assert len(all_of(view, "#grid-table thead th")) == 2 + 3
    assert "published" in view.find_element("css selector", "#grid-table tbody").text
    view.find_element("css selector", "[data-quantity=kappa]").click()
    assert "κ, nats" in view.find_element("id", "grid-about").text


def test_the_tip_counts_games(view: Any) -> None:
    """Catches a tooltip that speaks of NaN or undefined."""
    cell = all_of(view, "#grid-table td.value")[-1]
    tip = view.execute_script("return arguments[0].tipText()", cell)
    assert re.search(r"games won [\d.]+.*\s%, \d games", tip)
    every = "return [...document.querySelectorAll('[data-tip]')].map(n => n.tipText()).join('\\n')"
    assert not re.search(r"NaN|undefined|null", view.execute_script(every))


def test_the_keyboard_reaches_everything(view: Any) -> None:
    """Catches controls without a name for a screen reader, charts that the tab key skips, and marks that only a mouse
    can read."""
    explorer(view)
    tree = view.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
    roles = {"button", "link", "combobox", "slider", "checkbox", "image", "img", "region", "navigation", "group"}
    nameless = [
        node["role"]["value"]
        for node in tree
        if not node["ignored"]
        and node["role"]["value"] in roles - {"group"}
        and not node.get("name", {}).get("value", "").strip()
    ]
    assert nameless == []
    view.execute_script("window.scrollTo(0, 0); document.activeElement.blur()")
    press(view, "Tab")
    assert view.execute_script("return document.activeElement.className") == "skip"
    visited = []
    for _ in range(60):
        press(view, "Tab")
        visited.append(
            view.execute_script("const n = document.activeElement; return n.closest('section')?.id + ' ' + n.tagName")
        )
    assert "grid BUTTON" in visited
    assert "decomposition svg" in visited
    view.execute_script("document.querySelector('#filler svg').focus()")
    tips = []
    for _ in range(2):
        press(view, "ArrowRight")
        tips.append(view.execute_script("return $('tip').classList.contains('on') && $('tip').textContent"))
    assert "nats" in tips[0]
    assert tips[0] != tips[1]
    assert view.find_element("id", "tip").get_attribute("role") == "status"


def test_the_print_view(view: Any) -> None:
    """Catches paper that shows buttons, leaves out what they would show, or is printed white on black."""
    explorer(view)
    view.find_element("id", "theme").click()
    view.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    view.execute_script("dispatchEvent(new Event('beforeprint'))")
    for name in (".bar", ".scrub", ".picks", "#theme"):
        assert not view.find_element("css selector", name).is_displayed(), name
    for name in ("#grid-table", "#filler svg", "#rewrites details table", "#facts svg", ".pane .state", "#words dl"):
        assert view.find_element("css selector", name).is_displayed(), name
    resize(view, 690)  # a sheet of A4 between its margins
    pages.at_rest(view)
    assert view.execute_script("return document.documentElement.scrollWidth") <= 690
    resize(view, 1280)
    red = int(re.findall(r"\d+", view.execute_script("return getComputedStyle(document.body).color"))[0])
    assert red < 80
    view.execute_script("dispatchEvent(new Event('afterprint'))")
    assert not all_of(view, "details[open]")
    view.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
    printed = base64.b64decode(view.execute_cdp_cmd("Page.printToPDF", {"printBackground": True})["data"])
    assert 3 <= printed.count(b"/Type /Page\n") <= 40
