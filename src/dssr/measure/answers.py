"""The answer in one sentence per memory: was the state too small, or did the writer choose badly?"""

from dssr.errors import StatsError
from dssr.measure.rows import Row, columns, game_values, groups
from dssr.measure.study import Study
from dssr.stats.bootstrap import Interval, align, mean_intervals
from dssr.stats.contrasts import over_fillers

QUANTITIES = ("success", "delta", "beta", "kappa")
NEGLIGIBLE = 0.05
"""Nats; a loss surely below this is called none."""

CAUSES = {
    "writer": "the writer, not the budget, loses what decisions need",
    "budget": "the budget, not the writer, loses what decisions need",
    "both": "both the budget and the writer lose what decisions need, {more} more",
    "neither": "nothing that decisions need is lost",
    "unclear": "too few games to tell whether anything is lost",
}


def answer_rows(study: Study) -> list[Row]:
    """Per memory and budget, over all fillers: success, budget loss, regret, and what they say."""
    study.need_audits()
    rows = []
    for (memory, budget, protocol), cells in groups(study).items():
        if budget is None:
            continue
        head: Row = {"memory": memory, "budget": budget, "protocol": protocol}
        try:
            _, values = align(
                {
                    quantity: over_fillers(
                        {length: game_values(study, cell, quantity) for length, cell in cells.items()}
                    )
                    for quantity in QUANTITIES
                }
            )
            found = dict(zip(QUANTITIES, mean_intervals(values, study.sampler), strict=True))
        except StatsError as error:
            missing = {key: value for quantity in QUANTITIES for key, value in columns(quantity, None).items()}
            sentence = f"{memory}, {budget} tokens: no answer, since {error}."
            rows.append({**head, **missing, "cause": None, "sentence": sentence})
            continue
        numbers = {key: value for quantity in QUANTITIES for key, value in columns(quantity, found[quantity]).items()}
        delta, beta, kappa = found["delta"], found["beta"], found["kappa"]
        cause = cause_of(delta, beta, kappa)
        more = "the writer" if kappa.estimate > beta.estimate else "the budget"
        sentence = (
            f"{memory}, {budget} tokens: budget loss β = {_shown(beta)}, write-time regret κ = {_shown(kappa)}: "
            f"{CAUSES[cause].format(more=more)}."
        )
        rows.append({**head, **numbers, "cause": cause, "sentence": sentence})
    return rows


def cause_of(delta: Interval, beta: Interval, kappa: Interval) -> str:
    """Who loses: whoever's interval lies above zero. Where a memory keeps what states written in hindsight lack, κ is
    below zero and cancels β: then the budget is blamed only if something is lost in the end."""
    if delta.high < NEGLIGIBLE or max(kappa.high, beta.high) < NEGLIGIBLE:
        return "neither"
    if kappa.low > 0:
        return "both" if beta.low > 0 else "writer"
    return "budget" if beta.low > 0 and delta.low > 0 else "unclear"


def _shown(found: Interval) -> str:
    return f"{found.estimate:.2f} [{found.low:.2f}, {found.high:.2f}]"
