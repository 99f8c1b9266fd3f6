"""`dssr study · gates`: the whole study in one command, from the archive of games to the verdicts, and its gates:
written down, amended, judged, and the test games opened.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from dssr.cli import options
from dssr.cli.options import emit, flag, progress, tell
from dssr.errors import UsageError
from dssr.types import Workers

if TYPE_CHECKING:
    from dssr.measure.verdicts import Check, Verdict

# ---------------------------------------------------------------- study

StageOption = Annotated[str | None, typer.Option("--stage", help="Stop after this stage; the last one if left out.")]
Approve = Annotated[
    str | None, typer.Option("--approve", help="Words with which the test games are opened: who opens them, and why.")
]
Plan = Annotated[bool, flag("--plan", help="Print what every stage will take, and do nothing.")]
Status = Annotated[bool, flag("--status", help="Print where every stage stands, and do nothing.")]
Force = Annotated[bool, flag("--force", help="Go on with a reader that is not good enough; it is recorded.")]


def register(app: typer.Typer) -> None:
    """Add the commands of this file to the program."""
    app.command("study")(study)
    group = typer.Typer(
        help="Pre-registered gates: write, amend, judge, show; approve the test games.", no_args_is_help=True
    )
    for command in (write, amend, judge, show, approve):
        group.command(command.__name__)(command)
    app.add_typer(group, name="gates")


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
        from dssr.studies.stages import study_plan

        emit([in_words(msgspec.to_builtins(one), as_json) for one in study_plan(config, out=out)], as_json)
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
    emit([in_words(msgspec.to_builtins(one), as_json) for one in found], as_json)


def in_words(row: dict[str, Any], as_json: bool) -> dict[str, Any]:
    """A stage's hours as a time that people say."""
    if as_json:
        return row
    from dssr.measure.plan import duration

    hours = row["hours"]
    named = {"time" if name == "hours" else name: value for name, value in row.items()}
    return named | {"time": None if hours is None else duration(hours)}


# ---------------------------------------------------------------- gates

Name = Annotated[str | None, typer.Option(help="The memory of this role, as named in the runs.")]
Gate = Annotated[str, typer.Argument(help="Name of a gate, such as G1a.")]
Text = Annotated[str, typer.Argument(help="What is to be written down, in words.")]
CHECKED = {True: "holds", False: "does not hold", None: "reported"}
PASSED = {True: "passed", False: "failed", None: "reported, not judged"}


def write(config: options.Config = options.DEFAULT_CONFIG) -> None:
    """Write the gates of a configuration into its ledger, before there are data."""
    from dssr.config import load
    from dssr.measure.gates import gates, ledger_of

    entries = gates(config, write=True)
    count = sum(entry.kind == "gate" for entry in entries)
    tell(f"{count} gates stand in {ledger_of(load(config)).path}")


def amend(gate: Gate, text: Text, config: options.Config = options.DEFAULT_CONFIG) -> None:
    """Add a dated change to a gate; its first words stay."""
    from dssr.measure.gates import amend as work

    work(gate, text, config)


def judge(
    gate: Gate,
    runs: Annotated[list[Path], typer.Argument(help="Directories of finished runs, with their lag runs.")],
    config: options.Config = options.DEFAULT_CONFIG,
    dssr: Name = None,
    outcome: Name = None,
    one_target: Name = None,
    no_hint: Name = None,
    second: Annotated[list[Path] | None, typer.Option(help="Runs under the second reader, for G2d.")] = None,
    as_json: options.Json = False,
) -> None:
    """Judge one gate on finished runs and add the verdict to the ledger."""
    from dssr.measure.gates import judge as work

    named = {"dssr": dssr, "outcome": outcome, "one_target": one_target, "no_hint": no_hint}
    roles = {role: name for role, name in named.items() if name is not None}
    found = work(gate, runs, config, roles=roles, second=second or ())
    if as_json:
        emit(msgspec.to_builtins(found), True)
        return
    emit([msgspec.to_builtins(check) for check in found.checks], title=found.statement)
    for note in found.notes:
        tell(note)
    tell(verdict_word(found))


def show(config: options.Config = options.DEFAULT_CONFIG, as_json: options.Json = False) -> None:
    """Print everything in the ledger, in order, under each verdict its estimates with their intervals; then the
    approved runs of the evaluation."""
    from dssr.measure.gates import approvals, gates

    entries = gates(config)
    if as_json:
        emit([msgspec.to_builtins(entry) for entry in entries], True)
        return
    rows = []
    for entry in entries:
        found = entry.verdict
        row = {"date": entry.date[:10], "kind": entry.kind, "gate": entry.gate}
        rows.append({**row, "verdict": verdict_word(found) if found else None, "text": entry.text})
        if found:
            rows += [{"verdict": CHECKED[check.passed], "text": check_line(check)} for check in found.checks]
            rows += [{"text": note} for note in found.notes]
        rows += [{"text": f"judged on {run}"} for run in entry.runs]
    for one in approvals(config):
        asked = one.run.arguments
        text = f"{one.text} ({grid_line(asked)})"
        rows.append({"date": one.date[:10], "kind": "approval", "gate": one.name, "text": text})
    emit(rows)


def grid_line(asked: Mapping[str, Any]) -> str:
    """What an approved run measures."""
    return "; ".join(f"{name} {', '.join(map(str, asked[name]))}" for name in ("memories", "budgets", "fillers"))


def verdict_word(found: "Verdict") -> str:
    """How a gate ended."""
    return "vacuous" if found.vacuous else PASSED[found.passed]


def check_line(check: "Check") -> str:
    """One inequality with its numbers."""
    interval = check.interval
    bounds = f" [{interval.low:.3f}, {interval.high:.3f}]" if interval else " (interval unbounded)"
    needed = "" if check.threshold is None else f", threshold {check.threshold:g}"
    least = "" if check.detectable is None else f", detectable {check.detectable:.3f}"
    return f"{check.what}: {check.estimate:.3f}{bounds}{needed}{least}"


def approve(
    text: Text,
    config: options.Config = options.DEFAULT_CONFIG,
    memory: options.Memories = None,
    budget: options.Budgets = None,
    filler: options.Fillers = None,
    lag: options.Lag = False,
    yes: Annotated[bool, flag("--yes", "-y", help="Do not ask.")] = False,
    as_json: options.Json = False,
) -> None:
    """Approve one run of the evaluation, given as to `dssr evaluate`; each approved run sees the test games once.

    It shows what would be opened and asks. Approve every run before the first is started: that closes the list.
    """
    from dssr.measure.gates import approve as work
    from dssr.measure.gates import asked_for

    if not yes:
        asked = asked_for(config, memory or (), budget or (), filler or (), lag=lag)
        would = f"This lets one run see {len(asked['games'])} test games, once: {grid_line(asked)}."
        tell(would, err=True)
        typer.confirm("Approve it?", abort=True, err=True)
    made = work(text, config, memory or (), budget or (), filler or (), lag=lag)
    run, asked = made.run, made.run.arguments
    shown = {name: asked[name] for name in ("memories", "budgets", "fillers", "lag")}
    shown |= {"protocol": run.config["protocol"]["kind"], "games": len(asked["games"])}
    brief = [f"{role} {fingerprint[:12]}" for role, fingerprint in run.models.items()]
    shown |= {"configuration": run.digest, "models": run.models if as_json else brief}
    emit({"approved": made.name, **shown, "text": made.text, "date": made.date}, as_json)
