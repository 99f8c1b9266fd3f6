"""Which games a round plays."""

import msgspec

from dssr.config import Config, load
from dssr.training.round import round_jobs
from dssr.worlds.archive import Archive


def limited(config: Config, games: int | None) -> Config:
    return msgspec.structs.replace(config, writer=msgspec.structs.replace(config.writer, games=games))


def test_a_round_may_play_some_games_drawn_anew_each_time(archive: Archive) -> None:
    """Catches a limit that is ignored, or one that gives every round the same games."""
    games, nano = archive.games("train", level=1), load("nano")
    whole = limited(nano, None)
    few = limited(nano, 4)
    assert {job.game for job in round_jobs(games, whole, "summary", 0, 0)} == {game.id for game in games}
    drawn = [[job.game for job in round_jobs(games, few, "summary", number, 0)] for number in range(6)]
    assert all(len(set(names)) == 4 for names in drawn)
    assert len({tuple(names) for names in drawn}) > 1
    assert drawn[0] == [job.game for job in round_jobs(games, few, "summary", 0, 0)]
