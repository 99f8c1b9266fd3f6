"""The options of all commands, each defined once."""

from pathlib import Path
from typing import Annotated

import typer

DEFAULT_CONFIG = "nano"

Config = Annotated[
    str, typer.Option("--config", "-c", help="Name of a shipped configuration (see `dssr doctor`) or a TOML file.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs instead of tables.")]
Out = Annotated[
    Path | None, typer.Option("--out", "-o", help="Run directory to make; named after the question if left out.")
]
Folder = Annotated[Path | None, typer.Option("--out", "-o", help="Folder to write; beside the run if left out.")]
Resume = Annotated[bool, typer.Option("--resume", help="Continue work that was interrupted.")]
Run = Annotated[Path, typer.Argument(help="Directory of a run.")]
Runs = Annotated[list[Path], typer.Argument(help="Directories of runs; several are reported as one study.")]

Memories = Annotated[
    list[str] | None,
    typer.Option(
        "--memory",
        "-m",
        help="A format, FORMAT@ADAPTER, or your own module:Class or path/file.py:Class; may be repeated.",
    ),
]
Memory = Annotated[
    str,
    typer.Option("--memory", "-m", help="A format, FORMAT@ADAPTER, or your own module:Class or path/file.py:Class."),
]
Budgets = Annotated[list[int] | None, typer.Option("--budget", "-b", help="Tokens of a state; may be repeated.")]
Budget = Annotated[
    int | None,
    typer.Option("--budget", "-b", min=1, help="Tokens of a state; the configuration's middle one if left out."),
]
Fillers = Annotated[list[int] | None, typer.Option("--filler", "-f", help="Length of the walk; may be repeated.")]
Filler = Annotated[int, typer.Option("--filler", "-f", min=0, help="Length of the walk.")]
Games = Annotated[int | None, typer.Option("--games", "-g", help="Play at most so many games per level.")]
Lag = Annotated[bool, typer.Option("--lag", help="Measure the relevance lag at audited points too.")]

Adapter = Annotated[
    Path | None, typer.Option("--adapter", help="Folder of the reader's adapter; the configuration's own if left out.")
]
Archive = Annotated[
    Path | None, typer.Option("--archive", help="Folder of the archive; the configuration's own if left out.")
]
Workers = Annotated[
    int | None,
    typer.Option("--workers", "-w", min=1, help="Processes that share the work; as many as it is worth if left out."),
]
Ray = Annotated[
    str | None, typer.Option("--ray", help="Spread the work over this Ray cluster: its address, or `auto`.")
]
