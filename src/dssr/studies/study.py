"""One study in one folder: which stages are done, from what, and what each of them asks of the models.

`stages.jsonl` has one line per finished stage: the digest of all that it was made from, and of what it made. A stage
that is done is not done again; one whose inputs are no longer what they were is refused, because everything after it
rests on them.
"""

import hashlib
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypedDict

import msgspec

from dssr.agent.memory import FULL, with_adapter
from dssr.config import Config
from dssr.errors import ConfigError, RecordError, UsageError
from dssr.measure.diagnose import diagnose
from dssr.measure.rows import BASE
from dssr.models.load import cache_file, open_cache
from dssr.record.log import SITTINGS, Lock, Log, read
from dssr.seeds import digest_of
from dssr.session import configured, silent
from dssr.training.reader import with_reader
from dssr.training.variants import MAIN, names
from dssr.types import Progress, Protocol, Record, Search, Split, Standing, Workers

LOG = "stages.jsonl"
NOBODY = "none"
"""As `study.second`: a file takes back what its base says."""
PILOT: tuple[tuple[Protocol, bool, bool], ...] = (
    ("pre", True, True),
    ("brief", False, True),
    ("post", False, True),
    ("post-brief", False, True),
)
"""Protocols of the pilot, with whether each is walked at the near and at the far filler."""


class StageRecord(Record, frozen=True):
    """A finished stage; log `stages` of a study's folder."""

    stage: str
    inputs: dict[str, str]
    """What it was made from, to a digest of it: the configuration and the stages it rests on."""
    made: dict[str, str]
    """Run directories inside the study's folder, or other results, to a digest of their content; times are no part."""
    facts: dict[str, Any]
    """What was decided on the way, such as which round was selected."""
    hours: float
    """Of this machine, the last sitting only when it was interrupted."""
    prompts: int | None = None
    """Sent to a model by all stages so far, answered from the cache or not; None in older studies."""
    answers: int | None = None
    """In the response cache when it ended: of the prompts so far, what was computed; None without a cache."""


class StageState(Record, frozen=True):
    """Where a stage stands."""

    stage: str
    state: str
    """`done`, `begun`, `owed`, or `changed` where its inputs are no longer what they were."""
    hours: float | None
    prompts: int | None
    answers: int | None
    runs: tuple[str, ...]


class Asked(Record, frozen=True):
    """One diagnosis of the study."""

    name: str
    """Of its run directory."""
    config: Config
    memories: tuple[str, ...]
    budgets: tuple[int, ...]
    fillers: tuple[int, ...]
    games: int | None = None
    """Per level; all when None."""
    split: Split = "valid"
    lag: bool = False


class Shared(TypedDict):
    """Arguments that all verbs of a study have."""

    workers: Workers | int | None
    progress: Progress


@dataclass(frozen=True)
class Done:
    """What a stage made."""

    runs: Sequence[Path] = ()
    others: Mapping[str, str] = field(default_factory=dict)
    """Results that are no run, to their digests."""
    facts: Mapping[str, Any] = field(default_factory=dict)


StageWork = Callable[["WholeStudy"], Awaitable[Done]]


