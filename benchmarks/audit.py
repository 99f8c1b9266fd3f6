"""The memory of an audit of logs: does it grow with the log?

`python -m benchmarks.audit MEGABYTES` makes a log of so many traces of 30 KB, audits it with the scripted model and
reports it, all in one process, and prints the peak memory and CPU seconds of that.
"""

import json
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec

import dssr
from benchmarks.common import Ratio
from dssr.seeds import rng_of
from dssr.traces.trace import Trace, TraceDecision, TraceStep, write_traces

SIZES, FLAT = (3, 15, 100), 0.8
"""Megabytes, and the least ratio of the memory for the smallest to that for larger ones."""
STEPS, STEP = 20, 1500
"""Of one trace, and the characters of each."""
WORDS = ("build", "check", "module", "value", "parser", "token", "cache", "server", "index", "table", "field", "file")


def run() -> Iterator[Ratio]:
    """The rows."""
    found = {size: measured(size) for size in SIZES}
    least = found[SIZES[0]]["peak"]
    for size in SIZES[1:]:
        peak, took = found[size]["peak"], found[size]["cpu"]
        name = f"audit and report of a log of {size} MB: peak memory"
        yield Ratio(name, peak, least, f"{SIZES[0]} MB", least / peak, FLAT, "MB")
        yield Ratio(
            f"audit and report of a log of {size} MB: CPU s per MB",
            took / size,
            found[SIZES[0]]["cpu"] / SIZES[0],
            f"{SIZES[0]} MB",
            found[SIZES[0]]["cpu"] / SIZES[0] / (took / size),
            None,
            "CPU s",
        )


def measured(megabytes: float) -> dict[str, float]:
    """Peak memory in MB and CPU seconds of one audit, in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.audit", str(megabytes)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def made_log(megabytes: float) -> Iterator[Trace]:
    """Traces of about this size together, whose actions need values that earlier steps show."""
    for number in range(max(1, round(megabytes * 1e6 / (STEPS * STEP)))):
        rng = rng_of("made log", number)
        actions = [
            f"open src/{rng.choice(WORDS)}_{number}_{step}.py --line {rng.randint(100, 99_999)}"
            for step in range(STEPS)
        ]
        steps = []
        for step in range(STEPS):
            lines, size = [], 0
            if step + 1 < STEPS:
                lines.append(f"hint for later: {actions[rng.randrange(step + 1, STEPS)]}")
            while size < STEP:
                lines.append(" ".join(f"{rng.choice(WORDS)}{rng.randint(10, 9_999)}" for _ in range(10)))
                size += len(lines[-1])
            steps.append(
                TraceStep(
                    action=actions[step - 1] if step else None,
                    observation="\n".join(lines),
                    decision=TraceDecision(actions[step]) if step + 1 < STEPS else None,
                )
            )
        yield Trace(id=f"made-{number:05d}", goal=f"Mend module {number}.", steps=tuple(steps))


def audit(megabytes: float, plain: dssr.Config, folder: Path) -> None:
    """Make the log, audit it, report it."""
    write_traces(made_log(megabytes), folder / "log.jsonl")
    config = msgspec.structs.replace(plain, data=str(folder / "data"), runs=str(folder / "runs"))
    dssr.audit(folder / "log.jsonl", config, ["summary"], [128], out=folder / "run", workers=1)
    dssr.report(folder / "run", out=folder / "report")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        audit(float(sys.argv[1]), dssr.load("scripted"), Path(name))
    used = resource.getrusage(resource.RUSAGE_SELF)
    print(json.dumps({"peak": used.ru_maxrss / 1024, "cpu": used.ru_utime + used.ru_stime}))
