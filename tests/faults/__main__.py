"""Run the harness for real and keep its figures: `python -m tests.faults kills|line|served|fuzz`.

The figures go to `results.json` beside this file, and from there to docs/trust.md.
"""

import argparse
import json
import tempfile
from pathlib import Path

import msgspec
from tests.faults import cases, fuzz, kills, warm

from dssr.worlds.archive import Archive
from dssr.worlds.shipped import unpack

RESULTS = Path(__file__).with_name("results.json")
GAMES = Path(__file__).parents[1] / "games"


def keep(name: str, command: str, figures: object) -> None:
    """Put the figures of one command into the file of results."""
    stored = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    stored[name] = {"command": f"python -m tests.faults {command}", "figures": figures}
    RESULTS.write_text(json.dumps(dict(sorted(stored.items())), indent=1) + "\n")


def keep_kills(found: kills.Killed) -> None:
    """Put the figures of one case beside those of the others."""
    stored = json.loads(RESULTS.read_text()).get("kills", {}).get("figures", [])
    others = [row for row in stored if row["case"] != found.case]
    keep("kills", "kills --every", [*others, msgspec.to_builtins(found)])
    print(found, flush=True)


def main() -> None:
    """Do what was asked."""
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["kills", "line", "served", "fuzz"])
    parser.add_argument("--cases", type=int, default=fuzz.CASES)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument(
        "--every", action="store_true", help="kill at every operation, not at each case's share of them"
    )
    parser.add_argument("--stride", type=int, help="kill at every so many operations")
    parser.add_argument("--case", action="append", help="only this case of the kills; the others keep their figures")
    parser.add_argument("--notes", type=Path, help="file with the kills done so far: a sweep that was ended goes on")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        unpack(GAMES / "one.tar.xz", folder / "games" / "one")
        archive = Archive.open(folder / "games" / "one")
        archive.folder = folder / "games"  # as that of the tests, whose parts lie in folders of their own
        if asked.what == "fuzz":
            keep("fuzz", f"fuzz --cases {asked.cases}", fuzz.table(archive, folder, asked.cases))
        elif asked.what == "kills":
            wanted = [one for one in cases.kill_cases(archive, folder) if one.name in (asked.case or [one.name])]
            with warm.workers():
                for one in wanted:
                    stride = 1 if asked.every else asked.stride or one.stride
                    keep_kills(kills.kill_everywhere(one, folder / one.slug, stride, asked.notes))
        elif asked.what == "line":
            keep("line", f"line --kills {asked.kills}", cases.killed_line(archive, folder, asked.kills))
        else:
            keep("served", f"served --kills {asked.kills}", cases.killed_served(archive, folder, asked.kills))


if __name__ == "__main__":
    main()
