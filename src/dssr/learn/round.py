"""One round: collect episodes with the current writer, try candidates, train the next adapter.

Everything is logged under content keys, so a killed round computes only what it still owes.
"""

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from dssr.agent.episode import FROM_START, Desk, Played, episode_key, run_jobs
from dssr.agent.layout import writer_messages
from dssr.agent.memory import instruction_of, split_name
from dssr.agent.order import in_order
from dssr.agent.store import save, stored
from dssr.agent.texts import load_prompts
from dssr.agent.worlds import Worlds
from dssr.config import Config
from dssr.errors import GameError, ModelError
from dssr.games.archive import Archive
from dssr.learn.candidates import Bench, Trouble, usable
from dssr.learn.collect import round_jobs
from dssr.learn.pairs import GapReport, best, gap_report, pairs_of
from dssr.learn.points import points_of, request_at, sample_points
from dssr.learn.trainer import Example, Preference
from dssr.learn.variants import Variant
from dssr.models.base import Message
from dssr.record.run import Run
from dssr.types import Candidate, Game, Tell, WritePoint


class Round:
    """The data of one round, in one run directory."""

    def __init__(self, run: Run, config: Config, variant: Variant, number: int, seed: int, tell: Tell) -> None:
        self.run, self.config, self.variant = run, config, variant
        self.number, self.seed, self.tell = number, seed, tell

    async def collect(self, desk: Desk, games: Sequence[Game], memory: str) -> None:
        """Play the round's episodes."""
        jobs = round_jobs(games, self.config, memory, self.number, self.seed)
        md5 = {game.id: game.md5 for game in games}
        owed = [job for job in jobs if not self.run.has("episodes", episode_key(job, desk, md5[job.game], FROM_START))]
        done = len(jobs) - len(owed)
        async for played in run_jobs(owed, desk):
            save(self.run, played)
            done += 1
            self.tell("collect", done, len(jobs))

    async def judge(self, desk: Desk) -> None:
        """Sample and score the candidates of the round's write points."""
        benches = {played.episode.key: self._bench(played, desk) for played in self._played()}
        points = self._points(benches)
        by_episode: dict[str, list[WritePoint]] = defaultdict(list)
        for point in points:
            if not self.run.has("points", point.key):
                by_episode[point.episode].append(point)
        done = len(points) - sum(map(len, by_episode.values()))

        def work(bench: Bench, owed: list[WritePoint]) -> Any:
            return lambda: asyncio.gather(*(self._try(bench, point) for point in owed))

        async for found in in_order((work(benches[key], owed) for key, owed in sorted(by_episode.items())), 32):
            for point, candidates in found:
                if isinstance(candidates, Trouble):
                    self.run.append("troubles", point.key, candidates)
                else:
                    self.run.extend("candidates", [(f"{point.key}:{one.index:02d}", one) for one in candidates])
                self.run.append("points", point.key, point)
                done += 1
            self.tell("candidates", done, len(points))

    async def _try(self, bench: Bench, point: WritePoint) -> tuple[WritePoint, "list[Candidate] | Trouble"]:
        """A model or game that fails costs its point and no other."""
        try:
            return point, await bench.candidates(point)
        except (ModelError, GameError) as error:
            return point, Trouble(point.key, str(error))

    def groups(self) -> dict[str, list[Candidate]]:
        """Stored candidates by point, in the order of their samples, as far as the variant may use them."""
        found: dict[str, list[Candidate]] = defaultdict(list)
        for candidate in self.run.read("candidates", Candidate):
            found[candidate.point].append(candidate)
        return {key: kept for key, group in sorted(found.items()) if (kept := usable(group, self.variant))}

    def examples(self, archive: Archive) -> list[Example]:
        """Round 0: the best candidate of every point."""
        asked = self._messages(archive)
        return [Example(asked[key], best(group, self.variant.score).state) for key, group in self.groups().items()]

    def preferences(self, archive: Archive) -> list[Preference]:
        """Later rounds: pairs far enough apart."""
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
        return [played for played in stored(self.run) if played.episode.error is None]

    def _bench(self, played: Played, desk: Desk) -> Bench:
        return Bench(played, desk, self.variant, self.config.writer, self.seed)

    def _points(self, benches: dict[str, Bench]) -> list[WritePoint]:
        supply = [
            point
            for bench in benches.values()
            for point in points_of(bench.played.episode, bench.played.steps, self.config.writer.horizon)
            if not self.variant.reachable or bench.reachable(point)
        ]
        return sample_points(supply, self.variant.points, self.variant.phase_a_share, "points", self.seed, self.number)

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


def adapter_folder(directory: Path, number: int) -> Path:
    return directory / "adapters" / f"r{number}"
