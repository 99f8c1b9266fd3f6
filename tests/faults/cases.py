"""The work that is killed: one case for every verb that writes a run or an archive."""

import json
import shutil
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from tests.faults.kills import Case, attempt, content, kill_again_and_again
from tests.models.faulty import Behaviour, FaultyServer, Handler, card, completion, scored
from tests.tiny import make_tiny, make_tokenizer
from tests.training.study import study
from tests.training.test_dagger import small

from dssr.config import AgentConfig, Config, ModelConfig, load
from dssr.measure.archives import make_games
from dssr.measure.continuation import continuation
from dssr.measure.diagnose import diagnose, lag
from dssr.record.run import Run
from dssr.training.lines import train
from dssr.training.reader import reader_train
from dssr.types import LABELS, Audit, Episode, Step
from dssr.worlds.archive import MANIFEST, SETTINGS, Archive


def scripted(archive: Archive, data: Path) -> Config:
    """One-room games, played and audited by the scripted model within a second."""
    plain = study(archive, Path("nothing"), data)
    return msgspec.structs.replace(plain, writer_model=ModelConfig(backend="scripted", path="scripted"))


def few(archive: Archive, folder: Path) -> Archive:
    """Three games to train on and two to validate: the least that two workers share and one can be held out of."""
    shutil.copytree(archive.folder / "one" / "games", folder / "one" / "games")
    for name in (SETTINGS, MANIFEST):
        shutil.copy(archive.folder / "one" / name, folder / "one")
    lines = (folder / "one" / MANIFEST).read_bytes().splitlines(keepends=True)
    games = [json.loads(line)["split"] for line in lines]
    kept = [games.index("train") + number for number in range(3)] + [games.index("valid"), games.index("valid") + 1]
    (folder / "one" / MANIFEST).write_bytes(b"".join(lines[number] for number in kept))
    found = Archive.open(folder / "one")
    found.folder = folder  # as that of the tests, whose parts lie in folders of their own
    return found


def kill_cases(archive: Archive, folder: Path) -> list[Case]:
    """Every verb that leaves something behind, by one worker and by two, as small as it can be."""
    archive = few(archive, folder / "few")
    config = scripted(archive, folder / "data")
    writer = msgspec.structs.replace(
        config.writer, points=2, candidates=2, targets=(1,), rounds=1, validation_games=1, sft_batch=2, dpo_batch=2
    )
    config = msgspec.structs.replace(config, writer=writer)
    reader = small(archive, make_tiny(folder / "base"), folder / "weights")
    reader = msgspec.structs.replace(
        reader, reader=msgspec.structs.replace(reader.reader, memories=("summary",), points=4, held_out=0.3)
    )
    measured = folder / "measured"
    diagnose(config, ["summary"], [24], [0], out=measured)
    made = msgspec.structs.replace(config.games, train=1, valid=1, test=0)
    made_config = msgspec.structs.replace(config, data=str(folder / "made"), games=made)

    def work_of(name: str, workers: int, place: Path, resume: bool) -> object:
        frame: dict[str, Any] = {"out": place, "resume": resume, "workers": workers}
        if name == "diagnose":
            return diagnose(config, ["summary"], [24], [0], lag=True, **frame)
        if name == "lag":
            return lag(measured, **frame)
        if name == "continuation":
            return continuation(config, points=2, **frame)
        if name == "train":
            return train(config, rounds="0-1", force=True, **frame)
        if name == "reader train":
            return reader_train(reader, **frame)
        return make_games(made_config, folder=place, workers=workers, resume=resume)

    strides = {"diagnose": 3, "lag": 5, "continuation": 7, "games make": 9, "train": 61, "reader train": 61}
    return [
        Case(f"{name}, {workers} workers" if workers > 1 else name, partial(work_of, name, workers), stride * workers)
        for name, stride in strides.items()
        for workers in (1, 2)
    ]


