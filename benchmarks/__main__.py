"""Run the benchmarks and print name, ours, baseline, ratio, goal."""

import argparse
import importlib
import sys
from pathlib import Path

import msgspec

from benchmarks.common import Ratio


def main() -> int:
    folder = Path(__file__).parent
    known = sorted(path.stem for path in folder.glob("*.py") if path.stem not in {"__init__", "__main__", "common"})
    parser = argparse.ArgumentParser(prog="benchmarks")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(known))
    parser.add_argument("--json", type=Path, help="write the same figures to this file")
    asked = parser.parse_args()
    unknown = sorted(set(asked.names) - set(known))
    if unknown:
        parser.error(f"no benchmark {unknown[0]!r}; there are {', '.join(known)}")
    ratios: list[Ratio] = []
    for name in asked.names or known:
        for one in importlib.import_module(f"benchmarks.{name}").run():
            ratios.append(one)
            goal = "-" if one.goal is None else f">= {one.goal:g}{'' if one.met else '  MISSED'}"
            print(
                f"{one.name:58} {one.ours:12.6g} {one.unit:8} {one.baseline:12.6g} ({one.baseline_name})  "
                f"x{one.ratio:.2f}  goal {goal}",
                flush=True,
            )
    if asked.json:
        asked.json.write_bytes(msgspec.json.format(msgspec.json.encode(ratios), indent=1) + b"\n")
    return 0 if all(one.met for one in ratios) else 1


if __name__ == "__main__":
    sys.exit(main())
