"""`dssr nano build`: makes the built-in model from scratch, and goes on where it was interrupted."""

from pathlib import Path
from typing import Annotated

import typer

from dssr.cli.common import ConfigOption, JsonOption, emit, load_config, say

FolderOption = Annotated[Path, typer.Option("--folder", help="Where transcripts, tokenizer and checkpoints are kept.")]
ModelOption = Annotated[Path | None, typer.Option("--model", help="Folder of the model; by default the package's own.")]
HoursOption = Annotated[float, typer.Option("--hours", min=0.0, help="Training time in all, on one core.")]


def register(app: typer.Typer) -> None:
    nano = typer.Typer(help="The built-in model.", no_args_is_help=True)
    nano.callback()(_group)
    nano.command("build")(build)
    app.add_typer(nano, name="nano")


def _group() -> None:
    """Keeps `build` a command of its own: typer would drop the name of a lone one."""


def build(
    config: ConfigOption = "nano",
    folder: FolderOption = Path("data/nano-train"),
    model: ModelOption = None,
    hours: HoursOption = 6.0,
    as_json: JsonOption = False,
) -> None:
    """Collect transcripts, train the tokenizer and the network, write the model folder."""
    from dssr.games.archive import Archive
    from dssr.learn.nano.build import TOKENIZER
    from dssr.learn.nano.build import build as make
    from dssr.learn.nano.card import card
    from dssr.learn.nano.export import export
    from dssr.learn.nano.pretrain import Progress
    from dssr.models.load import NANO

    settings = load_config(config)
    archive = Archive.open(Path(settings.data) / settings.games.archive)

    def report(progress: Progress, seen: dict[str, float]) -> None:
        if progress.step % 100 == 0:
            say(f"step {progress.step}, stage {progress.stage}: {progress.right:.3f} right", as_json)

    network, progress = make(archive, folder, settings.seed, hours * 3600, report)
    target = model or NANO
    export(network, folder / TOKENIZER, target, card(network, progress, {}))
    emit({"model": str(target), "steps": progress.step, "right": progress.right}, as_json)
