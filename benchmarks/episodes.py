"""Prompts as a study asks them: two games, walked and then played by nano, and what is asked about them."""

import asyncio
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dssr.agent.episode import Agent, play_job
from dssr.agent.prompts import Reader, load_prompts, writer_messages
from dssr.agent.recall import chunks_of
from dssr.config import GamesConfig
from dssr.measure.audit import history_at, options_of
from dssr.measure.lag import without
from dssr.models.base import Message, Model
from dssr.types import Cell, Job, Played, View
from dssr.worlds.archive import Worlds, make_archive
from dssr.worlds.base import Words

GAMES, BUDGET, FILLER, ACTIONS, BLOCK = 2, 80, 40, 40, 5
Prompt = tuple[Message, ...]


@dataclass(frozen=True)
class Logged:
    """One played episode and its goal."""

    goal: str
    played: Played
    reader: Reader
    words: Words

    @property
    def decisions(self) -> list[int]:
        """Steps at which the reader chose."""
        return [step.index for step in self.played.steps if step.decision is not None]

    def writes(self) -> list[Prompt]:
        """What the writer was asked, step after step."""
        steps = self.played.steps
        views = [View(self.goal, step.action, step.observation) for step in steps]
        states = ["", *(step.write.state for step in steps)]
        return [writer_messages(_system(), view, state) for view, state in zip(views, states, strict=False)]

    def choices(self) -> list[Prompt]:
        """What the reader was asked, step after step, from the writer's states."""
        return [self._choice(index, self.played.steps[index].write.state) for index in self.decisions]

    def histories(self) -> list[Prompt]:
        """The same choices from the whole history, as `full` shows it."""
        return [self._choice(index, history_at(self.played.steps, index)) for index in self.decisions]

    def left_out(self, points: int) -> list[Prompt]:
        """At decisions spread evenly: the whole history, and the history without each of its chunks."""
        steps, found = self.played.steps, list[Prompt]()
        for index in _spread(self.decisions, points):
            found.append(self._choice(index, history_at(steps, index)))
            for chunk in chunks_of(steps, index, self.played.episode.reveal, BLOCK, self.words):
                found.append(self._choice(index, without(steps, index, chunk)))
        return found

    def hindsight(self, points: int) -> list[Prompt]:
        """The writer asked for a state from the whole history at once, as the read-time oracle does."""
        histories = [history_at(self.played.steps, index) for index in _spread(self.decisions, points)]
        return [writer_messages(_system(), View(self.goal, None, history), "") for history in histories]

    def _choice(self, index: int, context: str) -> Prompt:
        step = self.played.steps[index]
        return self.reader.messages(self.goal, context, step.observation, options_of(step).actions)


def play_games(writer: Model, reader: Model) -> list[Logged]:
    """Makes the games and plays each once, with a summary as memory."""
    with tempfile.TemporaryDirectory() as folder:
        archive = make_archive(GamesConfig(levels=(6,), train=GAMES, valid=0, test=0), Path(folder) / "games")
        worlds = Worlds(archive)
        agent = Agent(worlds, writer, Reader(reader), load_prompts(), ACTIONS)
        try:
            return [asyncio.run(_play(game.id, agent)) for game in archive.games()]
        finally:
            worlds.close()


async def _play(game: str, agent: Agent) -> Logged:
    cell = Cell("summary", BUDGET, FILLER, "post")
    played = await play_job(Job(game, cell, seed=0, temperature=0.0, epsilon=0.0, driver="reader"), agent)
    if played.episode.error is not None:
        raise AssertionError(played.episode.error)
    with agent.worlds.playing(game) as world:
        return Logged(world.goal, played, agent.reader, agent.worlds.domain.words)


def _system() -> str:
    return load_prompts().writer("summary", BUDGET)


def _spread(places: Sequence[int], count: int) -> list[int]:
    return [places[len(places) * (number + 1) // count - 1] for number in range(count)]
