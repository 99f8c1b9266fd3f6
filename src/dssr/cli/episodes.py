"""`dssr play · fork · check`: single episodes, watched and continued, and the prompts of a run searched for leaks."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dssr.cli import options
from dssr.cli.show import emit, say
from dssr.errors import LeakError, RecordError, UsageError
from dssr.models.guard import printable

if TYPE_CHECKING:
    from dssr.types import Played, Step


def register(app: typer.Typer) -> None:
    """Add the commands of this file to the program."""
    for command in (play, fork, check):
        app.command(command.__name__)(command)


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

    from dssr.measure.episodes import play as work

    played = work(game, config, memory=memory, budget=budget, filler=filler)
    if as_json:
        emit({"episode": msgspec.to_builtins(played.episode), "steps": msgspec.to_builtins(played.steps)}, True)
    else:
        show(played)


def fork(
    run: options.Run,
    episode: Annotated[str, typer.Argument(help="The beginning of an episode's key.")],
    step: Annotated[int, typer.Argument(help="The step to continue from.")],
    state: Annotated[Path | None, typer.Option("--state", help="A file with the state to put in its place.")] = None,
    as_json: options.Json = False,
) -> None:
    """Continue from a logged state, which must come out as logged, or from a state of your own."""
    import msgspec

    from dssr.measure.episodes import fork as work

    try:
        own = None if state is None else state.read_text(encoding="utf-8")
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
    """Search the stored prompts of a run for anything that writer and reader must not know."""
    import msgspec

    from dssr.measure.episodes import check as work

    report = work(run)
    counts = {
        "episodes": report.episodes,
        "writer prompts": report.writer_prompts,
        "reader prompts": report.reader_prompts,
        "leaks": len(report.leaks),
        "lone guesses": len(report.guesses),
    }
    emit(msgspec.to_builtins(report) if as_json else counts, as_json)
    if report.leaks:
        if not as_json:
            emit([msgspec.to_builtins(leak) for leak in report.leaks[:20]], title="leaks")
        first = report.leaks[0]
        raise LeakError(
            f"{run} has {len(report.leaks)} leaks, the first ({first.kind}) in a {first.role} prompt at step "
            f"{first.step} of episode {first.episode}; do not use its numbers."
        )


def show(played: "Played", first: int = 0) -> None:
    """Print an episode, or the part of it from one step on."""
    for step in played.steps[first:]:
        typer.echo(printable(told(step)))
    typer.echo("")
    emit(outcome(played))


def told(step: "Step") -> str:
    """One step in words."""
    write, decision = step.write, step.decision
    lines = [f"\n== step {step.index} · {step.kind} ==", f"> {step.action}" if step.action else "", step.observation]
    marks = [f"{write.tokens} tokens"] + ["cut"] * write.truncated + ([write.note] if write.note else [])
    lines += [f"-- state ({', '.join(marks)}) --", write.state]
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
