"""What the version before stored, when cooking was the only world, must open as it is. `stored/` is a part of a real
run and of its archive."""

from pathlib import Path

import msgspec
import pytest

from dssr.config import Config, ReaderConfig, load
from dssr.errors import ConfigError
from dssr.record.run import Run
from dssr.settings import upgraded
from dssr.types import Episode, Step
from dssr.worlds.archive import Archive
from dssr.worlds.base import find_domain, settled

STORED = Path(__file__).parent / "stored"
OPTIONS = {"recipe": 3, "take": 3, "open": True, "cook": True, "cut": True}


def test_a_stored_run_opens_with_its_settings() -> None:
    """Catches a setting of before that is lost or refused: rooms, the options of cooking, the fillers of lag."""
    run = Run.open(STORED / "run")
    games = run.config.games
    assert (games.world, games.archive, games.levels) == ("cooking", "demo", (6,))
    assert (games.train, games.valid, games.test) == (0, 6, 0)
    assert games.options == OPTIONS
    assert run.config.stats.long_fillers == (20, 40)
    assert run.info.digest == "4a2e907b1fa03b1592b6958a83b718f6"


def test_stored_settings_equal_those_written_today() -> None:
    """Catches an upgrade that leaves a difference, so that a run of before could not be continued."""
    run = Run.open(STORED / "run")
    scripted = load("scripted")
    games = msgspec.structs.replace(scripted.games, archive="demo", train=0, valid=6, test=0)
    today = settled(msgspec.structs.replace(scripted, name="s", games=games, reader=ReaderConfig()))
    assert today == run.config
    assert settled(today) == today


def test_an_upgrade_changes_nothing_of_today() -> None:
    """Catches an upgrade that takes a configuration of today for one of before, or changes what it was given."""
    plain = msgspec.to_builtins(settled(Config(name="now")))
    copy = msgspec.json.decode(msgspec.json.encode(plain))
    assert upgraded(plain) == plain
    assert msgspec.convert(upgraded(copy), Config) == settled(Config(name="now"))
    old = {"games": {"rooms": [6], "take": 1}, "stats": {"lag_fillers": [5]}, "writer": {"chain_fillers": [5, 10]}}
    assert upgraded(old) == {
        "games": {"levels": [6], "options": {"take": 1}},
        "stats": {"long_fillers": [5]},
        "writer": {"chain_fillers": [[5], [10]]},
    }
    assert old["stats"] == {"lag_fillers": [5]}


def test_stored_records_keep_their_names() -> None:
    """Catches a renamed field that stored lines do not have, and lines that would be written otherwise than before."""
    run = Run.open(STORED / "run")
    for name, kind in (("episodes", Episode), ("steps", Step)):
        line = msgspec.json.decode((STORED / "run" / f"{name}.jsonl").read_bytes())
        (record,) = run.read(name, kind)
        assert msgspec.to_builtins(record).items() <= line.items()
    (episode,), (step,) = run.read("episodes", Episode), run.read("steps", Step)
    assert episode.level == 6
    assert step.place


def test_a_stored_archive_opens() -> None:
    """Catches settings or a list of games of before that cannot be read."""
    archive = Archive.open(STORED / "archive")
    (game,) = archive.games("valid", level=6)
    assert (game.level, game.engine) == (6, "1.7.0")
    assert archive.settings.games.options == OPTIONS
    assert archive.domain is find_domain("cooking")


@pytest.mark.parametrize(
    ("games", "word"),
    [
        ('world = "chess"', "no world 'chess'"),
        ("levels = [7]", "games.levels is"),
        ("options = { take = 5 }", "nothing more to find"),
        ("options = { recipe = 0 }", "games.options cannot be used"),
        ("options = { drop = true }", "games.options cannot be used"),
    ],
)
def test_the_world_refuses_what_it_does_not_have(games: str, word: str, tmp_path: Path) -> None:
    """Catches settings of a world that nobody checks before minutes of work."""
    path = tmp_path / "mine.toml"
    path.write_text(f'name = "mine"\n[games]\n{games}\n')
    with pytest.raises(ConfigError, match=word):
        settled(load(str(path)))
