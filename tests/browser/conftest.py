"""A headless Chromium for the tests of the page, and the page that most of them look at."""

import os
import shutil
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NoReturn

import pytest
from tests.browser import pages

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
)
MISSING = "needs Chromium and selenium: apt-get install chromium chromium-driver; pip install 'dssr[browser]'"


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[object]":
    """One browser for all tests; each test opens its own page in it."""
    driver = shutil.which("chromedriver")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if driver is None or chromium is None or find_spec("selenium") is None:
        _absent()
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = str(chromium)
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    made = webdriver.Chrome(options=options, service=webdriver.ChromeService(executable_path=driver))
    yield made
    made.quit()


@pytest.fixture(scope="session")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """532 episodes: seven memories, three budgets, four fillers, seven games; one episode failed."""
    return pages.report(tmp_path_factory.mktemp("page"), 7)


@pytest.fixture
def view(browser: Any, page: Path) -> Iterator[Any]:
    """The page, opened afresh on a desktop; at the end, nothing may have been reported on the console."""
    pages.open_page(browser, page)
    browser.execute_script("document.documentElement.style.scrollBehavior = 'auto'")
    yield browser
    assert pages.complaints(browser) == []


def _absent() -> NoReturn:
    if os.environ.get("DSSR_REQUIRE_ALL"):
        pytest.fail(MISSING)
    pytest.skip(MISSING)


def address(page: Path) -> str:
    return page.resolve().as_uri()
