"""The suites of worlds, of the memories that are played in them, and of traces, for whoever writes an importer."""

import asyncio
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import msgspec

from dssr.agent.episode import Agent, run_jobs, save, stored
from dssr.agent.memory import FULL
from dssr.agent.prompts import Reader, load_prompts
from dssr.config import Config
from dssr.errors import GameError
from dssr.models.scripted import ScriptedModel
from dssr.record.run import Run
from dssr.seeds import rng_of
from dssr.testing.models import refused
from dssr.traces.facts import trace_facts
from dssr.traces.trace import Trace, faults, read_native, write_traces
from dssr.types import LABELS, Cell, Episode, Job, Played, Protocol, Step, View, Write
from dssr.worlds.archive import Archive, Worlds
from dssr.worlds.base import Node, WalkStep, World, follow


class WorldSuite:
    """What every world must do. Fixtures: `archive`, and `game`, the name of one of its games that can be walked in."""

    lines = 3
    """Lines of play with random actions."""
    length = 8
    """Steps of each."""
    fillers = (0, 3, 8)

    def test_equal_actions_give_equal_moments(self, archive: Archive, game: str) -> None:
        """Catches chance, or an answer that depends on what else was played: each line of play is repeated alone, in a
        world opened anew."""
        with opened(archive, game) as world:
            ends = self.wander(world)
            with opened(archive, game) as again:
                assert again.goal == world.goal
                for end in ends:
                    node = again.start()
                    assert node.moment == world.start().moment
                    for action in end.actions:
                        node = again.step(node, action)
                    assert node.moment == end.moment
                    assert node.actions == end.actions

    def test_a_position_can_be_played_on_from_again(self, archive: Archive, game: str) -> None:
        """Catches a world that stands at one position only: going elsewhere must not change what was seen."""
        with opened(archive, game) as world:
            start = world.start()
            seen = {action: world.step(start, action).moment for action in start.moment.admissible[: self.lines]}
            for action, moment in reversed(list(seen.items())):
                assert world.step(start, action).moment == moment

    def test_an_action_that_is_not_offered_is_refused(self, archive: Archive, game: str) -> None:
        """Catches an action that silently does nothing, or that the engine reads as several."""
        with opened(archive, game) as world:
            for action in ("", "no such action", f"{world.start().moment.admissible[0]}\nno such action"):
                with refused(GameError):
                    world.step(world.start(), action)

    def test_options_hold_the_reference_and_are_stable(self, archive: Archive, game: str) -> None:
        """Catches a reference that cannot be chosen, one option shown twice, and an order left to chance."""
        with opened(archive, game) as world, opened(archive, game) as again:
            orders = set()
            for node in self.decisions(world):
                for step in range(4):
                    options = world.options(node, step)
                    assert options.reference == node.moment.privileged.policy[0]
                    assert options.reference in options.actions
                    assert len(set(options.actions)) == len(options.actions) <= len(LABELS)
                    assert {*options.actions} <= {*node.moment.admissible, options.reference}
                    assert options == again.options(replayed(again, node.actions), step)
                    orders.add(options.actions)
            assert len(orders) > len(self.decisions(world)), "the order must depend on the step"

    def test_the_reference_wins_from_everywhere(self, archive: Archive, game: str) -> None:
        """Catches a plan that is only good from the start: after random actions it must win too, wherever there is
        one, in no more steps than it has."""
        with opened(archive, game) as world:
            for node in self.decisions(world):
                path = follow(world, node)
                assert path[-1].moment.won
                assert not path[-1].moment.lost
                assert path[-1].moment.score == path[-1].moment.max_score
                assert len(path) - 1 <= len(node.moment.privileged.policy)

    def test_walks_of_shorter_fillers_are_prefixes(self, archive: Archive, game: str) -> None:
        """Catches a walk whose beginning depends on its length, and steps that were not really played."""
        with opened(archive, game) as world:
            assert world.can_walk
            walks = [world.walk("post", filler) for filler in self.fillers]
            for shorter, longer in pairwise(walks):
                assert longer[: len(shorter)] == shorter
            assert [len(walk) - len(walks[0]) for walk in walks] == list(self.fillers)
            node = world.start()
            for step in walks[-1]:
                node = node if step.action is None else world.step(node, step.action)
                assert node.moment == step.node.moment
            for before, after in pairwise(walks[-1]):
                assert after.visit - before.visit == (after.node.moment.place != before.node.moment.place)

    def test_the_walk_stands_where_the_protocol_says(self, archive: Archive, game: str) -> None:
        """Catches a walk on the wrong side of the reveal, and a brief protocol that plays other actions."""
        filler = self.fillers[-1]
        with opened(archive, game) as world:
            walks: dict[Protocol, tuple[WalkStep, ...]] = {
                kind: world.walk(kind, filler) for kind in ("post", "pre", "brief", "post-brief")
            }
        for kind, walk in walks.items():
            kinds = [step.kind for step in walk]
            assert kinds[0] == "start"
            assert kinds.count("reveal") == 1
            assert kinds.count("filler") == filler
            assert "act" not in kinds
            assert (kinds[-1] == "reveal") == (kind in ("pre", "brief"))
        for brief, whole in (("brief", "pre"), ("post-brief", "post")):
            for short, long in zip(walks[brief], walks[whole], strict=True):  # type: ignore[index]
                assert (short.action, short.kind) == (long.action, long.kind)
                assert len(short.observation) <= len(long.observation)

    def test_facts_are_told_at_the_reveal_and_done_by_the_reference(self, archive: Archive, game: str) -> None:
        """Catches facts read from nowhere, held by an empty state, or that no action ever carries out."""
        with opened(archive, game) as world:
            walk = world.walk("post", 0)
            plan = follow(world, walk[-1].node)[-1].actions
        steps, reveal = logged(walk), [step.kind for step in walk].index("reveal")
        facts = archive.domain.facts(steps, reveal)
        assert facts
        assert len({fact.text for fact in facts}) == len(facts)
        for fact in facts:
            assert fact.held_in(fact.text)
            assert not fact.held_in("")
            assert not fact.done_by(None)
            assert any(fact.done_by(action) for action in plan), fact.text
        assert any(archive.domain.is_home(step.place) for step in steps)
        assert len({kind.name for kind in archive.domain.words.chunks}) == 3

    def test_the_oracle_has_lines_at_every_decision(self, archive: Archive, game: str) -> None:
        """Catches an oracle that falls silent, or whose short form is the longer one."""
        with opened(archive, game) as world:
            for node in self.decisions(world):
                long, short = (world.oracle_lines(node, long=form) for form in (True, False))
                assert all(long)
                assert short
                assert len("\n".join(short)) <= len("\n".join(long))

    def test_secrets_are_named_and_no_observation_shows_their_notation(self, archive: Archive, game: str) -> None:
        """Catches a world that has nothing to hide, one that shows the task before the reveal, and facts in an
        observation as the machine writes them."""
        with opened(archive, game) as world:
            walk = world.walk("post", self.fillers[-1])
            nodes = follow(world, walk[-1].node)
            secrets = set(world.secrets([*(step.node for step in walk), *nodes]))
        assert {secret.form for secret in secrets} == {"line", "plan", "code"}
        assert all(secret.kind for secret in secrets)
        observations = [step.observation for step in walk] + [node.moment.observation for node in nodes]
        codes = [secret.text for secret in secrets if secret.form == "code" and "(" in secret.text]
        assert not [text for text in codes if any(text in seen for seen in observations)]
        reveal = [step.kind for step in walk].index("reveal")
        task = walk[0].node.moment.privileged.task
        assert [task in seen for seen in observations[: reveal + 1]] == [False] * reveal + [True]
        assert View.__struct_fields__ == ("goal", "last_action", "observation")

    def test_the_game_is_sound(self, archive: Archive, game: str) -> None:
        """Catches a game whose walk does not show what acting needs, or that the world itself calls faulty."""
        assert archive.check(game, max_actions=1000) == ()

    def wander(self, world: World) -> list[Node]:
        """Where random actions lead: several lines of play, one step of each in turn."""
        rng = rng_of("world suite", world.game.id)
        nodes = [world.walk("post", 0)[-1].node, *[world.start()] * self.lines]
        for _ in range(self.length):
            for place, node in enumerate(nodes):
                if not (node.moment.won or node.moment.lost):
                    nodes[place] = world.step(node, rng.choice(node.moment.admissible))
        return nodes

    def decisions(self, world: World) -> list[Node]:
        """Positions with a reference: the start, the end of Phase A, and those that random actions led to."""
        nodes = [world.start(), world.walk("post", 0)[-1].node, *self.wander(world)]
        return [node for node in nodes if node.moment.privileged.policy]


