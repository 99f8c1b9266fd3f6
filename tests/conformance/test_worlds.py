"""The suite of worlds on games of each size that can be walked in, and proof that it notices a world gone wrong."""

import pytest

from dssr.testing import WorldSuite, refused
from dssr.types import Moment
from dssr.worlds.archive import Archive
from dssr.worlds.cooking.world import CookingWorld


@pytest.fixture(params=["train-6-000", "valid-9-000", "valid-12-000"])
def game(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


class TestWorlds(WorldSuite):
    """Cooking, through the fixtures above and the shared archive."""


def test_a_plan_that_is_off_is_noticed(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a suite that cannot fail: a world whose plan leaves out its last step must not pass."""
    honest = CookingWorld._moment

    def lying(world: CookingWorld, number: int) -> Moment:
        import msgspec

        moment = honest(world, number)
        short = msgspec.structs.replace(moment.privileged, policy=moment.privileged.policy[:-1])
        return msgspec.structs.replace(moment, privileged=short)

    monkeypatch.setattr(CookingWorld, "_moment", lying)
    with pytest.raises(AssertionError):
        WorldSuite().test_the_reference_wins_from_everywhere(archive, "train-6-000")


def test_order_left_to_chance_is_noticed(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    """Catches a suite that does not look at the order of options."""
    import random

    import msgspec

    honest = CookingWorld.options

    def shuffled(world: CookingWorld, node: object, step: int) -> object:
        options = honest(world, node, step)  # type: ignore[arg-type]
        return msgspec.structs.replace(options, actions=tuple(random.sample(options.actions, len(options.actions))))

    monkeypatch.setattr(CookingWorld, "options", shuffled)
    with pytest.raises(AssertionError):
        WorldSuite().test_options_hold_the_reference_and_are_stable(archive, "train-6-000")


def test_a_refusal_of_another_kind_is_no_refusal() -> None:
    """Catches a helper that takes any error, or none, for the one that is due."""
    from dssr.errors import GameError, ModelError

    with pytest.raises(AssertionError, match="no GameError"), refused(GameError):
        pass
    with pytest.raises(ModelError), refused(GameError):
        raise ModelError("The model failed.")
