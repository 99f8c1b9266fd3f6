"""`dssr gates`: write the gates down, amend and judge them, and approve the opening of the test split."""

import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dssr.cli.common import DEFAULT_CONFIG, ConfigOption, JsonOption, emit, load_config
from dssr.config import Config

if TYPE_CHECKING:
    from dssr.measure.ledger import Ledger
    from dssr.record.seal import Seal

NameOption = Annotated[str | None, typer.Option(help="The memory of this role, as named in the runs.")]
GateArgument = Annotated[str, typer.Argument(help="Such as G1a.")]
TextArgument = Annotated[str, typer.Argument(help="In words.")]


def register(app: typer.Typer) -> None:
    gates = typer.Typer(
        help="Pre-registered gates: write, amend, judge, show; approve the test split.", no_args_is_help=True
    )
    for command in (write, amend, judge, show, approve):
        gates.command(command.__name__)(command)
    app.add_typer(gates, name="gates")


def now() -> str:
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")


def ledger_of(settings: Config) -> "Ledger":
    from dssr.measure.ledger import Ledger

    return Ledger(Path(settings.runs) / "ledger.jsonl")


def seal_of(settings: Config) -> "Seal":
    from dssr.record.seal import Seal

    return Seal(Path(settings.data) / settings.games.archive / "seal")


def write(config: ConfigOption = DEFAULT_CONFIG) -> None:
    """Write the gates of a configuration into its ledger, before there are data."""
    from dssr.measure.gates import statements

    settings = load_config(config)
    ledger = ledger_of(settings)
    ledger.write(statements(settings.gates, settings.stats.long_fillers), now())
    typer.echo(f"{len(ledger.gates())} gates stand in {ledger.path}")


def amend(gate: GateArgument, text: TextArgument, config: ConfigOption = DEFAULT_CONFIG) -> None:
    """Add a dated change to a gate; its first words stay."""
    ledger_of(load_config(config)).amend(gate, text, now())


def judge(
    gate: GateArgument,
    runs: Annotated[list[Path], typer.Argument(help="Directories of finished runs, with their lag runs.")],
    config: ConfigOption = DEFAULT_CONFIG,
    memory: Annotated[str, typer.Option(help="The memory that G1a looks at.")] = "summary",
    dssr: NameOption = None,
    outcome: NameOption = None,
    one_target: NameOption = None,
    no_hint: NameOption = None,
    second: Annotated[list[Path] | None, typer.Option(help="Runs under the second reader, for G2d.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Judge one gate on finished runs and add the verdict to the ledger."""
    import msgspec

    from dssr.measure.gates import Case, checks_of, verdict
    from dssr.measure.study import Study

    ledger = ledger_of(load_config(config))
    statement = ledger.statement(gate)
    study, other = Study.load(runs), Study.load(second) if second else None
    found = verdict(gate, statement, checks_of(gate, Case(study, memory, dssr, outcome, one_target, no_hint, other)))
    judged = (*study.runs, *(other.runs if other else ()))
    ledger.judge(found, {str(run.path): run.info.provenance.started for run in judged}, now())
    if as_json:
        emit(msgspec.to_builtins(found), True)
        return
    emit([msgspec.to_builtins(check) for check in found.checks], False, title=found.statement)
    typer.echo({True: "passed", False: "failed", None: "reported, not judged"}[found.passed])


def show(config: ConfigOption = DEFAULT_CONFIG, as_json: JsonOption = False) -> None:
    """Everything in the ledger, in order."""
    rows = []
    for entry in ledger_of(load_config(config)).entries():
        passed = entry.verdict.passed if entry.verdict else None
        row = {"date": entry.date, "kind": entry.kind, "gate": entry.gate, "passed": passed, "text": entry.text}
        rows.append({**row, "runs": list(entry.runs)})
    emit(rows, as_json)


def approve(text: TextArgument, config: ConfigOption = DEFAULT_CONFIG) -> None:
    """Approve the one opening of the test split."""
    seal_of(load_config(config)).approve(text, now())
