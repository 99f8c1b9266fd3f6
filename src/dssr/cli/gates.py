"""`dssr gates`: write the gates down, amend and judge them, and approve the opening of the test games."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from dssr.cli import options
from dssr.cli.show import emit
from dssr.models.guard import printable

if TYPE_CHECKING:
    from dssr.measure.checks import Check, Verdict

Name = Annotated[str | None, typer.Option(help="The memory of this role, as named in the runs.")]
Gate = Annotated[str, typer.Argument(help="Name of a gate, such as G1a.")]
Text = Annotated[str, typer.Argument(help="What is to be written down, in words.")]
CHECKED = {True: "holds", False: "does not hold", None: "reported"}
PASSED = {True: "passed", False: "failed", None: "reported, not judged"}


def register(app: typer.Typer) -> None:
    """Add the commands of this file to the program."""
    group = typer.Typer(
        help="Pre-registered gates: write, amend, judge, show; approve the test games.", no_args_is_help=True
    )
    for command in (write, amend, judge, show, approve):
        group.command(command.__name__)(command)
    app.add_typer(group, name="gates")


def write(config: options.Config = options.DEFAULT_CONFIG) -> None:
    """Write the gates of a configuration into its ledger, before there are data."""
    from dssr.config import load
    from dssr.measure.ledger import gates, ledger_of

    entries = gates(config, write=True)
    count = sum(entry.kind == "gate" for entry in entries)
    typer.echo(f"{count} gates stand in {ledger_of(load(config)).path}")


def amend(gate: Gate, text: Text, config: options.Config = options.DEFAULT_CONFIG) -> None:
    """Add a dated change to a gate; its first words stay."""
    from dssr.measure.ledger import amend as work

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
    from dssr.measure.ledger import judge as work

    named = {"dssr": dssr, "outcome": outcome, "one_target": one_target, "no_hint": no_hint}
    roles = {role: name for role, name in named.items() if name is not None}
    found = work(gate, runs, config, roles=roles, second=second or ())
    if as_json:
        emit(msgspec.to_builtins(found), True)
        return
    emit([msgspec.to_builtins(check) for check in found.checks], title=found.statement)
    for note in found.notes:
        typer.echo(note)
    typer.echo(verdict_word(found))


def show(config: options.Config = options.DEFAULT_CONFIG, as_json: options.Json = False) -> None:
    """Print everything in the ledger, in order, under each verdict its estimates with their intervals; then the
    approved runs of the evaluation."""
    from dssr.measure.ledger import approvals, gates

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
        what = f"memories {asked['memories']}, budgets {asked['budgets']}, fillers {asked['fillers']}"
        rows.append({"date": one.date[:10], "kind": "approval", "gate": one.name[:8], "text": f"{one.text} ({what})"})
    emit(rows)


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
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: options.Json = False,
) -> None:
    """Approve one run of the evaluation, given as to `dssr evaluate`; each approved run sees the test games once.

    It shows what would be opened and asks. Approve every run before the first is started: that closes the list.
    """
    from dssr.measure.ledger import approve as work
    from dssr.measure.ledger import asked_for

    if not yes:
        asked = asked_for(config, memory or (), budget or (), filler or (), lag=lag)
        would = ", ".join(f"{name} {asked[name]}" for name in ("memories", "budgets", "fillers"))
        typer.echo(printable(f"This lets one run see {len(asked['games'])} test games, once: {would}."), err=True)
        typer.confirm("Approve it?", abort=True, err=True)
    made = work(text, config, memory or (), budget or (), filler or (), lag=lag)
    run, asked = made.run, made.run.arguments
    shown = {name: asked[name] for name in ("memories", "budgets", "fillers", "lag")}
    shown |= {"protocol": run.config["protocol"]["kind"], "games": len(asked["games"])}
    brief = [f"{role} {fingerprint[:12]}" for role, fingerprint in run.models.items()]
    shown |= {"configuration": run.digest, "models": run.models if as_json else brief}
    emit({"approved": made.name, **shown, "text": made.text, "date": made.date}, as_json)
