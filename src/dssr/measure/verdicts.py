"""What is concluded from per-game numbers: the checks of the pre-registered gates, and the answer for each memory.

A gate's statement is fixed before the data exist; a verdict puts the measured numbers beside it, and beside each number
the smallest effect that these games could have shown. Checks are pure functions from per-game arrays. Success is a
fraction.

The answer is one sentence per memory: was the state too small, or did the writer choose badly? The rule, which
docs/method.md states in words: every claim is that an interval lies wholly on one side of a number, and no claim is
made of fewer than `LEAST_GAMES` games. What is not claimed is "not shown", never "not so". Intervals there are t
intervals, which hold their level at few games, not the percentile intervals of the method's tables. How often the rule
is wrong when the truth is known is measured by `benchmarks/intervals.py`. Its numbers choose words, not measurements;
so they stand beside the words, and not in the configuration.
"""

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np

from dssr.config import GatesConfig
from dssr.errors import StatsError
from dssr.measure.rows import CellGroup, Quantity, game_values, groups
from dssr.measure.study import Study
from dssr.stats.bootstrap import Array, Interval, Resampler, align, mean_interval, standard_error, t_intervals, wilson
from dssr.stats.contrasts import (
    difference,
    game_slopes,
    over_fillers,
    ratio,
    relative_change,
    slope_difference,
    spearman_over_cells,
    within_point,
    within_point_difference,
)
from dssr.types import Cell, Record

# ---------------------------------------------------------------- gates


class Check(Record, frozen=True):
    """One inequality of a gate."""

    what: str
    estimate: float
    low: float | None
    """None when the interval is unbounded."""
    high: float | None
    threshold: float | None
    """What the estimate had to reach; None for a comparison that is only reported."""
    passed: bool | None
    """None for a comparison that is only reported."""
    detectable: float | None = None
    """Minimum detectable effect, `(z(1 - alpha/2) + z(power)) * SE`: the true effect that the games at hand would tell
    from zero with the power of the settings. SE is that of the paired differences, `sd / sqrt(games)`; of other
    statistics, half the interval over `z(1 - alpha/2)`. None where there is no SE."""

    @property
    def interval(self) -> Interval | None:
        """The estimate with its bounds; None when these are unbounded."""
        if self.low is None or self.high is None:
            return None
        return Interval(self.estimate, self.low, self.high)


class Verdict(Record, frozen=True):
    """What the data say about one gate."""

    gate: str
    statement: str
    """The gate's words, with its amendments, as they stood when it was judged."""
    checks: tuple[Check, ...]
    passed: bool | None
    """True when every check passed; None for a vacuous gate and for one that is only reported."""
    vacuous: bool = False
    """There was no gain to keep, so the gate says nothing."""
    notes: tuple[str, ...] = ()
    """What else must be known to read the verdict."""


class Found(Record, frozen=True):
    """The checks of a gate, and what is to be said with them."""

    checks: tuple[Check, ...]
    vacuous: bool = False
    notes: tuple[str, ...] = ()


