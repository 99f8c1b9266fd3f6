"""The writers that are trained: what each changes about the one way of training."""

from collections.abc import Sequence
from random import Random
from typing import Literal

import msgspec

from dssr.config import WriterConfig
from dssr.errors import UsageError
from dssr.measure.candidates import CHAIN, Candidate, Sampling
from dssr.types import Record

ChainChoice = Literal["best", "pairs", "better", "random", "greedy"]
CHAINS: dict[str, ChainChoice] = {
    "chains": "best",
    "chains-pairs": "pairs",
    "chains-better": "better",
    "chains-random": "random",
    "chains-greedy": "greedy",
}
"""Ways of training beyond the method, on whole chains of rewrites. The last two are controls: what they gain is gained
by imitating oneself, without any choice. `pairs` goes on by preferring the better of two chains where they part."""
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
    """Its first round; it starts from the adapter that `dssr` trained in the round before."""
    collects_from: int | None = 0
    """First round in which it plays episodes of its own. Before it, and always if None, it takes those that `dssr`
    with the same seed played in the same round."""
    samples: bool = True
    """Tries candidates of its own; otherwise it learns from those of `dssr`."""
    reachable: bool = False
    """Of the points drawn, those after the reveal are kept only if their input state still holds a fact of the task:
    what is gone stays gone."""

    chains: ChainChoice | None = None
    """Learns all writes of a whole sampled chain of rewrites, and which one of a point; None learns one write."""
    pairs_from: int | None = 1
    """The round from which on it learns preferences between two writes; before it, and always if None, it imitates."""
    horizon: int = 0
    """Steps within which a point's decisions lie."""
    fillers: tuple[tuple[int, ...], ...] = ()
    """Fillers among which the episodes of each round are drawn, the last ones from then on; those of the protocol
    when empty."""

    @property
    def sampling(self) -> Sampling:
        """How its candidates are made."""
        return Sampling(self.candidates, self.temperature, self.chains is not None)

    def walks(self, number: int) -> tuple[int, ...]:
        """Fillers among which the episodes of a round draw; none when those of the protocol."""
        return self.fillers[min(number, len(self.fillers) - 1)] if self.fillers else ()

    def learnt(self, chains: Sequence[Candidate], rng: Random) -> Candidate | None:
        """The chain of a point that is learnt, if any."""
        greedy, best = chains[0], max(chains, key=lambda one: (one.scores[self.score], -one.index))
        if self.chains == "better":
            return best if best.scores[self.score] > greedy.scores[self.score] else None
        return {"random": rng.choice(list(chains)), "greedy": greedy}.get(self.chains or "", best)

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
    return (*names(config), *CHAINS)


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
    )
    chains: dict[str, object] = {
        "score": CHAIN,
        "points": config.chain_points,
        "candidates": config.chain_candidates,
        "temperature": config.chain_temperature,
        "horizon": config.chain_horizon,
        "fillers": config.chain_fillers,
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
            other: {"chains": choice, "pairs_from": config.chain_imitated if choice == "pairs" else None, **chains}
            for other, choice in CHAINS.items()
        },
    }
    if name not in changes:
        raise UsageError(f"There is no variant {name!r}; use one of {', '.join(every_name(config))}.")
    return msgspec.structs.replace(common, **changes[name])
