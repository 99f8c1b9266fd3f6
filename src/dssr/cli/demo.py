"""`dssr demo`: the main job on a few games, from nothing to a page."""

from pathlib import Path
from typing import Annotated

import msgspec
import typer

from dssr.cli.common import DEFAULT_CONFIG, ConfigOption, load_config, progress, say
from dssr.config import Config, GamesConfig

GAMES = GamesConfig(archive="demo", levels=(6,), train=0, valid=6, test=0)
MEMORIES = ("full", "summary", "guide")
FILLERS = (0, 20)

FolderOption = Annotated[Path, typer.Option("--out", "-o", help="Folder for the demo's run and report.")]


def register(app: typer.Typer) -> None:
    app.command("demo")(demo)


def demo(config: ConfigOption = DEFAULT_CONFIG, out: FolderOption = Path("runs/demo")) -> None:
    """Make a few games, diagnose three memories at two lags, and write the page."""
    from dssr.cli.diagnose import ask_for, run_diagnosis, show
    from dssr.measure.grid import open_archive
    from dssr.models.load import load_models
    from dssr.record.run import Run
    from dssr.report.write import make_report
    from dssr.worlds.base import settled

    settings = settled(msgspec.structs.replace(load_config(config), games=GAMES))
    make_games(settings)
    archive = open_archive(settings)
    budget = settings.agent.budgets[len(settings.agent.budgets) // 2]
    ask = ask_for(settings, archive, list(MEMORIES), [budget], list(FILLERS), None, "valid", True)
    place = out / settings.name
    if (place / "summary.json").exists():
        say(f"{place} is there already; showing it again (delete it to run anew)")
        run = Run.open(place)
        summary = run.summary or {}
    else:
        run, summary = run_diagnosis(settings, ask, archive, load_models(settings), place, resume=place.exists())
    show(run, summary)
    made = make_report([place], out / f"{settings.name}-report", ["page"], against_paper=False)
    page = next(file for file in made.files if file.endswith("index.html"))
    typer.echo(f"page: {page}  (open it in a browser)")


def make_games(settings: Config) -> None:
    """The demo's archive, made on first use."""
    from dssr.worlds.archive import MANIFEST
    from dssr.worlds.make import make_archive

    folder = Path(settings.data) / settings.games.archive
    if (folder / MANIFEST).exists():
        return
    count = len(settings.games.levels) * (settings.games.train + settings.games.valid + settings.games.test)
    say(f"making {count} games, about 5 s each")
    with progress(count, "games") as advance:
        make_archive(settings.games, folder, workers=2, on_progress=lambda done, total: advance(1))
