"""The writers that are trained: what each changes about the one way of training."""

from collections.abc import Sequence
from random import Random
from typing import Literal

import msgspec

from dssr.config import WriterConfig
from dssr.errors import UsageError
from dssr.measure.candidates import CHAIN, Candidate, Sampling, Tries
from dssr.measure.hindsight import HINDSIGHT
from dssr.types import Record

Choice = Literal["best", "pairs", "better", "random", "greedy"]
CHAINS: dict[str, Choice] = {
    "chains": "best",
    "chains-pairs": "pairs",
    "chains-better": "better",
    "chains-random": "random",
    "chains-greedy": "greedy",
    "chains-taught": "best",
}
"""Ways of training beyond the method, on whole chains of rewrites. `random` and `greedy` are controls: what they gain
is gained by imitating oneself, without any choice. `pairs` goes on by preferring the better of two chains where they
part, `taught` begins where a round of `hindsight` ends."""
ENFORCED = "enforced"
BEYOND = (*CHAINS, ENFORCED, HINDSIGHT)
"""All ways of training that the method does not have."""
MAIN = "dssr"
"""The variant whose candidates others learn from."""


class Variant(Record, frozen=True):
    """One way to train the writer."""

    name: str
    score: str
    """Which of a candidate's scores ranks it."""
    points: int
    phase_a_share: float
    gap: float
    candidates: int
    temperature: float
    no_hint: bool = False
    """Leave out candidates that spell out an action the reader could be offered."""
    first: int = 0
    """Its first round; it starts from the adapter that another line trained in the round before."""
    begins: str = MAIN
    """That line."""
    collects_from: int | None = 0
    """First round in which it plays episodes of its own. Before it, and always if None, it takes those that `dssr`
    with the same seed played in the same round."""
    samples: bool = True
    """Tries candidates of its own; otherwise it learns from those of `dssr`."""
    reachable: bool = False
    """Of the points drawn, those after the reveal are kept only if their input state still holds a fact of the task:
    what is gone stays gone."""

    tries: Tries = "writes"
    """What its candidates are. Of `chains` all writes are learnt, of the others the one at the point."""
    choice: Choice = "best"
    """Which candidate of a point is imitated; candidate 0 is the greedy one, unless they are other writes."""
    enforced: tuple[int, ...] = ()
    """Samples of each later rewrite when it scores writes, per round, the last from then on; the greedy rewrite alone
    when empty."""
    rate: float = 0.0
    """Learning rate with which it imitates."""
    pairs_from: int | None = 1
    """The round from which on it learns preferences between two writes; before it, and always if None, it imitates."""
    horizon: int = 0
    """Steps within which a point's decisions lie."""
    fillers: tuple[tuple[int, ...], ...] = ()
    """Fillers among which the episodes of each round are drawn, the last ones from then on; those of the protocol
    when empty."""

    def sampling(self, number: int) -> Sampling:
        """How its candidates of a round are made."""
        samples = self.enforced[min(number, len(self.enforced) - 1)] if self.enforced else None
        return Sampling(self.candidates, self.temperature, self.tries, samples)

    def walks(self, number: int) -> tuple[int, ...]:
        """Fillers among which the episodes of a round draw; none when those of the protocol."""
        return self.fillers[min(number, len(self.fillers) - 1)] if self.fillers else ()

    def learnt(self, candidates: Sequence[Candidate], rng: Random) -> Candidate | None:
        """The candidate of a point that is imitated, if any."""
        greedy, best = candidates[0], max(candidates, key=lambda one: (one.scores[self.score], -one.index))
        if self.choice == "better":
            return best if best.scores[self.score] > greedy.scores[self.score] else None
        return {"random": rng.choice(list(candidates)), "greedy": greedy}.get(self.choice, best)

    @property
    def by_return(self) -> bool:
        """Ranks candidates by the game played on from them, not by the reader's loss at later decisions."""
        return self.score == "return"

    @property
    def makes_data(self) -> bool:
        """Whether it has points and candidates of its own, or only ranks those of `dssr` anew."""
        return self.samples or self.by_return

    def imitates(self, number: int) -> bool:
        """Whether a round imitates the best; otherwise it prefers the better to the worse."""
        return self.pairs_from is None or number < self.pairs_from

    def collects(self, number: int) -> bool:
        """Whether it plays its own episodes in this round."""
        return self.collects_from is not None and number >= self.collects_from

    def usable(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """The candidates it may learn from."""
        return [one for one in candidates if not (self.no_hint and one.hint)]

    @property
    def title(self) -> str:
        """Its name in tables: `K=4` for `k4`, `A4` for `a4`."""
        if self.name.startswith("k") and self.name[1:].isdigit():
            return f"K={self.name[1:]}"
        return self.name.upper() if self.name == "a4" else self.name


def names(config: WriterConfig) -> tuple[str, ...]:
    """Every variant of the method that a configuration can train, the main one first."""
    return (MAIN, *(f"k{size}" for size in config.targets[:-1]), "no-hint", "outcome", "a4")


def every_name(config: WriterConfig) -> tuple[str, ...]:
    """The same with those beyond the method."""
    return (*names(config), *BEYOND)


def variant_of(name: str, config: WriterConfig) -> Variant:
    """The variant of a name, with what it changes of the main one."""
    longest = config.targets[-1]
    common = Variant(
        name=name,
        score=f"S{longest}",
        points=config.points,
        phase_a_share=config.phase_a_share,
        gap=config.gap,
        candidates=config.candidates,
        temperature=config.candidate_temperature,
        horizon=config.horizon,
        rate=config.sft_learning_rate,
    )
    walked: dict[str, object] = {
        "horizon": config.chain_horizon,
        "fillers": config.chain_fillers,
        "rate": config.chain_learning_rate,
    }
    chains: dict[str, object] = {
        "tries": "chains",
        "score": CHAIN,
        "points": config.chain_points,
        "candidates": config.chain_candidates,
        "temperature": config.chain_temperature,
        **walked,
    }
    shared: dict[str, object] = {"collects_from": None, "samples": False}
    changes: dict[str, dict[str, object]] = {
        MAIN: {},
        **{f"k{size}": {"score": f"S{size}", **shared} for size in config.targets[:-1]},
        "no-hint": {"no_hint": True, **shared},
        "outcome": {
            "score": "return",
            "points": config.outcome_points,
            "phase_a_share": config.outcome_phase_a_share,
            "gap": config.outcome_gap,
            **shared,
        },
        "a4": {
            "reachable": True,
            "candidates": config.a4_candidates,
            "temperature": config.a4_temperature,
            "first": 1,
            "collects_from": 2,
        },
        **{
            other: {"choice": choice, "pairs_from": config.chain_imitated if choice == "pairs" else None, **chains}
            for other, choice in CHAINS.items()
        },
        "chains-taught": {**chains, "first": 1, "begins": HINDSIGHT},
        ENFORCED: {
            "score": f"E{longest}",
            "points": config.enforced_points,
            "enforced": config.enforced_samples,
        },
        HINDSIGHT: {
            "tries": "hindsight",
            "choice": "better",
            "score": HINDSIGHT,
            "points": config.hindsight_points,
            "candidates": 1 + config.hindsight_targets,
            "temperature": 0.0,
            "pairs_from": None,
            **walked,
        },
    }
    if name not in changes:
        raise UsageError(f"There is no variant {name!r}; use one of {', '.join(every_name(config))}.")
    return msgspec.structs.replace(common, **changes[name])
