"""Run the benchmarks and print name, ours, baseline, ratio, goal."""

import argparse
import importlib
import sys
from pathlib import Path

import msgspec

from benchmarks.common import Ratio, measured

KNOWN = ("audit", "bootstrap", "decode", "engine", "label_loss", "memory", "repeat", "scale", "score", "study", "world")


def main() -> int:
    parser = argparse.ArgumentParser(prog="benchmarks")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(KNOWN))
    parser.add_argument("--json", type=Path, help="write the same figures, and where they were measured, to this file")
    asked = parser.parse_args()
    unknown = sorted(set(asked.names) - set(KNOWN))
    if unknown:
        parser.error(f"no benchmark {unknown[0]!r}; there are {', '.join(KNOWN)}")
    ratios: list[Ratio] = []
    for name in asked.names or KNOWN:
        for one in importlib.import_module(f"benchmarks.{name}").run():
            ratios.append(one)
            goal = "-" if one.goal is None else f">= {one.goal:g}{'' if one.met else '  MISSED'}"
            print(
                f"{one.name:58} {one.ours:12.6g} {one.unit:8} {one.baseline:12.6g} ({one.baseline_name})  "
                f"x{one.ratio:.2f}  goal {goal}",
                flush=True,
            )
    if asked.json:
        command = " ".join(("OMP_NUM_THREADS=1 python -m benchmarks", *asked.names))
        asked.json.write_bytes(msgspec.json.format(msgspec.json.encode(measured(command, ratios)), indent=1) + b"\n")
    return 0 if all(one.met for one in ratios) else 1


if __name__ == "__main__":
    sys.exit(main())
