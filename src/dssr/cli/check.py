"""`dssr check RUN`: the leak check over the stored prompts of a run."""

from pathlib import Path
from typing import Annotated

import typer

from dssr.cli.common import JsonOption, emit


def register(app: typer.Typer) -> None:
    app.command("check")(check)


def check(
    run: Annotated[Path, typer.Argument(help="A run's directory.")],
    as_json: JsonOption = False,
) -> None:
    """Search the stored prompts of a run for anything that writer and reader must not know."""
    import msgspec

    from dssr.agent.leaks import check_prompts
    from dssr.agent.store import stored
    from dssr.errors import LeakError
    from dssr.measure.grid import open_archive
    from dssr.record.run import Run
    from dssr.worlds.archive import Worlds

    opened = Run.open(run)
    worlds = Worlds(open_archive(opened.config))
    try:
        report = check_prompts(stored(opened), worlds)
    finally:
        worlds.close()
    counts = {
        "episodes": report.episodes,
        "writer prompts": report.writer_prompts,
        "reader prompts": report.reader_prompts,
        "leaks": len(report.leaks),
        "lone guesses": len(report.guesses),
    }
    if as_json:
        emit(msgspec.to_builtins(report), True)
    else:
        emit(counts, False)
        if report.leaks:
            emit([msgspec.to_builtins(leak) for leak in report.leaks[:20]], False, "leaks")
    if report.leaks:
        first = report.leaks[0]
        raise LeakError(
            f"{run} has {len(report.leaks)} leaks, the first ({first.kind}) in a {first.role} prompt at step "
            f"{first.step} of episode {first.episode}; do not use its numbers."
        )