def statements(gates: GatesConfig, fillers: Sequence[int]) -> dict[str, str]:
    """What each gate claims, in words, to be written down before any data exist. `fillers` are the long ones."""
    long, formats = "/".join(map(str, fillers)), ", ".join(gates.formats)
    gain, loss, cut = (f"{100 * share:g}" for share in (gates.gain, gates.loss_allowed, gates.regret_cut))
    kept, clean = (f"{100 * share:g}" for share in (gates.transfer_kept, gates.no_hint_kept))
    at = f"At budget {gates.budget} and filler {long}"
    return {
        "G0": f"Filler is lag: over {formats} at budget {gates.budget} the measured relevance lag rises with the "
        "filler; the interval of the slope lies above 0. Reported beside it: the share of filler steps that tell a "
        "fact again.",
        "G1a": f"Regret grows with lag: at budget {gates.budget}, kappa at filler {gates.far} exceeds kappa at filler "
        f"{gates.near} for each of {formats}, and over them together kappa at measured lags of {gates.lag_split} or "
        "more exceeds kappa at shorter ones; all intervals exclude 0.",
        "G1b": "The gap predicts failure: over all cells, full with delta 0 included, success falls in rank as mean "
        "delta rises; the interval excludes 0.",
        "G1c": "The training score is informative: at write points of Phase A the mean within-point rank correlation "
        f"of the longest-horizon score with the return is at least {gates.signal:g} and above that of the one-target "
        "score.",
        "G2a": f"{at}, DSSR, its seeds pooled, exceeds the best of {formats} and the outcome variant by at least "
        f"{gain} points of success, intervals above 0; at filler {gates.near} it is at most {loss} points below "
        "summary.",
        "G2b": f"{at}, DSSR lowers the kappa of summary by at least {cut} %, interval below 0, and lowers the slope of "
        "kappa against filler.",
        "G2c": f"The horizon matters: {at[0].lower()}{at[1:]}, training on the longest horizon beats training on one "
        f"target, the interval excludes 0, and the gap is smaller at filler {gates.near}.",
        "G2d": f"The gain over summary at filler {long} transfers: under the second reader at least {kept} % of it is "
        "kept. Without a gain above 0 the gate is vacuous.",
        "G2e": f"The gain over summary at filler {long} is not smuggled actions: without them at least {clean} % is "
        "kept. Without a gain above 0 the gate is vacuous.",
        "plain": f"Reported without a threshold: DSSR against guide and against the full history at filler {long}.",
    }


# ---------------------------------------------------------------- checks


def filler_is_lag(slope: Interval, exposed: Interval | None, sampler: Resampler) -> tuple[Check, ...]:
    """G0: the measured lag against the filler, and the share of filler steps that tell a fact again."""
    rises = _above("measured lag per step of filler", slope, 0.0, _spread(slope, sampler), sampler)
    if exposed is None:
        return (rises,)
    return rises, _check("share of filler steps that tell a fact again", exposed, None, None)


def regret_grows_with_lag(
    formats: Mapping[str, tuple[Array, Array]], long: Array, short: Array, sampler: Resampler
) -> tuple[Check, ...]:
    """G1a: by format, per-game kappa at the far and the near filler; and, of all formats together, at long and short
    measured lags."""
    by_format = (_over(f"kappa(far) - kappa(near), {name}", *pair, sampler) for name, pair in formats.items())
    return (*by_format, _over("kappa(long lag) - kappa(short lag)", long, short, sampler))


def gap_predicts_failure(delta: Array, success: Array, sampler: Resampler) -> tuple[Check, ...]:
    """G1b: delta and success, `[cells, games]`."""
    found = spearman_over_cells(delta, success, sampler)
    what = f"Spearman(delta, success) over {len(delta)} cells"
    return (_check(what, found, 0.0, found.estimate < 0 and found.high < 0, _spread(found, sampler), sampler),)


def score_is_informative(
    long: Array, one: Array, returns: Array, games: Sequence[str], gates: GatesConfig, sampler: Resampler
) -> tuple[Check, ...]:
    """G1c: scores over the longest horizon and over one target against returns, `[points, candidates]`."""
    rho = within_point(long, returns, games, sampler).interval
    gain = within_point_difference(long, one, returns, games, sampler).interval
    return (
        _check("rho(S_long, return)", rho, gates.signal, rho.estimate >= gates.signal, _spread(rho, sampler), sampler),
        _check("rho(S_long) - rho(S_1)", gain, 0.0, gain.estimate > 0, _spread(gain, sampler), sampler),
    )


def success_gain(far: Array, near: Array, gates: GatesConfig, sampler: Resampler) -> tuple[Check, ...]:
    """G2a: per-game success of DSSR, the best prompted memory and the outcome variant over the long fillers,
    `[3, games]`, and of DSSR and `summary` at the near filler, `[2, games]`."""
    dssr, prompted, outcome = far
    close = difference(near[0], near[1], sampler)
    kept = close.estimate >= -gates.loss_allowed
    error = standard_error(near[0] - near[1])
    return (
        _gain("success(dssr) - success(best prompted)", dssr, prompted, gates.gain, sampler),
        _gain("success(dssr) - success(outcome)", dssr, outcome, gates.gain, sampler),
        _check("success(dssr) - success(summary), near filler", close, -gates.loss_allowed, kept, error, sampler),
    )


