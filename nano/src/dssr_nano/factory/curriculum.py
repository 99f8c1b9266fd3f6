"""What nano is taught when. The plan is fixed in steps, so the row of every step follows from the seed alone."""

from dataclasses import dataclass, replace
from itertools import accumulate

from dssr.worlds.cooking.recipe import COOKS
from dssr_nano.factory.drill import IN_KITCHENS
from dssr_nano.factory.hints import AFTER, AGAIN, AIM, BACK, HOME, UNDO
from dssr_nano.factory.names import FAMILIAR
from dssr_nano.networks import Role


@dataclass(frozen=True)
class Stage:
    """One stretch of the curriculum."""

    steps: int
    shares: dict[str, float]
    """How often each kind of tree is drawn; see `mixture.RowBuilder`."""
    options: int = 52
    """Most options shown."""
    plain: float = 0.0
    """Share of drills with one-word names."""
    cooks: tuple[str, ...] = IN_KITCHENS
    """Ways of cooking in drills."""
    sought: str | None = None
    """Decisions whose right command ends so are all asked for."""
    bound: str | None = None
    """Steps towards this room are all asked for, too."""
    travels: int = 0
    """Steps from room to room that are asked for beside the others, at most: without this they are rare."""
    walk: tuple[int, int] = (0, 40)
    """Shortest and longest walk in the histories."""
    echo: float = 0.3
    """Weight of predicting repeated text."""
    familiar: float = FAMILIAR
    """Share of known words in the names of transcripts; who must spell names meets more that nobody knows."""
    withheld: frozenset[str] = frozenset((BACK,))
    """Hints that are not told yet."""
    disturbance: float = 0.3
    """Share of rewrites whose previous state is disturbed; see `writer_examples.disturbed`."""
    loops: float = 0.0
    """Share of these whose disturbance is a list that goes round; see `writer_examples.looped`."""


@dataclass(frozen=True)
class Cycle:
    """Stages over which the learning rate rises once and falls to nearly nothing."""

    stages: tuple[Stage, ...]
    peak: float = 1.0
    """Largest rate, relative to the plan's."""

    @property
    def steps(self) -> int:
        """Of all its stages."""
        return sum(stage.steps for stage in self.stages)


