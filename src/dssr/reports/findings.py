"""What the published study found, and whether it was found here too.

`FINDINGS` is the one list: each names the check that gives our number (of a gate, or of the protocol pilot) and where
the published number stands. No published number is typed in: each is read, or worked out, from the published tables. A
claim holds when its estimate reaches the threshold and its interval excludes zero; a published value without an
interval can only point the same way. What is not shown is never called false.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Literal

import numpy as np

from dssr.config import GatesConfig
from dssr.errors import DssrError, StatsError
from dssr.measure.comparisons import by_reader
from dssr.measure.gates import Case, Ledger, checks_of
from dssr.measure.rows import BASE, game_values
from dssr.measure.study import Study
from dssr.measure.verdicts import Check, Verdict
from dssr.record.run import Run
from dssr.reports.paper import Setting, paper_table, published
from dssr.stats.bootstrap import Interval, Unit, align, standard_error, written
from dssr.stats.contrasts import difference
from dssr.types import Cell, Protocol, Record

Word = Literal[
    "reproduced",
    "same direction as published",
    "not shown here",
    "not shown, as published",
    "shown here, not published",
    "the opposite here",
    "holds here",
    "vacuous",
    "not measured",
]
PILOT = "pilot"
STAGE_OF = {"G0": "valid", "G1a": "valid", "G1b": "valid", "G1c": "continuation", PILOT: PILOT}
"""Gate to the stage that it is judged on; the others are judged on the test games."""
VALID_BUDGET = 128
"""Of the published tables that name none."""
PUBLISHED_VALID = Setting("valid", "post", "R1")
LONG = ("20", "40")


class Published(Record, frozen=True):
    """A published value."""

    estimate: float
    low: float | None
    """None where no interval was printed."""
    high: float | None
    where: str
    """The published table, in words."""

    def text(self, unit: Unit) -> str:
        """As people read it."""
        if self.low is None or self.high is None:
            return written(self.estimate, unit)
        return Interval(self.estimate, self.low, self.high).text(unit)


class Claimed(Record, frozen=True):
    """One claim of the method."""

    gate: str
    check: str
    """Name of the check, as the gate gives it."""
    claim: str
    unit: Unit
    said: str
    """The unit in words."""
    published: Callable[[], Published | None]
    least: Callable[[GatesConfig], float] = lambda _: 0.0
    """What the estimate must reach."""
    above: bool = True
    """Whether it must lie above that, or below."""


class Reproduction(Record, frozen=True):
    """A finding, our number and the published one."""

    finding: Claimed
    ours: Check | None
    published: Published | None
    word: Word
    why: str
    """Why there is no number of ours, or where it comes from."""
    runs: tuple[str, ...] = ()

    @property
    def here(self) -> str:
        """Our number as text."""
        if self.ours is None:
            return "–"
        found = self.ours.interval
        return found.text(self.finding.unit) if found else written(self.ours.estimate, self.finding.unit)

    @property
    def there(self) -> str:
        """The published number as text."""
        return "–" if self.published is None else self.published.text(self.finding.unit)


# ---------------------------------------------------------------- published numbers


def _grid(memory: str) -> Callable[[], Published]:
    def read() -> Published:
        far, near = (published(PUBLISHED_VALID, memory, VALID_BUDGET, filler)["kappa"] for filler in (40, 0))
        return Published(far - near, None, None, "validation grid, κ at B = 128")

    return read


def _long_lags() -> Published:
    rows = [(row[0], int(row[1]), _first(row[2])) for row in paper_table("ell")[1:]]
    near = next(kappa for name, _, kappa in rows if name == "1-4")
    far = [(points, kappa) for name, points, kappa in rows if name != "1-4"]
    value = sum(points * kappa for points, kappa in far) / sum(points for points, _ in far)
    return Published(value - near, None, None, "κ per lag bin, long bins weighted by their points")


def _test(row: str, quantity: Literal["success", "kappa"]) -> dict[str, float]:
    """A line of the published test table, by filler; success as a fraction."""
    fillers, lines = paper_table("test")[1][1:5], paper_table("test")[2:]
    line = next(one for one in lines if one[0] == row)
    values = line[1:5] if quantity == "success" else line[5:9]
    return {f: _first(v) / (100 if quantity == "success" else 1) for f, v in zip(fillers, values, strict=True)}


TRAINED, MAIN, PLAIN = "dssr (A4 r2, 3 seeds)", "dssr main line (r1)", "summary"


def _gap(first: str, second: str | Sequence[str], fillers: Sequence[str]) -> float:
    """Success of a line minus that of another, or of the best of several, over the fillers."""
    others = [second] if isinstance(second, str) else second
    values = [mean(_test(row, "success")[f] for f in fillers) for row in (first, *others)]
    return values[0] - max(values[1:])


def _from_test(value: Callable[[], float], what: str = "test split at B = 128") -> Callable[[], Published]:
    return lambda: Published(value(), None, None, what)


def _regret_change() -> float:
    first, second = (mean(_test(row, "kappa")[f] for f in LONG) for row in (TRAINED, PLAIN))
    return first / second - 1


def _slopes() -> float:
    lines = [_test(row, "kappa") for row in (TRAINED, PLAIN)]
    first, second = (float(np.polyfit([int(f) for f in one], list(one.values()), 1)[0]) for one in lines)
    return first - second


def _no_hint() -> float:
    return _gap("no-hint (r3)", PLAIN, LONG) / _gap(TRAINED, PLAIN, LONG)


def _contrast(row: str) -> Callable[[], Published]:
    def read() -> Published:
        text = next(line[1] for line in paper_table("pilot") if line[0] == row)
        estimate, low, high = (float(one) for one in re.findall(r"[-+]?\d+\.\d+", text))
        return Published(estimate, low, high, "protocol pilot")

    return read


def _nothing() -> None:
    """The published tables at hand do not have it."""
    return


def _first(text: str) -> float:
    found = re.match(r"[-+]?\d+(\.\d+)?", text)
    if found is None:
        raise StatsError(f"The published value {text!r} is no number.")
    return float(found.group())


# ---------------------------------------------------------------- the list

FORMATS = ("summary", "belief", "slots")
Walk = Literal["near", "far"]
CONTRASTS: dict[str, tuple[tuple[Protocol, Walk], tuple[Protocol, Walk], str, str]] = {
    "brief40 - base40": (
        ("brief", "far"),
        ("pre", "far"),
        "brief F=40 - baseline F=40",
        "Walking before the reveal costs more when the walk does not show the rooms again",
    ),
    "post - base0": (
        ("post", "far"),
        ("pre", "near"),
        "post - baseline F=0",
        "A walk after the reveal costs more than no walk",
    ),
    "post - base40": (
        ("post", "far"),
        ("pre", "far"),
        "post - baseline F=40",
        "A walk after the reveal costs more than the same walk before it",
    ),
    "post+brief - base0": (
        ("post-brief", "far"),
        ("pre", "near"),
        "post and brief - baseline F=0",
        "A walk after the reveal that shows nothing again costs more than no walk",
    ),
    "brief40 - base0": (
        ("brief", "far"),
        ("pre", "near"),
        "brief: kappa(F=40)-kappa(F=0)",
        "A walk before the reveal that shows nothing again costs more than no walk",
    ),
}
"""Protocol pilot: name to the two conditions, the published line, and the claim. The walks are those of the gates."""
FINDINGS: tuple[Claimed, ...] = (
    *(
        Claimed("G1a", f"kappa(far) - kappa(near), {name}", f"Regret κ grows with the filler: {name}", "nats", "nats",
                _grid(name))
        for name in FORMATS
    ),
    Claimed("G1a", "kappa(long lag) - kappa(short lag)", "Regret κ grows with the measured lag ℓ", "nats", "nats",
            _long_lags),
    Claimed("G1b", "Spearman(delta, success)", "The gap δ predicts failure, over cells", "nats", "rank correlation ρ",
            _nothing, above=False),
    Claimed("G1c", "rho(S_long, return)", "The training score foretells the return", "nats", "rank correlation ρ",
            _nothing, lambda gates: gates.signal),
    Claimed("G1c", "rho(S_long) - rho(S_1)", "A longer horizon foretells it better", "nats", "difference of ρ",
            _nothing),
    Claimed("G2a", "success(dssr) - success(best prompted)", "Training beats the best prompted memory at lag",
            "percent", "points", _from_test(lambda: _gap(TRAINED, FORMATS, LONG)), lambda gates: gates.gain),
    Claimed("G2a", "success(dssr) - success(outcome)", "The score beats training on outcomes at lag", "percent",
            "points", _from_test(lambda: _gap(TRAINED, "outcome (r3)", LONG)), lambda gates: gates.gain),
    Claimed("G2a", "success(dssr) - success(summary), near filler", "Training costs nothing without lag", "percent",
            "points", _from_test(lambda: _gap(TRAINED, PLAIN, ("0",))), lambda gates: -gates.loss_allowed),
    Claimed("G2b", "relative change of kappa", "Training cuts regret κ at lag", "change", "of κ",
            _from_test(_regret_change), lambda gates: -gates.regret_cut, above=False),
    Claimed("G2b", "slope(dssr) - slope(summary)", "Training flattens κ against the filler", "number", "nats per step",
            _from_test(_slopes), above=False),
    Claimed("G2c", "success(K long) - success(K = 1)", "A long horizon beats training on one target", "percent",
            "points", _from_test(lambda: _gap(MAIN, "K=1 (r1)", LONG))),
    Claimed("G2c", "that gap - the gap at the near filler", "That difference shrinks without lag", "percent", "points",
            _from_test(lambda: _gap(MAIN, "K=1 (r1)", LONG) - _gap(MAIN, "K=1 (r1)", ("0",)))),
    Claimed("G2d", "share kept under the second reader", "A second reader keeps the gain", "percent", "% of the gain",
            _nothing, lambda gates: gates.transfer_kept),
    Claimed("G2e", "share kept without action hints", "The gain is not smuggled actions", "percent", "% of the gain",
            _from_test(_no_hint), lambda gates: gates.no_hint_kept),
    *(Claimed(PILOT, name, claim, "nats", "nats", _contrast(row)) for name, (_, _, row, claim) in CONTRASTS.items()),
)  # fmt: skip


# ---------------------------------------------------------------- our numbers


class Judged(Record, frozen=True):
    """The checks of one gate, and where they come from."""

    checks: tuple[Check, ...]
    vacuous: bool
    why: str
    runs: tuple[str, ...]


def outcomes(
    stages: Mapping[str, Sequence[str | Path]], ledger: Ledger | None, roles: Mapping[str, str]
) -> list[Reproduction]:
    """Every finding, with our number where the runs or the ledger have one."""
    verdicts = {} if ledger is None else {e.gate: (e.verdict, e.runs) for e in ledger.entries() if e.verdict}
    found: dict[str, Judged | str] = {}
    for gate in dict.fromkeys(one.gate for one in FINDINGS):
        if gate in verdicts:
            verdict, runs = verdicts[gate]
            found[gate] = Judged(verdict.checks, verdict.vacuous, "judged, see the ledger", runs)
            continue
        try:
            found[gate] = _measured(gate, stages, roles)
        except DssrError as error:
            found[gate] = str(error)
    return [_outcome(one, found[one.gate]) for one in FINDINGS]


def _measured(gate: str, stages: Mapping[str, Sequence[str | Path]], roles: Mapping[str, str]) -> Judged:
    """A gate's checks worked out from the runs, without a verdict in a ledger."""
    stage = STAGE_OF.get(gate, "test")
    if not stages.get(stage):
        raise StatsError(f"The study has no stage {stage!r} yet.")
    readers = list(by_reader([Run.open(path) for path in stages[stage]]).values())
    study = Study.load(readers[0])
    runs = tuple(str(run.path) for one in readers for run in one)
    if gate == PILOT:
        return Judged(pilot_checks(study), False, "worked out from the runs of the pilot", runs)
    if gate == "G2d" and len(readers) < 2:
        raise StatsError(f"The stage {stage!r} has no run under a second reader.")
    second = Study.load(readers[1]) if gate == "G2d" else None
    checked = checks_of(gate, Case(study, second=second, **roles))
    return Judged(checked.checks, checked.vacuous, "worked out from the runs; not judged in a ledger", runs)


