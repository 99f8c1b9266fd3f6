"""One round: episodes on training games with the current writer, scored candidates, and what is learnt from them.

Everything is logged under content keys, so a killed round computes only what it still owes.
"""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from contextlib import closing
from functools import partial
from itertools import islice
from math import floor
from operator import attrgetter
from pathlib import Path

import numpy as np

from dssr.agent.episode import Agent, stored
from dssr.agent.leaks import keep_searches
from dssr.agent.memory import instruction_of, split_name
from dssr.agent.prompts import load_prompts, writer_messages
from dssr.config import Config
from dssr.errors import GameError, ModelError
from dssr.measure.candidates import (
    Candidate,
    CandidateScorer,
    OpenPoint,
    Sampling,
    Trouble,
    WritePoint,
    points_of,
    request_at,
    sample_points,
)
from dssr.measure.hindsight import Teacher
from dssr.models.base import Message
from dssr.record.run import Run
from dssr.scale.shards import each
from dssr.seeds import rng_of, seed_of
from dssr.session import Bench, Session, Stage
from dssr.training.variants import Variant
from dssr.types import Cell, Game, Job, Played, Record, Search
from dssr.worlds.archive import Archive, Worlds


class Example(Record, frozen=True):
    """A request to the writer and the reply it should have given."""

    messages: tuple[Message, ...]
    reply: str


class Preference(Record, frozen=True):
    """A request to the writer, a better and a worse reply."""

    messages: tuple[Message, ...]
    chosen: str
    rejected: str


# ---------------------------------------------------------------- which episodes are played


def round_jobs(
    games: Sequence[Game], config: Config, memory: str, number: int, seed: int, fillers: Sequence[int] = ()
) -> list[Job]:
    """The episodes of round `number`, budget and filler drawn evenly, from those of the protocol if none are given.

    Two episodes of one game differ in their seed, even if they draw the same cell.
    """
    if config.writer.games is not None:
        drawn = rng_of("collect", seed, number).sample(range(len(games)), min(config.writer.games, len(games)))
        games = [games[place] for place in sorted(drawn)]
    jobs = []
    for game in games:
        for copy in range(config.writer.episodes_per_game):
            draw = rng_of("collect", seed, number, game.id, copy)
            cell = Cell(
                memory=memory,
                budget=draw.choice(config.agent.budgets),
                filler=draw.choice(fillers or config.protocol.fillers),
                protocol=config.protocol.kind,
            )
            jobs.append(
                Job(
                    game=game.id,
                    cell=cell,
                    seed=seed_of("collect", seed, number, copy),
                    temperature=config.writer.temperature,
                    epsilon=config.writer.epsilon,
                    driver="reader",
                )
            )
    return jobs


# ---------------------------------------------------------------- which candidates are learnt from


def best(candidates: Sequence[Candidate], score: str) -> Candidate:
    """The highest score; among equals the earliest sample."""
    return max(candidates, key=lambda one: (one.scores[score], -one.index))


class Pair(Record, frozen=True):
    """Two candidates of one point, far enough apart to learn from."""

    point: str
    chosen: str
    rejected: str
    gap: float


