"""`dssr nano build | card`: makes the built-in model from scratch, resumably, and puts results into its card."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dssr.cli import options
from dssr.cli.options import emit, flag, progress
from dssr.config import load
from dssr_nano.networks import Role

if TYPE_CHECKING:
    from dssr_nano.factory.network import Shape

FolderOption = Annotated[
    Path | None,
    typer.Option("--folder", help="Where transcripts, tokenizer and checkpoints are kept; else data/ARCHIVE-train."),
]
ModelOption = Annotated[Path | None, typer.Option("--model", help="Folder of the network; else the package's own.")]
RoleArgument = Annotated[Role, typer.Argument(help="What the network is for: each role has its own.")]
RunsArgument = Annotated[list[Path], typer.Argument(metavar="RUN...", help="Directories of finished runs.")]
SeedOption = Annotated[int, typer.Option("--seed", help="Of the first weights and of the data's order.")]
ShapeOption = Annotated[str | None, typer.Option("--shape", help="Width, depth, heads, inner width: 160x6x5x416.")]
TokenizerOption = Annotated[
    bool, flag("--new-tokenizer", help="Train one; else the folder's or the package's own is used.")
]


def register(app: typer.Typer) -> None:
    """Adds `dssr nano` to the command line; dssr finds this function by its entry point."""
    nano = typer.Typer(help="The built-in model.", no_args_is_help=True)
    nano.command("build")(build)
    nano.command("card")(card)
    app.add_typer(nano, name="nano")


def build(
    role: RoleArgument,
    config: options.Config = "nano",
    folder: FolderOption = None,
    model: ModelOption = None,
    seed: SeedOption = 0,
    shape: ShapeOption = None,
    new_tokenizer: TokenizerOption = False,
    as_json: options.Json = False,
) -> None:
    """Collect transcripts, train the network, write the model folder."""
    from dssr.record.log import write_whole
    from dssr.worlds.archive import Archive
    from dssr_nano import networks
    from dssr_nano.factory.build import TOKENIZER
    from dssr_nano.factory.build import build as make
    from dssr_nano.factory.export import WEIGHTS, export
    from dssr_nano.factory.export import card as describe

    wanted, settings = _shape(shape, role), load(config)
    archive = Archive.open(Path(settings.data) / settings.games.archive)
    folder = folder or Path(settings.data) / f"{settings.games.archive}-train"
    with progress(as_json) as tell:
        network, trained = make(archive, folder, role, seed, wanted, tell, new_tokenizer)
    target = model or networks.WEIGHTS / role
    export(network, folder / TOKENIZER, target)
    told = describe(network, trained, role, seed, shape, (target / WEIGHTS).read_bytes())
    write_whole(target / "README.md", told.encode())
    if target.resolve().parent == networks.WEIGHTS.resolve():
        networks.drop_shared(target.name)
    emit({"model": str(target), "steps": trained.step, "right": trained.right}, as_json)


def _shape(text: str | None, role: Role) -> "Shape":
    from dssr.errors import UsageError
    from dssr_nano.factory.build import SPECS
    from dssr_nano.factory.network import Shape

    if text is None:
        return SPECS[role].shape
    try:
        width, depth, heads, inner = map(int, text.split("x"))
    except ValueError as error:
        raise UsageError(f"{text!r} is no shape: give width, depth, heads and inner width, as 160x6x5x416.") from error
    if heads < 5 or depth < 6 or width % (2 * heads):
        raise UsageError(f"{text!r} cannot be built: 6 layers, 5 heads, and a width that 2 x heads divides are needed.")
    return Shape(width, depth, heads, inner)


def card(role: RoleArgument, runs: RunsArgument, model: ModelOption = None, as_json: options.Json = False) -> None:
    """Write the results of finished runs into a network's card."""
    from dssr.errors import UsageError
    from dssr.record.log import write_whole
    from dssr.record.run import Run
    from dssr_nano import networks
    from dssr_nano.factory.export import measured, refill

    file = (model or networks.WEIGHTS / role) / "README.md"
    if not file.is_file():
        raise UsageError(f"{file.parent} has no card; make the network with `dssr nano build {role}` first.")
    text = refill(file.read_text(encoding="utf-8"), measured(Run.open(path) for path in runs))
    write_whole(file, text.encode())
    emit({"card": str(file), "runs": len(runs)}, as_json)
