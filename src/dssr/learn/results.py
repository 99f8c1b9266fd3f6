"""What a round's validation says: success and regret per filler, beside the untrained writer on the same games."""

from collections.abc import Sequence
from statistics import mean
from typing import Any

from dssr.errors import ModelError
from dssr.learn.select import BEFORE, UNTRAINED
from dssr.measure.study import Study
from dssr.measure.tables import cell_rows, contrast_rows
from dssr.record.run import Run
from dssr.types import RoundResult

BASE = "summary"
"""The prompt that the trained writers share with the untrained one."""
CHANGES = {"success": "gain", "kappa": "kappa_change"}


def untrained_results(run: Run, seed: int) -> list[RoundResult]:
    return [_result(cell, UNTRAINED, BEFORE, seed, []) for cell in cell_rows(Study.load([run]))]


def round_results(
    run: Run, contrasts: Sequence[dict[str, Any]], writer: str, number: int, seed: int
) -> list[RoundResult]:
    """One per filler. `contrasts` is what `against_untrained` gave."""
    return [_result(cell, writer, number, seed, contrasts) for cell in cell_rows(Study.load([run]))]


def against_untrained(run: Run, untrained: Run) -> list[dict[str, Any]]:
    """Success and kappa minus the untrained writer's, paired by game: at each filler, and over those that are lag."""
    return contrast_rows(Study.load([untrained, run]), BASE)


def _result(
    cell: dict[str, Any], writer: str, number: int, seed: int, contrasts: Sequence[dict[str, Any]]
) -> RoundResult:
    if cell["success"] is None:
        raise ModelError(
            f"Every validation game of {writer} at filler {cell['filler']} failed; see its episodes.jsonl."
        )
    changes: dict[str, float | None] = {}
    for row in contrasts:
        if row["filler"] == str(cell["filler"]):
            name = CHANGES[row["quantity"]]
            changes |= {name + end: row["difference" + end] for end in ("", "_low", "_high")}
    return RoundResult(
        writer=writer,
        round=number,
        seed=seed,
        budget=cell["budget"],
        filler=cell["filler"],
        games=cell["games"],
        success=cell["success"],
        kappa=cell["kappa"],
        **changes,
    )


def shown(results: Sequence[RoundResult]) -> dict[str, Any]:
    """The results of one round as one row: each filler, and the means over them."""
    row: dict[str, Any] = {"success": mean(one.success for one in results)}
    regrets = [one.kappa for one in results if one.kappa is not None]
    row["kappa"] = mean(regrets) if len(regrets) == len(results) else None
    for one in results:
        row |= {f"success F'={one.filler}": one.success, f"kappa F'={one.filler}": one.kappa}
    return row
