"""Do intervals hold their level, and is the verdict rule right? Measured on made-up games whose truth is known.

`python -m benchmarks.intervals` writes results/intervals.json (about ten minutes of CPU time) and prints its tables:

- `coverage`: how often a 95 % interval misses the true mean, below and above, by number of games and shape of the
  values, for the percentile bootstrap and for other ways; `t` is what verdicts use.
- `verdicts`: `decide` on 10,000 studies whose beta and kappa are drawn from a grid of true values: the share of studies
  with any wrong claim, and the share of each answer. A claim at its very border counts as wrong.
- `borders`: the same on the truths where a wrong claim is likeliest, one by one.
"""

import argparse
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import numpy as np
from scipy.special import ndtr, ndtri, stdtrit

from dssr.measure.verdicts import LEAST_EFFECT, Cause, Claim, Judgement
from dssr.stats.bootstrap import Array, Interval, Resampler, t_bounds
from dssr.types import Record

GAMES = (3, 4, 6, 10, 15, 30, 45, 100, 300)
TRUTHS = (0.0, 0.1, 0.3, 1.0, 2.0)
BORDERS = ((0.0, 0.0), (0.1, 0.1), (0.3, 0.3), (1.0, 1.0), (0.1, 1.0), (1.0, 0.1))
SAMPLER = Resampler(resamples=1999)
RESULTS = Path(__file__).parent / "results" / "intervals.json"

Shape = Callable[[np.random.Generator, tuple[int, ...]], Array]
SHAPES: dict[str, Shape] = {
    "normal": lambda rng, size: rng.normal(size=size),
    "skewed": lambda rng, size: rng.exponential(size=size) - 1,
    "very skewed": lambda rng, size: np.exp(rng.normal(size=size)) - np.exp(0.5),
    "rare": lambda rng, size: (rng.random(size) < 0.3) * rng.exponential(size=size) / 0.3 - 1,
}
"""Values with mean 0. `rare`: seven games in ten lose nothing."""


class Coverage(Record, frozen=True):
    """How often one kind of interval misses."""

    shape: str
    games: int
    method: str
    below: float
    """Share of intervals that lie wholly below the true mean."""
    above: float
    """Wholly above it."""
    width: float | None
    """Median width, in true standard errors of the mean; None where it has no bounds."""

    @property
    def missed(self) -> float:
        return self.below + self.above


class Verdicts(Record, frozen=True):
    """Studies of one number of games and their answers."""

    games: int
    studies: int
    wrong: float
    """Share of studies with any claim that is not so."""
    unclear: float
    """Share without an answer: `unclear` or `few`."""
    answers: dict[str, float]
    shape: str | None = None
    """None for all shapes together."""
    beta: float | None = None
    kappa: float | None = None


class Measured(Record, frozen=True):
    """The stored result."""

    command: str
    level: float
    least_effect: float
    coverage: tuple[Coverage, ...]
    verdicts: tuple[Verdicts, ...]
    borders: tuple[Verdicts, ...]


# ---------------------------------------------------------------- coverage


def percentile(values: Array) -> tuple[Array, Array]:
    return SAMPLER.bounds(SAMPLER.means(values))


def student(values: Array) -> tuple[Array, Array]:
    games = values.shape[-1]
    reach = stdtrit(games - 1, 0.975) * values.std(-1, ddof=1) / np.sqrt(games)
    return values.mean(-1) - reach, values.mean(-1) + reach


def bca(values: Array) -> tuple[Array, Array]:
    """Bias-corrected and accelerated percentiles."""
    mean = values.mean(-1)
    means = np.sort(SAMPLER.means(values), axis=-1)
    centred = values - mean[:, None]
    with np.errstate(invalid="ignore"):
        bend = np.nan_to_num((centred**3).sum(-1) / (centred**2).sum(-1) ** 1.5 / 6)
    under = (means < mean[:, None]).mean(-1) + (means == mean[:, None]).mean(-1) / 2
    shift = ndtri(np.clip(under, 1e-4, 1 - 1e-4))
    places = []
    for side in (-1.96, 1.96):
        share = ndtr(shift + (shift + side) / (1 - bend * (shift + side)))
        places.append(np.clip((share * (means.shape[-1] - 1)).astype(int), 0, means.shape[-1] - 1))
    rows = np.arange(len(values))
    return means[rows, places[0]], means[rows, places[1]]


METHODS: dict[str, Callable[[Array], tuple[Array, Array]]] = {
    "percentile": percentile,
    "BCa": bca,
    "Student": student,
    "t": lambda values: t_bounds(values, SAMPLER),
}


def coverage(samples: int, sizes: tuple[int, ...] = GAMES, seed: int = 0) -> Iterator[Coverage]:
    """All methods on the same samples."""
    for shape, make in SHAPES.items():
        rng = np.random.default_rng(seed)
        unit = float(make(np.random.default_rng(99), (1_000_000,)).std())
        for games in sizes:
            values = make(rng, (samples, games))
            for name, method in METHODS.items():
                low, high = method(values)
                width = float(np.median(high - low)) / unit * np.sqrt(games)
                below, above = float((high < 0).mean()), float((low > 0).mean())
                yield Coverage(shape, games, name, below, above, float(width) if np.isfinite(width) else None)