@contextmanager
def opened(archive: Archive, game: str) -> Iterator[World]:
    """The world of a game, closed afterwards."""
    world = archive.world(game)
    try:
        yield world
    finally:
        world.close()


def replayed(world: World, actions: Sequence[str]) -> Node:
    """The position that actions lead to from the start."""
    node = world.start()
    for action in actions:
        node = world.step(node, action)
    return node


def logged(walk: Sequence[WalkStep]) -> list[Step]:
    """The steps of a walk as a log would hold them, with empty states."""
    nothing = Write(state="", tokens=0, raw_tokens=0, truncated=False, note=None)
    return [
        Step(index, step.kind, step.visit, step.node.moment.place, step.action, step.observation, nothing, None)
        for index, step in enumerate(walk)
    ]


class MemorySuite:
    """What every memory must do. Fixtures: `memory` (its name), `worlds`, and `game`, one of their games, not too long.

    The models are scripted: what is tested is the memory.
    """

    budgets = (7, 64)
    """The first is far too small for any memory."""

    def test_states_keep_their_budget(self, worlds: Worlds, game: str, memory: str) -> None:
        """Catches a memory whose states escape the budget, even one far too small for it."""
        for played in self.played(worlds, game, memory):
            assert played.episode.error is None, played.episode.error
            assert played.steps
            budget = played.episode.job.cell.budget
            assert all(budget is None or step.write.tokens <= budget for step in played.steps)

    def test_equal_jobs_give_equal_records(self, worlds: Worlds, game: str, memory: str) -> None:
        """Catches a memory with a hidden source of chance or a life beyond its text."""
        assert self.played(worlds, game, memory) == self.played(worlds, game, memory)

    def test_records_come_back_from_disk_unchanged(self, worlds: Worlds, game: str, memory: str) -> None:
        """Catches text that JSON lines change or cannot hold."""
        runs = self.played(worlds, game, memory)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "run"
            with Run.start(path, command="test", config=Config(name="test"), models={}) as run:
                for played in runs:
                    save(run, played)
                    save(run, played)
            # What the leak check found is a log of its own.
            assert list(stored(Run.open(path))) == [msgspec.structs.replace(one, search=None) for one in runs]
        assert msgspec.json.decode(msgspec.json.encode(runs[0].episode), type=Episode) == runs[0].episode

    def played(self, worlds: Worlds, game: str, memory: str) -> list[Played]:
        """An episode at each budget; the whole history has none."""
        model = ScriptedModel(retention=0.97, context_length=65536)
        agent = Agent(worlds, model, Reader(model), load_prompts(), max_actions=50)
        cells = [Cell(memory, None if memory == FULL else budget, 0, "post") for budget in self.budgets]
        jobs = [Job(game, cell, 0, 0.5, 0.0, "reader") for cell in dict.fromkeys(cells)]

        async def collect() -> list[Played]:
            return [played async for played in run_jobs(jobs, agent)]

        return asyncio.run(collect())


