"""Made-up runs shared by the tests of the report."""

from pathlib import Path

import pytest
from tests.reports.synthetic import make_run


@pytest.fixture(scope="session")
def made_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four memories, two budgets, two fillers, four games; one episode of the last memory failed."""
    return make_run(tmp_path_factory.mktemp("runs") / "made", errors=1)


@pytest.fixture(scope="session")
def whole_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same without a failure."""
    return make_run(tmp_path_factory.mktemp("runs") / "whole")
