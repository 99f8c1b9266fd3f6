"""Seeded mutations of what dssr reads. Each must be refused in one sentence, or change no number.

A target holds its material as files in memory, writes a mutated copy, and reads it the way the program does. What the
reader returns stands for the numbers.
"""

import json
import math
import random
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec
from tests.faults.cases import scripted
from tests.models.faulty import completion, scored
from tests.tiny import make_adapter, make_tiny
from tests.traces.logs import made_trace

from dssr.config import load, resolved
from dssr.errors import DssrError
from dssr.measure.diagnose import diagnose
from dssr.measure.rows import cell_rows, flat
from dssr.measure.study import Study
from dssr.models.adapters import Adapters, check_adapter, stamp_adapter
from dssr.models.guard import Mask, chosen, generated
from dssr.models.scripted import ScriptedModel
from dssr.record.run import Run
from dssr.traces.facts import trace_facts
from dssr.traces.importers import open_traces
from dssr.traces.trace import write_traces
from dssr.worlds.archive import Archive
from dssr.worlds.base import settled
from dssr.worlds.shipped import unpack

GAMES = Path(__file__).parents[1] / "games"
LOGS = Path(__file__).parents[2] / "examples" / "logs"
CASES = 10_000
SHARES = {
    "configurations": 25,
    "run directories": 35,
    "archives": 15,
    "adapters": 5,
    "server replies": 10,
    "traces": 10,
}
"""Of all cases, in per cent."""
Files = dict[str, bytes]


@dataclass(frozen=True)
class Target:
    """Something that dssr reads."""

    name: str
    files: Files
    read: Callable[[Path], object]
    """What the program makes of the files in a folder."""
    promise: str = "same"
    """`same`: read at all, it gives the same. `sound`: other content is another thing by name, and is well formed."""


class Outcome(msgspec.Struct, frozen=True):
    """A row of the table."""

    target: str
    cases: int
    refused: int
    same: int
    other: int
    """Read as something else, where the promise allows it: a configuration with another digest, another reply."""
    changed: int
    """Other numbers without a word."""
    tracebacks: int


# ---------------------------------------------------------------- mutations


def mutated(files: Files, rng: random.Random) -> Files:
    """A copy of the files with one thing changed, now and then two."""
    made = dict(files)
    for _ in range(1 if rng.random() < 0.8 else 2):
        name = rng.choice(sorted(made) or ["new.jsonl"])
        rng.choice(MUTATIONS)(made, name, rng)
    return made


def _flip(files: Files, name: str, rng: random.Random) -> None:
    data = bytearray(files.get(name, b" "))
    for _ in range(rng.randint(1, 3)):
        if data:
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    files[name] = bytes(data)


def _cut(files: Files, name: str, rng: random.Random) -> None:
    data = files.get(name, b"")
    files[name] = data[: rng.randint(0, len(data))]


def _lines(files: Files, name: str, rng: random.Random) -> None:
    """Drop, double or swap lines."""
    lines = files.get(name, b"").splitlines(keepends=True)
    if lines:
        place = rng.randrange(len(lines))
        kind = rng.randrange(3)
        lines[place : place + 1] = [] if kind == 0 else [lines[place]] * 2 if kind == 1 else [lines[place - 1]]
    files[name] = b"".join(lines)


def _number(files: Files, name: str, rng: random.Random) -> None:
    """Change a digit: what parses all the same."""
    data = bytearray(files.get(name, b""))
    if digit := re.compile(rb"\d").search(data, rng.randint(0, len(data))):
        data[digit.start()] = rng.choice(b"0123456789")
    files[name] = bytes(data)


def _word(files: Files, name: str, rng: random.Random) -> None:
    """Put something unfit in the place of a stretch."""
    data = files.get(name, b"")
    place = rng.randint(0, len(data))
    files[name] = data[:place] + rng.choice(UNFIT) + data[place + rng.randint(0, 12) :]


def _remove(files: Files, name: str, rng: random.Random) -> None:
    files.pop(name, None)


def _add(files: Files, name: str, rng: random.Random) -> None:
    files[rng.choice(["problems.jsonl", "lags.jsonl", "audits.jsonl", "extra.json"])] = files.get(name, b"")


UNFIT = (b"null", b"NaN", b"-1", b"1e999", b"\xff\xfe", b"\x00", b'"', b"[" * 3000, b"{}", b"../../x", b"\n", b"true")
MUTATIONS = (_flip, _cut, _lines, _number, _word, _remove, _add)


# ---------------------------------------------------------------- targets