def pilot_checks(study: Study) -> tuple[Check, ...]:
    """The five contrasts of the protocol pilot, of `summary` at the gates' budget, paired by game."""
    study.need_audits()
    checks = []
    for name, (first, second, _, _) in CONTRASTS.items():
        cells = [_condition(study, *one) for one in (first, second)]
        if None not in cells:
            _, (one, other) = align({f"{n}": game_values(study, cell, "kappa") for n, cell in enumerate(cells) if cell})
            apart, error = difference(one, other, study.sampler), standard_error(one - other)
            least = study.sampler.detectable(error) if error else None
            checks.append(Check(name, apart.estimate, apart.low, apart.high, 0.0, apart.low > 0, least))
    if not checks:
        raise StatsError(f"The pilot has no two conditions of {BASE} at {study.config.gates.budget} tokens to compare.")
    return tuple(checks)


def _condition(study: Study, protocol: Protocol, walk: Walk) -> Cell | None:
    """The cell of a condition. Where nobody walks, it does not matter where the walk would stand."""
    gates = study.config.gates
    filler = gates.far if walk == "far" else gates.near
    protocols: tuple[Protocol, ...] = (protocol, "post") if filler == 0 else (protocol,)
    return next((cell for one in protocols if (cell := Cell(BASE, gates.budget, filler, one)) in study.episodes), None)


