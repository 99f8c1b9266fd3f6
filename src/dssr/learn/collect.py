"""The episodes of a round: training games, with lag and budget drawn evenly."""

from collections.abc import Sequence

from dssr.config import Config
from dssr.seeds import rng_of, seed_of
from dssr.types import Cell, Game, Job


def round_jobs(games: Sequence[Game], config: Config, memory: str, number: int, seed: int) -> list[Job]:
    """`number` is the round. Two episodes of one game differ in their seed, even if they draw the same cell."""
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
                filler=draw.choice(config.protocol.fillers),
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