@dataclass
class WholeStudy:
    """A study in one folder."""

    stages: Mapping[str, StageWork]
    """In order; a stage may rest on all before it."""
    source: Config | str
    place: str | Path | None = None
    approval: str | None = None
    force: bool = False
    workers: Workers | int | None = None
    progress: Progress = silent
    _done: dict[str, StageRecord] = field(default_factory=dict)

    def __post_init__(self) -> None:
        bare = configured(self.source)
        self.out = Path(self.place) if self.place else Path(bare.runs) / f"study-{bare.name}"
        self.config = msgspec.structs.replace(bare, runs=str(self.out))
        self._done = {one.stage: one for _, one in read(self.out / LOG, StageRecord)}
        if not self.selectable:
            asked, trained = (", ".join(some) for some in (bare.study.selected_from, self.variants))
            raise ConfigError(f"study.selected_from names {asked}, but this study trains {trained}: select from these.")

    # ---------------------------------------------------------------- the frame

    async def run(self, last: str | None = None) -> None:
        """Do what is owed, in order; every stage is checked against what it was made from before it counts."""
        if last is not None and last not in self.stages:
            raise UsageError(f"There is no stage {last!r}; the stages are {', '.join(self.stages)}.")
        self.out.mkdir(parents=True, exist_ok=True)
        lock = Lock(self.out / "study.lock")
        try:
            for name, work in self.stages.items():
                if name in self._done:
                    self._refuse_changed(name)
                else:
                    await self._do(name, work)
                if name == last:
                    return
        finally:
            lock.release()

    async def _do(self, name: str, work: StageWork) -> None:
        inputs, begun = self._inputs(name), time.monotonic()
        self.progress(Standing(f"stage {name}", 0, 1))
        found = await work(self)
        digests = {**self._digests(found.runs), **found.others}
        spent = ((time.monotonic() - begun) / 3600, self.prompts(), self.answers())
        made = StageRecord(name, inputs, digests, dict(found.facts), *spent)
        log = Log(self.out / LOG)
        try:
            log.append([(name, made)])
        finally:
            log.close()
        self._done[name] = made
        self.progress(Standing(f"stage {name}", 1, 1))

    def _inputs(self, name: str) -> dict[str, str]:
        """The configuration, and what all stages before this one made."""
        earlier = list(self.stages)[: list(self.stages).index(name)]
        second = {"second": self.second.digest()} if self.second else {}
        sizes = digest_of(msgspec.to_builtins(self.config.study))
        return {
            "config": self.config.digest(),
            "sizes": sizes,
            **second,
            **{one: digest_of(self._done[one].made, self._done[one].facts) for one in earlier if one in self._done},
        }

    def _refuse_changed(self, name: str) -> None:
        stored = self._done[name]
        now, before = self._inputs(name), stored.inputs
        for what in dict.fromkeys([*before, *now]):
            if before.get(what) != now.get(what):
                raise RecordError(
                    f"The stage {name} of {self.out} was made from another {what} than it would be made from now; go "
                    "on with what it was made from, or choose another folder with --out."
                )
        for path, digest in stored.made.items():
            if (self.out / path / "run.json").exists() and self._digests([self.out / path])[path] != digest:
                raise RecordError(
                    f"{self.out / path} is no longer what the stage {name} made; restore it, or choose another folder."
                )

    def _digests(self, runs: Sequence[Path]) -> dict[str, str]:
        return {str(path.relative_to(self.out)): content_of(path) for path in runs}

    def states(self) -> list[StageState]:
        """Where every stage stands."""
        found = []
        for name in self.stages:
            if name not in self._done:
                begun = any(self.out.glob(f"{name}*"))
                found.append(StageState(name, "begun" if begun else "owed", None, None, None, ()))
                continue
            stored = self._done[name]
            try:
                self._refuse_changed(name)
                state = "done"
            except RecordError:
                state = "changed"
            spent = (stored.hours, stored.prompts, stored.answers)
            found.append(StageState(name, state, *spent, tuple(stored.made)))
        return found

    def prompts(self) -> int:
        """Prompts that the runs in the folder have sent, as their leak checks counted them."""
        logs = [read(path, Search) for path in sorted(self.out.rglob("searches.jsonl"))]
        return sum(one.writer_prompts + one.reader_prompts for log in logs for _, one in log)

    def answers(self) -> int | None:
        """Answers in the response cache, which several studies may share; None while there is none."""
        cache = open_cache(self.config) if cache_file(self.config).exists() else None
        if cache is None:
            return None
        try:
            return cache.stats().entries
        finally:
            cache.close()

    def runs_of(self, stage: str) -> list[str]:
        """The run directories that a stage made."""
        paths = (self.out / path for path in self._done[stage].made)
        return [str(path) for path in paths if (path / "run.json").exists()]

    @property
    def shared(self) -> Shared:
        """What every verb of a stage is told."""
        return {"workers": self.workers, "progress": self.progress}

    # ---------------------------------------------------------------- configurations on the way

    @cached_property
    def second(self) -> Config | None:
        """The configuration of the second reader, with all that is measured and how as in the first."""
        if self.config.study.second in (None, NOBODY):
            return None
        same = ("data", "runs", "games", "protocol", "measure", "stats", "gates", "study")
        kept = {name: getattr(self.config, name) for name in same}
        return msgspec.structs.replace(configured(self.config.study.second), **kept)

    def reading(self, config: Config, role: str) -> Config:
        """The configuration with the reader that the study trained for it, where it did."""
        fact = self._done["reader"].facts.get(role) if "reader" in self._done else None
        return with_reader(config, self.out / fact) if fact else config

    @property
    def first(self) -> Config:
        """What measures and trains: the configuration with its reader."""
        return self.reading(self.config, "r1")

    @property
    def variants(self) -> tuple[str, ...]:
        """The ways of training, the main one first."""
        asked = self.config.study.variants or names(self.config.writer)
        return tuple(dict.fromkeys((MAIN, *asked)))

    @property
    def selectable(self) -> tuple[str, ...]:
        """Those of them among which validation selects."""
        return tuple(name for name in self.variants if name in self.config.study.selected_from)

    def trained(self, config: Config) -> Config:
        """A configuration with all writers that go to test: the seeds of the selected one, the best of the others."""
        folders = {name: str(self.out / path) for name, path in self._done["seeds"].facts["adapters"].items()}
        model = msgspec.structs.replace(config.writer_model, adapters={**config.writer_model.adapters, **folders})
        return msgspec.structs.replace(config, name=f"{config.name}-trained", writer_model=model)

    def memory(self, adapter: str) -> str:
        """The name of the trained memory with this adapter."""
        return with_adapter(self.config.writer.memory, adapter)

    def inside(self, path: Path) -> str:
        """A path as records hold it: seen from the study's folder, so that the folder can be moved."""
        return str(path.relative_to(self.out))

    @property
    def roles(self) -> dict[str, str]:
        """The memory of each role that a gate asks for, as far as it was trained."""
        return dict(self._done["seeds"].facts["roles"])

    @property
    def seeds(self) -> tuple[str, ...]:
        """The memories of the selected writer, one per seed."""
        return tuple(self._done["seeds"].facts["seeds"])

    # ---------------------------------------------------------------- what is diagnosed

    def grid(self) -> Asked:
        """All prompted memories and references."""
        memories, study = self.config.agent.memories, self.config.study
        return Asked(
            "grid", self.first, memories, self.config.agent.budgets, self.config.protocol.fillers, study.wide_games
        )

    def lag(self) -> list[Asked]:
        """The write-time formats at the gates' budget; lags, which cost most, perhaps on some of the games only."""
        gates, fillers, study = self.config.gates, self.config.protocol.fillers, self.config.study
        asked = (self.first, gates.formats, (gates.budget,), fillers)
        found = [Asked("lag", *asked, study.lag_games, lag=True)]
        if study.format_games != study.lag_games:
            found.append(Asked("formats", *asked, study.format_games))
        return found

    def pilot(self) -> list[Asked]:
        """One diagnosis per protocol."""
        gates, found = self.config.gates, []
        for kind, near, far in PILOT:
            fillers = (*((gates.near,) if near else ()), *((gates.far,) if far else ()))
            config = under(self.first, kind)
            wide = self.config.study.wide_games
            found.append(Asked(f"pilot-{kind}", config, (BASE,), (gates.budget,), fillers, wide))
        return found

    def walks(self) -> Asked:
        """The selected writer and its untrained self."""
        study, budget = self.config.study, self.config.gates.budget
        memories = (BASE, *self.seeds)
        return Asked("walks", self.trained(self.first), memories, (budget,), study.walks, study.walk_games)

    def tests(self) -> list[Asked]:
        """The runs that may see the test games: what gates look at, what they do not, and the second reader's."""
        config, budget = self.trained(self.first), self.config.gates.budget
        fillers, study = self.config.protocol.fillers, self.config.study
        others = tuple(name for name in self.roles.values() if name != self.roles["dssr"])
        judged = (FULL, *dict.fromkeys((*self.config.gates.formats, BASE, "guide")), *self.seeds, *others)
        wide = tuple(name for name in self.config.agent.memories if name not in judged)
        rest = tuple(self.memory(name) for name in self._done["seeds"].facts["rest"])
        found = [Asked("test", config, judged, (budget,), fillers, split="test")]
        if wide or rest:
            found.append(Asked("test-wide", config, (*wide, *rest), (budget,), fillers, study.wide_test_games, "test"))
        if len(sizes := self.config.agent.budgets) > 1:
            memories = (BASE, "guide", *self.seeds)
            found.append(Asked("test-frontier", config, memories, sizes, fillers, study.frontier_games, "test"))
        if self.second:
            reader = self.trained(self.reading(self.second, "r2"))
            found.append(Asked("test-r2", reader, (FULL, BASE, *self.seeds), (budget,), fillers, split="test"))
        return found

    async def diagnosed(self, asked: Asked) -> Path:
        """The run of one diagnosis, made, continued or found."""
        place = self.out / asked.name
        if not (place / "summary.json").exists():
            await diagnose.aio(
                asked.config,
                asked.memories,
                asked.budgets,
                asked.fillers,
                games=asked.games,
                split=asked.split,
                lag=asked.lag,
                out=place,
                resume=place.exists(),
                **self.shared,
            )
        return place


def content_of(run: Path) -> str:
    """Digest of a run's logs, which are the same wherever it is made; times and hosts stand in other files."""
    logs = sorted(path for path in run.glob("*.jsonl") if path.name not in SITTINGS)
    return digest_of([(path.name, hashlib.blake2b(path.read_bytes(), digest_size=16).hexdigest()) for path in logs])


def under(config: Config, kind: Protocol) -> Config:
    """The configuration under another protocol."""
    return msgspec.structs.replace(config, protocol=msgspec.structs.replace(config.protocol, kind=kind))