def _outcome(finding: Claimed, found: Judged | str) -> Reproduction:
    published = finding.published()
    if isinstance(found, str):
        return Reproduction(finding, None, published, "not measured", found)
    ours = next((check for check in found.checks if check.what.startswith(finding.check)), None)
    if ours is None:
        word: Word = "vacuous" if found.vacuous else "not measured"
        why = "There was no gain to keep." if found.vacuous else "The runs have no such comparison."
        return Reproduction(finding, None, published, word, why, found.runs)
    return Reproduction(finding, ours, published, word_for(finding, ours, published), found.why, found.runs)


def word_for(finding: Claimed, ours: Check, published: Published | None) -> Word:
    """The two results in a few words."""
    sign, there = (1 if finding.above else -1), None if published is None else holds(finding, published)
    bounds = None if ours.low is None or ours.high is None else (ours.low, ours.high)
    if ours.passed and (bounds is None or _told(finding, bounds)):
        if published is None:
            return "holds here"
        known: dict[bool | None, Word] = {True: "reproduced", False: "shown here, not published"}
        return known.get(there, "same direction as published")
    if bounds is not None and max(sign * end for end in bounds) < min(0.0, sign * finding.least(GatesConfig())):
        return "the opposite here"
    return "not shown, as published" if there is False else "not shown here"


def holds(finding: Claimed, published: Published) -> bool | None:
    """Whether the published value bears the claim out; None where it points that way and no interval was printed."""
    sign, least = (1 if finding.above else -1), finding.least(GatesConfig())
    reached = sign * published.estimate >= sign * least and (least != 0 or published.estimate != 0)
    if not reached:
        return False
    bounds = None if published.low is None or published.high is None else (published.low, published.high)
    return None if bounds is None else _told(finding, bounds)


def _told(finding: Claimed, bounds: tuple[float, float]) -> bool:
    """The interval lies on the claim's side of zero; where a small loss is allowed, above that loss."""
    sign, least = (1 if finding.above else -1), finding.least(GatesConfig())
    return min(sign * end for end in bounds) > min(0.0, sign * least)


def summary_sentence(found: Sequence[Reproduction]) -> str:
    """How many findings ended how."""
    counts = {word: sum(one.word == word for one in found) for word in dict.fromkeys(one.word for one in found)}
    return f"Of {len(found)} findings: " + "; ".join(f"{count} {word}" for word, count in counts.items()) + "."


def verdict_word(found: Verdict) -> str:
    """How a gate ended."""
    return "vacuous" if found.vacuous else {True: "passed", False: "not passed", None: "reported"}[found.passed]
