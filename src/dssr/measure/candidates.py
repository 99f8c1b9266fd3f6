"""Candidates at a write point: states that could have been written there, and what each is worth later.

`points_of` lists the writes of an episode, `sample_points` draws from them (half from Phase A, even over the cells of
filler and budget), and a `CandidateScorer` samples candidates from the current writer and scores them.

What a candidate is worth is in `measure.score`.
"""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec

from dssr.agent.episode import Agent, continue_episode, ended
from dssr.agent.leaks import Watch, totals
from dssr.agent.memory import Kit, Prompted, enforce, load_memory
from dssr.config import WriterConfig
from dssr.errors import ConfigError, ModelError
from dssr.measure.audit import coverage, holds_action
from dssr.measure.score import Enforced, Forward, mean_scores, needed
from dssr.scale.shards import once
from dssr.seeds import rng_of
from dssr.types import Episode, Phase, Played, Record, Search, Step, View
from dssr.worlds.base import Domain, Node, World

# ---------------------------------------------------------------- write points


class WritePoint(Record, frozen=True):
    """One write of a collected episode, to be done again with other candidates."""

    episode: str
    step: int
    filler: int
    budget: int
    phase: Phase
    """B when a decision was made from the state, else A."""
    since_reveal: int
    """Steps since the reveal; negative before it."""
    targets: tuple[int, ...]
    """Every decision step within the horizon, in order."""

    @property
    def key(self) -> str:
        """Episode and step; sorts by step within an episode."""
        return f"{self.episode}:{self.step:04d}"


@dataclass(frozen=True)
class OpenPoint:
    """A write point that is still to be tried, and what that takes; points of one episode share its record."""

    point: WritePoint
    played: Played
    given: Sequence["Candidate"] | None = None
    """Candidates that are there already; None where they are still to be sampled."""

    @property
    def key(self) -> str:
        """Of the point."""
        return self.point.key

    @property
    def group(self) -> tuple[str, ...]:
        """Points of one episode, whose roll-forwards are shared."""
        return self.played.episode.job.game, self.point.episode

    def reachable(self, domain: Domain) -> bool:
        """Whether something could still be kept: nothing has been told yet, or the input state holds some of it."""
        steps, reveal = self.played.steps, self.played.episode.reveal
        before = steps[self.point.step - 1].write.state if self.point.step else ""
        return self.point.since_reveal <= 0 or (coverage(before, domain.facts(steps, reveal)) or 0.0) > 0.0


def points_of(episode: Episode, steps: Sequence[Step], horizon: int) -> list[WritePoint]:
    """Every write of an episode that some decision within the horizon depends on."""
    budget = episode.job.cell.budget
    if episode.error is not None or budget is None:
        return []
    found = []
    for step in steps:
        targets = decision_steps(steps, step.index, horizon)
        if targets:
            found.append(
                WritePoint(
                    episode=episode.key,
                    step=step.index,
                    filler=episode.job.cell.filler,
                    budget=budget,
                    phase="A" if step.decision is None else "B",
                    since_reveal=step.index - episode.reveal,
                    targets=targets,
                )
            )
    return found


def decision_steps(steps: Sequence[Step], after: int, horizon: int) -> tuple[int, ...]:
    """Decision steps u with after < u <= after + horizon."""
    return tuple(step.index for step in steps if step.decision is not None and after < step.index <= after + horizon)


def sample_points(points: Iterable[WritePoint], count: int, phase_a_share: float, *seed: object) -> list[WritePoint]:
    """At most `count` points: the wanted share from Phase A, and within a phase as even over cells as supply allows."""
    supply: dict[str, list[WritePoint]] = {"A": [], "B": []}
    for point in points:
        supply[point.phase].append(point)
    from_a = round(count * phase_a_share)
    chosen = _even(supply["A"], from_a, *seed, "A") + _even(supply["B"], count - from_a, *seed, "B")
    return sorted(chosen, key=lambda point: point.key)


def _even(points: Sequence[WritePoint], count: int, *seed: object) -> list[WritePoint]:
    """Draw from the cells in turn, so that a scarce cell gives all it has and the others share the rest."""
    cells: dict[tuple[int, int], list[WritePoint]] = defaultdict(list)
    for point in sorted(points, key=lambda point: point.key):
        cells[point.filler, point.budget].append(point)
    for cell in sorted(cells):
        rng_of(*seed, cell).shuffle(cells[cell])
    chosen: list[WritePoint] = []
    while len(chosen) < count and any(cells.values()):
        for cell in sorted(cells):
            if cells[cell] and len(chosen) < count:
                chosen.append(cells[cell].pop())
    return chosen


def request_at(steps: Sequence[Step], index: int, goal: str) -> tuple[View, str]:
    """What the writer was given at a step: the view, and the state it had."""
    previous = steps[index - 1].write.state if index else ""
    return View(goal=goal, last_action=steps[index].action, observation=steps[index].observation), previous


