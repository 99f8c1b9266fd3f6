"""`dssr plan`: calls, tokens, time and cost of a diagnosis before it starts."""

import asyncio
from typing import Annotated

import typer

from dssr.cli.common import DEFAULT_CONFIG, ConfigOption, JsonOption, emit, load_config
from dssr.cli.diagnose import BudgetOption, FillerOption, GamesOption, LagOption, MemoryOption, SplitOption, ask_for
from dssr.errors import UsageError

CalibrateOption = Annotated[
    bool, typer.Option("--calibrate", help="Load the model and time a few calls instead of giving rates.")
]
ReadOption = Annotated[float | None, typer.Option("--read-rate", min=0.001, help="Prompt tokens per second.")]
WriteOption = Annotated[float | None, typer.Option("--write-rate", min=0.001, help="Written tokens per second.")]
PriceInOption = Annotated[float | None, typer.Option("--price-in", min=0, help="Per million prompt tokens.")]
PriceOutOption = Annotated[float | None, typer.Option("--price-out", min=0, help="Per million written tokens.")]


def register(app: typer.Typer) -> None:
    app.command("plan")(plan)


def plan(
    config: ConfigOption = DEFAULT_CONFIG,
    memory: MemoryOption = None,
    budget: BudgetOption = None,
    filler: FillerOption = None,
    games: GamesOption = None,
    split: SplitOption = "valid",
    lag: LagOption = False,
    read_rate: ReadOption = None,
    write_rate: WriteOption = None,
    price_in: PriceInOption = None,
    price_out: PriceOutOption = None,
    calibrate: CalibrateOption = False,
    as_json: JsonOption = False,
) -> None:
    """Count the calls and tokens of a diagnosis; with rates or prices also hours or cost."""
    import msgspec

    from dssr.measure.grid import jobs_of, open_agent, open_archive
    from dssr.measure.plan import Rates, rates, totals
    from dssr.measure.plan import plan as count
    from dssr.models.load import load_models

    if (read_rate is None) != (write_rate is None) or (price_in is None) != (price_out is None):
        raise UsageError("Rates and prices come in pairs: give both --read-rate and --write-rate, or both prices.")
    settings = load_config(config)
    archive = open_archive(settings)
    ask = ask_for(settings, archive, memory, budget, filler, games, split, lag)
    jobs = jobs_of(ask, settings)
    with open_agent(settings, archive, load_models(settings), jobs) as agent:
        loads = count(ask, settings, agent)
        if calibrate:
            read_rate, write_rate = asyncio.run(rates(ask, settings, agent))
    total = totals(loads, Rates(read_rate, write_rate, price_in, price_out))
    rows = [msgspec.to_builtins(load) for load in loads]
    if as_json:
        emit({"episodes": len(jobs), "work": rows, "total": total}, True)
        return
    emit([*rows, {"work": "total", **{name: total[name] for name in rows[0] if name != "work"}}], False)
    typer.echo(f"{len(jobs)} episodes; the second figures are for episodes that all run to their limit.")
    for name, unit in (("hours", "hours"), ("cost", "in the currency of the prices")):
        if total[name] is not None:
            typer.echo(f"{name}: {total[name]:.3g} to {total[f'most_{name}']:.3g} {unit}")
