"""`dssr runs · episodes · play · fork · check`: what there is, single episodes, and a search of prompts for leaks.
`dssr games make · check · stats`: the archive of a configuration, its verification, its statistics.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dssr.cli import options
from dssr.cli.options import emit, say, tell
from dssr.errors import DssrError, LeakError, ModelError, RecordError, UsageError

if TYPE_CHECKING:
    from dssr.types import Played, Step


from dssr.cli.options import progress

# ---------------------------------------------------------------- episodes

SHORT = 12
"""Letters of an episode's key that are shown; `fork` takes any beginning that only one has."""


def register(app: typer.Typer) -> None:
    """Add the commands of this file to the program."""
    for command in (runs, episodes, play, fork, check):
        app.command(command.__name__)(command)
    games = typer.Typer(help="Make, verify and measure the archive of games.", no_args_is_help=True)
    games.command("make")(make)
    games.command("check")(check_archive)
    games.command("stats")(stats)
    app.add_typer(games, name="games")


def runs(
    folder: Annotated[Path, typer.Argument(help="Folder to look in, also inside the folders of studies.")] = Path(
        "runs"
    ),
    as_json: options.Json = False,
) -> None:
    """List the runs in a folder: what each is, whether it is finished, and what it holds."""
    from dssr.record.log import lines
    from dssr.record.run import Run

    rows: list[dict[str, Any]] = []
    for place in sorted(one.parent for one in folder.rglob("run.json")):
        try:
            run = Run.open(place)
        except DssrError as error:
            rows.append({"run": str(place), "state": str(error)})
            continue
        state = "failed" if run.failure is not None else "finished" if run.finished else "not finished"
        found = {"run": str(place), "command": run.info.command, "configuration": run.info.config.name, "state": state}
        rows.append(
            {
                **found,
                "episodes": sum(1 for _ in lines(place / "episodes.jsonl")),
                "started": run.info.provenance.started[:16],
            }
        )
    emit(rows, as_json)
    if not rows and not as_json:
        say(f"{folder} holds no run; `dssr demo` makes one, `dssr diagnose` those of your own.")


def episodes(run: options.Run, as_json: options.Json = False) -> None:
    """List the episodes of a run, with the keys that `dssr fork` takes."""
    from dssr.record.run import Run
    from dssr.types import Episode

    rows, telling = [], ""
    for one in Run.open(run).read("episodes", Episode):
        cell, key = one.job.cell, one.key if as_json else one.key[:SHORT]
        row = {"episode": key, "game": one.job.game, "memory": cell.memory, "B": cell.budget, "F'": cell.filler}
        rows.append({**row, "outcome": one.outcome, "score": f"{one.score}/{one.max_score}", "error": one.error})
        if not telling and cell.budget is not None and one.outcome not in ("won", "error"):
            telling = f"{key} {one.begin}"  # a writer's loss, from where its memory is first needed
    if not as_json and not any(row["error"] for row in rows):
        rows = [{name: value for name, value in row.items() if name != "error"} for row in rows]
    emit(rows, as_json)
    if rows and not as_json:
        first = f"{rows[0]['episode']} 0"
        say(f"continue one from a step: dssr fork {run} {telling or first}")


def play(
    game: Annotated[str, typer.Argument(help="Id of a game, for example valid-6-000.")],
    config: options.Config = options.DEFAULT_CONFIG,
    memory: options.Memory = "summary",
    budget: options.Budget = None,
    filler: options.Filler = 0,
    as_json: options.Json = False,
) -> None:
    """Watch one episode: what was seen, what was kept, what was done."""
    import msgspec

    from dssr.measure.diagnose import play as work

    played = work(game, config, memory=memory, budget=budget, filler=filler)
    if as_json:
        emit({"episode": msgspec.to_builtins(played.episode), "steps": msgspec.to_builtins(played.steps)}, True)
    else:
        show(played)
    if played.episode.error is not None:
        raise ModelError(f"The episode broke: {played.episode.error}")


def fork(
    run: options.Run,
    episode: Annotated[str, typer.Argument(help="The beginning of an episode's key.")],
    step: Annotated[int, typer.Argument(help="The step to continue from.")],
    state: Annotated[Path | None, typer.Option("--state", help="A file with the state to put in its place.")] = None,
    as_json: options.Json = False,
) -> None:
    """Continue from a logged state, which must come out as logged, or from a state of your own."""
    import msgspec

    from dssr.measure.diagnose import fork as work

    try:
        own = None if state is None else state.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise UsageError(f"There is no file {state} to take the state from.") from error
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{state} cannot be read as UTF-8 text: {error}.") from error
    forked = work(run, episode, step, own)
    played, differs = forked.played, forked.differs
    if as_json:
        emit({**outcome(played), "differs": differs, "steps": msgspec.to_builtins(played.steps)}, True)
    else:
        show(played, step)
    if own is None and differs is not None:
        raise RecordError(
            f"The continuation departs from the log at step {differs}; the model or the games have changed."
        )
    if not as_json:
        say("as logged" if differs is None else f"differs from the log from step {differs} on")