def targets(archive: Archive, folder: Path) -> Iterator[Target]:
    """Everything that is mutated, each made once."""
    config = scripted(archive, folder / "data")
    toml = resolved(settled(config)).encode()

    def read_config(place: Path) -> object:
        return settled(load(str(place / "mine.toml"))).digest()

    yield Target("configurations", {"mine.toml": toml}, read_config, "sound")

    diagnose(config, ["full", "summary"], [24], [0], lag=True, out=folder / "run")

    def read_run(place: Path) -> object:
        run = Run.open(place)
        run.summary  # noqa: B018
        study = Study.load([run])
        steps = [[step.write.state for step in study.steps(key)] for key in sorted(study.audited_keys)]
        lags = sorted((key, sorted(found)) for key, found in study.lags.items())
        return [flat(row) for row in cell_rows(study)], steps, lags, len(study.problems), run.summary

    yield Target("run directories", held(folder / "run"), read_run)

    def read_archive(place: Path) -> object:
        opened = Archive.open(place)
        for game in opened.games():
            opened.verify(game)
        with_world = opened.world(opened.games("valid")[0])
        try:
            played = with_world.walk("post", 0)[-1].observation
        finally:
            with_world.close()
        return [(game.id, game.md5) for game in opened.games()], opened.settings, played

    unpack(GAMES / "one.tar.xz", folder / "fuzzed")  # a fresh one: those kept from earlier versions have no digests
    yield Target("archives", held(folder / "fuzzed"), read_archive)

    from transformers import AutoModelForCausalLM

    base = make_tiny(folder / "adapted")
    made, bare = make_adapter(folder / "adapter", base, 1), AutoModelForCausalLM.from_pretrained(base)
    stamp_adapter(made, "any")

    def read_adapter(place: Path) -> object:
        check_adapter(place, "mine", bare, str(base), "any")  # before a base is loaded for it
        model = AutoModelForCausalLM.from_pretrained(base)
        return Adapters(model, str(base), "any", {"mine": str(place)}).digest("mine")

    yield Target("adapters", held(made), read_adapter)

    tokenizer, mask = ScriptedModel().tokenizer, Mask("sk-secret-12345678", "KEY")
    bodies = {"text": completion("the fridge holds an apple", 5), "choice": scored({"A": -0.5, "B": -1.5})}

    def read_reply(place: Path) -> object:
        said = {name: (place / name).read_bytes() if (place / name).exists() else b"" for name in bodies}
        text = generated(mask.body(said["text"]), None, 16, tokenizer)
        choice = chosen(mask.body(said["choice"]), None, ["A", "B"])
        assert "sk-secret" not in text.text
        assert abs(sum(map(math.exp, choice.logprobs)) - 1) < 1e-6
        return text, choice

    replies = {name: json.dumps(body).encode() for name, body in bodies.items()}
    yield Target("server replies", replies, read_reply, "sound")

    write_traces(iter([made_trace(1, 1, 5, 8), made_trace(2, 2, 6, 9)]), folder / "native.jsonl")
    files = [folder / "native.jsonl", LOGS / "mini-swe-agent-issue.traj.json"]
    logs = {file.name: file.read_bytes() for file in files}

    def read_traces(place: Path) -> object:
        names = [name for name in logs if (place / name).exists()]
        return [[(trace, trace_facts(trace)) for trace in open_traces(place / name)] for name in names]

    yield Target("traces", logs, read_traces, "sound")


def held(folder: Path) -> Files:
    """The files of a folder, by path."""
    files = sorted(file for file in folder.rglob("*") if file.is_file() and file.name != "lock")
    return {file.relative_to(folder).as_posix(): file.read_bytes() for file in files}


# ---------------------------------------------------------------- the table


def table(archive: Archive, folder: Path, cases: int, seed: int = 0) -> list[dict[str, object]]:
    """A row per target."""
    return [
        msgspec.to_builtins(fuzz(target, folder / "case", max(1, cases * SHARES[target.name] // 100), seed))
        for target in targets(archive, folder)
    ]


def fuzz(target: Target, place: Path, cases: int, seed: int) -> Outcome:
    """Mutate and read; what is odd is told with the number of its case, which makes it again."""
    write(target.files, {}, place)
    expected, now = target.read(place), target.files
    refused = same = other = changed = tracebacks = 0
    for number in range(cases):
        files = mutated(target.files, random.Random(f"{seed}:{target.name}:{number}"))
        write(files, now, place)
        now = files
        try:
            found = target.read(place)
        except DssrError:
            refused += 1
        except Exception as error:
            tracebacks += 1
            print(f"{target.name} {number}: {type(error).__name__}: {error}"[:300])
        else:
            same += found == expected
            other += found != expected and target.promise == "sound"
            if found != expected and target.promise == "same":
                changed += 1
                print(f"{target.name} {number}: other numbers")
    shutil.rmtree(place)
    return Outcome(target.name, cases, refused, same, other, changed, tracebacks)


def write(files: Files, now: Files, place: Path) -> None:
    """Make a folder hold these files, touching only what differs from what it holds now."""
    for name in now.keys() - files.keys():
        with suppress(FileNotFoundError):
            (place / name).unlink()
    for name, data in files.items():
        if now.get(name) is not data:
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            (place / name).write_bytes(data)
