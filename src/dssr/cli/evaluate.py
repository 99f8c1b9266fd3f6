"""`dssr evaluate`: the sealed test split, opened once."""

import typer

from dssr.cli.common import DEFAULT_CONFIG, ConfigOption, JsonOption, OutOption, ResumeOption
from dssr.cli.diagnose import BudgetOption, FillerOption, LagOption, MemoryOption, diagnose


def register(app: typer.Typer) -> None:
    app.command("evaluate")(evaluate)


def evaluate(
    config: ConfigOption = DEFAULT_CONFIG,
    memory: MemoryOption = None,
    budget: BudgetOption = None,
    filler: FillerOption = None,
    lag: LagOption = False,
    out: OutOption = None,
    resume: ResumeOption = False,
    as_json: JsonOption = False,
) -> None:
    """Diagnose on the test split, which opens once, after `dssr gates approve`."""
    diagnose(config, memory, budget, filler, None, "test", lag, out, resume, as_json)