def regret_falls(
    far: Array, by_filler: Array, fillers: Array, gates: GatesConfig, sampler: Resampler
) -> tuple[Check, ...]:
    """G2b: per-game kappa of DSSR and of the untrained writer over the long fillers, `[2, games]`, and at every filler,
    `[2, fillers, games]`, for the slopes."""
    regret = mean_interval(far[1], sampler)
    if regret.estimate <= 0:
        raise StatsError(
            f"G2b asks what share of summary's kappa is cut, and a share of it means nothing here: kappa of summary at "
            f"the long fillers is {regret.text()}, not above 0. Measure more games, or report the difference."
        )
    cut = relative_change(far[0], far[1], sampler)
    flatter = slope_difference(by_filler[0], by_filler[1], fillers, sampler)
    enough = cut.estimate <= -gates.regret_cut and cut.high < 0
    error = standard_error(game_slopes(by_filler[0], fillers) - game_slopes(by_filler[1], fillers))
    return (
        _check("relative change of kappa", cut, -gates.regret_cut, enough, _spread(cut, sampler), sampler),
        _check("slope(dssr) - slope(summary)", flatter, 0.0, flatter.estimate < 0, error, sampler),
    )


def horizon_matters(far: Array, near: Array, sampler: Resampler) -> tuple[Check, ...]:
    """G2c: per-game success of the two training horizons over the long fillers and at the near one, `[2, games]` each.

    That the gap shrinks is a claim about the estimate; its interval is reported.
    """
    gaps = far[0] - far[1], near[0] - near[1]
    shrinks = difference(*gaps, sampler)
    error = standard_error(gaps[0] - gaps[1])
    return (
        _over("success(K long) - success(K = 1)", far[0], far[1], sampler),
        _check("that gap - the gap at the near filler", shrinks, 0.0, shrinks.estimate > 0, error, sampler),
    )


def gain_kept(what: str, kept: Array, gain: Array, least: float, sampler: Resampler) -> Found:
    """G2d, G2e: per-game success gains over the long fillers, under the changed condition and the original one.

    A share of a gain that is not above zero, its interval included, means nothing: the gate is then vacuous.
    """
    whole = mean_interval(gain, sampler)
    original = _above("gain over summary", whole, 0.0, standard_error(gain), sampler)
    if not original.passed:
        reported = _check("gain over summary", whole, None, None, standard_error(gain), sampler)
        return Found(
            (reported,), True, (f"Vacuous: the gain over summary is {whole.text()}, not shown to be above 0.",)
        )
    share = float(np.mean(kept) / np.mean(gain))
    try:
        found = ratio(kept, gain, sampler)
    except StatsError:
        found = None
    if found is None or (sampler.sums(gain) <= 0).any():
        # With few games some resample has no gain at all, and a share of nothing has no bounds.
        return Found((original, Check(what, share, None, None, least, share >= least)))
    return Found((original, _check(what, found, least, share >= least, _spread(found, sampler), sampler)))


def plain_checks(dssr: Array, guide: Array, full: Array, sampler: Resampler) -> tuple[Check, ...]:
    """Per-game success over the long fillers; reported, not judged."""
    return tuple(
        _check(what, difference(dssr, other, sampler), None, None, standard_error(dssr - other), sampler)
        for what, other in (("success(dssr) - success(guide)", guide), ("success(dssr) - success(full)", full))
    )


def verdict(gate: str, statement: str, found: Found) -> Verdict:
    """The gate passes when all its checks do; one that is vacuous, or has only reported comparisons, does neither."""
    judged = [check.passed for check in found.checks if check.passed is not None]
    passed = all(judged) if judged and not found.vacuous else None
    return Verdict(gate, statement, found.checks, passed, found.vacuous, found.notes)


# ---------------------------------------------------------------- one inequality


def _over(what: str, first: Array, second: Array, sampler: Resampler) -> Check:
    """First is larger, told from zero."""
    return _above(what, difference(first, second, sampler), 0.0, standard_error(first - second), sampler)