class TraceSuite:
    """What every imported trace must be. Fixture: `traces`, a list of them."""

    def test_traces_have_no_faults(self, traces: list[Trace]) -> None:
        """Catches a trace that cannot be audited, and two of one name."""
        assert traces
        for trace in traces:
            assert faults(trace) == [], trace.id
        assert len({trace.id for trace in traces}) == len(traces)

    def test_traces_come_back_from_disk_unchanged(self, traces: list[Trace]) -> None:
        """Catches text that JSON lines change or cannot hold."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "traces.jsonl"
            assert write_traces(iter(traces), path) == len(traces)
            assert list(read_native(path)) == traces

    def test_free_decisions_are_what_was_done_next(self, traces: list[Trace]) -> None:
        """Catches decisions shifted by a step: a free-text reference is the action of the step after, unless the log
        knows a better one and says so with options."""
        for trace in traces:
            for step, after in pairwise(trace.steps):
                if step.decision is not None and not step.decision.options:
                    assert step.decision.reference == after.action

    def test_thoughts_stand_apart(self, traces: list[Trace]) -> None:
        """Catches a thought left in an observation or an action: it tells the answer."""
        for trace in traces:
            for step in trace.steps:
                if step.thought is not None and len(step.thought) > 40:
                    assert step.thought not in step.observation
                    assert step.thought not in (step.action or "")

    def test_facts_were_seen_before_they_are_needed(self, traces: list[Trace]) -> None:
        """Catches a value that counts as carried although nothing before told it."""
        for trace in traces:
            for fact in trace_facts(trace):
                assert fact.seen <= fact.uses[0]
                assert fact.text not in trace.goal.split()
