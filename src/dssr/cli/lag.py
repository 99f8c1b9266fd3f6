"""`dssr lag RUN`: the relevance lag at the audited points of a finished run."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from dssr.cli.common import JsonOption, OutOption, ResumeOption, emit, progress, say

RunArgument = Annotated[Path, typer.Argument(help="Directory of a finished diagnosis.")]


def register(app: typer.Typer) -> None:
    app.command("lag")(lag)


def lag(run: RunArgument, out: OutOption = None, resume: ResumeOption = False, as_json: JsonOption = False) -> None:
    """Leave one chunk of history out at a time, and find how long ago each decision's fact was seen.

    A finished run is never changed: the lags go into a run of their own, by default RUN-lag.
    """
    from dssr.agent.store import stored
    from dssr.measure.diagnose import measure_lags
    from dssr.measure.distance import chunk_rows, lag_bin_rows
    from dssr.measure.grid import open_agent, open_archive
    from dssr.measure.rows import flat
    from dssr.measure.study import Study
    from dssr.models.load import load_models
    from dssr.record.run import Run

    source = Run.open(run)
    study = Study.load([source])
    study.need_audits()
    settings = source.config
    models = load_models(settings)
    place = out or run.with_name(f"{run.name}-lag")
    episodes = [played for played in stored(source) if played.episode.key in study.audited_keys]
    jobs = [played.episode.job for played in episodes]
    with open_agent(settings, open_archive(settings), models, jobs) as agent:
        prints = {"reader": agent.reader.fingerprint()}
        if prints["reader"] != source.info.models.get("reader"):
            say("The reader is not the one of the run: its weights or settings have changed since.", as_json)
        arguments = {"source": source.path.name, "digest": source.info.digest}
        with (
            Run.start(place, command="lag", config=settings, models=prints, arguments=arguments, resume=resume) as made,
            progress(len(episodes), "episodes") as advance,
        ):

            async def go() -> None:
                try:
                    await measure_lags(made, episodes, agent, settings.measure, advance)
                finally:
                    for model in dict.fromkeys(models):
                        await model.close()

            asyncio.run(go())
            whole = Study.gather([source, made])
            summary = {"chunks": [*map(flat, chunk_rows(whole))], "bins": [*map(flat, lag_bin_rows(whole))]}
            made.finish(summary)
    if as_json:
        emit({"run": str(place), **summary}, True)
        return
    emit(summary["chunks"], False, title="the chunk that decisions hang on")
    emit(summary["bins"], False, title="regret by relevance lag")
    typer.echo(f"run: {place}")
