"""The one renderer of raw history."""

from dssr.agent.prompts import render_history
from dssr.measure.archives import Seen


def test_blocks_and_last_action() -> None:
    """Catches any change of the layout, which readers are trained on."""
    steps = [Seen(None, "You are here.\n\nYou carry nothing."), Seen("go east", "-= Shed =-")]
    assert render_history(steps, "open box") == (
        "You are here.\n\nYou carry nothing.\n\n> go east\n-= Shed =-\n\n> open box"
    )
    assert render_history(steps[:1], None) == "You are here.\n\nYou carry nothing."
    assert render_history([], None) == ""
