"""What nano is taught when. The plan is fixed in steps, so the row of every step follows from the seed alone."""

from dataclasses import dataclass
from itertools import accumulate
from typing import Literal

from dssr.learn.nano.names import FAMILIAR

Role = Literal["reader", "writer"]
"""Each role has a network of its own: learned together, reading kept writing from being learned (LOG.md)."""


@dataclass(frozen=True)
class Stage:
    """One stretch of the curriculum."""

    steps: int
    shares: dict[str, float]
    """How often each kind of tree is drawn; see `mixture.Maker`."""
    options: int = 52
    """Most options shown."""
    plain: float = 0.0
    """Share of drills with one-word names."""
    filler: int = 40
    """Longest walk in the histories."""
    echo: float = 0.3
    """Weight of predicting repeated text."""
    familiar: float = FAMILIAR
    """Share of known words in the names of transcripts; who must spell names meets more that nobody knows."""
    disturbance: float = 0.3
    """Share of rewrites whose previous state is disturbed; see `rewrites.disturbed`."""


READER = (
    Stage(
        400,
        {"look": 0.1, "drill": 0.45, "plan": 0.1, "oracle": 0.2, "full": 0.1},
        options=16,
        plain=0.3,
        filler=0,
    ),
    Stage(
        300,
        {"look": 0.05, "drill": 0.35, "plan": 0.05, "oracle": 0.25, "full": 0.2, "state": 0.1},
        plain=0.1,
        filler=0,
    ),
    Stage(500, {"drill": 0.2, "oracle": 0.25, "state": 0.15, "full": 0.25}, filler=0, echo=0.1),
    Stage(1000, {"drill": 0.1, "oracle": 0.3, "state": 0.4, "full": 0.15}, echo=0.1),
)
WRITER = (Stage(1500, {"writer": 1.0, "digest": 0.12}, familiar=0.5),)
STAGES: dict[Role, tuple[Stage, ...]] = {"reader": READER, "writer": WRITER}
STEPS: dict[Role, int] = {role: sum(stage.steps for stage in stages) for role, stages in STAGES.items()}
DECAY = 0.6
"""Last part of the training, over which the rate falls to zero."""
WARMUP = 50


def stage_at(role: Role, step: int) -> Stage:
    """The stage of a step; what goes on after the last step stays in the last stage."""
    stages = STAGES[role]
    ends = accumulate(stage.steps for stage in stages)
    return next((stage for stage, end in zip(stages, ends, strict=True) if step < end), stages[-1])


def rate_factor(step: int, steps: int) -> float:
    """How large the learning rate is at a step of `steps`, relative to the largest."""
    warm = min(1.0, (step + 1) / WARMUP)
    left = 1.0 - step / steps
    return warm * max(0.02, min(1.0, left / DECAY))
