"""`dssr audit · trace show · trace check · trace export`: logs of any agent."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from dssr.cli import options
from dssr.cli.options import emit, flag, progress, say, tell, with_bounds
from dssr.errors import UsageError

if TYPE_CHECKING:
    from dssr.measure.study import Study

Traces = Annotated[list[Path], typer.Argument(help="Trace files, logs of other programs, or directories of dssr runs.")]
LogConfig = Annotated[
    str | None,
    typer.Option("--config", "-c", help="Configuration with the models; smol if left out, for a run its own."),
]
LogMemories = Annotated[
    list[str] | None,
    typer.Option(
        "--memory", "-m", help="A format, your own package.module:Class, or `logged`: the agent's own; may be repeated."
    ),
]
Every = Annotated[int, typer.Option("--every", min=1, help="Rewrite at every so many steps.")]
Over = Annotated[int | None, typer.Option("--over", min=1, help="Rewrite when the context passes so many tokens.")]
Redact = Annotated[
    Path | None, typer.Option("--redact", help="File with texts or /patterns/, one a line, that nobody gets to see.")
]
Fitting = Annotated[bool, flag("--fitting", help="Leave out decisions whose history is too long for a model.")]
Ask = Annotated[
    Literal["label", "text", "choice"] | None,
    typer.Option("--loss", help="How the reader is asked; by what its model can give if left out."),
]
Counted = Annotated[bool, flag("--plan", help="Count calls, tokens and cost, and stop there.")]
Price = Annotated[float | None, typer.Option(min=0, help="Cost per million tokens.")]


def register(app: typer.Typer) -> None:
    """Add the commands of this file to the program."""
    app.command("audit")(audit)
    area = typer.Typer(help="Look at logs, check them, write them as traces.", no_args_is_help=True)
    for command in (show, check, export):
        area.command(command.__name__)(command)
    app.add_typer(area, name="trace")


def audit(
    traces: Traces,
    config: LogConfig = None,
    memory: LogMemories = None,
    budget: options.Budgets = None,
    every: Every = 1,
    over: Over = None,
    loss: Ask = None,
    fitting: Fitting = False,
    redact: Redact = None,
    plan: Counted = False,
    price_in: Price = None,
    price_out: Price = None,
    out: options.Out = None,
    resume: options.Resume = False,
    workers: options.Workers = None,
    as_json: options.Json = False,
) -> None:
    """Roll memories over logs: was the context too small, or did the compaction choose badly?"""
    from dssr.measure.logs import audit as work

    hidden = _entries(redact)
    if plan:
        _plan(traces, config, memory, budget, every, over, fitting, hidden, price_in, price_out, as_json)
        return
    with progress(as_json) as told:
        study = work(
            traces, config, memory or (), budget or (), every=every, over=over, loss=loss, fitting=fitting,
            redact=hidden, out=out, resume=resume, workers=workers, progress=told,
        )  # fmt: skip
    _tell(study, as_json)


def _entries(redact: Path | None) -> list[str]:
    """The redaction list, checked before anything is read."""
    from dssr.traces.trace import Redactor

    return Redactor.entries(redact) if redact is not None else []


def _plan(
    traces: list[Path],
    config: str | None,
    memory: list[str] | None,
    budget: list[int] | None,
    every: int,
    over: int | None,
    fitting: bool,
    hidden: list[str],
    price_in: float | None,
    price_out: float | None,
    as_json: bool,
) -> None:
    import msgspec

    from dssr.measure.logs import plan_audit
    from dssr.measure.plan import Rates

    if (price_in is None) != (price_out is None):
        raise UsageError("Prices come in pairs: give both --price-in and --price-out.")
    found = plan_audit(
        traces, config, memory or (), budget or (), every=every, over=over, fitting=fitting, redact=hidden,
        rates=Rates(None, None, price_in, price_out),
    )  # fmt: skip
    names = ("work", "calls", "new_calls", "tokens_in", "tokens_out")
    rows = [{name: value for name, value in msgspec.to_builtins(load).items() if name in names} for load in found.loads]
    total = {name: found.total[name] for name in names[1:]}
    if as_json:
        emit({"episodes": found.episodes, "work": rows, "total": {**total, "cost": found.total["cost"]}}, True)
        return
    emit([*rows, {"work": "total", **total}])
    if found.total["cost"] is not None:
        tell(f"cost: {found.total['cost']:.3g} in the currency of the prices")


def _tell(study: "Study", as_json: bool) -> None:
    """The verdict on the reader, the table of cells, what survived, who lost it, and what the audit cost."""
    import msgspec

    from dssr.record.cost import cost_of

    run = study.runs[0]
    summary: dict[str, Any] = run.summary or {}
    if as_json:
        emit({"run": str(run.path), **summary, "cost": msgspec.to_builtins(cost_of(run))}, True)
        return
    quantities = {"delta": "δ", "beta": "β", "kappa": "κ", "kappa_first": "κ, one sample"}
    names = {"memory": "memory", "budget": "B", "games": "logs", "points": "decisions"}
    if any(row["kappa"] is not None for row in summary["cells"]):
        emit(
            [
                {shown: row[name] for name, shown in names.items()}
                | {"as logged, %": with_bounds(row, "success", "percent")}
                | {shown: with_bounds(row, name) for name, shown in quantities.items()}
                for row in summary["cells"]
            ],
            names=2,
        )
        if len(summary["logs"]) <= SHOWN:
            emit(summary["logs"], title="log by log")
    emit(summary["survival"], title="values that later actions need, through the rewrites")
    if summary["blame"]:
        emit(summary["blame"][:10], title="rewrites that lost some")
    say(summary["sensitivity"]["sentence"])
    for row in summary["answers"]:
        tell(row["sentence"])
    if summary["errors"] or summary["left_out"]:
        tell(f"{summary['errors']} episodes failed, {summary['left_out']} decisions did not fit; none counts.")
    if (cost := cost_of(run)) is not None:
        tell(f"cost: {cost.sentence}")
    tell(f"run: {run.path}  (page: dssr report {run.path})")


def show(
    file: Annotated[Path, typer.Argument(help="A log.")],
    facts: Annotated[bool, flag("--facts", help="Only the values that later actions need.")] = False,
    redact: Redact = None,
    as_json: options.Json = False,
) -> None:
    """What a log holds: goal, steps, decisions, compactions, and the values that later actions need."""
    import msgspec

    from dssr.measure.logs import Sources
    from dssr.traces.facts import trace_facts
    from dssr.traces.trace import Redactor

    for trace in Sources(file, Redactor(_entries(redact))):
        found = trace_facts(trace)
        if as_json:
            emit({**msgspec.to_builtins(trace), "facts": msgspec.to_builtins(found)}, True)
            continue
        if not facts:
            tell(f"=== {trace.id} ===\nGoal: {trace.goal}")
            for index, step in enumerate(trace.steps):
                tell(f"\n-- step {index} --" + (f"\n> {step.action}" if step.action else ""))
                tell(step.observation)
                if step.state is not None:
                    tell(f"-- the agent kept --\n{step.state}")
        rows = [{"value": one.text, "kind": one.kind, "seen": one.seen, "needed at": one.uses} for one in found]
        emit(rows, title=f"{trace.id}: {len(trace.decisions)} decisions, {len(found)} values they need from the past")


def check(files: Traces, redact: Redact = None, as_json: options.Json = False) -> None:
    """Read logs to their end, one trace at a time, and say what is wrong with them."""
    from dssr.traces.importers import open_traces
    from dssr.traces.trace import Redactor, faults

    hide = Redactor(_entries(redact))
    rows, wrong, total = [], 0, 0
    for file in files:
        names: dict[str, None] = {}
        for trace in open_traces(file, hide):
            found = faults(trace) + (["Another trace has the same id; rename one."] if trace.id in names else [])
            names[trace.id] = None
            total, wrong = total + 1, wrong + bool(found)
            if found or total <= SHOWN:
                compacted = sum(step.state is not None for step in trace.steps)
                counts = {"steps": len(trace.steps), "decisions": len(trace.decisions), "compactions": compacted}
                rows.append({"file": file.name, "trace": trace.id, **counts, "faults": " ".join(found) or None})
    emit({"traces": total, "faulty": wrong, "rows": rows} if as_json else rows, as_json)
    if wrong:
        raise UsageError(f"{wrong} of {total} traces cannot be audited; the table says why.")
    if not as_json:
        tell(f"{total} traces, all good")


SHOWN = 50
"""Good traces that a check lists; all faulty ones are."""


def export(
    sources: Traces,
    out: Annotated[Path, typer.Option("--out", "-o", help="The trace file to write.")],
    redact: Redact = None,
) -> None:
    """Write logs or the episodes of runs as one trace file."""
    from dssr.measure.logs import Sources
    from dssr.traces.trace import Redactor, write_traces

    count = write_traces(iter(Sources(sources, Redactor(_entries(redact)))), out)
    tell(f"{count} traces: {out}")
