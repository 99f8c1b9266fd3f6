"""`dssr study`: the whole study in one command, from the archive of games to the verdicts."""

from typing import Annotated

import msgspec
import typer

from dssr.cli import options
from dssr.cli.show import emit, progress
from dssr.errors import UsageError
from dssr.types import Workers

StageOption = Annotated[str | None, typer.Option("--stage", help="Stop after this stage; the last one if left out.")]
Approve = Annotated[
    str | None, typer.Option("--approve", help="Words with which the test games are opened: who opens them, and why.")
]
Plan = Annotated[bool, typer.Option("--plan", help="Print what every stage will take, and do nothing.")]
Status = Annotated[bool, typer.Option("--status", help="Print where every stage stands, and do nothing.")]
Force = Annotated[bool, typer.Option("--force", help="Go on with a reader that is not good enough; it is recorded.")]


def register(app: typer.Typer) -> None:
    """Add the command of this file to the program."""
    app.command("study")(study)


def study(
    config: options.Config = options.DEFAULT_CONFIG,
    stage: StageOption = None,
    out: options.Out = None,
    approve: Approve = None,
    plan: Plan = False,
    status: Status = False,
    force: Force = False,
    workers: options.Workers = None,
    ray: options.Ray = None,
    as_json: options.Json = False,
) -> None:
    """Run the whole study: games, readers, gates, diagnosis, training, the sealed test and the verdicts.

    Call it again to go on where it was interrupted. It stops before the test games open, unless --approve says so.
    """
    if plan and status:
        raise UsageError("Ask for --plan or for --status, one at a time.")
    if plan:
        from dssr.studies.plan import study_plan

        emit([msgspec.to_builtins(one) for one in study_plan(config, out=out)], as_json)
        return
    from dssr.studies.stages import study as work
    from dssr.studies.stages import study_states

    if status:
        found = study_states(config, out=out)
    else:
        with progress(as_json) as told:
            found = work(
                config,
                stage=stage,
                out=out,
                approval=approve,
                force=force,
                workers=Workers(workers, ray),
                progress=told,
            )
    emit([msgspec.to_builtins(one) for one in found], as_json)