def check(run: options.Run, as_json: options.Json = False) -> None:
    """Compare a run's files with what they held when it was finished, and show what the leak check found in all its
    prompts; those it keeps are searched once more."""
    import msgspec

    from dssr.measure.diagnose import check as work
    from dssr.record.run import Run

    found = [msgspec.to_builtins(search) for search in work(run)]
    leaks = [leak for search in found for leak in search["leaks"]]
    shown = [{name: value for name, value in search.items() if name != "leaks"} for search in found]
    if not as_json and (files := Run.open(run).check()):
        say(f"{files} files of {run} are as they were when it was finished")
    emit(found if as_json else shown, as_json)
    if not any(search["writer_prompts"] + search["reader_prompts"] for search in found):
        raise RecordError(f"No prompt of {run} was searched, so nothing can be said about leaks in it.")
    if leaks:
        if not as_json:
            emit(leaks, title="leaks")
        first = leaks[0]
        raise LeakError(
            f"{sum(search['leaked'] for search in found)} prompts of {run} show a secret, the first a {first['kind']} "
            f"in a {first['role']} prompt at step {first['step']} of {first['episode']}; do not use its numbers."
        )


def show(played: "Played", first: int = 0) -> None:
    """Print an episode, or the part of it from one step on."""
    for step in played.steps[first:]:
        tell(told(step))
    tell("")
    emit(outcome(played))


def told(step: "Step") -> str:
    """One step in words."""
    from dssr.agent.recall import looked_back

    write, decision = step.write, step.decision
    lines = [f"\n== step {step.index} · {step.kind} ==", f"> {step.action}" if step.action else "", step.observation]
    marks = [f"{write.tokens} tokens"] + ["cut"] * write.truncated + ([write.note] if write.note else [])
    lines += [f"-- state ({', '.join(marks)}) --", write.state]
    if seen := looked_back(step):
        lines.append(f"-- {seen} --")
    if decision is not None:
        loss = "not asked" if decision.nll is None else f"nll {decision.nll:.3f}"
        lines.append(f"-- acts: {decision.action} (reference: {decision.options.reference}, {loss}) --")
    return "\n".join(line for line in lines if line)


def outcome(played: "Played") -> dict[str, Any]:
    """How an episode went, as a row."""
    episode = played.episode
    return {
        "episode": episode.key,
        "outcome": episode.outcome,
        "score": f"{episode.score}/{episode.max_score}",
        "steps": episode.steps,
        "truncations": episode.truncations,
        "error": episode.error,
    }


# ---------------------------------------------------------------- games

TokenizerOption = Annotated[
    str, typer.Option("--tokenizer", help="What counts the history: a model's name or folder, or `words`.")
]


def make(
    config: options.Config = options.DEFAULT_CONFIG,
    folder: options.Archive = None,
    workers: options.Workers = None,
    resume: options.Resume = False,
    as_json: options.Json = False,
) -> None:
    """Make the games of a configuration, once."""
    from dssr.measure.archives import make_games

    with progress(as_json) as told:
        archive = make_games(config, folder=folder, workers=workers, resume=resume, progress=told)
    count, version = len(archive.games()), archive.settings.engine
    emit({"archive": str(archive.folder), "games": count, "engine": version}, as_json)


def check_archive(
    config: options.Config = options.DEFAULT_CONFIG,
    folder: options.Archive = None,
    workers: options.Workers = None,
    as_json: options.Json = False,
) -> None:
    """Verify every game: its files, that Phase A shows all that is needed, that the reference policy wins.

    Test games are sealed: only their files are verified.
    """
    from dssr.measure.archives import check_games

    with progress(as_json) as told:
        found = check_games(config, folder=folder, workers=workers, progress=told)
    faults = [{"game": name, "fault": fault} for name, sentences in found.faults.items() for fault in sentences]
    summary = {"archive": found.archive, "games": found.games, "faulty": len(found.faults)}
    emit({**summary, "faults": faults} if as_json else summary, as_json)
    if faults:
        if not as_json:
            emit(faults)
        raise typer.Exit(1)


def stats(
    config: options.Config = options.DEFAULT_CONFIG,
    folder: options.Archive = None,
    tokenizer: TokenizerOption = "words",
    workers: options.Workers = None,
    as_json: options.Json = False,
) -> None:
    """Print, per level and filler, the steps of both phases and the tokens of the history, test games left out."""
    from dssr.measure.archives import game_stats

    with progress(as_json) as told:
        rows = game_stats(config, folder=folder, tokenizer=tokenizer, workers=workers, progress=told)
    emit(rows, as_json)
