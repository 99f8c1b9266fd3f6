"""Scores of candidate states, against the same computed one by one."""

import asyncio
from collections.abc import Sequence

import pytest
from tests.measure.conftest import Lab
from tests.measure.naive import Naive

from dssr.agent.leaks import Watch
from dssr.agent.memory import Kit, Prompted, enforce, load_memory
from dssr.agent.prompts import Reader
from dssr.measure.candidates import decision_steps
from dssr.measure.score import Enforced, Forward, needed
from dssr.models.base import Choose, Chosen
from dssr.models.scripted import ScriptedModel
from dssr.types import Played, View

BUDGET, CANDIDATES, SIZES = 48, 6, (1, 4, 12)


class Table:
    """A logged episode with everything that scores its states."""

    def __init__(self, lab: Lab, played: Played) -> None:
        agent, model = lab.agent(), ScriptedModel(0.9, 65536)
        self.reader, self.tokenizer, self.played = Reader(model), model.tokenizer, played
        kit = Kit(BUDGET, self.tokenizer, model, None, 0.0, 0)
        memory = load_memory("summary", kit, agent.prompts)
        assert isinstance(memory, Prompted)
        self.memory = memory
        with agent.worlds.playing(played.episode.job.game) as world:
            self.goal = world.goal
        self.forward = Forward(memory, self.reader, self.tokenizer, BUDGET, self.goal, played.steps, Watch("", ""))
        self.naive = Naive(memory, self.reader, BUDGET, self.goal, played.steps)

    async def states(self, step: int) -> list[str]:
        here, before = self.played.steps[step], self.played.steps[step - 1].write.state
        view = View(self.goal, here.action, here.observation)
        replies = [await self.memory.sample(view, before, 1.0, index) for index in range(CANDIDATES)]
        return [enforce(reply, BUDGET, self.tokenizer).state for reply in replies]

    def targets(self, step: int) -> Sequence[int]:
        return needed(decision_steps(self.played.steps, step, 40), SIZES)


@pytest.fixture(scope="module")
def table(lab: Lab) -> Table:
    return Table(lab, lab.play("valid-6-000", "summary", BUDGET, 0))


def test_merged_scores_are_those_of_separate_roll_forwards(table: Table) -> None:
    """Catches states merged that have different futures, a target read one step off, and work done twice: six
    candidates at four points of one episode, in Phase A and B, give the same numbers with less than half the writes."""
    begin = table.played.episode.begin
    points = (begin - 12, begin - 3, begin, begin + 4)

    async def compare() -> None:
        states = {step: await table.states(step) for step in points}
        asked = [(step, state) for step in points for state in states[step]]
        merged = await asyncio.gather(*(table.forward.recursive(s, z, table.targets(s)) for s, z in asked))
        for (step, state), found in zip(asked, merged, strict=True):
            apart = {target: await table.naive.logprob(step, state, target) for target in table.targets(step)}
            assert found == apart
        assert len({tuple(found.values()) for found in merged}) > 1

    asyncio.run(compare())
    assert 0 < table.forward.writes <= 0.5 * table.naive.writes


def test_equal_states_share_their_future(lab: Lab, table: Table) -> None:
    """Catches a candidate that equals another, or the state another leads to, and is rolled forward again."""
    fresh = Table(lab, table.played)
    step = fresh.played.episode.begin
    targets = fresh.targets(step)
    state = fresh.played.steps[step].write.state

    async def twice() -> None:
        await asyncio.gather(*(fresh.forward.recursive(step, state, targets) for _ in range(2)))
        writes, reads = fresh.forward.writes, fresh.forward.reads
        assert (writes, reads) == (targets[-1] - step, len(targets))
        # The logged writer was at temperature 0 too: one step on, its state is where the roll-forward came through.
        later = fresh.played.steps[step + 1].write.state
        await fresh.forward.recursive(step + 1, later, [one for one in targets if one > step + 1])
        assert (fresh.forward.writes, fresh.forward.reads) == (writes, reads)

    asyncio.run(twice())


def test_an_enforced_roll_forward_goes_on_from_the_best_reply(table: Table, lab: Lab) -> None:
    """Catches the greedy reply taken on where a sample reads better, samples that are compared at decisions already
    passed or at others than those asked for, and a score read from another state than the one that goes on: rolled
    forward by hand, one call at a time."""
    fresh, steps, samples = Table(lab, table.played), table.played.steps, 3
    start = fresh.played.episode.begin - 4
    targets = fresh.targets(start)

    async def read(target: int, state: str) -> float:
        decision = steps[target].decision
        assert decision is not None
        return -await fresh.reader.nll(fresh.goal, state, steps[target].observation, decision.options)

    async def by_hand(state: str) -> tuple[dict[int, float], int]:
        found, moved = {}, 0
        for step in range(start + 1, targets[-1] + 1):
            view = View(fresh.goal, steps[step].action, steps[step].observation)
            heats = [0.0] + [0.8] * samples
            replies = [await fresh.memory.sample(view, state, heat, index) for index, heat in enumerate(heats)]
            states = [enforce(reply, BUDGET, fresh.tokenizer).state for reply in replies]
            ahead = [target for target in targets if target >= step]
            ahead = [ahead[0], ahead[round((len(ahead) - 1) / 2)], ahead[-1]] if len(ahead) > 3 else ahead
            worth = [sum([await read(target, one) for target in ahead]) for one in states]
            state = states[worth.index(max(worth))]
            moved += state != states[0]
            if step in targets:
                found[step] = await read(step, state)
        return found, moved

    async def compare() -> None:
        state = (await fresh.states(start))[0]
        expected, moved = await by_hand(state)
        assert moved > 0
        assert await fresh.forward.recursive(start, state, targets, Enforced(samples, 0.8, 3)) == expected
        plain = await fresh.forward.recursive(start, state, targets)
        assert plain == await fresh.forward.recursive(start, state, targets, Enforced(0, 0.8, 3)) != expected

    asyncio.run(compare())


class Recording(ScriptedModel):
    """Keeps what it was asked to choose from."""

    def __init__(self) -> None:
        super().__init__(context_length=65536)
        self.asked: list[Choose] = []

    async def choose(self, request: Choose) -> Chosen:
        self.asked.append(request)
        return await super().choose(request)


def test_a_window_is_the_state_and_the_raw_steps(table: Table) -> None:
    """Catches the step of the write itself, or of the decision, shown as part of the window, or a state left out."""
    step, steps, model = table.played.episode.begin - 2, table.played.steps, Recording()
    target = table.targets(step)[1]
    decision = steps[target].decision
    assert decision is not None
    reader = Reader(model)
    forward = Forward(table.memory, reader, table.tokenizer, BUDGET, table.goal, steps, Watch("", ""))
    found = asyncio.run(forward.window(step, "the knife is here", [target]))
    raw = "\n\n".join(f"> {steps[place].action}\n{steps[place].observation}" for place in range(step + 1, target))
    context = f"the knife is here\n\n{raw}\n\n> {steps[target].action}"
    wanted = reader.messages(table.goal, context, steps[target].observation, decision.options.actions)
    assert [request.messages for request in model.asked] == [wanted]
    assert list(found) == [target]
