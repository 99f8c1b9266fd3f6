"""`dssr nano build | card`: makes the built-in model from scratch, resumably, and puts results into its card."""

from pathlib import Path
from typing import Annotated

import typer

from dssr.cli.common import ConfigOption, JsonOption, emit, load_config, say

FolderOption = Annotated[Path, typer.Option("--folder", help="Where transcripts, tokenizer and checkpoints are kept.")]
ModelOption = Annotated[Path | None, typer.Option("--model", help="Folder of the model; by default the package's own.")]
RunsArgument = Annotated[list[Path], typer.Argument(metavar="RUN...", help="Directories of finished runs.")]
HoursOption = Annotated[float, typer.Option("--hours", min=0.0, help="Training time in all.")]


def register(app: typer.Typer) -> None:
    nano = typer.Typer(help="The built-in model.", no_args_is_help=True)
    nano.command("build")(build)
    nano.command("card")(card)
    app.add_typer(nano, name="nano")


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
    from dssr.learn.nano.card import card as describe
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
    export(network, folder / TOKENIZER, target, describe(network, progress))
    emit({"model": str(target), "steps": progress.step, "right": progress.right}, as_json)


def card(runs: RunsArgument, model: ModelOption = None, as_json: JsonOption = False) -> None:
    """Write the results of finished runs into the model's card."""
    from dssr.errors import UsageError
    from dssr.learn.nano.card import measured, refill
    from dssr.models.load import NANO
    from dssr.record.files import write_whole
    from dssr.record.run import Run

    file = (model or NANO) / "README.md"
    if not file.is_file():
        raise UsageError(f"{file.parent} has no card; make the model with `dssr nano build` first.")
    text = refill(file.read_text(encoding="utf-8"), measured(Run.open(path) for path in runs))
    write_whole(file, text.encode())
    emit({"card": str(file), "runs": len(runs)}, as_json)