# ---------------------------------------------------------------- candidates


class Candidate(Record, frozen=True):
    """One possible state at a write point, and what it was worth."""

    point: str
    """Key of its write point."""
    index: int
    """Number of the sample."""
    state: str
    coverage: float | None
    """Share of the facts worth following that it holds; None where there are none."""
    hint: bool
    """Contains, word for word, an action that the reader could be offered at the point."""
    scores: dict[str, float]
    """By name: `S1`, `S4`, `S12` (recursive), `W1` … (window), `E1` … (enforced), `return`, `chain`, `hindsight`."""
    chain: tuple[str, ...] = ()
    """The states after it, step by step, where every one of them was sampled too."""


class Trouble(Record, frozen=True):
    """A write point whose candidates could not be made or scored; it is counted and never learnt from."""

    point: str
    error: str


CHAIN = "chain"
"""Name of a chain's score: the mean log-probability of the reference actions at its decisions."""


Tries = Literal["writes", "chains", "hindsight"]
"""What the candidates of a point are: other writes; whole roll-forwards with every rewrite sampled, up to the last
decision at which a chain is judged; or the rewrites of a teacher that is shown what will matter."""


class Sampling(Record, frozen=True):
    """How candidates are made, and writes are scored."""

    candidates: int
    temperature: float
    tries: Tries = "writes"
    enforced: int | None = None
    """Samples of each later rewrite in the enforced score; None has no such score."""


Score = Callable[[WritePoint, str], Awaitable[dict[str, float]]]
"""Scores of one state at a point, by name."""


def offered(world: World, node: Node, step: int) -> tuple[str, ...]:
    """What the reader could be offered at a position, in Phase A too; nothing once the game is over."""
    return world.options(node, step).actions if ended(node.moment) is None else ()


