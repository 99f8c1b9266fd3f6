"""What the engine's README says it buys is what was measured."""

from pathlib import Path

import msgspec
import pytest
from benchmarks.common import Measured

import dssr.models.engine

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", ["engine", "decode"])
def test_the_readme_shows_the_stored_rows(name: str) -> None:
    """Catches figures typed from memory, or left behind when the benchmark was run again."""
    stored = (ROOT / "benchmarks" / "results" / f"{name}.json").read_bytes()
    measured = msgspec.json.decode(stored, type=Measured)
    page = (Path(dssr.models.engine.__file__).parent / "README.md").read_text()
    assert measured.rows
    for row in measured.rows:
        figures = f"| {row.ours:.2f} | {row.baseline_name} | {row.baseline:.2f} | {row.ratio:.2f} |"
        assert f"| {row.name} {figures}" in page
    assert measured.cpu in page
    assert measured.command in page