def nano_line(archive: Archive, folder: Path) -> Case:
    """A line of nano: round 0 by SFT, round 1 by DPO, both validated."""
    nano, small = load("nano"), study(archive, Path("nothing"), folder / "data")
    config = msgspec.structs.replace(
        small, name="nano-line", writer_model=nano.writer_model, reader_model=nano.reader_model
    )
    return Case("nano line", lambda place, resume: train(config, rounds="0-1", out=place, force=True, resume=resume))


# ---------------------------------------------------------------- a server that never repeats itself


class Endless(list[Behaviour]):
    """A script with one behaviour for every request."""

    def pop(self, index: Any = -1) -> Behaviour:
        """The same again; it stays."""
        return self[0]


class Moody(FaultyServer):
    """Answers differently in every try: each text and each score tells the number of the try."""

    def __init__(self) -> None:
        super().__init__()
        self.cards = [card("moody")]
        self.number = 0
        self.script = Endless([self.behave])

    def turn(self) -> None:
        """The next try begins."""
        self.number += 1

    def behave(self, handler: Handler) -> None:
        """Answer as this try does."""
        if handler.asked.get("logprobs"):
            handler.reply(200, scored(dict.fromkeys(LABELS, -1.0) | {"A": -1.0 - self.number / 1000}))
        else:
            handler.reply(200, completion(f"try {self.number} saw it", 9))


def served(archive: Archive, tokenizer: Path, url: str, folder: Path) -> Case:
    """A diagnosis of the served model, without a cache."""
    model = ModelConfig(
        backend="server", path="moody", url=url, tokenizer=str(tokenizer), identity="moody", concurrency=8
    )
    config = msgspec.structs.replace(
        scripted(archive, folder / "data"), writer_model=model, cache_gib=0.0, agent=AgentConfig(budgets=(16, 24, 32))
    )

    def work(place: Path, resume: bool) -> None:
        diagnose(config, ["summary", "belief"], [16, 24, 32], [0], split="train", out=place, resume=resume)

    return Case("served diagnosis", work)


def killed_served(archive: Archive, folder: Path, wanted: int) -> dict[str, int]:
    """Kills in all, runs finished, episodes in them, and episodes whose record is joined from two tries."""
    server = Moody()
    make_tokenizer().save_pretrained(folder / "tokenizer")
    case = served(archive, folder / "tokenizer", server.url, folder)
    found = {"kills": wanted, "runs": 0, "episodes": 0, "mixed": 0}
    for place in kill_again_and_again(case, folder / "served", wanted, 60, server.turn):
        run = Run.open(place)
        found["runs"] += 1
        found["episodes"] += sum(1 for _ in run.read("episodes", Episode))
        found["mixed"] += mixed_records(run)
    server.shutdown()
    return found


def killed_line(archive: Archive, folder: Path, wanted: int) -> dict[str, int]:
    """Kills in all, lines finished, and lines that came out in other bytes than one left alone."""
    case = nano_line(archive, folder)
    assert attempt(case.work, folder / "whole", False) == 0, (folder / "told").read_text()
    expected, found = content(folder / "whole"), {"kills": wanted, "lines": 0, "different": 0}
    for place in kill_again_and_again(case, folder / "line", wanted, 12):
        found["lines"] += 1
        found["different"] += content(place) != expected
    return found


def mixed_records(run: Run) -> int:
    """Episodes whose record holds words or scores of more than one try."""
    tries: dict[str, set[str]] = {}
    for key, step in run.read_keyed("steps", Step):
        known = tries.setdefault(key.partition(":")[0], set())
        if step.write.state:
            known.add(step.write.state.split()[1])
        if step.decision is not None and step.decision.logprobs:
            known.add(str(number_of(step.decision.logprobs)))
    for audit in run.read("audits", Audit):
        tries[audit.episode].add(audit.oracle_state.split()[1])
    played = {episode.key for episode in run.read("episodes", Episode)}
    assert played == tries.keys()
    return sum(len(found) > 1 for found in tries.values())


def number_of(logprobs: Sequence[float]) -> int:
    """The try that a distribution tells of: by how much its first score lies below the others."""
    return round(1000 * (max(logprobs) - logprobs[0]))
