"""`dssr reader train | accept`: clone the reference action, and the gate a reader must pass."""

from pathlib import Path
from typing import Annotated, Any

import typer

from dssr.cli.common import DEFAULT_CONFIG, ConfigOption, JsonOption, OutOption, ResumeOption, emit, load_config, stages
from dssr.errors import UsageError

AdapterOption = Annotated[
    Path | None, typer.Option("--adapter", help="The reader's adapter; the configuration's own if left out.")
]


def register(app: typer.Typer) -> None:
    group = typer.Typer(help="Train the reader, and accept it or not.", no_args_is_help=True)
    group.command("train")(train)
    group.command("accept")(accept)
    app.add_typer(group, name="reader")


def train(config: ConfigOption = DEFAULT_CONFIG, out: OutOption = None, as_json: JsonOption = False) -> None:
    """Behaviour cloning over the context mixture, then DAgger. Run it again to go on where it stopped."""
    from dssr.train.reader.dagger import Dagger

    settings = load_config(config)
    model = settings.reader_model or settings.writer_model
    if model.backend not in ("hf", "vllm"):
        raise UsageError(f"The {model.backend} backend has no weights to train; use a configuration with hf or vllm.")
    place = out or Path(settings.runs) / f"reader-{settings.name}-{settings.digest()[:8]}"
    with stages(as_json) as tell:
        adapter = Dagger(settings, place, tell).train()
    emit({"adapter": str(adapter)}, as_json)


def accept(
    config: ConfigOption = DEFAULT_CONFIG,
    adapter: AdapterOption = None,
    out: OutOption = None,
    resume: ResumeOption = False,
    as_json: JsonOption = False,
) -> None:
    """Play validation games with the full history and no filler; exit 1 if the reader is not good enough."""
    from dssr.cli.diagnose import ask_for, default_place, run_diagnosis
    from dssr.measure.grid import open_archive
    from dssr.models.load import load_models
    from dssr.train.reader.accept import acceptance, note_acceptance
    from dssr.train.reader.dagger import with_reader
    from dssr.types import Episode

    settings = load_config(config)
    if adapter is not None:
        settings = with_reader(settings, adapter)
    archive = open_archive(settings)
    ask = ask_for(settings, archive, ["full"], None, [0], None, "valid", False)
    place = out or default_place(settings, ask)
    run, _ = run_diagnosis(settings, ask, archive, load_models(settings), place, resume, as_json)
    verdict: dict[str, Any] = acceptance(run.read("episodes", Episode), settings.reader.accept)
    noted = note_acceptance(settings, run.info.models["reader"], verdict, run.path)
    emit({**verdict, "run": str(run.path), "noted": str(noted)}, as_json)
    if not verdict["accepted"]:
        raise typer.Exit(1)