def pairs_of(candidates: Sequence[Candidate], score: str, gap: float, most: int) -> list[Pair]:
    """Best against worst, then second best against second worst, and so on, while the gap is wide enough."""
    ranked = sorted(candidates, key=lambda one: (-one.scores[score], one.index))
    found: list[Pair] = []
    for high, low in zip(ranked[: len(ranked) // 2], reversed(ranked), strict=False):
        distance = high.scores[score] - low.scores[score]
        if len(found) == most or distance < gap:
            break
        if high.state != low.state:
            found.append(Pair(point=high.point, chosen=high.state, rejected=low.state, gap=distance))
    return found


class GapReport(Record, frozen=True):
    """How far apart candidates are: what is left to say when no pair qualifies."""

    points: int
    qualifying: int
    """Points with at least one pair."""
    pairs: int
    lower: float
    """Quartiles of best minus worst, over all points."""
    median: float
    upper: float
    largest: float


def gap_report(groups: Sequence[Sequence[Candidate]], score: str, gap: float, most: int) -> GapReport:
    """`most`: pairs a point may give."""
    ranges = [
        max(one.scores[score] for one in group) - min(one.scores[score] for one in group) for group in groups if group
    ]
    found = [len(pairs_of(group, score, gap, most)) for group in groups if group]
    lower, median, upper = np.quantile(ranges, (0.25, 0.5, 0.75)) if ranges else (0.0, 0.0, 0.0)
    return GapReport(
        points=len(ranges),
        qualifying=sum(map(bool, found)),
        pairs=sum(found),
        lower=float(lower),
        median=float(median),
        upper=float(upper),
        largest=max(ranges, default=0.0),
    )


# ---------------------------------------------------------------- the round

AT_ONCE = 256
"""Points scored together: those of fewer episodes than are played together, since each holds all its roll-forwards."""

Tried = tuple[WritePoint, list[Candidate] | Trouble, list[Search]]
"""What became of one point, and, for the first of a shard, what the leak check says of the prompts of all."""


async def try_points(sampling: Sampling, seed: int, bench: Bench, points: Sequence[OpenPoint]) -> list[Tried]:
    """Sample and score candidates of one episode's points, or play on those that are there."""
    scorer = CandidateScorer(points[0].played, bench.agent, sampling, bench.config.writer, seed)
    teacher = Teacher(scorer, bench.config.measure)
    ways = {"writes": scorer.candidates, "chains": scorer.chains, "hindsight": teacher.candidates}
    (point, candidates, _), *rest = await each(partial(_try, ways[sampling.tries]), scorer, points)
    return [(point, candidates, scorer.searches()), *rest]


Sample = Callable[[WritePoint], Awaitable[list[Candidate]]]


async def _try(sample: Sample, scorer: CandidateScorer, one: OpenPoint) -> Tried:
    """A model or game that fails costs its point and no other."""
    point, given = one.point, one.given
    try:
        found = await (sample(point) if given is None else scorer.played_on(point, given))
    except (ModelError, GameError) as error:
        return point, Trouble(point.key, str(error)), []
    return point, found, []


def returns_sample(points: Sequence[WritePoint], count: int, most_a: float, *seed: object) -> list[WritePoint]:
    """At most `count` points, of which at most the share `most_a` from Phase A, however few Phase B has."""
    supply: dict[str, list[WritePoint]] = {"A": [], "B": []}
    for point in points:
        supply[point.phase].append(point)
    from_a = min(len(supply["A"]), floor(count * most_a + EXACT))
    from_b = min(len(supply["B"]), count - from_a)
    if most_a < 1:
        from_a = min(from_a, floor(from_b * most_a / (1 - most_a) + EXACT))
    drawn = sample_points(supply["A"], from_a, 1.0, *seed) + sample_points(supply["B"], from_b, 0.0, *seed)
    return sorted(drawn, key=lambda point: point.key)


EXACT = 1e-9
"""Keeps a share of a whole number from falling below it by rounding."""


class Round:
    """The data of one round, in one run directory."""

    def __init__(
        self, run: Run, config: Config, variant: Variant, number: int, seed: int, source: Run | None = None
    ) -> None:
        """`source` is the run that holds the episodes, if that is another: the same round of the main line."""
        self.run, self.config, self.variant = run, config, variant
        self.number, self.seed = number, seed
        self.source = run if source is None else source

    async def collect(self, session: Session, agent: Agent, jobs: Sequence[Job]) -> None:
        """Play the round's episodes."""
        await session.play(self.run, agent, jobs, "collect")

    async def score(self, session: Session, agent: Agent) -> None:
        """Sample and score the candidates of the round's write points."""
        points, do = self._drawn(agent), partial(try_points, self.variant.sampling(self.number), self.seed)
        key, group = attrgetter("key"), attrgetter("group")
        stage = Stage("candidates", "points", points, key, group, do, self._store, at_once=AT_ONCE)
        await session.work(self.run, stage)

    def _store(self, tried: "Tried") -> None:
        """The point's own line goes last and makes it count."""
        point, candidates, searches = tried
        keep_searches(self.run, point.key, searches)
        if isinstance(candidates, Trouble):
            self.run.append("troubles", point.key, candidates)
        else:
            self.run.extend("candidates", [(f"{point.key}:{one.index:02d}", one) for one in candidates])
        self.run.append("points", point.key, point)

    def groups(self) -> dict[str, list[Candidate]]:
        """Stored candidates by point, in the order of their samples, as far as the variant may use them."""
        found = grouped(self.run)
        return {key: kept for key, group in sorted(found.items()) if (kept := self.variant.usable(group))}

    def examples(self, archive: Archive) -> list[Example]:
        """What is imitated: in round 0 the best candidate of every point, of chains all writes of the chosen one, of a
        teacher the rewrite that may be followed."""
        if self.variant.tries != "writes":
            return self._chosen(archive)
        asked = self._messages(archive)
        return [Example(asked[key], best(group, self.variant.score).state) for key, group in self.groups().items()]

    def preferences(self, archive: Archive) -> list[Preference]:
        """Later rounds: pairs far enough apart."""
        if self.variant.tries == "chains":
            return self._parted(archive)
        asked, writer = self._messages(archive), self.config.writer
        return [
            Preference(asked[pair.point], pair.chosen, pair.rejected)
            for group in self.groups().values()
            for pair in pairs_of(group, self.variant.score, self.variant.gap, writer.pairs_per_point)
        ]

    def points(self) -> list[WritePoint]:
        """The stored write points."""
        return list(self.run.read("points", WritePoint))

    def report(self) -> GapReport:
        """How far apart the candidates are."""
        most = self.config.writer.pairs_per_point
        return gap_report(list(self.groups().values()), self.variant.score, self.variant.gap, most)

    def _played(self) -> list[Played]:
        return [played for played in stored(self.source) if played.episode.error is None]

    def _drawn(self, agent: Agent) -> list[OpenPoint]:
        """The round's write points, with candidates that are there already."""
        variant, played = self.variant, {one.episode.key: one for one in self._played()}
        given = {} if variant.samples else grouped(self.source)
        if variant.samples:
            supply = [point for one in played.values() for point in points_of(one.episode, one.steps, variant.horizon)]
            points = sample_points(supply, variant.points, variant.phase_a_share, "points", self.seed, self.number)
        else:
            scored = [point for point in self.source.read("points", WritePoint) if point.key in given]
            points = returns_sample(scored, variant.points, variant.phase_a_share, "outcome", self.seed, self.number)
        drawn = [OpenPoint(point, played[point.episode], given.get(point.key)) for point in points]
        # Drawn first and left out after, so that what is left is part of what the main line has in these episodes.
        return [one for one in drawn if not variant.reachable or one.reachable(agent.worlds.domain)]

    def _chosen(self, archive: Archive) -> list[Example]:
        """All writes of the chosen candidate of every point: of a chain its whole, else the one at the point."""
        groups, found = self.groups(), []
        with closing(Worlds(archive)) as worlds:
            for point, played in self._with_episodes():
                rng = rng_of("chain", self.seed, self.number, point.key)
                chosen = self.variant.learnt(groups[point.key], rng) if point.key in groups else None
                found += self._writes(worlds, point, played, chosen) if chosen else []
        return found

    def _parted(self, archive: Archive) -> list[Preference]:
        """The write at which two chains of a point part: until then they share their input, after it no more."""
        groups, found = self.groups(), []
        score, gap, most = self.variant.score, self.variant.gap, self.config.writer.pairs_per_point
        with closing(Worlds(archive)) as worlds:
            for point, played in self._with_episodes():
                ranked = sorted(groups.get(point.key, ()), key=lambda one: (-one.scores[score], one.index))
                for high, low in [*zip(ranked[: len(ranked) // 2], reversed(ranked), strict=False)][:most]:
                    if high.scores[score] - low.scores[score] < gap:
                        break
                    both = (self._writes(worlds, point, played, one) for one in (high, low))
                    parted = ((one, two) for one, two in zip(*both, strict=True) if one.reply != two.reply)
                    found += [Preference(one.messages, one.reply, two.reply) for one, two in islice(parted, 1)]
        return found

    def _with_episodes(self) -> list[tuple[WritePoint, Played]]:
        played = {one.episode.key: one for one in self._played()}
        return [(point, played[point.episode]) for point in self.points()]

    def _writes(self, worlds: Worlds, point: WritePoint, played: Played, chain: Candidate) -> list[Example]:
        """Every request along a chain, with what was written."""
        prompts, steps = load_prompts(self.config.agent.prompts), played.steps
        system = prompts.writer(instruction_of(split_name(played.episode.job.cell.memory)[0]), point.budget)
        found: list[Example] = []
        with worlds.playing(played.episode.job.game) as world:
            _, previous = request_at(steps, point.step, world.goal)
            for place, state in enumerate((chain.state, *chain.chain), point.step):
                view, _ = request_at(steps, place, world.goal)
                found.append(Example(writer_messages(system, view, previous), state))
                previous = state
        return found

    def _messages(self, archive: Archive) -> dict[str, tuple[Message, ...]]:
        """The writer's requests by point, as they were sent; no model is needed to write them again."""
        prompts = load_prompts(self.config.agent.prompts)
        played = {one.episode.key: one for one in self._played()}
        found: dict[str, tuple[Message, ...]] = {}
        with closing(Worlds(archive)) as worlds:
            for point in self.points():
                one = played[point.episode]
                style, _ = split_name(one.episode.job.cell.memory)
                with worlds.playing(one.episode.job.game) as world:
                    view, previous = request_at(one.steps, point.step, world.goal)
                system = prompts.writer(instruction_of(style), point.budget)
                found[point.key] = writer_messages(system, view, previous)
        return found


def grouped(run: Run) -> dict[str, list[Candidate]]:
    """The candidates of a run by point, in the order of their samples."""
    found: dict[str, list[Candidate]] = defaultdict(list)
    for candidate in run.read("candidates", Candidate):
        found[candidate.point].append(candidate)
    return found


def adapter_folder(directory: Path, number: int, extra: int = 0) -> Path:
    """Where the adapter of a round lies in its line; `extra` counts the seeds with which it was trained again."""
    return directory / "adapters" / adapter_name(number, extra)


def adapter_name(number: int, extra: int = 0) -> str:
    """What the adapter of a round is called inside its line."""
    return f"r{number}-s{extra}" if extra else f"r{number}"