class CandidateScorer:
    """One collected episode on which candidates are tried. Roll-forwards of all its points are shared."""

    def __init__(self, played: Played, agent: Agent, sampling: Sampling, config: WriterConfig, seed: int) -> None:
        self.played, self.agent, self.sampling, self.config = played, agent, sampling, config
        budget = played.episode.job.cell.budget
        assert budget is not None, "only written states have candidates"
        kit = Kit(
            budget=budget,
            tokenizer=agent.tokenizer,
            model=agent.writer,
            adapter=None,
            temperature=0.0,
            seed=seed,
        )
        memory = load_memory(played.episode.job.cell.memory, kit, agent.prompts)
        if not isinstance(memory, Prompted):
            raise ConfigError(
                "Only a prompted memory can be trained: a user's class has no model of its own to change."
            )
        self.memory, self.budget = memory, budget
        with agent.worlds.playing(played.episode.job.game) as world:
            self.goal = world.goal
            node = world.start()
            self.offered = [offered(world, node, 0)]
            for step in played.steps[1:]:
                assert step.action is not None
                node = world.step(node, step.action)
                self.offered.append(offered(world, node, step.index))
        self.facts = agent.worlds.domain.facts(played.steps, played.episode.reveal)
        self._ends: dict[tuple[int, str], asyncio.Future[Episode]] = {}
        self._continued: list[Search] = []
        self.watch = Watch(played.episode.key, "candidates")
        for step in played.steps:
            self.watch.wrote_at(step, played.episode.job.cell.memory)
        self.forward = Forward(memory, agent.reader, agent.tokenizer, budget, self.goal, played.steps, self.watch)

    def request(self, point: WritePoint) -> tuple[View, str]:
        """What the writer is given at a point: the view, and the state it had."""
        return request_at(self.played.steps, point.step, self.goal)

    def searches(self) -> list[Search]:
        """What the leak check says of all prompts sent so far: for candidates, and for games played on from them."""
        found = [self.watch.search(self.agent.worlds, self.played.episode.job, self.played.steps)]
        return [*found, *totals(self._continued).values()]

    async def candidates(self, point: WritePoint) -> list[Candidate]:
        """The point's candidates with what they are ranked by."""
        return await self._tried(point, self.recursive if self.sampling.enforced is None else self.enforced)

    async def chains(self, point: WritePoint) -> list[Candidate]:
        """Whole roll-forwards with every rewrite sampled; number 0 is the greedy one, to be compared with."""
        return list(await asyncio.gather(*(self._chain(point, index) for index in range(self.sampling.candidates))))

    async def _chain(self, point: WritePoint, index: int) -> Candidate:
        temperature = self.sampling.temperature if index else 0.0
        targets = point.targets[: self.config.chain_targets]
        _, state = self.request(point)
        states: list[str] = []
        for step in range(point.step, targets[-1] + 1):
            state = await self.forward.sampled(step, state, temperature, index)
            states.append(state)
        values = await asyncio.gather(*(self.forward.logprob(one, states[one - point.step]) for one in targets))
        return Candidate(
            point=point.key,
            index=index,
            state=states[0],
            coverage=coverage(states[0], self.facts),
            hint=holds_action(states[0], self.offered[point.step]),
            scores={CHAIN: sum(values) / len(values)},
            chain=tuple(states[1:]),
        )

    async def played_on(self, point: WritePoint, candidates: Sequence[Candidate]) -> list[Candidate]:
        """Candidates that are there already, with the return of the game played on from each as their only score."""
        found = await asyncio.gather(*(self.realised(point, one.state) for one in candidates))
        return [msgspec.structs.replace(one, scores=scores) for one, scores in zip(candidates, found, strict=True)]

    async def studied(self, point: WritePoint) -> list[Candidate]:
        """The point's candidates with all kinds of scores and the return they led to."""
        enforced = () if self.sampling.enforced is None else (self.enforced,)

        async def everything(point: WritePoint, state: str) -> dict[str, float]:
            asks = (self.recursive, self.window, *enforced, self.realised)
            parts = await asyncio.gather(*(ask(point, state) for ask in asks))
            return {name: value for part in parts for name, value in part.items()}

        return await self._tried(point, everything)

    async def studied_chains(self, point: WritePoint) -> list[Candidate]:
        """The point's chains with their score, the recursive scores of their first write, and their return."""

        async def with_scores(one: Candidate) -> Candidate:
            first, ended = await asyncio.gather(
                self.recursive(point, one.state), self.continued(*self.start_of(point, one))
            )
            scores = {**first, **one.scores, "return": ended.score / ended.max_score}
            return msgspec.structs.replace(one, scores=scores)

        return list(await asyncio.gather(*map(with_scores, await self.chains(point))))

    def start_of(self, point: WritePoint, one: Candidate) -> tuple[int, str]:
        """Where the game is played on from a candidate: the step and the state; from a chain at its first decision."""
        if not one.chain:
            return point.step, one.state
        first = point.targets[0]
        return first, (one.state, *one.chain)[first - point.step]

    async def _tried(self, point: WritePoint, score: Score) -> list[Candidate]:
        view, previous = self.request(point)
        count, heat = self.sampling.candidates, self.sampling.temperature
        with self.watch.at(point.step):
            replies = await asyncio.gather(*(self.memory.sample(view, previous, heat, index) for index in range(count)))
        states = [enforce(reply, self.budget, self.agent.tokenizer).state for reply in replies]
        for state in states:
            self.watch.wrote(state)
        scores = await asyncio.gather(*(score(point, state) for state in states))
        return [
            Candidate(
                point=point.key,
                index=index,
                state=state,
                coverage=coverage(state, self.facts),
                hint=holds_action(state, self.offered[point.step]),
                scores=found,
            )
            for index, (state, found) in enumerate(zip(states, scores, strict=True))
        ]

    async def recursive(self, point: WritePoint, state: str) -> dict[str, float]:
        """The scores that writers are trained on, `S1`, `S4`, …"""
        sizes = self.config.targets
        values = await self.forward.recursive(point.step, state, needed(point.targets, sizes))
        return {f"S{size}": value for size, value in mean_scores(values, point.targets, sizes).items()}

    async def enforced(self, point: WritePoint, state: str) -> dict[str, float]:
        """The recursive scores of a writer that keeps what it keeps, `E1`, `E4`, …: the best of several rewrites goes
        on, not the greedy one."""
        sizes, config = self.config.targets, self.config
        enforced = Enforced(self.sampling.enforced or 0, config.chain_temperature, config.enforced_targets)
        values = await self.forward.recursive(point.step, state, needed(point.targets, sizes), enforced)
        return {f"E{size}": value for size, value in mean_scores(values, point.targets, sizes).items()}

    async def window(self, point: WritePoint, state: str) -> dict[str, float]:
        """The scores with raw steps in place of later writes, `W1`, `W4`, …"""
        sizes = self.config.targets
        values = await self.forward.window(point.step, state, needed(point.targets, sizes))
        return {f"W{size}": value for size, value in mean_scores(values, point.targets, sizes).items()}

    async def realised(self, point: WritePoint, state: str) -> dict[str, float]:
        """Normalised score of the game played on from the state."""
        ended = await self.continued(point.step, state)
        return {"return": ended.score / ended.max_score}

    async def continued(self, step: int, state: str) -> Episode:
        """The game played on from the state, once per state: writer at temperature 0, reader by argmax."""

        async def play_on() -> Episode:
            episode = self.played.episode
            job = msgspec.structs.replace(episode.job, temperature=0.0, epsilon=0.0)
            plain = msgspec.structs.replace(episode, job=job)
            played = await continue_episode(plain, self.played.steps, step, self.agent, state)
            ended = played.episode
            if played.search is not None:
                self._continued.append(played.search)
            if ended.error is not None:
                raise ModelError(f"The continuation of {episode.key} from step {step} failed: {ended.error}")
            return ended

        return await once(self._ends, (step, state), play_on)