def _above(what: str, found: Interval, threshold: float, error: float | None, sampler: Resampler) -> Check:
    passed = found.estimate > threshold and found.low > threshold
    return _check(what, found, threshold, passed, error, sampler)


def _gain(what: str, first: Array, second: Array, least: float, sampler: Resampler) -> Check:
    found = difference(first, second, sampler)
    passed = found.estimate >= least and found.low > 0
    return _check(what, found, least, passed, standard_error(first - second), sampler)


def _spread(found: Interval, sampler: Resampler) -> float | None:
    """The standard error that an interval speaks of, for statistics that are no mean of differences."""
    if not found.bounded:
        return None
    return (found.high - found.low) / (2 * sampler.reach)


def _check(
    what: str,
    found: Interval,
    threshold: float | None,
    passed: bool | None,
    error: float | None = None,
    sampler: Resampler | None = None,
) -> Check:
    detectable = sampler.detectable(error) if sampler and error else None  # games that are all alike tell nothing
    return Check(what, found.estimate, *found.ends, threshold, passed, detectable)


# ---------------------------------------------------------------- answers

LEAST_GAMES = 6
"""Fewer games get no answer."""
LEAST_EFFECT = 0.1
"""Nats a decision: a loss, or a difference of two, is claimed when it is surely above this, and a loss is called little
when it is surely below."""
LEAST_FOR_LITTLE = 30
"""Games before a loss is called little: one that strikes a few games in a hundred hides from fewer."""

Cause = Literal["writer", "budget", "both", "lost", "little", "unclear", "few"]
CAUSES: dict[Cause, str] = {
    "writer": "the writer's choices lose more than the budget does",
    "budget": "the budget loses more than the writer's choices do",
    "both": "the writer's choices and the budget both lose; which of them loses more is not shown",
    "lost": "something is lost; whether by the writer's choices or by the budget is not shown",
    "little": f"little is lost: the interval of δ ends below {LEAST_EFFECT:g} nats a decision",
    "unclear": "these games cannot tell whether anything is lost, or by whom",
    "few": f"too few games for an answer, which takes {LEAST_GAMES}",
}
Claim = Literal["writer", "budget", "lost", "writer more", "budget more", "little"]


class AnswerRow(CellGroup, frozen=True):
    """A memory at one budget, over all fillers, on the games that have every value. Intervals are t intervals."""

    games: int | None
    """With a value at every filler; None where games are missing."""
    success: Interval | None
    delta: Interval | None
    beta: Interval | None
    kappa: Interval | None
    contrast: Interval | None
    """kappa - beta, game by game: which of the two loses more."""
    cause: Cause | None
    """Who loses what decisions need; None where games are missing."""
    sentence: str
    """The answer in words, or why there is none."""
    kappa_first: Interval | None = None
    """Regret against the first hindsight sample instead of the best; None in runs of before."""
    kappa_mean: Interval | None = None
    """Regret against the mean over the hindsight samples."""


def answer_rows(study: Study) -> list[AnswerRow]:
    """One row per memory and budget."""
    study.need_audits()
    return [_answer(study, group, cells) for group, cells in groups(study).items() if group.budget is not None]


def _answer(study: Study, group: CellGroup, cells: Mapping[int, Cell]) -> AnswerRow:
    quantities: tuple[Quantity, ...] = ("success", "beta", "kappa")
    told = not study.is_of_logs or any(game_values(study, cell, "success") for cell in cells.values())
    if not told:  # sampled choices tell no success of their own
        quantities = ("delta", "beta", "kappa")
    named = f"{group.memory}, {group.budget} tokens"
    head = (group.memory, group.budget, group.protocol)
    try:
        _, (first, beta, kappa) = align({quantity: _values(study, cells, quantity) for quantity in quantities})
    except StatsError as error:
        return AnswerRow(*head, None, None, None, None, None, None, None, f"{named}: no answer. {error}")
    found = decide(beta, kappa, study.sampler)
    others = (_over_all(study, cells, quantity) for quantity in BESIDE)
    won = share_interval(first, study.sampler) if told else None
    said = found.sentence.replace(" game", " log") if study.is_of_logs else found.sentence
    sentence, numbers = f"{named}: {said}", (found.delta, found.beta, found.kappa, found.contrast)
    return AnswerRow(*head, found.games, won, *numbers, found.cause, sentence, *others)


