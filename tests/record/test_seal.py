"""The test split opens once."""

from pathlib import Path

import pytest

from dssr.errors import SealError
from dssr.record.seal import Seal

DAY = "2030-01-02T00:00:00+00:00"


def test_opens_once_after_approval(tmp_path: Path) -> None:
    """Shut without approval; open for one run, which may come back; shut for any other run, for good."""
    seal = Seal(tmp_path / "seal")
    with pytest.raises(SealError, match="dssr gates approve"):
        seal.open(tmp_path / "run", DAY)
    seal.approve("the group, after round 3 was chosen on valid", DAY)
    seal.open(tmp_path / "run", DAY)
    seal.open(tmp_path / "run", DAY)
    with pytest.raises(SealError, match="opened before"):
        Seal(tmp_path / "seal").open(tmp_path / "other", DAY)


def test_approval_is_given_once_and_in_words(tmp_path: Path) -> None:
    """A second approval does not open a second time, and an empty one is none."""
    seal = Seal(tmp_path)
    with pytest.raises(SealError, match="words"):
        seal.approve("  ", DAY)
    seal.approve("yes", DAY)
    with pytest.raises(SealError, match="once"):
        seal.approve("again", DAY)


def test_damaged_marker_keeps_it_shut(tmp_path: Path) -> None:
    """A marker that cannot be read must not count as an approval."""
    (tmp_path / "approved.json").write_text("{")
    with pytest.raises(SealError, match="damaged"):
        Seal(tmp_path).open(tmp_path / "run", DAY)
