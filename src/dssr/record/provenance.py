"""Where a result came from: code, packages, machine."""

import datetime
import platform
import subprocess
import sys
from importlib import metadata
from pathlib import Path

from dssr.types import Record


class Provenance(Record, frozen=True):
    commit: str | None
    """None when the code does not run from a git checkout."""
    dirty: bool | None
    packages: tuple[str, ...]
    python: str
    device: str
    host: str
    started: str
    """UTC; the only time stamp of a run."""


def now() -> str:
    """The time in UTC, to the second."""
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")


def gather() -> Provenance:
    commit, dirty = _git_state()
    return Provenance(
        commit=commit,
        dirty=dirty,
        packages=tuple(sorted({f"{d.name}=={d.version}" for d in metadata.distributions() if d.name})),
        python=platform.python_version(),
        device=device(),
        host=platform.node(),
        started=now(),
    )


def device() -> str:
    """What computed: the accelerator if one is in use, else the processor's model name."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        return str(torch.cuda.get_device_name(0))
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text(errors="replace").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def _git_state() -> tuple[str | None, bool | None]:
    def git(*arguments: str) -> str | None:
        folder = Path(__file__).parent
        try:
            done = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, text=True, check=True)
        except (OSError, subprocess.CalledProcessError):
            return None
        return done.stdout.strip()

    # An installed package may lie inside someone else's checkout: only a commit that tracks this file counts.
    if git("ls-files", "--error-unmatch", Path(__file__).name) is None:
        return None, None
    status = git("status", "--porcelain")
    return git("rev-parse", "HEAD"), None if status is None else bool(status)