BESIDE: tuple[Quantity, ...] = ("kappa_first", "kappa_mean")


def _values(study: Study, cells: Mapping[int, Cell], quantity: Quantity) -> dict[str, float]:
    return over_fillers({filler: game_values(study, cell, quantity) for filler, cell in cells.items()})


def _over_all(study: Study, cells: Mapping[int, Cell], quantity: Quantity) -> Interval | None:
    """Over all fillers; None where games lack it, as all do in runs of before."""
    try:
        values = _values(study, cells, quantity)
    except StatsError:
        return None
    return t_intervals(np.array([list(values.values())]), study.sampler)[0] if values else None


def share_interval(values: Array, sampler: Resampler) -> Interval:
    """Of a share: Wilson's where every game is a yes or a no, else a t interval that ends at 0 and 1."""
    if np.isin(values, (0.0, 1.0)).all():
        return wilson(int(values.sum()), len(values), sampler)
    (found,) = t_intervals(values[None], sampler)
    return Interval(found.estimate, max(0.0, found.low), min(1.0, found.high)) if found.bounded else found


# ---------------------------------------------------------------- the rule


class Judgement(Record, frozen=True):
    """What the rule says of one set of games."""

    games: int
    delta: Interval
    beta: Interval
    kappa: Interval
    contrast: Interval
    """kappa - beta."""

    @property
    def claims(self) -> frozenset[Claim]:
        """All that is said to be so."""
        if self.games < LEAST_GAMES:
            return frozenset()
        delta, beta, kappa = self.delta, self.beta, self.kappa
        said: dict[Claim, bool] = {
            "lost": delta.low > LEAST_EFFECT,
            "writer": kappa.low > LEAST_EFFECT,
            # Where a memory keeps what states written in hindsight lack, kappa is below zero and cancels beta: the
            # budget is blamed only if something is lost in the end.
            "budget": beta.low > LEAST_EFFECT and delta.low > 0,
            "writer more": self.contrast.low > LEAST_EFFECT and kappa.low > LEAST_EFFECT,
            "budget more": self.contrast.high < -LEAST_EFFECT and beta.low > LEAST_EFFECT and delta.low > 0,
            "little": delta.high < LEAST_EFFECT and self.games >= LEAST_FOR_LITTLE,
        }
        return frozenset(claim for claim, so in said.items() if so)

    @property
    def cause(self) -> Cause:
        """The claims in one word."""
        if self.games < LEAST_GAMES:
            return "few"
        claims = self.claims
        if "writer more" in claims:
            return "writer"
        if "budget more" in claims:
            return "budget"
        if {"writer", "budget"} <= claims:
            return "both"
        return "lost" if "lost" in claims else "little" if "little" in claims else "unclear"

    @property
    def sentence(self) -> str:
        """The numbers, and the claims in words."""
        cause = self.cause
        return (
            f"budget loss β = {self.beta.text()}, write-time regret κ = {self.kappa.text()}, κ − β = "
            f"{self.contrast.text()} over "
            f"{self.games} {'game' if self.games == 1 else 'games'}: {self._words(cause)}."
        )

    def _words(self, cause: Cause) -> str:
        """The answer, and what is to be said of the part that loses less."""
        words, claims = CAUSES[cause], self.claims
        if cause == "writer":
            return f"{words}; {'the budget loses too' if 'budget' in claims else 'a loss by the budget is not shown'}"
        if cause == "budget":
            return f"{words}; {'they lose too' if 'writer' in claims else 'a loss by them is not shown'}"
        if cause == "lost" and "writer" in claims:
            return "the writer's choices lose; whether they lose more than the budget is not shown"
        if cause == "lost" and "budget" in claims:
            return "the budget loses; whether it loses more than the writer's choices is not shown"
        return words


def decide(beta: Array, kappa: Array, sampler: Resampler) -> Judgement:
    """The rule on per-game values of both parts."""
    return Judgement(len(kappa), *t_intervals(np.stack([beta + kappa, beta, kappa, kappa - beta]), sampler))
