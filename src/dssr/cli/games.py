"""`dssr games make · check · stats`: the archive of a configuration, its verification, its statistics."""

from typing import Annotated

import typer

from dssr.cli import options
from dssr.cli.show import emit, progress

TokenizerOption = Annotated[
    str, typer.Option("--tokenizer", help="What counts the history: a model's name or folder, or `words`.")
]


def register(app: typer.Typer) -> None:
    """Add the commands of this file to the program."""
    games = typer.Typer(help="Make, verify and measure the archive of games.", no_args_is_help=True)
    for command in (make, check, stats):
        games.command(command.__name__)(command)
    app.add_typer(games, name="games")


def make(
    config: options.Config = options.DEFAULT_CONFIG,
    folder: options.Archive = None,
    workers: options.Workers = None,
    resume: options.Resume = False,
    as_json: options.Json = False,
) -> None:
    """Make the games of a configuration, once."""
    from dssr.measure.archives import make_games

    with progress(as_json) as told:
        archive = make_games(config, folder=folder, workers=workers, resume=resume, progress=told)
    count, version = len(archive.games()), archive.settings.engine
    emit({"archive": str(archive.folder), "games": count, "engine": version}, as_json)


def check(
    config: options.Config = options.DEFAULT_CONFIG,
    folder: options.Archive = None,
    workers: options.Workers = None,
    as_json: options.Json = False,
) -> None:
    """Verify every game: its files, that Phase A shows all that is needed, that the reference policy wins.

    Test games are sealed: only their files are verified.
    """
    from dssr.measure.archives import check_games

    with progress(as_json) as told:
        found = check_games(config, folder=folder, workers=workers, progress=told)
    faults = [{"game": name, "fault": fault} for name, sentences in found.faults.items() for fault in sentences]
    summary = {"archive": found.archive, "games": found.games, "faulty": len(found.faults)}
    emit({**summary, "faults": faults} if as_json else summary, as_json)
    if faults:
        if not as_json:
            emit(faults)
        raise typer.Exit(1)


def stats(
    config: options.Config = options.DEFAULT_CONFIG,
    folder: options.Archive = None,
    tokenizer: TokenizerOption = "words",
    workers: options.Workers = None,
    as_json: options.Json = False,
) -> None:
    """Print, per level and filler, the steps of both phases and the tokens of the history, test games left out."""
    from dssr.measure.archives import game_stats

    with progress(as_json) as told:
        rows = game_stats(config, folder=folder, tokenizer=tokenizer, workers=workers, progress=told)
    emit(rows, as_json)
