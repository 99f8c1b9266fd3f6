"""`dssr games make · check · stats`: the archive of a configuration, its verification, its statistics."""

from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Annotated

import typer

from dssr.cli.common import DEFAULT_CONFIG, ConfigOption, JsonOption, emit, load_config, progress
from dssr.config import Config

WorkersOption = Annotated[int, typer.Option("--workers", "-w", min=1, help="Games worked on at once.")]
FolderOption = Annotated[
    Path | None, typer.Option("--archive", help="The archive's folder; by default the configuration's own.")
]
TokenizerOption = Annotated[
    str, typer.Option("--tokenizer", help="Counts the history: a model's name or folder, or `words`.")
]


def register(app: typer.Typer) -> None:
    games = typer.Typer(help="Make, verify and measure the archive of games.", no_args_is_help=True)
    games.command("make")(make)
    games.command("check")(check)
    games.command("stats")(stats)
    app.add_typer(games, name="games")


def folder_of(config: Config, folder: Path | None) -> Path:
    return folder or Path(config.data) / config.games.archive


def make(
    config: ConfigOption = DEFAULT_CONFIG,
    folder: FolderOption = None,
    workers: WorkersOption = 1,
    as_json: JsonOption = False,
) -> None:
    """Make the games of a configuration. Run again after an interruption: finished games are kept."""
    from dssr.worlds.base import find_domain
    from dssr.worlds.make import make_archive

    settings = load_config(config)
    place = folder_of(settings, folder)
    shown = 0
    with progress(len(find_domain(settings.games.world).plans(settings.games)), "games") as advance:

        def on_progress(done: int, total: int) -> None:
            nonlocal shown
            advance(done - shown)
            shown = done

        archive = make_archive(settings.games, place, workers, on_progress)
    emit({"archive": str(place), "games": len(archive.games()), "engine": archive.settings.engine}, as_json)


def check(
    config: ConfigOption = DEFAULT_CONFIG,
    folder: FolderOption = None,
    workers: WorkersOption = 1,
    as_json: JsonOption = False,
) -> None:
    """Verify every game: its files, that Phase A shows all that is needed, that the reference wins.

    Test games are sealed: only their files are verified.
    """
    from dssr.worlds.archive import Archive

    settings = load_config(config)
    place = folder_of(settings, folder)
    archive = Archive.open(place)
    games = archive.games()
    faulty: dict[str, tuple[str, ...]] = {}
    with (
        ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool,
        progress(len(games), "checked") as advance,
    ):
        waiting = {pool.submit(archive.check, game.id, settings.protocol.max_actions): game.id for game in games}
        for done in as_completed(waiting):
            if found := done.result():
                faulty[waiting[done]] = found
            advance(1)
    faults = [{"game": name, "fault": fault} for name in sorted(faulty) for fault in faulty[name]]
    summary = {"archive": str(place), "games": len(games), "faulty": len(faulty)}
    if as_json:
        emit({**summary, "faults": faults}, True)
    else:
        emit(summary, False)
        if faults:
            emit(faults, False)
    if faults:
        raise typer.Exit(1)


def stats(
    config: ConfigOption = DEFAULT_CONFIG,
    folder: FolderOption = None,
    tokenizer: TokenizerOption = "words",
    as_json: JsonOption = False,
) -> None:
    """Print, per level and filler, the steps of both phases and the tokens of the history, test games left out."""
    from dssr.measure.environment import size_rows
    from dssr.worlds.archive import Archive

    settings = load_config(config)
    archive = Archive.open(folder_of(settings, folder))
    games = archive.games()
    with progress(len(games), "measured") as advance:
        rows = size_rows(
            archive, games, settings.protocol.kind, settings.protocol.fillers, counter(tokenizer), lambda: advance(1)
        )
    emit(rows, as_json)


def counter(tokenizer: str) -> Callable[[str], int]:
    """Counts the tokens of a text; `words` counts what stands between blanks and needs no model."""
    if tokenizer == "words":
        return lambda text: len(text.split())
    from dssr.models.load import load_tokenizer

    encode = load_tokenizer(tokenizer).encode
    return lambda text: len(encode(text))
