"""`dssr fork RUN EPISODE STEP`: continue a logged episode from one of its steps."""

from pathlib import Path
from typing import Annotated

import typer

from dssr.cli.common import JsonOption, emit, say


def register(app: typer.Typer) -> None:
    app.command("fork")(fork)


def fork(
    run: Annotated[Path, typer.Argument(help="A run's directory.")],
    episode: Annotated[str, typer.Argument(help="The beginning of an episode's key.")],
    step: Annotated[int, typer.Argument(help="The step to continue from.")],
    state: Annotated[Path | None, typer.Option("--state", help="A file with the state to put in its place.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Continue from a logged state, which must come out as logged, or from a state of your own."""
    import asyncio

    import msgspec

    from dssr.agent.episode import first_difference
    from dssr.agent.episode import fork as continue_from
    from dssr.agent.store import find
    from dssr.cli.play import outcome, show
    from dssr.errors import RecordError, UsageError
    from dssr.measure.grid import open_agent, open_archive
    from dssr.models.load import load_models
    from dssr.record.run import Run

    opened = Run.open(run)
    logged = find(opened, episode)
    try:
        own = None if state is None else state.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{state} cannot be read as UTF-8 text: {error}.") from error
    config = opened.config
    with open_agent(config, open_archive(config), load_models(config), [logged.episode.job]) as agent:
        played = asyncio.run(continue_from(logged.episode, logged.steps, step, agent, own))
    differs = first_difference(logged.steps, played.steps)
    if as_json:
        emit({**outcome(played), "differs": differs, "steps": msgspec.to_builtins(played.steps)}, True)
    else:
        show(played, step)
    if own is None and differs is not None:
        raise RecordError(
            f"The continuation departs from the log at step {differs}; the model or the games have changed."
        )
    say("as logged" if differs is None else f"differs from the log from step {differs} on", as_json)
