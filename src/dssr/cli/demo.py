"""`dssr demo`: the main job on a few games, from nothing to a page."""

from pathlib import Path
from typing import Annotated

import msgspec
import typer

from dssr.cli.common import DEFAULT_CONFIG, ConfigOption, load_config, say
from dssr.config import GamesConfig

GAMES = GamesConfig(archive="demo", rooms=(6,), train=0, valid=6, test=0)
MEMORIES = ("full", "summary", "guide")
FILLERS = (0, 20)

FolderOption = Annotated[Path, typer.Option("--out", "-o", help="Folder for the demo's run and report.")]


def register(app: typer.Typer) -> None:
    app.command("demo")(demo)


def demo(config: ConfigOption = DEFAULT_CONFIG, out: FolderOption = Path("runs/demo")) -> None:
    """Diagnose three memories at two fillers on six games that come with dssr, and write the page."""
    from dssr.cli.diagnose import ask_for, run_diagnosis, show
    from dssr.measure.grid import open_archive
    from dssr.models.load import load_models
    from dssr.record.run import Run
    from dssr.report.write import make_report

    settings = msgspec.structs.replace(load_config(config), games=GAMES)
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
