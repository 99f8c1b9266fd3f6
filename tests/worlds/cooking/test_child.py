"""The process TextWorld runs in: replaced when it has grown, and only then."""

import subprocess
import sys

PARENT = """
import subprocess, sys
ballast = bytearray(600 * 2**20)
print(subprocess.run([sys.executable, "-c", "from dssr.worlds.cooking.textworld import megabytes; print(megabytes())"],
                     capture_output=True, text=True, check=True).stdout)
"""


def test_a_child_does_not_count_the_memory_of_its_parent() -> None:
    """Catches the reported peak, which a child inherits: beside a loaded model every step would start a new process."""
    done = subprocess.run([sys.executable, "-c", PARENT], capture_output=True, text=True, check=True)
    assert 0 < int(done.stdout) < 300
