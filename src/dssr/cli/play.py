"""`dssr play GAME`: watch one episode, with any memory and model."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from dssr.cli.common import DEFAULT_CONFIG, ConfigOption, JsonOption, emit, load_config

if TYPE_CHECKING:
    from dssr.types import Played, Step

MemoryOption = Annotated[
    str, typer.Option("--memory", "-m", help="A format, `dssr@ADAPTER`, or your own `package.module:Class`.")
]
BudgetOption = Annotated[int, typer.Option("--budget", "-b", min=1, help="Tokens of the state; full has none.")]
FillerOption = Annotated[int, typer.Option("--filler", "-f", min=0, help="Length of the filler walk.")]


def register(app: typer.Typer) -> None:
    app.command("play")(play)


def play(
    game: Annotated[str, typer.Argument(help="A game's id, for example valid-6-000.")],
    config: ConfigOption = DEFAULT_CONFIG,
    memory: MemoryOption = "summary",
    budget: BudgetOption = 128,
    filler: FillerOption = 0,
    as_json: JsonOption = False,
) -> None:
    """Watch one episode: what was seen, what was kept, what was done."""
    import asyncio

    import msgspec

    from dssr.agent.episode import play as play_job
    from dssr.agent.memory import FULL
    from dssr.measure.grid import open_agent, open_archive
    from dssr.models.load import load_models
    from dssr.types import Cell, Job

    settings = load_config(config)
    cell = Cell(memory, None if memory == FULL else budget, filler, settings.protocol.kind)
    job = Job(game, cell, settings.seed, settings.agent.temperature, settings.agent.epsilon, "reader")
    archive = open_archive(settings)
    archive.game(game)
    with open_agent(settings, archive, load_models(settings), [job]) as agent:
        played = asyncio.run(play_job(job, agent))
    if as_json:
        emit({"episode": msgspec.to_builtins(played.episode), "steps": msgspec.to_builtins(played.steps)}, True)
    else:
        show(played)


def show(played: "Played", first: int = 0) -> None:
    """Print an episode, or the part of it from one step on."""
    for step in played.steps[first:]:
        typer.echo(told(step))
    typer.echo("")
    emit(outcome(played), False)


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
    episode = played.episode
    return {
        "episode": episode.key,
        "outcome": episode.outcome,
        "score": f"{episode.score}/{episode.max_score}",
        "steps": episode.steps,
        "truncations": episode.truncations,
        "error": episode.error,
    }