# ---------------------------------------------------------------- verdicts


KINDS = {**{shape: (shape, shape) for shape in SHAPES}, "one rare": ("rare", "normal")}
"""Shapes of beta and of kappa. In `one rare` few games hold all of beta: whoever misses them blames the writer."""


def made(rng: np.random.Generator, kind: str, beta: float, kappa: float, size: tuple[int, ...]) -> tuple[Array, Array]:
    """Per-game beta and kappa around the truth: each part spreads with its size, and the hindsight state's own luck
    moves both, in opposite directions."""
    luck = 0.3 * rng.normal(size=size)
    parts = [
        truth + max(truth, 0.2) * SHAPES[shape](rng, size)
        for truth, shape in zip((beta, kappa), KINDS[kind], strict=True)
    ]
    return parts[0] + luck, parts[1] - luck


def so(claim: Claim, beta: float, kappa: float) -> bool:
    """Whether a claim is true; at its border it is not."""
    delta, edge = beta + kappa, 1e-9
    above = {"lost": delta, "writer": kappa, "budget": beta}
    if claim in above:
        return above[claim] > LEAST_EFFECT + edge
    if claim == "little":
        return delta < LEAST_EFFECT - edge
    return kappa > beta + edge if claim == "writer more" else beta > kappa + edge


def judgements(beta: Array, kappa: Array) -> list[Judgement]:
    """`decide` on many studies at once, `[studies, games]` each."""
    values = np.stack([beta + kappa, beta, kappa, kappa - beta], axis=1)
    low, high = t_bounds(values, SAMPLER)
    means = values.mean(-1)
    return [
        Judgement(beta.shape[-1], *(Interval(*map(float, ends)) for ends in zip(*row, strict=True)))
        for row in zip(means, low, high, strict=True)
    ]


def judged(found: list[Judgement], beta: float, kappa: float) -> tuple[int, Counter[Cause]]:
    """Studies with a wrong claim, and all answers."""
    wrong = sum(not all(so(claim, beta, kappa) for claim in one.claims) for one in found)
    return wrong, Counter(one.cause for one in found)


def _row(games: int, wrong: int, answers: Counter[Cause], **what: str | float) -> Verdicts:
    studies = answers.total()
    shares = {cause: count / studies for cause, count in sorted(answers.items())}
    unclear = shares.get("unclear", 0.0) + shares.get("few", 0.0)
    return Verdicts(games, studies, wrong / studies, unclear, shares, **what)  # type: ignore[arg-type]


def verdicts(studies: int, sizes: tuple[int, ...] = GAMES, seed: int = 1) -> Iterator[Verdicts]:
    """Truths and shapes drawn evenly; one row per number of games, and one of all."""
    rng = np.random.default_rng(seed)
    cases = [(shape, beta, kappa) for shape in KINDS for beta in TRUTHS for kappa in TRUTHS]
    all_wrong, all_answers = 0, Counter[Cause]()
    for games in sizes:
        drawn = Counter(rng.integers(0, len(cases), studies // len(sizes) + 1).tolist())
        wrong, answers = 0, Counter[Cause]()
        for case, count in sorted(drawn.items()):
            shape, beta, kappa = cases[case]
            bad, said = judged(judgements(*made(rng, shape, beta, kappa, (count, games))), beta, kappa)
            wrong, answers = wrong + bad, answers + said
        all_wrong, all_answers = all_wrong + wrong, all_answers + answers
        yield _row(games, wrong, answers)
    yield _row(0, all_wrong, all_answers)


def borders(studies: int, sizes: tuple[int, ...] = GAMES, seed: int = 2) -> Iterator[Verdicts]:
    """The truths where a wrong claim is likeliest, for every shape."""
    rng = np.random.default_rng(seed)
    for shape in KINDS:
        for beta, kappa in BORDERS:
            for games in sizes:
                found = judgements(*made(rng, shape, beta, kappa, (studies, games)))
                yield _row(games, *judged(found, beta, kappa), shape=shape, beta=beta, kappa=kappa)


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.intervals", description=__doc__)
    parser.add_argument("--samples", type=int, default=10_000, help="per row of the coverage table")
    parser.add_argument("--studies", type=int, default=10_000, help="of the verdict table, in all")
    parser.add_argument("--border", type=int, default=1_000, help="studies per row of the border table")
    parser.add_argument("--json", type=Path, default=RESULTS)
    asked = parser.parse_args()
    rows = [*coverage(asked.samples)]
    for one in rows:
        print(f"{one.shape:12} {one.games:4} {one.method:11} {one.below:6.3f} {one.above:6.3f} {one.missed:6.3f}")
    said, hard = [*verdicts(asked.studies)], [*borders(asked.border)]
    for row in (*said, *hard):
        where = "" if row.shape is None else f"{row.shape} β={row.beta} κ={row.kappa}"
        print(f"{row.games:4} {row.wrong:6.3f} wrong {row.unclear:6.3f} no answer {where} {row.answers}")
    command = "OMP_NUM_THREADS=1 python -m benchmarks.intervals"
    found = Measured(command, SAMPLER.level, LEAST_EFFECT, tuple(rows), tuple(said), tuple(hard))
    asked.json.write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=1) + b"\n")


if __name__ == "__main__":
    main()