SKILLS = (
    Stage(
        400,
        {"lookup": 0.1, "drill": 0.45, "plan": 0.1, "oracle": 0.2, "full": 0.1},
        options=16,
        plain=0.3,
        walk=(0, 0),
    ),
    Stage(
        300,
        {"lookup": 0.05, "drill": 0.35, "plan": 0.05, "oracle": 0.25, "full": 0.2, "state": 0.1},
        plain=0.1,
        walk=(0, 0),
    ),
    Stage(400, {"drill": 0.2, "oracle": 0.25, "state": 0.15, "full": 0.25}, walk=(0, 0), echo=0.1),
    Stage(
        800,
        {"drill": 0.1, "oracle": 0.2, "travel": 0.1, "state": 0.25, "full": 0.35},
        travels=2,
        familiar=0.6,
        echo=0.1,
    ),
)
PRACTICE = Stage(
    700, {"drill": 0.05, "oracle": 0.2, "travel": 0.1, "state": 0.2, "full": 0.45}, travels=2, familiar=0.4, echo=0.1
)
"""All contexts, whole histories above all. Many names in pieces: whoever knows the words of the training foods too well
confuses foods never met."""
HOMEWARD = Stage(
    300,
    {"drill": 0.05, "oracle": 0.15, "travel": 0.1, "state": 0.15, "full": 0.55},
    travels=6,
    walk=(10, 40),
    familiar=0.4,
    echo=0.1,
)
"""Steps from room to room above all. It ends with heads that look at the first entry into a room, but what follows from
it for each direction is not drawn."""
TURNING = replace(HOMEWARD, steps=250, withheld=frozenset())
"""So that is told as well."""
EVERYTHING = replace(TURNING, steps=400, travels=4, walk=(0, 40))
"""The same with walks of every length."""
WRITING = Stage(1500, {"writer": 1.0, "history": 0.12}, familiar=0.5)
MENDING = replace(WRITING, steps=800, disturbance=0.5, loops=0.6)
"""It still loses its place in long lists, and copies what that leaves in a state for ever."""
HOUSES = Stage(
    349,
    {"drill": 0.04, "oracle": 0.2, "travel": 0.1, "state": 0.16, "full": 0.5},
    travels=4,
    walk=(0, 20),
    familiar=0.4,
    echo=0.05,
    withheld=frozenset((AFTER, AGAIN, HOME, BACK, AIM, UNDO)),
)
"""Things lie in other rooms: not the way home, but where every direction leads and what is to be fetched. It ends with
heads that know both, but which direction is right is hardly better than guessed."""
AIMING = replace(HOUSES, steps=400, withheld=HOUSES.withheld - {AIM})
"""So where the next deed is done is told as well."""
LONG_WAYS = replace(
    AIMING,
    steps=246,
    shares={"drill": 0.12, "oracle": 0.18, "travel": 0.06, "state": 0.12, "full": 0.52},
    cooks=COOKS,
    walk=(0, 40),
)
"""The BBQ is rare and was passed by: drills have it too."""
BARBECUE = replace(
    LONG_WAYS,
    steps=355,
    shares={"drill": 0.08, "oracle": 0.28, "travel": 0.04, "state": 0.12, "full": 0.48},
    sought=" with BBQ",
)
"""Lines of `oracle-b` were still left for the way back as soon as the BBQ was reached."""
NOTES = replace(
    BARBECUE,
    steps=500,
    shares={"drill": 0.04, "oracle": 0.14, "state": 0.5, "full": 0.32},
    bound="supermarket",
    withheld=BARBECUE.withheld - {UNDO},
)
"""Written states, which name a way from one of its ends only, and the room that was never looked in."""
HOUSEKEEPING = replace(MENDING, steps=1500)
"""More rooms and longer lists, in which places are lost more easily."""
CYCLES: dict[Role, tuple[Cycle, ...]] = {
    "reader": (
        Cycle(SKILLS),
        Cycle((PRACTICE,), peak=0.5),
        Cycle((HOMEWARD,), peak=0.5),
        Cycle((TURNING,), peak=0.6),
        Cycle((EVERYTHING,), peak=0.6),
    ),
    "writer": (Cycle((WRITING,)), Cycle((MENDING,), peak=0.6)),
    "house": (Cycle((HOUSES, AIMING, LONG_WAYS, BARBECUE), peak=0.6), Cycle((NOTES,), peak=0.5)),
    "house-writer": (Cycle((HOUSEKEEPING,), peak=0.6),),
}
STEPS: dict[Role, int] = {role: sum(cycle.steps for cycle in cycles) for role, cycles in CYCLES.items()}
DECAY = 0.6
"""Last part of a cycle, over which the rate falls."""
WARMUP = 50
LEAST = 0.02
"""What the rate falls to, relative to the largest."""


def stage_at(role: Role, step: int) -> Stage:
    """The stage of a step; what goes on after the last step stays in the last stage."""
    stages = [stage for cycle in CYCLES[role] for stage in cycle.stages]
    ends = accumulate(stage.steps for stage in stages)
    return next((stage for stage, end in zip(stages, ends, strict=True) if step < end), stages[-1])


def rate_factor(role: Role, step: int) -> float:
    """How large the learning rate is at a step, relative to the plan's."""
    for cycle in CYCLES[role]:
        if step < cycle.steps:
            warm = min(1.0, (step + 1) / WARMUP)
            left = 1.0 - step / cycle.steps
            return cycle.peak * warm * max(LEAST, min(1.0, left / DECAY))
        step -= cycle.steps
    return LEAST
