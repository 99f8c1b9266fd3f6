"""Freed memory leaves the process."""

import sys
from pathlib import Path

import pytest

from dssr.models.heap import give_back


def resident() -> int:
    """Bytes of this process that are in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says so simply how much memory a process holds")
def test_what_is_freed_goes_back_to_the_system() -> None:
    """Catches a study that grows with every model it opens: without the call, all but the last blocks stay."""
    before = resident()
    blocks = [bytearray(64_000) for _ in range(4000)]  # small enough to come from the heap
    held = resident() - before
    assert held > 200_000_000
    del blocks[:-1]  # the last one keeps the heap from shrinking by itself
    kept = resident() - before
    give_back()
    assert kept > 0.5 * held
    assert resident() - before < 0.1 * held
