"""The demo, and the demo again over its stored answers: what asking the same question twice costs."""

import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.common import Ratio, faster, seconds

MOST = 6.0
"""CPU seconds that a repeat may take."""


def run() -> list[Ratio]:
    with tempfile.TemporaryDirectory() as folder:
        first = seconds(lambda: demo(folder, "first"), repeat=1)
        again = min(seconds(lambda out=out: demo(folder, out), repeat=1) for out in ("second", "third"))  # type: ignore[misc]
        same = [(Path(folder) / out / "nano" / "summary.json").read_bytes() for out in ("first", "third")]
    if same[0] != same[1]:
        raise AssertionError("the repeat found something else")
    return [
        faster("demo: repeat from stored answers", again, first, "the first run", 20),
        faster(f"demo: repeat (at most {MOST:g} s)", again, MOST, "what is asked for", 1),
    ]


def demo(folder: str, out: str) -> None:
    call = [sys.executable, "-c", "from dssr.cli.main import main; main()", "demo", "--out", out]
    subprocess.run(call, cwd=folder, check=True, capture_output=True)
