"""The answer in one sentence per memory: was the state too small, or did the writer choose badly?"""

from dssr.errors import StatsError
from dssr.measure.study import Study
from dssr.measure.tables import Row, columns, game_values, groups
from dssr.stats.bootstrap import Interval, align, mean_intervals
from dssr.stats.contrasts import over_lags

NEGLIGIBLE = 0.05
"""Nats; a loss surely below this is called none."""

CAUSES = {
    "writer": "the writer, not the budget, loses what decisions need",
    "budget": "the budget, not the writer, loses what decisions need",
    "both": "both the budget and the writer lose what decisions need, {more} more",
    "neither": "neither the budget nor the writer loses anything that matters",
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
                    quantity: over_lags({lag: game_values(study, cell, quantity) for lag, cell in cells.items()})
                    for quantity in ("success", "beta", "kappa")
                }
            )
            success, beta, kappa = mean_intervals(values, study.sampler)
        except StatsError as error:
            missing = columns("success", None) | columns("beta", None) | columns("kappa", None)
            sentence = f"{memory}, {budget} tokens: no answer, since {error}."
            rows.append({**head, **missing, "cause": None, "sentence": sentence})
            continue
        cause = cause_of(beta, kappa)
        numbers = columns("success", success) | columns("beta", beta) | columns("kappa", kappa)
        rows.append({**head, **numbers, "cause": cause, "sentence": sentence_of(memory, budget, beta, kappa)})
    return rows


def cause_of(beta: Interval, kappa: Interval) -> str:
    """Who loses: whoever's interval lies above zero."""
    if kappa.low > 0 and beta.low > 0:
        return "both"
    if kappa.low > 0:
        return "writer"
    if beta.low > 0:
        return "budget"
    return "neither" if max(kappa.high, beta.high) < NEGLIGIBLE else "unclear"


def sentence_of(memory: str, budget: int, beta: Interval, kappa: Interval) -> str:
    """The answer in words, with its numbers."""
    more = "the writer" if kappa.estimate > beta.estimate else "the budget"
    verdict = CAUSES[cause_of(beta, kappa)].format(more=more)
    return (
        f"{memory}, {budget} tokens: budget loss β = {_shown(beta)}, write-time regret κ = {_shown(kappa)}: {verdict}."
    )


def _shown(found: Interval) -> str:
    return f"{found.estimate:.2f} [{found.low:.2f}, {found.high:.2f}]"
